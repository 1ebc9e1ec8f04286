"""timm itself: its table of architectures, and its numbers on fresh random models."""

import functools
import inspect
import json
import pathlib
import sys

import numpy as np
import pytest

import keras_vit
from keras_vit.layers.resnet_stem import STEM_NUMERICS
from keras_vit.zoo import read_checkpoint, timm_architectures, timm_safetensors
from keras_vit.zoo.tensor_files import StoredTensor, TensorFile

pytestmark = pytest.mark.parity
# triton's library, loaded after TensorFlow's, kills the process; torch does without triton.
sys.modules.setdefault("triton", None)

MODULES = ("vision_transformer", "deit", "vision_transformer_hybrid")
TOLD_BY_SHAPES = {
    *("patch_size", "embed_dim", "depth", "mlp_ratio", "no_embed_class"),
    *("img_size", "dynamic_img_size"),
    *("pretrained_strict", "feature_cfg", "pretrained_filter_fn"),  # of timm's factory
}
# Parts that ViTConfig has no field for; an architecture with one must be refused by its name.
LACKED = {
    *("scale_attn_norm", "scale_mlp_norm", "proj_bias", "embed_norm_layer", "block_fn"),
    *("mlp_layer", "attn_layer", "embed_layer", "pool_include_prefix"),
}

SMALL = dict(img_size=64, embed_dim=48, depth=3, num_heads=4, num_classes=7)
SMALL_14 = SMALL | dict(img_size=56)
MODELS = {
    "plain": ("vit_base_patch16_224", SMALL),
    "clip": ("vit_base_patch16_clip_224", SMALL),
    "clip_quickgelu": ("vit_base_patch32_clip_quickgelu_224", SMALL),
    "siglip": ("vit_base_patch16_siglip_224", SMALL),
    "siglip_so400m_tanh": ("vit_so400m_patch16_siglip_256", SMALL),
    "siglip_gap": ("vit_so400m_patch14_siglip_gap_224", SMALL_14),
    "registers_map": ("vit_so150m_patch16_reg4_map_256", SMALL),
    "dinov2_registers": ("vit_base_patch14_reg4_dinov2", SMALL_14),
    "dinov2_swiglu": ("vit_giant_patch14_reg4_dinov2", SMALL_14 | dict(mlp_ratio=5.33334)),
    "deit3": ("deit3_base_patch16_224", SMALL),
    "deit_distilled": ("deit_base_distilled_patch16_224", SMALL),
    "registers_mean": ("vit_betwixt_patch16_reg1_gap_256", SMALL),
    "registers_with_positions": ("vit_so150m2_patch16_reg1_gap_256", SMALL),
    "flexivit": ("flexivit_small", SMALL),
    "no_final_norm": ("vit_intern300m_patch14_448", SMALL_14),
    "radio": ("vit_base_patch16_radio_v3", SMALL),
    "mean_with_class_token": ("eva_large_patch14_196", SMALL_14),
    "qk_norm_oblong_grey": (
        "vit_base_patch16_224",
        SMALL | dict(img_size=(32, 80), in_chans=1, qk_norm=True),
    ),
    "overridden": (
        "vit_base_patch16_clip_quickgelu_224",
        SMALL | dict(norm_layer="layernorm", act_layer="gelu_tanh", reg_tokens=2),
    ),
    "no_positions": ("vit_base_patch16_224", SMALL | dict(pos_embed="none")),
    "hybrid_root": ("vit_tiny_r_s16_p8_224", SMALL),
    "hybrid_r26": ("vit_small_r26_s32_224", SMALL | dict(depth=1)),
    "hybrid_r50": ("vit_base_r50_s16_224", SMALL | dict(depth=1)),
}
RESIZED = {
    "plain": (80, 48),
    "registers_with_positions": 96,
    "deit_distilled": 32,
    "deit3": 96,
    "flexivit": (48, 96),
    "radio": (96, 80),
    "hybrid_root": 128,
}


def _randomise(model, seed: int = 0):
    """Give every weight a value of its own; all tokens stay near 1, so float32 noise is small."""
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_()
            if "norm" in name and name.endswith("weight") or ".gamma" in name:
                weight.mul_(0.2).add_(0.7)
                weight.mul_(0.3 if "norm3" in name else 1.0)  # the branches of a ResNet
            elif weight.ndim >= 2 and name.endswith("weight"):
                weight.mul_(1.2 / weight[0].numel() ** 0.5)
            else:
                weight.mul_(0.3)
    return model.eval()


