import keras
import numpy as np
import pytest

from keras_vit.layers.mixer_block import MixerBlock

ARGUMENTS = {"num_tokens": 5, "hidden_dim": 8, "tokens_mlp_dim": 6, "channels_mlp_dim": 12}


def test_layer_keeps_the_contract(check_layer):
    norm = {"gamma": (8,), "beta": (8,)}
    parts = {
        "norm1": norm,
        "token_mixing/fc1": {"kernel": (5, 6), "bias": (6,)},
        "token_mixing/fc2": {"kernel": (6, 5), "bias": (5,)},
        "norm2": norm,
        "channel_mixing/fc1": {"kernel": (8, 12), "bias": (12,)},
        "channel_mixing/fc2": {"kernel": (12, 8), "bias": (8,)},
    }
    check_layer(
        MixerBlock,
        {
            **ARGUMENTS,
            "activation": "gelu",
            "layer_norm_epsilon": 1e-5,
            "dropout_rate": 0.1,
            "drop_path_rate": 0.1,
        },
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={f"{part}/{name}": s for part, own in parts.items() for name, s in own.items()},
    )


def _norm(tokens: np.ndarray, weights: dict, path: str) -> np.ndarray:
    centred = tokens - tokens.mean(-1, keepdims=True)
    scaled = centred / np.sqrt(tokens.var(-1, keepdims=True) + 1e-3)
    return scaled * weights[f"{path}/gamma"] + weights[f"{path}/beta"]


def _mlp(rows: np.ndarray, weights: dict, path: str) -> np.ndarray:
    hidden = rows @ weights[f"{path}/fc1/kernel"] + weights[f"{path}/fc1/bias"]
    cubic = hidden + 0.044715 * hidden**3
    hidden = hidden * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * cubic))
    return hidden @ weights[f"{path}/fc2/kernel"] + weights[f"{path}/fc2/bias"]


def test_block_by_hand(random_weights):
    block = MixerBlock(**ARGUMENTS, layer_norm_epsilon=1e-3, name="block")
    block.build((None, 5, 8))
    random_weights(block)
    weights = {
        w.path.removeprefix("block/"): keras.ops.convert_to_numpy(w).astype("float64")
        for w in block.weights
    }
    tokens = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    expected = tokens.astype("float64")
    columns = _norm(expected, weights, "norm1").swapaxes(1, 2)
    expected = expected + _mlp(columns, weights, "token_mixing").swapaxes(1, 2)
    expected = expected + _mlp(_norm(expected, weights, "norm2"), weights, "channel_mixing")
    np.testing.assert_allclose(keras.ops.convert_to_numpy(block(tokens)), expected, atol=2e-6)


def test_epsilon_activation_and_rates_reach_the_parts():
    """FAULTS E3, E4."""
    block = MixerBlock(
        **ARGUMENTS,
        activation="gelu",
        layer_norm_epsilon=1e-5,
        dropout_rate=0.1,
        drop_path_rate=0.2,
    )
    assert block.norm1.epsilon == block.norm2.epsilon == 1e-5
    assert block.token_mixing.activation == block.channel_mixing.activation == "gelu"
    assert block.drop_path1.rate == block.drop_path2.rate == 0.2
    rates = [p.rate for p in block._flatten_layers() if isinstance(p, keras.layers.Dropout)]
    assert rates == [0.1] * 4
    assert MixerBlock(**ARGUMENTS).norm1.epsilon == 1e-6
    assert MixerBlock(**ARGUMENTS).token_mixing.activation == "gelu_tanh"


def test_whole_branches_drop_while_training(random_weights):
    block = MixerBlock(**ARGUMENTS, drop_path_rate=0.5)
    block.build((None, 5, 8))
    random_weights(block)
    tokens = np.random.default_rng(0).normal(size=(64, 5, 8)).astype("float32")
    result = keras.ops.convert_to_numpy(block(tokens, training=True))
    kept = (result == tokens).all((1, 2))  # both branches dropped: one example in four
    assert 4 < kept.sum() < 32
    assert not (keras.ops.convert_to_numpy(block(tokens)) == tokens).all((1, 2)).any()


def test_initial_values_are_the_official_ones():
    """flax Dense's defaults: LeCun-normal kernels, biases 0; not those of the encoder's MLP."""
    block = MixerBlock(num_tokens=64, hidden_dim=96, tokens_mlp_dim=80, channels_mlp_dim=128)
    block.build((None, 64, 96))
    for mlp in (block.token_mixing, block.channel_mixing):
        for dense in (mlp.fc1, mlp.fc2):
            kernel = keras.ops.convert_to_numpy(dense.kernel)
            assert kernel.std() * kernel.shape[0] ** 0.5 == pytest.approx(1.0, abs=0.05)
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(dense.bias), 0.0)


@pytest.mark.parametrize("shape", [(6, 8), (5, 7), (None, 8)])
def test_number_of_tokens_is_fixed(shape):
    with pytest.raises(ValueError, match=r"must be \(batch, 5, 8\).*num_tokens=5, hidden_dim=8"):
        MixerBlock(**ARGUMENTS).build((None, *shape))


def test_another_number_of_tokens_is_refused_after_build():
    """Twice as many tokens would pass a reshape into rows of `num_tokens` in silence."""
    block = MixerBlock(**ARGUMENTS)
    block.build((None, 5, 8))
    with pytest.raises(ValueError, match=r"must be \(batch, 5, 8\).*\(1, 10, 8\)"):
        block(np.zeros((1, 10, 8), "float32"))


def test_unknown_activation_lists_the_known():
    with pytest.raises(ValueError, match="'gelu_tan'.*Did you mean: gelu_tanh"):
        MixerBlock(**ARGUMENTS, activation="gelu_tan")
