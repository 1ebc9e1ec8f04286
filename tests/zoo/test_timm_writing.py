"""What timm has, under which name, and back again. tests/parity/test_give_back.py asks timm."""

import dataclasses
import json

import numpy as np
import pytest

from keras_vit.config import MixerConfig, PreprocessingConfig, ViTConfig
from keras_vit.variants import VARIANTS
from keras_vit.zoo import read_checkpoint, timm_writing
from keras_vit.zoo.timm_architectures import architectures
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

CROP = PreprocessingConfig(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    interpolation="bicubic",
    antialias=True,
    resize="crop",
    crop_fraction=0.95,
)
TINY = ViTConfig(
    num_layers=2,
    num_heads=2,
    hidden_dim=12,
    mlp_dim=20,
    patch_size=4,
    image_size=16,
    num_classes=3,
    activation="gelu",
)
HYBRID = {"patch_size": 1, "image_size": 32, "stem_numerics": "timm", "num_layers": 1}
B16 = dataclasses.replace(VARIANTS["B/16"], activation="gelu")
# Fields of TINY, the architecture, and what else `model_args` must replace.
MODELS = {
    "plain": ({}, "vit_base_patch8_224", {}),
    "tanh_gelu": ({"activation": "gelu_tanh"}, "vit_base_patch8_224", {"act_layer": "gelu_tanh"}),
    "headless": ({"num_classes": 0}, "vit_base_patch8_224", {}),
    "mean": ({"pool": "mean", "final_norm": "pool"}, "eva_large_patch14_196", {}),
    "mean_alone": ({"pool": "mean", "class_token": False}, "vit_base_patch16_gap_224", {}),
    "map": ({"pool": "map", "class_token": False}, "vit_base_patch16_siglip_224", {}),
    "map_registers": (
        {"pool": "map", "num_register_tokens": 2, "final_norm": "pool"},
        "vit_base_patch8_224",
        {"global_pool": "map", "reg_tokens": 2},
    ),
    "registers": (
        {"num_register_tokens": 4, "layer_scale_init": 0.1, "num_prefix_positions": 0},
        "vit_base_patch14_reg4_dinov2",
        {"init_values": 0.1},
    ),
    "registers_with_positions": (
        {"num_register_tokens": 1},
        "vit_base_patch8_224",
        {"reg_tokens": 1},
    ),
    "clip": (
        {"embedding_norm": True, "patch_bias": False, "layer_norm_epsilon": 1e-5},
        "vit_base_patch16_clip_224",
        {},
    ),
    "epsilon_of_clip_alone": ({"layer_norm_epsilon": 1e-5}, "vit_base_patch16_clip_224", {}),
    "qk_norm": ({"qk_norm": True, "qkv_bias": False}, "vit_base_patch8_224", {}),
    "swiglu": (
        {"gated_mlp": True, "activation": "silu"},
        "vit_giant_patch14_dinov2",
        {"init_values": 0.0},
    ),
    "geglu": (
        {"gated_mlp": True, "layer_scale_init": 1e-5},
        "vit_giant_patch14_dinov2",
        {"act_layer": "gelu"},
    ),
    "no_norm": ({"final_norm": "none"}, "vit_base_patch8_224", {"final_norm": False}),
    "no_positions": (
        {"position_embedding": "none"},
        "vit_base_patch8_224",
        {"pos_embed": "none"},
    ),
    "distilled": ({"distillation_token": True}, "deit_base_distilled_patch16_224", {}),
    "oblong_grey": (
        {"image_size": (16, 48), "patch_size": (4, 8), "num_channels": 1},
        "vit_base_patch8_224",
        {},
    ),
    "root": (HYBRID | {"stem_layers": (), "patch_size": 4}, "vit_tiny_r_s16_p8_224", {}),
    "r26": (HYBRID | {"stem_layers": (2, 2, 2, 2)}, "vit_small_r26_s32_224", {}),
    "r50": (HYBRID | {"stem_layers": (3, 4, 9)}, "vit_base_r50_s16_224", {}),
}
STATED = {
    *("img_size", "patch_size", "in_chans", "embed_dim", "depth", "num_heads", "mlp_ratio"),
    *("qkv_bias", "qk_norm", "pre_norm", "no_embed_class", "fc_norm"),
}


