import keras
import numpy as np
import pytest

from keras_vit.layers import SelfAttention


def _softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def _by_hand(x, layer):
    """Each head on its own, as appendix A of the paper writes it."""
    kernel, bias = np.asarray(layer.qkv.kernel), np.asarray(layer.qkv.bias)
    query, key, value = np.split(x @ kernel + bias, 3, axis=-1)
    width = layer.hidden_dim // layer.num_heads
    heads = []
    for head in range(layer.num_heads):
        part = slice(head * width, (head + 1) * width)
        weights = _softmax(query[..., part] @ key[..., part].swapaxes(-1, -2) / width**0.5)
        heads.append(weights @ value[..., part])
    return np.concatenate(heads, -1) @ np.asarray(layer.proj.kernel) + np.asarray(layer.proj.bias)


def test_equals_attention_worked_by_hand(random_weights):
    layer = SelfAttention(12, 3)
    layer.build((None, 5, 12))
    random_weights(layer)
    x = np.random.default_rng(2).normal(size=(2, 5, 12)).astype("float32")
    np.testing.assert_allclose(layer(x), _by_hand(x, layer), atol=1e-5)


def test_path_with_dropout_computes_the_same_attention(random_weights):
    """The training path writes attention out; at a tiny rate it agrees with the fast one."""
    layer = SelfAttention(12, 3, attention_dropout_rate=1e-7)
    layer.build((None, 5, 12))
    random_weights(layer)
    x = np.random.default_rng(2).normal(size=(2, 5, 12)).astype("float32")
    np.testing.assert_allclose(layer(x, training=True), layer(x), atol=1e-5)


def test_attention_dropout_changes_training_only(random_weights):
    layer = SelfAttention(12, 3, attention_dropout_rate=0.5)
    layer.build((None, 5, 12))
    random_weights(layer)
    x = np.random.default_rng(2).normal(size=(2, 5, 12)).astype("float32")
    np.testing.assert_array_equal(layer(x), layer(x, training=False))
    assert np.abs(np.asarray(layer(x, training=True)) - np.asarray(layer(x))).max() > 1e-3


@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "mixed_bfloat16"])
def test_large_weights_stay_finite_in_half_precision(policy):
    """FAULTS H1: the product of queries and keys of 40 a number overflows float16 unscaled."""
    if keras.backend.backend() == "jax" and "float16" in policy.split("_"):
        pytest.skip("JAX has no float16 product in the backward pass on a CPU")
    layer = SelfAttention(128, 2, dtype=policy)
    layer.build((None, 4, 128))
    kernel = np.zeros((128, 384), "float32")
    kernel[0, :256] = 40.0  # every query and key is 40 where the first input is 1
    kernel[:, 256:] = 0.01
    layer.qkv.kernel.assign(kernel)
    x = np.zeros((1, 4, 128), "float32")
    x[..., 0] = 1.0
    inputs = keras.Input((4, 128))
    model = keras.Model(inputs, layer(inputs))
    model.compile(optimizer="sgd", loss="mse")
    assert np.isfinite(np.asarray(keras.ops.cast(model(x), "float32"))).all()
    assert np.isfinite(model.train_on_batch(x, np.zeros((1, 4, 128), "float32")))
    for weight in model.trainable_weights:
        assert np.isfinite(np.asarray(keras.ops.cast(weight, "float32"))).all(), weight.path


def test_initial_kernels_have_the_official_limit():
    """Xavier-uniform of each square D x D kernel: limit sqrt(6 / 2 D)."""
    keras.utils.set_random_seed(0)
    layer = SelfAttention(64, 4)
    layer.build((None, 5, 64))
    limit = (6 / 128) ** 0.5
    for kernel in np.split(np.asarray(layer.qkv.kernel), 3, axis=1):
        assert 0.99 * limit < np.abs(kernel).max() <= limit


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of `num_heads`.*hidden_dim=10, num_heads=3"):
        SelfAttention(10, 3)


def _numbers(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("head_dim", [4, 64, 256])
def test_folded_scale_changes_nothing(head_dim, policy, qkv_bias, random_weights):
    layer = SelfAttention(2 * head_dim, 2, qkv_bias=qkv_bias, dtype=policy)
    layer.build((None, 5, 2 * head_dim))
    random_weights(layer)
    x = np.random.default_rng(2).normal(size=(2, 5, 2 * head_dim)).astype("float32")
    plain, weights = _numbers(layer(x)), layer.get_weights()
    with layer.folded_scale():
        np.testing.assert_array_equal(_numbers(layer(x)), plain)
        is_folded = layer._folded_qkv is not None
        layer.qkv.kernel.assign(0 * layer.qkv.kernel)  # the copies are what computes
        assert np.array_equal(_numbers(layer(x)), plain) == is_folded
    assert is_folded == (keras.backend.backend() == "tensorflow")
    layer.set_weights(weights)
    np.testing.assert_array_equal(_numbers(layer(x)), plain)


def test_folded_scale_ends_with_an_error(random_weights):
    layer = SelfAttention(128, 2)
    layer.build((None, 5, 128))
    random_weights(layer)
    weights = layer.get_weights()
    with pytest.raises(KeyboardInterrupt), layer.folded_scale():
        raise KeyboardInterrupt
    assert layer._folded_qkv is None
    for after, before in zip(layer.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("case", ["rounds", "qk_norm", "lora", "int8"])
def test_scales_that_cannot_be_folded_stay(case, random_weights):
    layer = SelfAttention(96 if case == "rounds" else 128, 2, qk_norm=case == "qk_norm")
    layer.build((None, 5, layer.hidden_dim))
    random_weights(layer)
    if case == "lora":
        layer.qkv.enable_lora(2)
    if case == "int8":
        layer.qkv.quantize("int8")
    x = np.random.default_rng(2).normal(size=(2, 5, layer.hidden_dim)).astype("float32")
    plain = _numbers(layer(x))
    with layer.folded_scale():
        assert layer._folded_qkv is None
        np.testing.assert_array_equal(_numbers(layer(x)), plain)
