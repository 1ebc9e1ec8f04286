"""FAULTS A, B, C, D1, E1, E3, E4: timm's models, from the Hub's layout and from bare files."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.zoo import keymap, read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.timm_names import key_table
from keras_vit.zoo.variables import variable_shapes

GOLDEN = Path(__file__).parents[1] / "golden"
SOURCES = (
    "timm_token",
    "timm_avg_fc_norm",
    "timm_registers_layerscale",
    "timm_map",
    "timm_pre_norm_clip",
)
TINY = ViTConfig(
    num_layers=2,
    num_heads=2,
    hidden_dim=8,
    mlp_dim=12,
    patch_size=4,
    image_size=16,
    num_classes=3,
    activation="gelu",
)
CROP_90 = PreprocessingConfig(
    interpolation="bicubic", antialias=True, resize="crop", crop_fraction=0.9
)
# What a name of timm's and a file's shapes must give: architecture, model_args, fields of TINY.
MODELS = {
    "token": ("vit_base_patch16_224", {}, {}),
    "clip": (
        "vit_base_patch16_clip_224",
        {},
        dict(embedding_norm=True, patch_bias=False, layer_norm_epsilon=1e-5),
    ),
    "deit3": (
        "deit3_base_patch16_224",
        {},
        dict(num_prefix_positions=0, layer_scale_init=1e-6),
    ),
    "distilled": ("deit_base_distilled_patch16_224", {}, dict(distillation_token=True)),
    "siglip": ("vit_base_patch16_siglip_224", {}, dict(class_token=False, pool="map")),
    "siglip_gap": ("vit_base_patch16_siglip_gap_224", {}, dict(class_token=False, pool="mean")),
    "swiglu": (
        "vit_giant_patch14_reg4_dinov2",
        {},
        dict(
            num_register_tokens=4,
            num_prefix_positions=0,
            layer_scale_init=1e-5,
            gated_mlp=True,
            activation="silu",
        ),
    ),
    "registers_with_positions": (
        "vit_so150m2_patch16_reg1_gap_256",
        {},
        dict(
            class_token=False,
            num_register_tokens=1,
            pool="mean",
            final_norm="pool",
            layer_scale_init=1e-5,
            qkv_bias=False,
        ),
    ),
    "no_final_norm": (
        "vit_intern300m_patch14_448",
        {},
        dict(layer_scale_init=0.1, final_norm="none", num_classes=0),
    ),
    "qk_norm": ("vit_base_patch16_224", {"qk_norm": True}, dict(qk_norm=True)),
    "no_positions": (
        "vit_base_patch16_224",
        {"pos_embed": "none"},
        dict(position_embedding="none"),
    ),
    "oblong": (
        "vit_base_patch16_224",
        {"img_size": [8, 24], "patch_size": [4, 8]},
        dict(image_size=(8, 24), patch_size=(4, 8)),
    ),
    "four_channels": ("vit_base_patch16_224", {"in_chans": 4}, dict(num_channels=4)),
    "hybrid_root": (
        "vit_tiny_r_s16_p8_224",
        {},
        dict(stem_layers=(), stem_width=32, stem_numerics="timm"),
    ),
    "hybrid": (
        "vit_base_r50_s16_224",
        {},
        dict(stem_layers=(2, 1), stem_width=32, stem_numerics="timm", patch_size=1),
    ),
}


def random_arrays(config, seed=0):
    """timm's tensors of a model, by our key table turned round."""
    random = np.random.default_rng(seed)
    shapes, arrays = variable_shapes(config), {}
    for rule in key_table(config):
        value = random.normal(size=shapes[rule.ours]).astype(np.float32)
        arrays |= keymap.invert(rule, value)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def save(directory, arrays, config_json=None):
    save_file(arrays, directory / "model.safetensors")
    if config_json is not None:
        (directory / "config.json").write_text(json.dumps(config_json))
    return directory


