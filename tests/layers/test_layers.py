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
    np.testing.assert_array_equal(result[1, 0], np.asarray(layer.class_token)[0])


def test_positions_need_a_fixed_number_of_tokens():
    with pytest.raises(ValueError, match="fixed number of tokens"):
        layers.LearnedPositionEmbedding().build((None, None, 8))


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


def test_no_layer_is_a_lambda(tiny_config):
    """FAULTS F4."""
    from keras_vit import ViT

    model = ViT(tiny_config)
    assert not [part for part in model._flatten_layers() if isinstance(part, keras.layers.Lambda)]