def write(config, directory, preprocessing=CROP, labels=None, **more):
    preprocessing = preprocessing.for_channels(config.num_channels)
    random = np.random.default_rng(0)
    values = {
        path: random.normal(size=shape).astype("float32")
        for path, shape in variable_shapes(config).items()
    }
    more = {"position_resize": timm_writing.TIMM_RESIZE} | more
    contents = Contents(
        config=config, preprocessing=preprocessing, labels=labels, read_ours=values.get, **more
    )
    timm_writing.write(contents, directory)
    return values, json.loads((directory / "config.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_is_read_back_bit_for_bit(tmp_path, name):
    fields, architecture, replaced = MODELS[name]
    config = dataclasses.replace(TINY, **fields)
    assert timm_writing.can_express(config)
    values, written = write(config, tmp_path)
    assert written["architecture"] == architecture
    arguments = written["model_args"]
    assert {key: arguments[key] for key in arguments.keys() - STATED} == replaced
    assert arguments.keys() >= STATED
    again = read_checkpoint(tmp_path)
    again.check()
    assert again.config == config and again.family == "timm_safetensors"
    assert again.preprocessing == CROP.for_channels(config.num_channels)
    assert (again.labels, again.multi_label) == (None, False)
    for path, value in values.items():
        np.testing.assert_array_equal(again.weight(path), value)


def test_config_json(tmp_path):
    config = dataclasses.replace(TINY, distillation_token=True, image_size=(16, 32))
    _, written = write(config, tmp_path, labels=("a", "ü", "c"), origin={"licence": "Apache-2.0"})
    assert written == {
        "architecture": "deit_base_distilled_patch16_224",
        "num_classes": 3,
        "num_features": 12,
        "global_pool": "token",
        "pretrained_cfg": {
            "tag": "keras_vit",
            "custom_load": False,
            "input_size": [3, 16, 32],
            "fixed_input_size": True,
            "interpolation": "bicubic",
            "crop_pct": 0.95,
            "crop_mode": "center",
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "num_classes": 3,
            "pool_size": None,
            "first_conv": "patch_embed.proj",
            "classifier": ["head", "head_dist"],
            "license": "apache-2.0",
        },
        "model_args": {
            "img_size": [16, 32],
            "patch_size": 4,
            "in_chans": 3,
            "embed_dim": 12,
            "depth": 2,
            "num_heads": 2,
            "mlp_ratio": 20 / 12,
            "qkv_bias": True,
            "qk_norm": False,
            "pre_norm": False,
            "no_embed_class": False,
            "fc_norm": False,
        },
        "keras_vit_origin": {"licence": "Apache-2.0"},
        "label_names": ["a", "ü", "c"],
    }
    assert read_checkpoint(tmp_path).labels == ("a", "ü", "c")


def test_what_timm_cannot_say_is_kept_beside(tmp_path):
    """The official preprocessing samples without antialiasing; timm never does."""
    _, written = write(TINY, tmp_path, PreprocessingConfig(), multi_label=True)
    assert written["pretrained_cfg"]["crop_mode"] == "squash"
    assert written["keras_vit"]["antialias"] is False
    again = read_checkpoint(tmp_path)
    assert again.preprocessing == PreprocessingConfig() and again.multi_label
    _, written = write(TINY, tmp_path, dataclasses.replace(CROP, resize="squash"))
    assert "keras_vit" not in written and "problem_type" not in written


@pytest.mark.parametrize(
    ("stem_layers", "first_conv"),
    [((), "patch_embed.backbone.conv"), ((2, 2, 2, 2), "patch_embed.backbone.stem.conv")],
)
def test_first_convolution_of_hybrids(tmp_path, stem_layers, first_conv):
    _, written = write(dataclasses.replace(TINY, **HYBRID, stem_layers=stem_layers), tmp_path)
    assert written["pretrained_cfg"]["first_conv"] == first_conv


@pytest.mark.parametrize(
    ("config", "rule", "architecture"),
    [
        (B16, "bicubic", "vit_base_patch16_224"),
        (VARIANTS["B/16"], "align_corners_bilinear", "vit_base_patch16_224"),
        (
            dataclasses.replace(VARIANTS["L/16"], activation="gelu", image_size=384),
            "bicubic_antialias",
            "vit_large_patch16_384",
        ),
        (
            dataclasses.replace(B16, image_size=240, num_prefix_positions=0),
            "bilinear",
            "flexivit_base",
        ),
        (
            dataclasses.replace(B16, distillation_token=True, image_size=384),
            "bicubic_antialias",
            "deit_base_distilled_patch16_384",
        ),
        (
            dataclasses.replace(VARIANTS["R50+L/32"], activation="gelu", stem_numerics="timm"),
            "bicubic_antialias",
            "vit_large_r50_s32_224",
        ),
        (
            dataclasses.replace(
                B16,
                num_register_tokens=7,
                layer_scale_init=1e-5,
                final_norm="none",
                num_prefix_positions=0,
            ),
            "align_corners_bilinear",
            "vit_base_patch16_radio_v3",
        ),
    ],
)
def test_names_are_natural(config, rule, architecture):
    assert timm_writing.can_express(config)
    assert timm_writing._architecture(config, rule) == architecture


def test_the_ratio_of_widths_is_cut_to_the_right_integer():
    for hidden_dim in (3, 7, 12, 192, 384, 768, 1152, 1408):
        for mlp_dim in (*range(1, 200), 4304, 6144, 8191, 8192):
            assert int(hidden_dim * timm_writing._ratio(mlp_dim, hidden_dim)) == mlp_dim


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_norm_epsilon": 1e-12},
        {"position_embedding": "learned_2d"},
        {"position_embedding": "relative"},
        {"position_embedding": "sincos_2d"},
        {"position_insertion": "every_block"},
        {"axial": True, "class_token": False, "pool": "mean"},
        {"representation_size": 8},
        {"representation_size": 8, "representation": "linear"},
        {"pool": "token_mean"},
        {"embedding_norm": True},
        {"patch_bias": False},
        {"num_register_tokens": 2, "num_prefix_positions": 1},
        {"layer_scale_init": 0.0},
        {"pool": "map", "gated_mlp": True},
        {"gated_mlp": True, "layer_norm_epsilon": 1e-5},
        {"distillation_token": True, "num_register_tokens": 1},
        {"distillation_token": True, "num_prefix_positions": 0},
        {"distillation_token": True, "position_embedding": "none"},
        {"distillation_token": True, "final_norm": "pool"},
        {"distillation_token": True, "layer_norm_epsilon": 1e-5},
        HYBRID | {"stem_layers": (2, 1), "image_size": 64},
        HYBRID | {"stem_layers": (3, 4, 9), "stem_numerics": "official"},
        HYBRID | {"stem_layers": (3, 4, 9), "stem_width": 32},
    ],
    ids=str,
)
def test_what_timm_is_not(fields, tmp_path):
    config = dataclasses.replace(TINY, **fields)
    assert not timm_writing.can_express(config)
    with pytest.raises(ValueError, match="`config` must be a ViT that timm has"):
        write(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_mixer_is_none():
    mixer = MixerConfig(
        num_layers=1, hidden_dim=8, tokens_mlp_dim=4, channels_mlp_dim=8, patch_size=4
    )
    assert not timm_writing.can_express(mixer)


def test_every_architecture_that_we_have_can_be_written():
    """By its own flags, small: each is expressible, and none needs more than it has."""
    hybrids = {name for names in timm_writing.HYBRIDS.values() for name in names}
    had = 0
    for name, row in architectures().items():
        if not all(row.get(k, v) == v for k, v in timm_writing.ONLY_VALUE.items()):
            continue
        if "rms" in row.get("norm_layer", "").lower() or name in hybrids | timm_writing.TOYS:
            continue
        had += 1
        config = dataclasses.replace(
            TINY,
            **timm_writing.config_fields(row) | {"num_heads": 2},
            gated_mlp=row.get("act_layer") == "SiLU",
            layer_scale_init=row.get("init_values"),
            final_norm="encoder" if row.get("final_norm", True) else "none",
        )
        assert timm_writing._replaced(config, row) == {}
        assert name in timm_writing._bases(config)
    assert had + len(hybrids | timm_writing.TOYS) == 160