def described(key):
    """Return the configuration, the tensors and the `config.json` of a row of MODELS."""
    architecture, model_args, fields = MODELS[key]
    config = dataclasses.replace(TINY, **fields)
    values = {"input_size": [config.num_channels, 16, 16], "num_classes": config.num_classes}
    config_json = {
        "architecture": architecture,
        "num_classes": config.num_classes,
        "pretrained_cfg": values,
        "model_args": {"num_heads": 2, "num_classes": config.num_classes, **model_args},
    }
    return config, random_arrays(config), config_json


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("num_classes", [None, 0])
def test_golden_numbers(source, num_classes):
    """What timm computed: logits, and features after the final norm, or the last block."""
    expected = np.load(GOLDEN / source / "expected.npz")
    model = keras_vit.from_pretrained(
        GOLDEN / source, num_classes=num_classes, include_normalization=False
    )
    has_norm = model.config.final_norm == "encoder"
    last = "encoder_norm" if has_norm else f"block_{model.config.num_layers - 1}"
    values = model.intermediates([last, "pooled"])(expected["images"])
    np.testing.assert_allclose(values[last], expected["features"], atol=2e-5)
    outputs = model(expected["images"])
    if num_classes is None:
        np.testing.assert_allclose(outputs, expected["logits"], atol=2e-5)
        return
    head = load_file(GOLDEN / source / "model.safetensors")
    logits = np.asarray(outputs) @ head["head.weight"].T + head["head.bias"]
    np.testing.assert_allclose(logits, expected["logits"], atol=2e-5)


def test_golden_token():
    understood = read_checkpoint(GOLDEN / "timm_token")
    assert understood.family == "timm_safetensors"
    assert understood.config == ViTConfig(
        num_layers=3,
        num_heads=4,
        hidden_dim=32,
        mlp_dim=64,
        patch_size=8,
        image_size=32,
        num_classes=10,
        activation="gelu",
        layer_norm_epsilon=1e-6,
    )
    assert understood.preprocessing == CROP_90
    assert understood.labels is None
    assert understood.position_resize == "bicubic_antialias"


@pytest.mark.parametrize("key", MODELS)
def test_fields_and_weights(key, tmp_path):
    """FAULTS A2, B3, E3, E4: whatever the name and `model_args` say, and shapes tell."""
    config, arrays, config_json = described(key)
    understood = read_checkpoint(save(tmp_path, arrays, config_json))
    understood.check()
    assert understood.config == config
    for path, shape in variable_shapes(config).items():
        assert understood.weight(path).shape == shape


@pytest.mark.parametrize("key", MODELS)
def test_bare_file(key, tmp_path):
    """What no shape tells has timm's defaults, or is given."""
    config, arrays, _ = described(key)
    path = save(tmp_path, arrays) / "model.safetensors"
    given = {
        "activation": config.activation,
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "layer_scale_init": config.layer_scale_init,
        "position_embedding": config.position_embedding,
        "num_heads": 2,
    }
    if key == "siglip_gap":
        with pytest.raises(ValueError, match="`pool` must be given.*cls_token"):
            read_checkpoint(path, given)
        given["pool"] = "mean"
    if key in ("oblong", "no_positions"):
        with pytest.raises(ValueError, match="`source_image_size` must"):
            read_checkpoint(path, given)
        given["source_image_size"] = config.image_size
    if config.final_norm == "none":
        with pytest.raises(MissingWeightsError, match="- norm.weight"):
            read_checkpoint(path, given).check()
        given["final_norm"] = "none"
    understood = read_checkpoint(path, given)
    understood.check()
    assert understood.config == config
    assert understood.preprocessing == CROP_90.for_channels(config.num_channels)


def test_bare_file_needs_heads(tmp_path, same_weights):
    path = tmp_path / "x.safetensors"
    shutil.copy(GOLDEN / "timm_token" / "model.safetensors", path)
    with pytest.raises(ValueError, match="`num_heads` must be given"):
        read_checkpoint(path)
    same_weights(read_checkpoint(path, {"num_heads": 4}), read_checkpoint(GOLDEN / "timm_token"))


