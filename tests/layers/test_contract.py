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


BLOCK = {
    **_under("norm1", NORM),
    **_under("attention", ATTENTION),
    **_under("norm2", NORM),
    **_under("mlp", FEED_FORWARD),
}
CASES = {
    "layer_norm": dict(
        layer_class=layers.LayerNorm,
        arguments={"epsilon": 1e-5},
        input_shape=(4, 8),
        output_shape=(4, 8),
        weights=NORM,
    ),
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
    "all_prefix_tokens": dict(
        layer_class=layers.PrefixTokens,
        arguments={"distillation_token": True, "num_register_tokens": 3},
        input_shape=(4, 8),
        output_shape=(9, 8),
        weights={
            "class_token": (1, 8),
            "distillation_token": (1, 8),
            "register_tokens": (3, 8),
        },
    ),
    "position_embedding": dict(
        layer_class=layers.LearnedPositionEmbedding,
        arguments={"grid": (2, 3), "num_prefix_tokens": 1},
        input_shape=(7, 8),
        output_shape=(7, 8),
        weights={"embeddings": (7, 8)},
    ),
    "position_embedding_of_patches": dict(
        layer_class=layers.LearnedPositionEmbedding,
        arguments={"grid": (2, 3), "num_prefix_tokens": 2, "num_prefix_positions": 0},
        input_shape=(8, 8),
        output_shape=(8, 8),
        weights={"embeddings": (6, 8)},
    ),
    "position_embedding_2d": dict(
        layer_class=layers.Learned2DPositionEmbedding,
        arguments={"grid": (2, 3), "num_prefix_tokens": 1},
        input_shape=(7, 8),
        output_shape=(7, 8),
        weights={"row_embeddings": (2, 4), "column_embeddings": (3, 4)},
    ),
    "position_embedding_sincos": dict(
        layer_class=layers.SinCos2DPositionEmbedding,
        arguments={"grid": (2, 3), "num_prefix_tokens": 1},
        input_shape=(7, 8),
        output_shape=(7, 8),
        weights={},
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
    "attention_with_norms": dict(
        layer_class=layers.SelfAttention,
        arguments={"hidden_dim": 8, "num_heads": 2, "qk_norm": True},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={
            **ATTENTION,
            **{f"{name}_norm/{part}": (4,) for name in ("query", "key") for part in NORM},
        },
        no_effect=("key_norm/beta",),  # adds the same to all scores of a query
    ),
    "relative_attention": dict(
        layer_class=layers.SelfAttention,
        arguments={"hidden_dim": 8, "num_heads": 2, "relative": True},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={**ATTENTION, "relative_keys": (9, 4)},
    ),
    "gated_mlp": dict(
        layer_class=layers.MLP,
        arguments={"hidden_dim": 8, "mlp_dim": 6, "activation": "silu", "gated": True},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={
            "fc1/kernel": (8, 12),
            "fc1/bias": (12,),
            "fc2/kernel": (6, 8),
            "fc2/bias": (8,),
        },
    ),
    "layer_scale": dict(
        layer_class=layers.LayerScale,
        arguments={"init": 0.1},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={"gamma": (8,)},
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
        weights=BLOCK,
    ),
    "encoder_block_with_layer_scale": dict(
        layer_class=layers.EncoderBlock,
        arguments={"hidden_dim": 8, "num_heads": 2, "mlp_dim": 12, "layer_scale_init": 0.1},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={**BLOCK, "layer_scale1/gamma": (8,), "layer_scale2/gamma": (8,)},
    ),
    "merging_block": dict(
        layer_class=layers.MergingBlock,
        arguments={
            **{"merged_tokens": 2, "num_prefix_tokens": 1, "drop_path_rate": 0.1},
            **{"hidden_dim": 8, "num_heads": 2, "mlp_dim": 12},
        },
        input_shape=(7, 8),
        output_shape=(5, 8),
        weights=BLOCK,
    ),
    "axial_block": dict(
        layer_class=layers.AxialBlock,
        arguments={"grid": (2, 3), "hidden_dim": 8, "num_heads": 2, "mlp_dim": 12},
        input_shape=(6, 8),
        output_shape=(6, 8),
        weights={**_under("row", BLOCK), **_under("column", BLOCK)},
    ),
    "drop_path": dict(
        layer_class=layers.DropPath,
        arguments={"rate": 0.5, "seed": 3},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={},
    ),
    "patch_dropout": dict(
        layer_class=layers.PatchDropout,
        arguments={"rate": 0.0, "num_prefix_tokens": 1, "seed": 3},
        input_shape=(5, 8),
        output_shape=(5, 8),
        weights={},
    ),
    "active_patch_dropout": dict(
        layer_class=layers.PatchDropout,
        arguments={"rate": 0.5, "num_prefix_tokens": 1, "seed": 3},
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
    "two_token_pool": dict(
        layer_class=layers.TokenPool,
        arguments={"num_tokens": 2},
        input_shape=(5, 8),
        output_shape=(2, 8),
        weights={},
    ),
    "attention_pool": dict(
        layer_class=layers.AttentionPool,
        arguments={"hidden_dim": 8, "num_heads": 2, "mlp_dim": 12, "num_prefix_tokens": 1},
        input_shape=(5, 8),
        output_shape=(8,),
        weights={
            "probe": (1, 8),
            **_under("query", {"kernel": (8, 8), "bias": (8,)}),
            **_under("key_value", {"kernel": (8, 16), "bias": (16,)}),
            **_under("proj", {"kernel": (8, 8), "bias": (8,)}),
            **_under("norm", NORM),
            **_under("mlp", FEED_FORWARD),
        },
    ),
    "distillation_head": dict(
        layer_class=layers.DistillationHead,
        arguments={"num_classes": 3},
        input_shape=(2, 8),
        output_shape=(3,),
        weights={
            **_under("class", {"kernel": (8, 3), "bias": (3,)}),
            **_under("distillation", {"kernel": (8, 3), "bias": (3,)}),
        },
    ),
    "mean_pool": dict(
        layer_class=layers.MeanPool,
        arguments={"num_prefix_tokens": 1},
        input_shape=(5, 8),
        output_shape=(8,),
        weights={},
    ),
    "token_mean_pool": dict(
        layer_class=layers.TokenMeanPool,
        arguments={"num_prefix_tokens": 2},
        input_shape=(5, 8),
        output_shape=(16,),
        weights={},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layer_keeps_the_contract(check_layer, case):
    check_layer(**CASES[case])


def test_no_layer_is_left_out():
    """Those two are in test_resnet_stem.py and test_mixer_block.py."""
    public = {
        value
        for value in vars(layers).values()
        if isinstance(value, type) and issubclass(value, keras.layers.Layer)
    }
    elsewhere = {layers.ResNetStem, layers.MixerBlock}
    assert public - elsewhere == {case["layer_class"] for case in CASES.values()}