@pytest.fixture
def saved(tmp_path):
    """Return a function that makes a random timm model and saves it as timm does."""
    import timm

    def save(key: str):
        architecture, arguments = MODELS[key]
        model = _randomise(timm.create_model(architecture, **arguments))
        timm.models.save_for_hf(model, tmp_path, safe_serialization=True)
        return model, tmp_path

    return save


def _images(model) -> np.ndarray:
    shape = (3, *model.config.image_size, model.config.num_channels)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def _run(method, images: np.ndarray, **keywords) -> np.ndarray:
    import torch

    with torch.no_grad():
        return method(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), **keywords).numpy()


@pytest.mark.parametrize("key", MODELS)
def test_numbers_of_a_fresh_random_model(key, saved):
    """FAULTS E3, E4: logits, features, and each epsilon."""
    theirs, directory = saved(key)
    ours = keras_vit.from_pretrained(directory, include_normalization=False)
    has_norm = ours.config.final_norm == "encoder"
    last = "encoder_norm" if has_norm else f"block_{ours.config.num_layers - 1}"
    images = _images(ours)
    values = ours.intermediates([last, "logits"])(images)
    features = _run(theirs.forward_features, images)
    assert 0.3 < features.std() < 10.0
    np.testing.assert_allclose(values[last], features, atol=2e-5)
    np.testing.assert_allclose(values["logits"], _run(theirs, images), atol=2e-5)
    assert _our_epsilons(ours) == _their_epsilons(theirs)


@pytest.mark.parametrize("key", ["siglip", "deit_distilled", "registers_mean"])
def test_pooled_features_of_a_fresh_random_model(key, saved):
    theirs, directory = saved(key)
    ours = keras_vit.from_pretrained(directory, num_classes=0, include_normalization=False)
    images = _images(ours)
    expected = _run(lambda x: theirs.forward_head(theirs.forward_features(x), True), images)
    np.testing.assert_allclose(ours(images), expected, atol=2e-5)


def _our_epsilons(model) -> set[tuple[str, float]]:
    found = set()
    for layer in model._flatten_layers():
        kind = type(layer).__name__
        if kind in ("LayerNorm", "GroupNormalization"):
            found.add((kind, layer.epsilon))
        if kind == "StandardizedConv2D":
            numerics = STEM_NUMERICS[layer.numerics]
            assert numerics.std_epsilon == 0.0
            found.add((kind, numerics.variance_epsilon))
    return found


def _their_epsilons(model) -> set[tuple[str, float]]:
    kinds = {
        "LayerNorm": "LayerNorm",
        "GroupNormAct": "GroupNormalization",
        "StdConv2dSame": "StandardizedConv2D",
    }
    modules = [(type(module).__name__, module) for module in model.modules()]
    return {(kinds[name], module.eps) for name, module in modules if hasattr(module, "eps")}


@pytest.mark.parametrize("key", RESIZED)
def test_positions_resized_as_timm_loads_them(key, saved):
    """FAULTS A1, A2."""
    import timm

    _, directory = saved(key)
    size = RESIZED[key]
    theirs = timm.create_model(f"local-dir:{directory}", pretrained=True, img_size=size).eval()
    ours = keras_vit.from_pretrained(directory, image_size=size, include_normalization=False)
    images = _images(ours)
    np.testing.assert_allclose(ours(images), _run(theirs, images), atol=2e-5)


def test_positions_resized_as_set_input_size_does(saved):
    theirs, directory = saved("plain")
    ours = keras_vit.from_pretrained(directory, include_normalization=False)
    theirs.set_input_size((96, 48))
    ours = ours.with_image_size((96, 48))
    images = _images(ours)
    np.testing.assert_allclose(ours(images), _run(theirs, images), atol=2e-5)


def test_pixels_prepared_as_timm_does(saved):
    """FAULTS D2: to one level of 255, on a picture that is not square."""
    import timm
    from PIL import Image

    theirs, directory = saved("deit3")
    ours = keras_vit.from_pretrained(directory)
    noise = np.random.default_rng(0).integers(0, 256, (75, 100, 3)).astype("uint8")
    values = timm.data.resolve_model_data_config(theirs) | {"input_size": (3, 64, 64)}
    transform = timm.data.create_transform(**values)
    expected = transform(Image.fromarray(noise)).numpy().transpose(1, 2, 0)
    levels = (expected * theirs.pretrained_cfg["std"] + theirs.pretrained_cfg["mean"]) * 255.0
    assert np.abs(ours.preprocess(Image.fromarray(noise))[0] - levels).max() <= 1.0 + 1e-4