def test_bare_file_with_heads_in_a_shape(tmp_path):
    config, arrays, _ = described("qk_norm")
    assert read_checkpoint(save(tmp_path, arrays)).config == config


def test_bare_gated_file_is_swiglu(tmp_path):
    _, arrays, _ = described("swiglu")
    assert read_checkpoint(save(tmp_path, arrays), {"num_heads": 2}).config.activation == "silu"


def test_ambiguous_square(tmp_path):
    """9 positions: of 3 x 3 patches alone, or of 2 x 2 and five prefix tokens."""
    config = dataclasses.replace(TINY, num_register_tokens=4, image_size=8)
    path = save(tmp_path, random_arrays(config))
    with pytest.raises(ValueError, match="`source_image_size` must be given.*its 9 positions"):
        read_checkpoint(path, {"num_heads": 2})
    given = {"num_heads": 2, "source_image_size": 8}
    assert read_checkpoint(path, given).config == config
    other = read_checkpoint(path, {"num_heads": 2, "source_image_size": 12}).config
    assert (other.grid, other.num_prefix_positions) == ((3, 3), 0)


@pytest.mark.parametrize("key", MODELS)
@pytest.mark.parametrize("is_bare", [False, True])
def test_each_missing_tensor_is_named(key, is_bare, tmp_path):
    """FAULTS C2, one tensor after the other."""
    config, arrays, config_json = described(key)
    registers = {"reg_token"} if is_bare else set()  # nothing else speaks of them
    given = {"num_heads": 2, "position_embedding": config.position_embedding}
    if key in ("oblong", "no_positions"):
        given["source_image_size"] = config.image_size
    if key == "siglip_gap":
        given["pool"] = "mean"
    for name in arrays.keys() - registers:
        rest = {other: array for other, array in arrays.items() if other != name}
        save(tmp_path, rest, None if is_bare else config_json)
        with pytest.raises(ValueError) as error:
            read_checkpoint(tmp_path, given if is_bare else {}).check()
        is_named = f"- {name}\n" in str(error.value)
        assert is_named or (name == "cls_token" and "`pool` must" in str(error.value))


def test_stray_tensor_is_named(tmp_path):
    """FAULTS C2."""
    _, arrays, config_json = described("token")
    arrays["blocks.1.gamma_1"] = np.zeros(8, np.float32)
    with pytest.raises(MissingWeightsError, match=r"\+ blocks\.1\.gamma_1\n"):
        read_checkpoint(save(tmp_path, arrays, config_json)).check()


def test_wrong_shape_is_named(tmp_path):
    _, arrays, config_json = described("token")
    config_json["pretrained_cfg"]["input_size"] = [3, 32, 32]
    path = save(tmp_path, arrays, config_json)
    with pytest.raises(MissingWeightsError, match=r"expected \(1, 65, 8\), found \(1, 17, 8\)"):
        read_checkpoint(path).check()
    read_checkpoint(path, {"source_image_size": 16}).check()


def test_whole_head_missing(tmp_path):
    """FAULTS C2: `config.json` says how many classes there should be."""
    _, arrays, config_json = described("token")
    arrays = {name: array for name, array in arrays.items() if not name.startswith("head.")}
    with pytest.raises(MissingWeightsError, match=r"- head\.bias\n- head\.weight"):
        read_checkpoint(save(tmp_path, arrays, config_json)).check()
    config_json |= {"num_classes": 0}
    understood = read_checkpoint(save(tmp_path, arrays, config_json))
    understood.check()
    assert understood.config.num_classes == 0


@pytest.mark.parametrize("prefix", ["timm_model.", "module.", "module.model."])
def test_prefixes_give_the_same_weights(edited, prefix, same_weights):
    """FAULTS E1: transformers' wrapper, DataParallel."""
    understood = read_checkpoint(edited("timm_token", rename=lambda name: prefix + name))
    understood.check()
    same_weights(understood, read_checkpoint(GOLDEN / "timm_token"))


