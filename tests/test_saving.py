import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_vit import Mixer, PreprocessingConfig, ViT, from_pretrained, save_pretrained


def _values(model) -> dict[str, np.ndarray]:
    return {variable.path: variable.numpy() for variable in model.weights}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"num_classes": 0},
        {"num_classes": 0, "representation_size": 16},
        {"image_size": (16, 32), "qkv_bias": False, "num_channels": 1},
        {"pool": "mean", "class_token": False},
        {"pool": "mean"},
        {"representation_size": 7},
        {"activation": "gelu", "layer_norm_epsilon": 1e-12, "patch_size": (2, 4)},
    ],
    ids=str,
)
def test_save_pretrained_and_back_is_bit_exact(tiny_config, random_weights, tmp_path, fields):
    config = dataclasses.replace(tiny_config, **fields)
    labels = [f"class {i}" for i in range(config.num_classes)] or None
    preprocessing = PreprocessingConfig(resize="crop", crop_fraction=0.875, antialias=True)
    model = random_weights(ViT(config, preprocessing, labels=labels))
    save_pretrained(model, tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved")
    assert again.config == config and again.labels == model.labels
    assert again.preprocessing == model.preprocessing
    for path, value in _values(model).items():
        np.testing.assert_array_equal(_values(again)[path], value)
    assert not [p for p in (tmp_path / "saved").iterdir() if p.name.startswith(".")]


OTHERS = [
    {"stem_layers": (2, 1), "stem_width": 32, "patch_size": 1, "stem_numerics": "timm"},
    {"distillation_token": True, "num_register_tokens": 2, "num_prefix_positions": 1},
    {"pool": "map", "class_token": False, "layer_scale_init": 0.1, "qk_norm": True},
    {"position_embedding": "relative", "gated_mlp": True, "activation": "silu"},
    {"axial": True, "class_token": False, "pool": "mean", "final_norm": "pool"},
    {"position_insertion": "every_block", "embedding_norm": True, "patch_bias": False},
    {"activation": "quick_gelu"},
    {"num_register_tokens": 1},
    {"position_embedding": "sincos_2d"},
]


@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_what_transformers_vit_is_not_goes_into_our_layout(
    tiny_config, random_weights, tmp_path, fields
):
    """A model is never written as one that would compute something else."""
    origin = {"position_resize": "bicubic_antialias"}
    model = random_weights(ViT(dataclasses.replace(tiny_config, **fields), origin=origin))
    model.multi_label = True
    save_pretrained(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["model_type"], written["architecture"]) == ("keras_vit", "ViT")
    again = from_pretrained(tmp_path)
    assert again.config == model.config and again.multi_label
    assert again.origin["position_resize"] == "bicubic_antialias"
    after = _values(again)
    for path, value in _values(model).items():
        np.testing.assert_array_equal(after[path], value)


def test_mixer_goes_into_our_layout_and_stays_at_its_size(golden, tmp_path):
    model = from_pretrained(golden / "mixer.npz")
    assert isinstance(model, Mixer)
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path, dropout_rate=0.1)
    assert again.config == dataclasses.replace(model.config, dropout_rate=0.1)
    after = _values(again)
    for path, value in _values(model).items():
        np.testing.assert_array_equal(after[path], value)
    with pytest.raises(ValueError, match="`image_size` must be the source's: the token MLPs"):
        from_pretrained(golden / "mixer.npz", image_size=64)
    with pytest.raises(ValueError, match="An MLP-Mixer has no attention"):
        from_pretrained(golden / "mixer.npz", attention_dropout_rate=0.1)


def test_several_labels_are_said_as_transformers_says_them(tiny_config, tmp_path):
    model = ViT(tiny_config, multi_label=True)
    save_pretrained(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"
    assert from_pretrained(tmp_path).multi_label
    assert not from_pretrained(tmp_path, num_classes=3).multi_label


def test_adapters_are_not_lost_in_silence(tiny_config, tmp_path):
    """FAULTS J2."""
    model = ViT(tiny_config)
    model.add_lora(rank=2)
    with pytest.raises(ValueError, match="`model` must have no adapters.*merge_lora"):
        save_pretrained(model, tmp_path)
    save_pretrained(model.merge_lora(), tmp_path)


def test_saving_replaces_nothing_when_it_fails(tiny_config, tmp_path, monkeypatch):
    model = ViT(tiny_config)
    save_pretrained(model, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(
        "keras_vit.zoo.hf_safetensors.writing.json_writer",
        lambda value: lambda path: path.write_text(1),
    )
    with pytest.raises(TypeError):
        save_pretrained(model, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_quantized_model_has_no_plain_weights(tiny_config, tmp_path):
    model = ViT(tiny_config)
    model.quantize("int8")
    with pytest.raises(ValueError, match="Received: a quantized model"):
        save_pretrained(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(ValueError, match="must be a `keras_vit.ViT`"):
        save_pretrained(keras.Sequential(), tmp_path / "saved")