def test_transformers_wrapper(saved, tmp_path):
    """What transformers saves of a timm model: the prefix `timm_model.`, invented labels."""
    import transformers

    theirs, directory = saved("registers_mean")
    config_json = json.loads((directory / "config.json").read_text())
    del config_json["model_args"]["num_classes"]  # transformers 5.24 passes its own beside it
    (directory / "config.json").write_text(json.dumps(config_json))
    wrapper = transformers.TimmWrapperForImageClassification.from_pretrained(directory)
    wrapper.save_pretrained(tmp_path / "wrapped")
    ours = keras_vit.from_pretrained(tmp_path / "wrapped", include_normalization=False)
    images = _images(ours)
    np.testing.assert_allclose(ours(images), _run(theirs, images), atol=2e-5)
    assert ours.labels is None
    backbone = transformers.TimmWrapperModel.from_pretrained(directory)
    backbone.save_pretrained(tmp_path / "backbone")
    assert read_checkpoint(tmp_path / "backbone").config.num_classes == 0


@functools.cache
def _timm_table() -> dict[str, dict]:
    """What each entry point of timm hands to its class, as text where it is no plain value."""
    import timm.models

    table = {}

    def record(model_class, variant, pretrained, **arguments):
        table[variant] = {"class": model_class.__name__} | arguments

    for module in (getattr(timm.models, name) for name in MODULES):
        build, module.build_model_with_cfg = module.build_model_with_cfg, record
        try:
            for name in timm.list_models(module=module.__name__.rsplit(".", 1)[1]):
                timm.models.model_entrypoint(name)()
        finally:
            module.build_model_with_cfg = build
    return table


def _text(value):
    if isinstance(value, functools.partial):
        keywords = ", ".join(f"{key}={_text(item)}" for key, item in value.keywords.items())
        return f"{value.func.__name__}({keywords})"
    if isinstance(value, type):
        return value.__name__
    return type(value).__name__ if hasattr(value, "forward") else value


def _expected_row(arguments: dict) -> dict:
    row = timm_architectures.LAYER_DEFAULTS | {
        key: _text(value)
        for key, value in arguments.items()
        if key not in TOLD_BY_SHAPES | {"class"}
    }
    if row.get("class_token", False):
        del row["class_token"]  # the default
    if row.get("mlp_layer") == "GluMlp(act_layer=SiLU, gate_last=False)":
        del row["mlp_layer"]  # told by the width of fc1
    if row.get("embed_layer") in (
        "HybridEmbed(backbone=ResNetV2)",
        "HybridEmbed(backbone=Sequential)",
    ):
        del row["embed_layer"]  # told by the names
    if arguments["class"] == "VisionTransformerDistilled":
        row["distilled"] = True
    resize = getattr(arguments["pretrained_filter_fn"], "keywords", {})
    if resize.get("interpolation") == "bilinear":
        corners = resize.get("align_corners")
        row["position_resize"] = "align_corners_bilinear" if corners else "bilinear"
    return row


def test_table_of_architectures_is_that_of_timm():
    expected = {name: _expected_row(arguments) for name, arguments in _timm_table().items()}
    assert len(expected) == 193
    assert timm_architectures.architectures() == expected


def test_other_kinds_of_model_are_those_of_timm():
    """All of a module whose tensors could be taken for a ViT's."""
    import timm

    unread = timm_architectures.unread()
    assert not unread.keys() & set(MODULES)
    assert unread == {module: timm.list_models(module=module) for module in unread}


def test_a_perception_encoder_is_refused():
    """All its tensors fit a ViT's, which would pass by its rotary positions."""
    import timm

    arguments = SMALL | {"depth": 1, "attn_pool_num_heads": 4}
    model = timm.create_model("vit_pe_core_base_patch16_224", device="meta", **arguments)
    stored = {
        key: StoredTensor(pathlib.Path(), tuple(tensor.shape), "float32")
        for key, tensor in model.state_dict().items()
    }
    tensors = TensorFile(pathlib.Path(), stored, {})
    config_json = {"architecture": "another", "model_args": arguments | {"global_pool": "map"}}
    del config_json["model_args"]["attn_pool_num_heads"]
    timm_safetensors.read(tensors, config_json, {}).check()
    config_json["architecture"] = "vit_pe_core_base_patch16_224"
    with pytest.raises(ValueError, match="of timm's module eva"):
        timm_safetensors.read(tensors, config_json, {})