def test_transformers_wrapper(edited):
    """Its `model_type`, its invented labels, and the class count that its headless class keeps."""
    wrapper = {"model_type": "timm_wrapper", "label_names": [f"LABEL_{i}" for i in range(10)]}
    assert read_checkpoint(edited("timm_token", **wrapper)).labels is None
    path = edited("timm_token", **wrapper, architectures=["TimmWrapperModel"])
    arrays = load_file(path / "model.safetensors")
    headless = {name: array for name, array in arrays.items() if not name.startswith("head.")}
    save_file(headless, path / "model.safetensors")
    understood = read_checkpoint(path)
    understood.check()
    assert understood.config.num_classes == 0


def test_another_library_with_the_same_names(edited):
    with pytest.raises(ValueError, match="no reader knows.*'prithvi'"):
        read_checkpoint(edited("timm_token", model_type="prithvi"))


@pytest.mark.parametrize(
    ("architecture", "names"),
    [
        ("resnet50", ["layer1.0.conv1.weight"]),
        ("swin_tiny", ["patch_embed.proj.weight", "layers.0.blocks.0.attn.qkv.weight"]),
        ("mixer_b16_224", ["stem.proj.weight", "blocks.0.mlp_tokens.fc1.weight"]),
    ],
)
def test_model_that_is_no_vit(tmp_path, architecture, names):
    arrays = {name: np.zeros((4, 4), np.float32) for name in names}
    with pytest.raises(ValueError, match=f"no reader knows.*'{architecture}'"):
        read_checkpoint(save(tmp_path, arrays, {"architecture": architecture}))


def test_flat_config_json(tmp_path):
    """As timm wrote it before `pretrained_cfg`."""
    config, arrays, config_json = described("token")
    flat = {
        "architecture": "vit_base_patch16_224",
        "num_classes": 3,
        "num_features": 8,
        "input_size": [3, 16, 16],
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "labels": ["cat", "dog", "owl"],
    }
    path = save(tmp_path, arrays, flat)
    understood = read_checkpoint(path, {"num_heads": 2})
    understood.check()
    assert understood.config == config
    assert understood.preprocessing == CROP_90
    assert understood.labels == ("cat", "dog", "owl")


def test_unknown_architecture_must_say_its_heads(edited):
    path = edited("timm_token", architecture="vit_new", model_args={"img_size": 32})
    with pytest.raises(ValueError, match="`num_heads` must be given"):
        read_checkpoint(path)
    understood = read_checkpoint(path, {"num_heads": 4, "activation": "quick_gelu"})
    assert (understood.config.num_heads, understood.config.activation) == (4, "quick_gelu")


def test_caller_knows_better(edited):
    path = edited("timm_avg_fc_norm", model_args={"num_heads": 4, "global_pool": "max"})
    with pytest.raises(ValueError, match="global_pool='max'"):
        read_checkpoint(path)
    given = {"pool": "mean", "num_heads": 8, "class_token": False, "layer_norm_epsilon": 1e-3}
    config = read_checkpoint(path, given).config
    assert (config.pool, config.num_heads, config.layer_norm_epsilon) == ("mean", 8, 1e-3)


def test_attention_pool_that_nothing_reads(tmp_path):
    """An unknown architecture pools by the class token unless it says otherwise."""
    _, arrays, config_json = described("siglip")
    arrays |= random_arrays(TINY)
    path = save(tmp_path, arrays, config_json | {"architecture": "vit_new"})
    with pytest.raises(MissingWeightsError, match=r"\+ attn_pool\.latent"):
        read_checkpoint(path).check()


def test_siglip_file_that_holds_the_pool_it_does_without(tmp_path):
    config, arrays, config_json = described("siglip")
    gap = described("siglip_gap")
    understood = read_checkpoint(save(tmp_path, arrays, gap[2]))
    understood.check()
    assert understood.config == gap[0]
    assert len(understood.ignored) == 13


