"""timm's names: those that its models really save, and how a file's prefix is found."""

import dataclasses
from pathlib import Path

import pytest

from keras_vit.config import ViTConfig
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.keymap import their_shapes
from keras_vit.zoo.tensor_files import StoredTensor, TensorFile
from keras_vit.zoo.timm_names import Layout, key_table
from keras_vit.zoo.variables import variable_shapes

TINY = ViTConfig(
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    mlp_dim=12,
    patch_size=4,
    image_size=16,
    num_classes=3,
)
# As timm 1.0.31 writes them.
PLAIN = {
    "cls_token": (1, 1, 8),
    "pos_embed": (1, 17, 8),
    "patch_embed.proj.weight": (8, 3, 4, 4),
    "patch_embed.proj.bias": (8,),
    "blocks.0.norm1.weight": (8,),
    "blocks.0.norm1.bias": (8,),
    "blocks.0.attn.qkv.weight": (24, 8),
    "blocks.0.attn.qkv.bias": (24,),
    "blocks.0.attn.proj.weight": (8, 8),
    "blocks.0.attn.proj.bias": (8,),
    "blocks.0.norm2.weight": (8,),
    "blocks.0.norm2.bias": (8,),
    "blocks.0.mlp.fc1.weight": (12, 8),
    "blocks.0.mlp.fc1.bias": (12,),
    "blocks.0.mlp.fc2.weight": (8, 12),
    "blocks.0.mlp.fc2.bias": (8,),
    "norm.weight": (8,),
    "norm.bias": (8,),
    "head.weight": (3, 8),
    "head.bias": (3,),
}
OTHERS = {
    "distilled": (
        dict(distillation_token=True),
        {
            "pos_embed": (1, 18, 8),
            "dist_token": (1, 1, 8),
            "head_dist.weight": (3, 8),
            "head_dist.bias": (3,),
        },
        (),
    ),
    "registers, scales and norms": (
        dict(
            num_register_tokens=2,
            num_prefix_positions=0,
            layer_scale_init=1e-5,
            qk_norm=True,
            qkv_bias=False,
            embedding_norm=True,
            patch_bias=False,
            final_norm="pool",
        ),
        {
            "pos_embed": (1, 16, 8),
            "reg_token": (1, 2, 8),
            "blocks.0.ls1.gamma": (8,),
            "blocks.0.ls2.gamma": (8,),
            "blocks.0.attn.q_norm.weight": (4,),
            "blocks.0.attn.q_norm.bias": (4,),
            "blocks.0.attn.k_norm.weight": (4,),
            "blocks.0.attn.k_norm.bias": (4,),
            "norm_pre.weight": (8,),
            "norm_pre.bias": (8,),
            "fc_norm.weight": (8,),
            "fc_norm.bias": (8,),
        },
        ("blocks.0.attn.qkv.bias", "patch_embed.proj.bias", "norm.weight", "norm.bias"),
    ),
    "attention pool, gated, no positions, no head": (
        dict(class_token=False, pool="map", position_embedding="none", num_classes=0),
        {
            "attn_pool.latent": (1, 1, 8),
            "attn_pool.q.weight": (8, 8),
            "attn_pool.q.bias": (8,),
            "attn_pool.kv.weight": (16, 8),
            "attn_pool.kv.bias": (16,),
            "attn_pool.proj.weight": (8, 8),
            "attn_pool.proj.bias": (8,),
            "attn_pool.norm.weight": (8,),
            "attn_pool.norm.bias": (8,),
            "attn_pool.mlp.fc1.weight": (12, 8),
            "attn_pool.mlp.fc1.bias": (12,),
            "attn_pool.mlp.fc2.weight": (8, 12),
            "attn_pool.mlp.fc2.bias": (8,),
        },
        ("cls_token", "pos_embed", "head.weight", "head.bias"),
    ),
    "gated": (
        dict(gated_mlp=True),
        {"blocks.0.mlp.fc1.weight": (24, 8), "blocks.0.mlp.fc1.bias": (24,)},
        (),
    ),
    "root alone": (
        dict(stem_layers=(), stem_width=32),
        {
            "patch_embed.backbone.conv.weight": (32, 3, 7, 7),
            "patch_embed.backbone.norm.weight": (32,),
            "patch_embed.backbone.norm.bias": (32,),
            "patch_embed.proj.weight": (8, 32, 4, 4),
            "pos_embed": (1, 2, 8),
        },
        (),
    ),
}