def test_every_argument_of_timm_is_known():
    from timm.models.vision_transformer import VisionTransformer

    known = timm_architectures.TAKEN | timm_architectures.WITHOUT_EFFECT
    known |= timm_architectures.ONLY_VALUE.keys() | {"act_layer", "norm_layer", "global_pool"}
    parameters = inspect.signature(VisionTransformer).parameters.keys()
    assert known - {"distilled", "position_resize"} == parameters


def _lacking(row: dict) -> set[str]:
    is_rms = "rmsnorm" in row.get("norm_layer", "").lower()
    return LACKED & row.keys() | ({"norm_layer"} if is_rms else set())


def test_every_architecture_fits_or_is_refused():
    """All of them, small and without numbers: names, shapes, and what no shape tells."""
    import timm

    read = 0
    for name, row in timm_architectures.architectures().items():
        config_json = {"architecture": name, "pretrained_cfg": {"num_classes": 5}}
        if lacking := _lacking(row):
            with pytest.raises(ValueError, match=f"architecture='{name}', which needs") as refusal:
                timm_architectures.read_arguments(config_json, {})
            assert all(f"{key}={row[key]!r}" in str(refusal.value) for key in lacking)
            continue
        patch = _timm_table()[name].get("patch_size", 16)
        arguments = dict(
            img_size=2 * (32 if "embed_layer" in _timm_table()[name] else patch),
            embed_dim=8 * row["num_heads"],
            depth=1,
            num_classes=5,
        )
        model = timm.create_model(name, device="meta", **arguments)
        config_json["model_args"] = arguments
        stored = {
            key: StoredTensor(pathlib.Path(), tuple(tensor.shape), "float32")
            for key, tensor in model.state_dict().items()
        }
        understood = timm_safetensors.read(TensorFile(pathlib.Path(), stored, {}), config_json, {})
        understood.check()
        _check_choices(understood.config, model)
        read += 1
    assert read == 160


def _check_choices(config, model):
    block = model.blocks[0]
    activation = {
        "GELU": "gelu",
        "GELUTanh": "gelu_tanh",
        "QuickGELU": "quick_gelu",
        "SiLU": "silu",
    }
    assert config.num_heads == block.attn.num_heads
    assert config.activation == activation[type(block.mlp.act).__name__]
    assert config.layer_norm_epsilon == block.norm1.eps
    assert {"mean": "avg"}.get(config.pool, config.pool) == model.global_pool
    assert (config.layer_scale_init is None) == (type(block.ls1).__name__ == "Identity")
    assert config.num_prefix_tokens == model.num_prefix_tokens
    positions = 0 if model.no_embed_class else model.num_prefix_tokens
    assert config.num_positions == positions + model.patch_embed.num_patches


def _published() -> list[str]:
    import timm

    known = timm_architectures.architectures()
    return [name for name in timm.list_pretrained() if name.partition(".")[0] in known]


def test_preprocessing_of_every_published_file(tmp_path):
    """FAULTS D1."""
    import timm

    theirs = _randomise(timm.create_model("vit_base_patch16_224", **SMALL))
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True)
    config_json = json.loads((tmp_path / "config.json").read_text())
    count = 0
    for name in _published():
        count += 1
        cfg = timm.models.get_pretrained_cfg(name).to_dict()
        values = {key: cfg[key] for key in ("mean", "std", "interpolation", "crop_pct")}
        mode = cfg.get("crop_mode", "center")
        pretrained_cfg = config_json["pretrained_cfg"] | values | {"crop_mode": mode}
        edited = config_json | {"pretrained_cfg": pretrained_cfg}
        (tmp_path / "config.json").write_text(json.dumps(edited))
        ours = read_checkpoint(tmp_path).preprocessing
        assert (ours.mean, ours.std) == (tuple(cfg["mean"]), tuple(cfg["std"]))
        assert (ours.interpolation, ours.antialias) == (cfg["interpolation"], True)
        assert ours.crop_fraction == cfg["crop_pct"]
        assert ours.resize == {"center": "crop", "squash": "squash"}[mode]
    assert count > 300