@pytest.mark.parametrize(
    ("architecture", "rule"),
    [
        ("vit_base_patch16_224", "bicubic_antialias"),
        ("flexivit_small", "bilinear"),
        ("vit_huge_patch16_radio_v3", "align_corners_bilinear"),
    ],
)
def test_position_resize_is_the_source_s(edited, architecture, rule):
    """FAULTS A1: timm's own loader differs by architecture."""
    model_args = {"num_heads": 4, "reg_tokens": 0, "img_size": 32}
    path = edited("timm_token", architecture=architecture, model_args=model_args)
    assert read_checkpoint(path).position_resize == rule


def test_labels_and_preprocessing_of_config_json(edited):
    """FAULTS D1."""
    values = {"mean": [0.4, 0.5, 0.6], "std": [0.5] * 3, "crop_pct": 1.0, "crop_mode": "squash"}
    names = [f"n{i}" for i in range(10)]
    labels = {"label_names": names, "label_descriptions": {"n3": "owl"}}
    path = edited("timm_token", pretrained_cfg=values, **labels)
    understood = read_checkpoint(path)
    assert understood.labels == ("n0", "n1", "n2", "owl", *names[4:])
    assert understood.preprocessing == PreprocessingConfig(
        mean=(0.4, 0.5, 0.6), interpolation="bicubic", antialias=True
    )


def test_config_json_that_is_not_timm_s_is_passed_over(tmp_path):
    config, arrays, _ = described("token")
    for values in ({}, {"note": "mine"}):
        path = save(tmp_path, arrays, values)
        assert read_checkpoint(path, {"num_heads": 2}).config == config


@pytest.mark.parametrize(
    ("key", "pattern", "named"),
    [
        ("token", r"blocks\.\d+\.attn\.qkv\.bias", "- blocks.1.attn.qkv.bias"),
        ("token", r"norm\..*", "- norm.weight"),
        ("clip", r"norm_pre\..*", "- norm_pre.weight"),
        ("deit3", r"blocks\.\d+\.ls[12]\.gamma", "- blocks.1.ls2.gamma"),
    ],
)
def test_missing_groups_of_a_known_architecture(key, pattern, named, tmp_path):
    """FAULTS C2: its name says which layers there are."""
    _, arrays, config_json = described(key)
    rest = {name: array for name, array in arrays.items() if not re.fullmatch(pattern, name)}
    assert len(rest) < len(arrays)
    with pytest.raises(MissingWeightsError, match=named):
        read_checkpoint(save(tmp_path, rest, config_json)).check()


def test_norm_that_the_pool_moves(tmp_path):
    """timm's default of `fc_norm` hangs on `global_pool`; the caller may know better than both."""
    config, arrays, config_json = described("token")
    config_json["model_args"]["global_pool"] = "avg"
    path = save(tmp_path, arrays, config_json)
    with pytest.raises(MissingWeightsError, match=r"(?s)- fc_norm\.weight.*\+ norm\.weight"):
        read_checkpoint(path).check()
    expected = dataclasses.replace(config, pool="mean")
    for overrides, fc_norm in (({"pool": "mean"}, None), ({}, False)):
        config_json["model_args"]["fc_norm"] = fc_norm
        understood = read_checkpoint(save(tmp_path, arrays, config_json), overrides)
        understood.check()
        assert understood.config == expected


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"norm\..*", "- norm.weight"),
        (r"blocks\.\d+\.ls[12]\.gamma", "- blocks.0.ls1.gamma"),
        (r"blocks\.2\..*", "- blocks.2.attn.qkv.weight"),
    ],
)
def test_missing_groups_are_no_other_architecture(pattern, named, tmp_path):
    """FAULTS C2: what config.json says is there is missing when it is not."""
    source = GOLDEN / "timm_registers_layerscale"
    whole = load_file(source / "model.safetensors")
    arrays = {name: value for name, value in whole.items() if not re.fullmatch(pattern, name)}
    assert len(arrays) < len(whole)
    shutil.copy(source / "config.json", tmp_path)
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(MissingWeightsError, match=named):
        read_checkpoint(tmp_path).check()
