"""Worked numbers and error messages of the smaller layers."""

import math

import keras
import numpy as np
import pytest

from keras_vit import layers


def test_pixels_map_to_minus_one_zero_one():
    """FAULTS D1: 0, 127.5 and 255 are -1, 0 and 1 exactly, also under a bfloat16 policy."""
    layer = layers.PixelNormalization((0.5,), (0.5,), dtype="bfloat16")
    pixels = np.array([0.0, 127.5, 255.0], "float32").reshape(1, 1, 3, 1)
    np.testing.assert_array_equal(np.asarray(layer(pixels)).ravel(), [-1.0, 0.0, 1.0])


def test_imagenet_statistics():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 3, 3)).astype("float32")
    expected = (pixels / 255.0 - mean) / std
    np.testing.assert_allclose(layers.PixelNormalization(mean, std)(pixels), expected, atol=1e-5)


def test_normalization_wants_one_number_a_channel():
    with pytest.raises(ValueError, match="one number a channel"):
        layers.PixelNormalization((0.5,), (0.5,)).build((None, 4, 4, 3))


def test_patches_are_projected_row_by_row(random_weights):
    """Each token is its patch, flattened, times the kernel, flattened."""
    layer = layers.PatchEmbedding(7, patch_size=(2, 3))
    layer.build((None, 4, 6, 2))
    random_weights(layer)
    pixels = np.random.default_rng(0).normal(size=(1, 4, 6, 2)).astype("float32")
    kernel = np.asarray(layer.projection.kernel).reshape(12, 7)
    patches = [pixels[0, r : r + 2, c : c + 3].ravel() for r in (0, 2) for c in (0, 3)]
    expected = np.stack(patches) @ kernel + np.asarray(layer.projection.bias)
    np.testing.assert_allclose(layer(pixels)[0], expected, atol=1e-5)


def test_a_border_is_never_dropped():
    """FAULTS A7."""
    with pytest.raises(ValueError, match=r"whole number of patches.*18, 16.*\(4, 4\)"):
        layers.PatchEmbedding(8, 4).build((None, 18, 16, 3))


def test_class_token_comes_first(random_weights):
    layer = layers.PrefixTokens()
    layer.build((None, 3, 4))
    random_weights(layer)
    tokens = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    result = np.asarray(layer(tokens))
    np.testing.assert_array_equal(result[:, 1:], tokens)
    np.testing.assert_array_equal(result[1, 0], np.asarray(layer.prefix[0])[0])


def test_prefix_tokens_keep_their_order(random_weights):
    layer = layers.PrefixTokens(True, True, 3)
    layer.build((None, 3, 4))
    random_weights(layer)
    result = np.asarray(layer(np.zeros((2, 3, 4), "float32")))
    values = {weight.name: weight.numpy() for weight in layer.weights}
    names = ("class_token", "distillation_token", "register_tokens")
    expected = np.concatenate([values[name] for name in names])
    np.testing.assert_array_equal(result[1, :5], expected)
    assert not result[:, 5:].any()


def test_registers_start_unequal():
    layer = layers.PrefixTokens(num_register_tokens=2)
    layer.build((None, 3, 4))
    first, second = layer.prefix[1].numpy()
    assert np.abs(first - second).max() > 1e-4


def test_positions_are_of_one_grid():
    with pytest.raises(ValueError, match=r"7 tokens, 1 before a grid of \(2, 3\).*\(None, 9, 8\)"):
        layers.LearnedPositionEmbedding((2, 3), 1).build((None, 9, 8))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_prefix_tokens_without_positions_stay_as_they_are(random_weights, count):
    """big_vision has none before the patches, DINOv2 one, the paper all."""
    layer = layers.LearnedPositionEmbedding((2, 2), 3, count)
    layer.build((None, 7, 4))
    random_weights(layer)
    tokens = np.random.default_rng(0).normal(size=(2, 7, 4)).astype("float32")
    added = np.asarray(layer(tokens)) - tokens
    table = layer.embeddings.numpy()
    np.testing.assert_allclose(added[1, :count], table[:count], atol=1e-6)
    assert not added[:, count:3].any()
    np.testing.assert_allclose(added[1, 3:], table[count:], atol=1e-6)


def test_2d_positions_by_hand(random_weights):
    """Paper D.4: X for the column first, then Y for the row."""
    layer = layers.Learned2DPositionEmbedding((2, 3), 1)
    layer.build((None, 7, 8))
    random_weights(layer)
    added = np.asarray(layer(np.zeros((1, 7, 8), "float32")))[0]
    assert not added[0].any()
    for row in range(2):
        for column in range(3):
            x, y = layer.column_embeddings.numpy()[column], layer.row_embeddings.numpy()[row]
            np.testing.assert_array_equal(added[1 + 3 * row + column], np.concatenate([x, y]))