def names_and_shapes(config):
    variables = variable_shapes(config)
    shapes = {}
    for rule in key_table(config):
        shapes |= their_shapes(rule, variables.pop(rule.ours))
    assert not variables  # each of ours has one rule
    return shapes


def layout(shapes):
    path = Path("model.safetensors")
    stored = {name: StoredTensor(path, shape, "float32") for name, shape in shapes.items()}
    return Layout(TensorFile(path, stored, {}))


def test_plain_names():
    assert names_and_shapes(TINY) == PLAIN


@pytest.mark.parametrize("key", OTHERS)
def test_other_names(key):
    changes, added, removed = OTHERS[key]
    expected = {name: shape for name, shape in (PLAIN | added).items() if name not in removed}
    assert names_and_shapes(dataclasses.replace(TINY, **changes)) == expected


def test_names_of_a_stem_with_stages():
    config = dataclasses.replace(TINY, stem_layers=(2, 1), stem_width=32, patch_size=1)
    shapes = names_and_shapes(config)
    backbone = {
        name.removeprefix("patch_embed.backbone."): shape
        for name, shape in shapes.items()
        if name.startswith("patch_embed.backbone.") and not name.endswith("bias")
    }
    first, second = "stages.0.blocks.0", "stages.1.blocks.0"
    assert backbone == {
        "stem.conv.weight": (32, 3, 7, 7),
        "stem.norm.weight": (32,),
        f"{first}.conv1.weight": (32, 32, 1, 1),
        f"{first}.norm1.weight": (32,),
        f"{first}.conv2.weight": (32, 32, 3, 3),
        f"{first}.norm2.weight": (32,),
        f"{first}.conv3.weight": (128, 32, 1, 1),
        f"{first}.norm3.weight": (128,),
        f"{first}.downsample.conv.weight": (128, 32, 1, 1),
        f"{first}.downsample.norm.weight": (128,),
        "stages.0.blocks.1.conv1.weight": (32, 128, 1, 1),
        "stages.0.blocks.1.norm1.weight": (32,),
        "stages.0.blocks.1.conv2.weight": (32, 32, 3, 3),
        "stages.0.blocks.1.norm2.weight": (32,),
        "stages.0.blocks.1.conv3.weight": (128, 32, 1, 1),
        "stages.0.blocks.1.norm3.weight": (128,),
        f"{second}.conv1.weight": (64, 128, 1, 1),
        f"{second}.norm1.weight": (64,),
        f"{second}.conv2.weight": (64, 64, 3, 3),
        f"{second}.norm2.weight": (64,),
        f"{second}.conv3.weight": (256, 64, 1, 1),
        f"{second}.norm3.weight": (256,),
        f"{second}.downsample.conv.weight": (256, 128, 1, 1),
        f"{second}.downsample.norm.weight": (256,),
    }
    # The units of a stage are `blocks` too, and more than the encoder's.
    assert layout(shapes).prefix == ""
    wrapped = layout({f"timm_model.{name}": shape for name, shape in shapes.items()})
    assert wrapped.prefix == "timm_model."
    assert wrapped.shapes == shapes
    assert wrapped.spell("norm.bias") == "timm_model.norm.bias"


def test_what_a_layout_finds():
    found = layout({f"module.{name}": shape for name, shape in PLAIN.items()})
    assert found.find(r"blocks\.\d+\.mlp\.fc1\.(weight|bias)") in ((12, 8), (12,))
    assert found.has("cls_token") and not found.has("cls") and not found.has("reg_token")
    assert found.count(r"blocks\.(\d+)\.") == 1
    assert found.count(r"stages\.(\d+)\.") == 0
    assert found.need("pos_embed", rank=3) == (1, 17, 8)
    with pytest.raises(MissingWeightsError, match=r"- module\.reg_token\n"):
        found.need("reg_token", rank=3)
    with pytest.raises(MissingWeightsError, match=r"module\.norm\.bias: expected 3 axes"):
        found.need("norm.bias", rank=3)
