"""timm's names: what they say, and what of them is refused. tests/parity compares all with timm."""

import re

import pytest

from keras_vit.zoo.timm_architectures import (
    architectures,
    config_fields,
    read_arguments,
    unread,
)


def fields(architecture, overrides=None, **model_args):
    config_json = {"architecture": architecture, "model_args": model_args}
    return config_fields(read_arguments(config_json, overrides or {}))


def test_no_architecture_stands_twice():
    from keras_vit.zoo.timm_architectures import DATA

    names = re.findall(r"^(\w+) = \d+$", DATA.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for name in names if name != "reg_tokens"]
    assert len(names) == len(set(names)) == len(architectures()) == 193


def test_plain():
    assert fields("vit_small_patch16_224") == {
        "num_heads": 6,
        "activation": "gelu",
        "layer_norm_epsilon": 1e-6,
        "pool": "token",
        "class_token": True,
        "distillation_token": False,
        "num_register_tokens": 0,
        "position_embedding": "learned",
    }


@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        ("vit_base_patch16_clip_224", {"layer_norm_epsilon": 1e-5, "activation": "gelu"}),
        (
            "vit_base_patch32_clip_quickgelu_224",
            {"activation": "quick_gelu", "layer_norm_epsilon": 1e-5},
        ),
        ("vit_base_patch16_siglip_224", {"pool": "map", "class_token": False}),
        ("vit_so400m_patch16_siglip_256", {"activation": "gelu_tanh", "num_heads": 16}),
        ("vit_so400m_patch14_siglip_gap_224", {"pool": "mean", "activation": "gelu"}),
        ("vit_giant_patch14_reg4_dinov2", {"activation": "silu", "num_register_tokens": 4}),
        ("deit_tiny_distilled_patch16_224", {"distillation_token": True, "num_heads": 3}),
        ("vit_so150m2_patch16_reg1_gap_256", {"num_heads": 13, "num_register_tokens": 1}),
        ("vit_tiny_r_s16_p8_224", {"num_heads": 3, "pool": "token"}),
    ],
)
def test_what_a_name_says(architecture, said):
    """FAULTS E3, E4: epsilon and activation are those of the name."""
    found = fields(architecture)
    assert {key: found[key] for key in said} == said


def test_model_args_override_the_architecture():
    found = fields(
        "vit_base_patch16_clip_quickgelu_224",
        norm_layer=None,
        act_layer="GELU_tanh",
        num_heads=4,
        global_pool="avg",
        reg_tokens=2,
        pos_embed="none",
    )
    assert found == {
        "num_heads": 4,
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-6,
        "pool": "mean",
        "class_token": True,
        "distillation_token": False,
        "num_register_tokens": 2,
        "position_embedding": "none",
    }
    assert fields("vit_base_patch16_clip_224", norm_layer="layernorm")["layer_norm_epsilon"] == 1e-6
    assert fields("vit_base_patch16_224", act_layer="swish")["activation"] == "silu"


def test_unknown_architecture_has_the_defaults_of_the_class():
    assert fields("vit_test") | {"num_heads": 12} == fields("vit_base_patch16_224")
    assert "num_heads" not in fields("vit_test")


@pytest.mark.parametrize(
    ("architecture", "flag"),
    [
        ("aimv2_1b_patch14_224", "norm_layer='RmsNorm(eps=1e-05)'"),
        ("vit_base_patch16_xp_224", "block_fn='ParallelScalingBlock'"),
        ("vit_dwee_patch16_reg1_gap_256", "attn_layer='diff'"),
        ("beit3_base_patch16_224", "scale_attn_norm=True"),
        ("test_vit3", "pool_include_prefix=True"),
        ("vit_base_resnet50d_224", "embed_layer='HybridEmbed(backbone=FeatureListNet)'"),
    ],
)
def test_what_we_lack_is_named(architecture, flag):
    with pytest.raises(ValueError, match=rf"which needs .*{re.escape(flag)}"):
        fields(architecture)


@pytest.mark.parametrize(
    "argument",
    [
        {"act_layer": "relu"},
        {"norm_layer": "rmsnorm"},
        {"global_pool": "avgmax"},
        {"global_pool": ""},
        {"proj_bias": False},
        {"scale_mlp_norm": True},
        {"sparkle": 1},
    ],
)
def test_model_args_that_we_lack(argument):
    ((key, value),) = argument.items()
    message = re.escape(f"architecture='vit_base_patch16_224', which needs {key}={value!r}. Use")
    with pytest.raises(ValueError, match=message):
        fields("vit_base_patch16_224", **argument)


def test_model_args_without_effect():
    plain = fields("vit_base_patch16_224")
    harmless = dict(drop_path_rate=0.1, dynamic_img_size=True, proj_bias=True, weight_init="jax")
    assert fields("vit_base_patch16_224", **harmless) == plain


@pytest.mark.parametrize("name", ["vit_pe_core_base_patch16_224", "vit_base_patch16_rope_224"])
def test_another_kind_of_model(name):
    """Their files are whole ViTs, but for the rotary positions that no tensor tells of."""
    message = f"Received: architecture='{name}', of timm's module eva.*Use timm itself"
    with pytest.raises(ValueError, match=message):
        fields(name, {"pool": "map"}, global_pool="map")


def test_no_architecture_is_read_and_not_read():
    other = [name for names in unread().values() for name in names]
    assert len(other) == len(set(other)) > 0
    assert not set(other) & architectures().keys()


def test_pool_that_the_caller_knows_better():
    assert fields("vit_base_patch16_224", {"pool": "mean"}, global_pool="max")["pool"] == "token"