def test_sincos_positions_by_hand():
    layer = layers.SinCos2DPositionEmbedding((2, 3), 1)
    added = np.asarray(layer(np.zeros((1, 7, 8), "float32")))[0]
    assert not added[0].any()
    row, column = 1, 2
    parts = [f(p * w) for p in (column, row) for f in (np.sin, np.cos) for w in (1.0, 1e-4)]
    np.testing.assert_allclose(added[1 + 3 * row + column], parts, atol=1e-7)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _qkv(layer, x):
    qkv = x @ layer.qkv.kernel.numpy() + layer.qkv.bias.numpy()
    return qkv.reshape(*x.shape[:2], 3, layer.num_heads, -1).transpose(2, 0, 3, 1, 4)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_attention_by_hand(random_weights, relative, qk_norm):
    """Rows of the scores sum to 1, and scores times values are the output (FAULTS I1)."""
    layer = layers.SelfAttention(8, 2, relative=relative, qk_norm=qk_norm, layer_norm_epsilon=0.1)
    layer.build((None, 5, 8))
    random_weights(layer)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    query, key, value = _qkv(layer, x)  # (batch, heads, tokens, head_dim)
    if qk_norm:
        for norm, part in ((layer.query_norm, query), (layer.key_norm, key)):
            part -= part.mean(-1, keepdims=True)
            part /= np.sqrt(part.var(-1, keepdims=True) + 0.1)
            part *= norm.gamma.numpy()
            part += norm.beta.numpy()
    scores = query @ key.swapaxes(2, 3)
    if relative:
        table = layer.relative_keys.numpy()
        for q in range(5):
            for k in range(5):
                scores[:, :, q, k] += query[:, :, q] @ table[q - k + 4]
    weights = _softmax(scores / 2.0)
    np.testing.assert_allclose(layer.scores(x), weights, atol=1e-6)
    np.testing.assert_allclose(np.asarray(layer.scores(x)).sum(-1), 1.0, atol=1e-6)
    mixed = (weights @ value).transpose(0, 2, 1, 3).reshape(2, 5, 8)
    expected = mixed @ layer.proj.kernel.numpy() + layer.proj.bias.numpy()
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)


def test_attention_pool_by_hand(random_weights):
    layer = layers.AttentionPool(8, 2, 12, num_prefix_tokens=1)
    layer.build((None, 5, 8))
    random_weights(layer)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")

    def dense(part, value):
        return value @ part.kernel.numpy() + part.bias.numpy()

    query = dense(layer.query, layer.probe.numpy()).reshape(2, 1, 4)  # (heads, 1, head_dim)
    key, value = dense(layer.key_value, x[:, 1:]).reshape(2, 4, 2, 2, 4).transpose(2, 0, 3, 1, 4)
    weights = _softmax(query @ key.swapaxes(2, 3) / 2.0)  # (batch, heads, 1, patches)
    pooled = dense(layer.proj, (weights @ value).reshape(2, 8))
    expected = pooled + np.asarray(layer.mlp(layer.norm(pooled)))
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)


def test_distillation_head_is_the_mean_of_two(random_weights):
    layer = layers.DistillationHead(3)
    layer.build((None, 2, 4))
    assert not np.asarray(layer(np.ones((1, 2, 4), "float32"))).any()  # starts at zero
    random_weights(layer)
    x = np.random.default_rng(0).normal(size=(2, 2, 4)).astype("float32")
    both = [np.asarray(head(x[:, index])) for index, head in enumerate(layer.heads)]
    np.testing.assert_allclose(layer(x), (both[0] + both[1]) / 2, atol=1e-6)


def test_axial_block_attends_along_rows_then_columns(random_weights):
    """Paper D.6: a change of one token reaches its row and column's rows only by way of both."""
    block = layers.AxialBlock((2, 3), hidden_dim=8, num_heads=2, mlp_dim=12)
    block.build((None, 6, 8))
    random_weights(block)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    rows = np.asarray(block.row(x.reshape(4, 3, 8))).reshape(2, 2, 3, 8)
    columns = rows.transpose(0, 2, 1, 3).reshape(6, 2, 8)
    columns = np.asarray(block.column(columns)).reshape(2, 3, 2, 8)
    expected = columns.transpose(0, 2, 1, 3).reshape(2, 6, 8)
    np.testing.assert_allclose(block(x), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"grid of \(2, 3\), 6.*\(None, 7, 8\)"):
        layers.AxialBlock((2, 3), hidden_dim=8, num_heads=2, mlp_dim=12).build((None, 7, 8))


