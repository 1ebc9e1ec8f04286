"""transformers itself, on fresh random models: its outputs are ours, and it loads what we save."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import keras_vit
from keras_vit.zoo.hf_config import tower_values
from keras_vit.zoo.hf_families import FAMILIES
from keras_vit.zoo.hf_preprocessing import PROCESSORS

pytestmark = pytest.mark.parity
# triton's library, loaded after TensorFlow's, kills the process; torch does without triton.
sys.modules.setdefault("triton", None)

WEIGHTS = "model.safetensors"
SIZES = dict(
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=96,
    image_size=32,
    patch_size=8,
)
DINOV2 = {key: value for key, value in SIZES.items() if key != "intermediate_size"}
DINOV2 |= {"mlp_ratio": 2}
TEXT = dict(hidden_size=16, num_hidden_layers=5, num_attention_heads=2, intermediate_size=8)
LABELS = {"num_labels": 7}
DECODER = dict(
    decoder_hidden_size=16,
    decoder_num_hidden_layers=5,
    decoder_num_attention_heads=2,
    decoder_intermediate_size=8,
)
SWIGLU = {"use_swiglu_ffn": True, "qkv_bias": False}
# Class, configuration class and its fields: every class and every field that changes a model.
MODELS = {
    "vit": ("ViTForImageClassification", "ViTConfig", SIZES | LABELS),
    "vit_wide": (
        "ViTForImageClassification",
        "ViTConfig",
        SIZES | dict(image_size=(32, 48), num_labels=3),
    ),
    "vit_one_channel_no_bias": (
        "ViTForImageClassification",
        "ViTConfig",
        SIZES | LABELS | dict(patch_size=16, num_channels=1, qkv_bias=False),
    ),
    "vit_tanh_gelu": (
        "ViTForImageClassification",
        "ViTConfig",
        SIZES | dict(image_size=24, patch_size=4, hidden_act="gelu_new", layer_norm_eps=1e-6),
    ),
    "vit_deep_and_narrow": (
        "ViTForImageClassification",
        "ViTConfig",
        SIZES | dict(image_size=16, patch_size=4, num_hidden_layers=7, hidden_size=24),
    ),
    "vit_headless": ("ViTModel", "ViTConfig", SIZES | dict(pooler_output_size=20)),
    "msn": ("ViTMSNForImageClassification", "ViTMSNConfig", SIZES | LABELS),
    "msn_headless": ("ViTMSNModel", "ViTMSNConfig", SIZES),
    "mae": ("ViTMAEModel", "ViTMAEConfig", SIZES | dict(mask_ratio=0.0)),
    "mae_decoder": ("ViTMAEForPreTraining", "ViTMAEConfig", SIZES | DECODER | dict(mask_ratio=0.0)),
    "deit_distilled": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", SIZES | LABELS),
    "deit": ("DeiTForImageClassification", "DeiTConfig", SIZES | LABELS | dict(qkv_bias=False)),
    "deit_headless": ("DeiTModel", "DeiTConfig", SIZES),
    "dinov2": ("Dinov2Model", "Dinov2Config", DINOV2),
    "dinov2_head": ("Dinov2ForImageClassification", "Dinov2Config", DINOV2 | LABELS),
    "dinov2_swiglu": (
        "Dinov2ForImageClassification",
        "Dinov2Config",
        DINOV2 | LABELS | SWIGLU | dict(use_mask_token=False, layerscale_value=0.5),
    ),
    "registers": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", DINOV2),
    "registers_head": (
        "Dinov2WithRegistersForImageClassification",
        "Dinov2WithRegistersConfig",
        DINOV2 | LABELS | SWIGLU | dict(num_register_tokens=2),
    ),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", SIZES),
    "siglip_no_head": (
        "SiglipVisionModel",
        "SiglipVisionConfig",
        SIZES | dict(vision_use_head=False, hidden_act="gelu"),
    ),
    "siglip_both": (
        "SiglipModel",
        "SiglipConfig",
        dict(vision_config=SIZES, text_config=TEXT | dict(projection_size=48)),
    ),
    "siglip_head": (
        "SiglipForImageClassification",
        "SiglipConfig",
        dict(vision_config=SIZES, text_config=TEXT, **LABELS),
    ),
    "clip": ("CLIPVisionModel", "CLIPVisionConfig", SIZES | dict(num_channels=4)),
    "clip_projection": (
        "CLIPVisionModelWithProjection",
        "CLIPVisionConfig",
        SIZES | dict(projection_dim=20, hidden_act="gelu"),
    ),
    "clip_both": (
        "CLIPModel",
        "CLIPConfig",
        dict(vision_config=SIZES, text_config=TEXT, projection_dim=20),
    ),
    "clip_head": (
        "CLIPForImageClassification",
        "CLIPConfig",
        dict(vision_config=SIZES, text_config=TEXT, **LABELS),
    ),
}
# Written again as the class that was read. ViT-MSN and ViT-MAE are written as ViT; without a
# pooler, `ViTModel` invents one.
WRITTEN = [name for name in MODELS if not name.startswith(("msn", "mae")) and "both" not in name]


def _random_model(kind: str):
    import torch
    import transformers

    class_name, config_name, fields = MODELS[kind]
    torch.manual_seed(0)
    model = getattr(transformers, class_name)(getattr(transformers, config_name)(**fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.25)
    return model


def _from_theirs(theirs, folder, **arguments):
    theirs.save_pretrained(folder)
    return keras_vit.from_pretrained(folder, include_normalization=False, **arguments)


def _images(model) -> np.ndarray:
    height, width = model.config.image_size
    shape = (3, height, width, model.config.num_channels)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def _pixels(images: np.ndarray):
    import torch

    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


def _output(theirs, images: np.ndarray, **arguments) -> np.ndarray:
    """What a class of transformers is asked for, whatever it is called there."""
    import torch

    pixels, kind = _pixels(images), type(theirs).__name__
    if "MAE" in kind:  # all patches, in their order
        theirs = getattr(theirs, "vit", theirs)
        patches = theirs.embeddings.patch_embeddings.num_patches
        arguments["noise"] = torch.arange(patches).expand(len(pixels), -1)
    with torch.no_grad():
        if kind in ("SiglipModel", "CLIPModel"):
            pooled = theirs.vision_model(pixels, **arguments).pooler_output
            return (theirs.visual_projection(pooled) if kind == "CLIPModel" else pooled).numpy()
        output = theirs(pixels, **arguments)
    for name in ("logits", "image_embeds", "pooler_output"):
        if getattr(output, name, None) is not None:
            return getattr(output, name).numpy()
    if kind == "SiglipVisionModel":  # without its head: what its classifiers read
        return output.last_hidden_state.mean(dim=1).numpy()
    return output.last_hidden_state[:, 0].numpy()


def _assert_near(ours, theirs, tolerance: float):
    scale = max(1.0, float(np.abs(theirs).max()))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("old_names", [True, False])
@pytest.mark.parametrize("kind", MODELS)
def test_outputs_of_a_fresh_random_model(kind, old_names, tmp_path):
    theirs = _random_model(kind)
    theirs.save_pretrained(tmp_path, save_original_format=old_names)
    ours = keras_vit.from_pretrained(tmp_path, include_normalization=False)
    images = _images(ours)
    _assert_near(ours(images), _output(theirs, images), 2e-5)


@pytest.mark.parametrize(
    "kind", ["vit", "msn", "deit", "dinov2_swiglu", "registers", "siglip", "clip"]
)
def test_hidden_states_block_by_block(kind, tmp_path):
    import torch

    theirs = _random_model(kind)
    ours = _from_theirs(theirs, tmp_path)
    images = _images(ours)
    with torch.no_grad():
        hidden = theirs(_pixels(images), output_hidden_states=True).hidden_states
    names = [f"block_{i}" for i in range(ours.config.num_layers)]
    values = ours.intermediates(names)(images)
    for name, expected in zip(names, hidden[-len(names) :], strict=True):
        _assert_near(values[name], expected.numpy(), 2e-5)


@pytest.mark.parametrize(
    "kind", ["vit", "deit_distilled", "dinov2", "dinov2_head", "registers", "siglip", "clip"]
)
@pytest.mark.parametrize("image_size", [56, 24])
def test_positions_interpolated_as_transformers_does(kind, image_size, tmp_path):
    """FAULTS A1: `interpolate_pos_encoding` at another size; DINOv2 always does."""
    theirs = _random_model(kind)
    ours = _from_theirs(theirs, tmp_path, image_size=image_size)
    images = _images(ours)
    arguments = (
        {} if kind.startswith(("dinov2", "registers")) else {"interpolate_pos_encoding": True}
    )
    _assert_near(ours(images), _output(theirs, images, **arguments), 2e-5)


@pytest.mark.parametrize("kind", WRITTEN)
def test_transformers_loads_what_we_save(kind, tmp_path):
    """Names and shapes as in its own file, all weights, the same outputs and labels."""
    theirs = _random_model(kind)
    ours = _from_theirs(theirs, tmp_path / "source")
    keras_vit.save_pretrained(ours, tmp_path / "saved", layout="hf")
    again, report = type(theirs).from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(report.values())
    images = _images(ours)
    np.testing.assert_allclose(_output(again.eval(), images), _output(theirs, images), atol=1e-5)
    assert again.config.id2label == theirs.config.id2label
    again.save_pretrained(tmp_path / "again")
    source, saved, resaved = (
        {name: array.shape for name, array in load_file(tmp_path / folder / WEIGHTS).items()}
        for folder in ("source", "saved", "again")
    )
    assert saved == resaved
    # What a classifier has of other tasks is not kept; DINOv2's mask token is always written.
    assert all(".head." in name for name in source.keys() - saved.keys())
    assert all("mask_token" in name for name in saved.keys() - source.keys())
    assert all(source[name] == saved[name] for name in source.keys() & saved.keys())


def test_a_vit_without_a_pooler_is_loaded_without_one(tmp_path):
    import transformers

    theirs = _random_model("msn_headless")
    ours = _from_theirs(theirs, tmp_path / "source")
    keras_vit.save_pretrained(ours, tmp_path / "saved", layout="hf")
    again, report = transformers.ViTModel.from_pretrained(
        tmp_path / "saved", add_pooling_layer=False, output_loading_info=True
    )
    assert not any(report.values())
    images = _images(ours)
    np.testing.assert_allclose(_output(again.eval(), images), _output(theirs, images), atol=1e-5)


# What fine-tuning starts from, and what makes a classifier that transformers has.
FINETUNED = {
    "vit_headless": {},
    "msn": {},
    "deit_distilled": {},
    "deit_headless": {},
    "dinov2": {"pool": "token_mean"},
    "registers": {"pool": "token_mean"},
    "siglip": {"pool": "mean"},
    "clip": {"pool": "mean", "final_norm": "none"},
}


@pytest.mark.parametrize("kind", FINETUNED)
def test_models_fine_tuned_here(kind, tmp_path):
    """Labels, `problem_type` and logits of what `AutoModelForImageClassification` makes of it."""
    import keras
    import transformers

    theirs = _random_model(kind)
    ours = _from_theirs(theirs, tmp_path / "source", num_classes=3, **FINETUNED[kind])
    images = _images(ours)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    ours.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    ours.fit(images, np.eye(3, dtype="float32"), epochs=3, verbose=0)
    ours.labels, ours.multi_label = ("cat", "dog", "cow"), True
    logits = np.asarray(ours(images))
    assert np.abs(logits).max() > 0.1  # a new head gave zeros
    keras_vit.save_pretrained(ours, tmp_path / "saved", layout="hf")
    auto = transformers.AutoModelForImageClassification
    if kind == "deit_distilled":
        auto = transformers.DeiTForImageClassificationWithTeacher
    again, report = auto.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(report.values())
    _assert_near(_output(again.eval(), images), logits, 1e-5)
    assert again.config.id2label == {0: "cat", 1: "dog", 2: "cow"}
    assert again.config.problem_type == "multi_label_classification"
    back = keras_vit.from_pretrained(tmp_path / "saved", include_normalization=False)
    assert back.config == ours.config and back.labels == ours.labels and back.multi_label
    np.testing.assert_array_equal(back(images), logits)


@pytest.mark.parametrize("kind", ["siglip", "registers_head"])
def test_sharded_files(kind, tmp_path):
    """FAULTS E2."""
    theirs = _random_model(kind)
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    index = json.loads((tmp_path / f"{WEIGHTS}.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    ours = keras_vit.from_pretrained(tmp_path, include_normalization=False)
    images = _images(ours)
    _assert_near(ours(images), _output(theirs, images), 2e-5)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
def test_defaults_are_those_of_the_class(family):
    import transformers

    config = transformers.AutoConfig.for_model(family.model_type)
    assert {key: getattr(config, key) for key in family.defaults} == family.defaults
    for task in family.tasks:
        assert getattr(transformers, task.class_name).config_class.model_type in (
            family.model_type,
            family.nesting_type,
        )


@pytest.mark.parametrize(
    "tower",
    [
        {},
        {"vision_config": {"hidden_size": 96}},
        {"vision_config": {"hidden_size": 96}, "vision_config_dict": {"patch_size": 8}},
    ],
)
def test_defaults_of_a_tower_inside_of_a_larger_model(tower):
    """google/siglip-base-patch16-224 says `model_type` alone; old CLIP files say some twice."""
    import transformers

    for family in FAMILIES:
        if family.nesting_type == "clip" or (family.nesting_type and len(tower) < 2):
            config_json = {"model_type": family.nesting_type, **tower}
            values = tower_values(config_json, family)
            config = transformers.AutoConfig.for_model(**config_json).vision_config
            assert {key: getattr(config, key) for key in family.defaults} == values


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_prepared_as_transformers_does(name, tmp_path):
    """FAULTS D2: the PIL backend and the class defaults, to one level of 255, on an oblong."""
    import transformers
    from PIL import Image

    processor = getattr(transformers, f"{name}ImageProcessorPil")()
    path = keras_vit.save_pretrained(keras_vit.ViT(_TINY), tmp_path) and tmp_path
    values = {"image_processor_type": f"{name}ImageProcessor"}
    (path / "preprocessor_config.json").write_text(json.dumps(values))
    ours = keras_vit.from_pretrained(path)
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3)).astype("uint8")
    picture = Image.fromarray(noise)
    expected = processor(picture, return_tensors="np")["pixel_values"].transpose(0, 2, 3, 1)
    mean, std = (np.asarray(x) for x in (processor.image_mean, processor.image_std))
    assert ours.preprocessing.mean == tuple(mean) and ours.preprocessing.std == tuple(std)
    levels = (expected * std + mean) * 255
    assert np.abs(ours.preprocess(picture) - levels).max() <= 1.0 + 1e-3


_TINY = keras_vit.ViTConfig(
    num_layers=1, num_heads=1, hidden_dim=8, mlp_dim=8, patch_size=32, image_size=224, num_classes=2
)


@pytest.mark.parametrize("kind", ["vit", "clip_head"])
def test_preprocessing_that_transformers_reads_of_ours(kind, tmp_path):
    import transformers
    from PIL import Image

    ours = _from_theirs(_random_model(kind), tmp_path / "source")
    ours.preprocessing = dataclasses.replace(
        ours.preprocessing, resize="crop", crop_fraction=0.875, antialias=True
    )
    keras_vit.save_pretrained(ours, tmp_path / "saved", layout="hf")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "saved", backend="pil")
    noise = np.random.default_rng(0).integers(0, 256, (75, 100, 3)).astype("uint8")
    expected = processor(Image.fromarray(noise), return_tensors="np")["pixel_values"]
    mean, std = np.asarray(ours.preprocessing.mean), np.asarray(ours.preprocessing.std)
    levels = (expected.transpose(0, 2, 3, 1) * std + mean) * 255
    assert np.abs(ours.preprocess(Image.fromarray(noise)) - levels).max() <= 1.0 + 1e-3
