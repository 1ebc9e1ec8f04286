"""Every layer keeps the contract in `check_layer` (FAULTS F1-F4, J1; TRAPS 4)."""

import keras
import pytest

from keras_vit import layers

ATTENTION = {
    "qkv/kernel": (8, 24),
    "qkv/bias": (24,),
    "proj/kernel": (8, 8),
    "proj/bias": (8,),
}
FEED_FORWARD = {
    "fc1/kernel": (8, 12),
    "fc1/bias": (12,),
    "fc2/kernel": (12, 8),
    "fc2/bias": (8,),
}
NORM = {"gamma": (8,), "beta": (8,)}


def _under(name: str, weights: dict) -> dict:
    return {f"{name}/{path}": shape for path, shape in weights.items()}


CASES = {
    "pixel_normalization": dict(
        layer_class=layers.PixelNormalization,
        arguments={"mean": (0.5, 0.4, 0.3), "std": (0.5, 0.2, 0.1)},
        input_shape=(4, 6, 3),
        output_shape=(4, 6, 3),
        weights={},
        fixed_dtype=True,
    ),
    "patch_embedding": dict(
        layer_class=layers.PatchEmbedding,
        arguments={"hidden_dim": 8, "patch_size": (2, 3)},
        input_shape=(4, 6, 5),
        output_shape=(4, 8),
        weights={"projection/kernel": (2, 3, 5, 8), "projection/bias": (8,)},
    ),
    "prefix_tokens": dict(
        layer_class=layers.PrefixTokens,
        arguments={},
        input_shape=(4, 8),
        output_shape=(5, 8),
        weights={"class_token": (1, 8)},
    ),
    "position_embedding": dict(
        layer_class=layers.LearnedPositionEmbedding,
        arguments={},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={"embeddings": (5, 8)},
    ),
    "attention": dict(
        layer_class=layers.SelfAttention,
        arguments={"hidden_dim": 8, "num_heads": 2, "dropout_rate": 0.1},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights=ATTENTION,
    ),
    "attention_with_dropout": dict(
        layer_class=layers.SelfAttention,
        arguments={"hidden_dim": 8, "num_heads": 2, "attention_dropout_rate": 0.1},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights=ATTENTION,
    ),
    "attention_without_bias": dict(
        layer_class=layers.SelfAttention,
        arguments={"hidden_dim": 8, "num_heads": 2, "qkv_bias": False},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={path: shape for path, shape in ATTENTION.items() if path != "qkv/bias"},
    ),
    "mlp": dict(
        layer_class=layers.MLP,
        arguments={"hidden_dim": 8, "mlp_dim": 12, "activation": "gelu", "dropout_rate": 0.1},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights=FEED_FORWARD,
    ),
    "encoder_block": dict(
        layer_class=layers.EncoderBlock,
        arguments={"hidden_dim": 8, "num_heads": 2, "mlp_dim": 12, "drop_path_rate": 0.1},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={
            **_under("norm1", NORM),
            **_under("attention", ATTENTION),
            **_under("norm2", NORM),
            **_under("mlp", FEED_FORWARD),
        },
    ),
    "drop_path": dict(
        layer_class=layers.DropPath,
        arguments={"rate": 0.5, "seed": 3},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={},
    ),
    "token_pool": dict(
        layer_class=layers.TokenPool,
        arguments={},
        input_shape=(5, 8),
        output_shape=(8,),
        weights={},
    ),
    "mean_pool": dict(
        layer_class=layers.MeanPool,
        arguments={"num_prefix_tokens": 1},
        input_shape=(5, 8),
        output_shape=(8,),
        weights={},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layer_keeps_the_contract(check_layer, case):
    check_layer(**CASES[case])


def test_no_layer_is_left_out():
    public = {
        value
        for value in vars(layers).values()
        if isinstance(value, type) and issubclass(value, keras.layers.Layer)
    }
    assert public == {case["layer_class"] for case in CASES.values()}