def test_axial_block_drops_whole_examples():
    """Rows and columns of one picture share their fate."""
    block = layers.AxialBlock(
        (2, 3), hidden_dim=8, num_heads=2, mlp_dim=12, drop_path_rate=0.5, qkv_bias=False
    )
    x = np.random.default_rng(0).normal(size=(64, 6, 8)).astype("float32")
    block.build(x.shape)
    for part, sequences in ((block.row, 2), (block.column, 3)):
        tokens = np.ones((64 * sequences, 6 // sequences, 8), "float32")
        fates = np.asarray(part.drop_path1(tokens, training=True))[:, 0, 0].reshape(64, sequences)
        assert (fates == fates[:, :1]).all() and set(np.unique(fates)) == {0.0, 2.0}


def test_layer_scale_by_hand():
    layer = layers.LayerScale(0.25)
    np.testing.assert_array_equal(
        layer(np.full((1, 2, 3), 2.0, "float32")), np.full((1, 2, 3), 0.5)
    )


@pytest.mark.parametrize("activation", ["quick_gelu", "silu"])
def test_gated_mlp_by_hand(random_weights, activation):
    """The first half of fc1 is the gate, as in DINOv2's weights_in and timm's GluMlp."""
    layer = layers.MLP(4, 6, activation, gated=True)
    layer.build((None, 3, 4))
    random_weights(layer)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    hidden = x @ np.asarray(layer.fc1.kernel) + np.asarray(layer.fc1.bias)
    gate, other = np.split(hidden, 2, axis=-1)
    slope = 1.702 if activation == "quick_gelu" else 1.0
    gated = gate / (1 + np.exp(-slope * gate)) * other
    expected = gated @ np.asarray(layer.fc2.kernel) + np.asarray(layer.fc2.bias)
    np.testing.assert_allclose(layer(x), expected, atol=2e-6)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_mlp_by_hand(random_weights, activation):
    """FAULTS E4: the two GELUs differ by up to 4.7e-4, and each name gives its own."""
    layer = layers.MLP(4, 6, activation)
    layer.build((None, 3, 4))
    random_weights(layer)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    hidden = x @ np.asarray(layer.fc1.kernel) + np.asarray(layer.fc1.bias)
    if activation == "gelu":
        hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / 2**0.5))
    else:
        cubic = hidden + 0.044715 * hidden**3
        hidden = hidden * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * cubic))
    expected = hidden @ np.asarray(layer.fc2.kernel) + np.asarray(layer.fc2.bias)
    np.testing.assert_allclose(layer(x), expected, atol=2e-6)


def test_unknown_activation_lists_the_known():
    with pytest.raises(ValueError, match="'gelu_tan'.*Did you mean: gelu_tanh"):
        layers.MLP(4, 6, "gelu_tan")


def test_drop_path_drops_whole_examples_and_keeps_the_mean():
    layer = layers.DropPath(0.25, seed=1)
    branch = np.ones((4000, 3, 2), "float32")
    result = np.asarray(layer(branch, training=True))
    first = result[:, 0, 0]
    np.testing.assert_array_equal(result, np.broadcast_to(first[:, None, None], result.shape))
    assert set(np.unique(first)) == {np.float32(0.0), np.float32(1 / 0.75)}
    assert abs(result.mean() - 1.0) < 0.03
    np.testing.assert_array_equal(layer(branch), branch)


def test_drop_path_rate_below_one():
    with pytest.raises(ValueError, match="below 1. Received: rate=1.0"):
        layers.DropPath(1.0)


def test_block_is_two_residual_branches(random_weights):
    block = layers.EncoderBlock(8, 2, 12, "gelu", layer_norm_epsilon=1e-12)
    block.build((None, 3, 8))
    random_weights(block)
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    middle = x + np.asarray(block.attention(block.norm1(x)))
    expected = middle + np.asarray(block.mlp(block.norm2(middle)))
    np.testing.assert_allclose(block(x), expected, atol=1e-6)
    assert block.norm1.epsilon == block.norm2.epsilon == 1e-12


def test_mean_pool_leaves_out_prefix_tokens():
    tokens = np.arange(24.0, dtype="float32").reshape(1, 4, 6)
    pooled = layers.MeanPool(1)(tokens)
    np.testing.assert_allclose(pooled[0], tokens[0, 1:].mean(0))
    np.testing.assert_array_equal(layers.TokenPool()(tokens), tokens[:, 0])
    both = layers.TokenMeanPool(2)(tokens)
    np.testing.assert_allclose(both[0], [*tokens[0, 0], *tokens[0, 2:].mean(0)])


def test_no_layer_is_a_lambda(tiny_config):
    """FAULTS F4."""
    from keras_vit import ViT

    model = ViT(tiny_config)
    assert not [part for part in model._flatten_layers() if isinstance(part, keras.layers.Lambda)]


@pytest.mark.parametrize("kind", ["attention", "mlp"])
@pytest.mark.parametrize("training", [False, True])
def test_residual_is_added(kind, training, random_weights):
    layer = layers.SelfAttention(8, 2) if kind == "attention" else layers.MLP(8, 12)
    layer.build((None, 5, 8))
    random_weights(layer)
    tokens, residual = np.random.default_rng(0).normal(size=(2, 3, 5, 8)).astype("float32")
    expected = np.asarray(layer(tokens, training=training)) + residual
    found = layer(tokens, residual=residual, training=training)
    np.testing.assert_allclose(found, expected, atol=1e-6)
