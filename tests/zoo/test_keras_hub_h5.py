"""FAULTS D1, E3: presets that keras-hub wrote, with its own outputs."""

import json
import shutil

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.zoo import read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.keras_hub_h5 import BLOCK

PRESETS = ("keras_hub_vit", "keras_hub_vit_gap")
QUERY = f"{BLOCK}/mha/query_dense/vars/0"


@pytest.fixture
def preset(golden, tmp_path):
    """A copy of the preset with a class token, to change."""
    return shutil.copytree(golden / "keras_hub_vit", tmp_path / "preset")


def edit(path, change):
    """Change the JSON object of a file in place."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("name", PRESETS)
def test_logits_and_features_are_theirs(golden, name):
    model = keras_vit.from_pretrained(golden / name, include_normalization=False)
    expected = np.load(golden / name / "expected.npz")
    values = model.intermediates(["encoder_norm", "logits"])(expected["images"])
    np.testing.assert_allclose(values["encoder_norm"], expected["features"], rtol=0, atol=2e-5)
    np.testing.assert_allclose(values["logits"], expected["logits"], rtol=0, atol=2e-5)


def test_what_the_json_files_say(golden):
    checkpoint = read_checkpoint(golden / "keras_hub_vit")
    config = checkpoint.config
    assert (config.image_size, config.patch_size, config.num_channels) == ((16, 24), (8, 8), 3)
    assert (config.num_layers, config.num_heads, config.hidden_dim, config.mlp_dim) == (
        2,
        2,
        16,
        24,
    )
    assert (config.num_classes, config.pool, config.representation_size) == (5, "token", None)
    assert (config.activation, config.layer_norm_epsilon) == ("gelu", 1e-5)
    assert (config.dropout_rate, config.attention_dropout_rate) == (0.1, 0.2)
    preprocessing = checkpoint.preprocessing
    np.testing.assert_allclose(preprocessing.mean, (0.4, 0.5, 0.6))
    np.testing.assert_allclose(preprocessing.std, (0.2, 0.3, 0.4))
    assert (preprocessing.interpolation, preprocessing.antialias) == ("bicubic", True)
    assert (preprocessing.resize, preprocessing.crop_fraction) == ("crop", 1.0)
    assert not checkpoint.multi_label

    config = read_checkpoint(golden / "keras_hub_vit_gap").config
    assert (config.num_classes, config.pool, config.representation_size) == (3, "mean", 8)
    assert not (config.class_token or config.patch_bias or config.qkv_bias)


def test_biases_that_the_preset_lacks_are_zeros(golden):
    checkpoint = read_checkpoint(golden / "keras_hub_vit_gap")
    assert checkpoint.check() == []
    for path, width in (("attention/proj", 16), ("mlp/fc1", 24), ("mlp/fc2", 16)):
        np.testing.assert_array_equal(checkpoint.weight(f"block_1/{path}/bias"), np.zeros(width))


def test_a_backbone_alone(preset):
    for name in ("task.json", "task.weights.h5", "preprocessor.json"):
        (preset / name).unlink()
    checkpoint = read_checkpoint(preset / "model.weights.h5")
    assert checkpoint.check() == []
    assert checkpoint.config.num_classes == 0
    np.testing.assert_allclose(checkpoint.preprocessing.mean, (0.4, 0.5, 0.6))
    (preset / "image_converter.json").unlink()
    assert read_checkpoint(preset).preprocessing.mean == (0.5, 0.5, 0.5)
    with h5py.File(preset / "model.weights.h5") as file:
        query = file[QUERY][()]
    kernel = read_checkpoint(preset).weight("block_0/attention/qkv/kernel")
    np.testing.assert_array_equal(kernel[:, :16], query.reshape(16, 16))


def test_every_tensor_is_needed_and_no_other_taken(preset):
    """FAULTS E4: nothing is passed over."""
    for file_name in ("model.weights.h5", "task.weights.h5"):
        names = [
            n
            for n, s in read_checkpoint(preset).tensors.tensors.items()
            if s.file.name == file_name
        ]
        for name in names:
            if name.startswith("optimizer/"):
                continue
            with h5py.File(preset / file_name, "r+") as file:
                file.move(name, "vars/elsewhere")
            with pytest.raises(MissingWeightsError) as error:
                read_checkpoint(preset).check()
            assert error.value.missing == [name]
            assert error.value.unexpected == ["vars/elsewhere"]
            with h5py.File(preset / file_name, "r+") as file:
                file.move("vars/elsewhere", name)
    (preset / "task.weights.h5").unlink()
    with pytest.raises(MissingWeightsError, match="- layers/dense/vars/0"):
        read_checkpoint(preset).check()
    model = keras_vit.from_pretrained(preset, num_classes=4, strict=False)
    assert model.output_shape == (None, 4)


def test_what_we_do_not_have_is_refused(preset):
    task, config = preset / "task.json", preset / "config.json"

    def refused(path, change, message):
        before = path.read_text()
        edit(path, change)
        with pytest.raises(ValueError, match=message) as error:
            read_checkpoint(preset)
        assert path.name in str(error.value)
        path.write_text(before)

    refused(task, lambda v: v["config"].update(pooling="gap"), "pooling='gap'")
    refused(task, lambda v: v["config"].update(pooling="max"), "pooling='max'")
    refused(task, lambda v: v["config"].update(activation="relu"), "activation='relu'")
    refused(task, lambda v: v.update(registered_name="keras_hub>Other"), "'keras_hub>Other'")
    refused(task, lambda v: v["config"]["backbone"]["config"].update(num_heads=4), "backbone")
    refused(config, lambda v: v.update(registered_name="keras_hub>DeiTBackbone"), "DeiTBackbone")
    refused(config, lambda v: v["config"].pop("hidden_dim"), "hidden_dim")
    converter = preset / "preprocessor.json"

    def set_converter(**values):
        return lambda v: v["config"]["image_converter"]["config"].update(values)

    refused(converter, set_converter(pad_to_aspect_ratio=True), "pad_to_aspect_ratio")
    refused(converter, set_converter(variance=[1.0]), "variance")
    config.unlink()
    with pytest.raises(ValueError, match="config.json is missing"):
        read_checkpoint(preset)


def test_a_sigmoid_classifier_is_multi_label(preset):
    edit(preset / "task.json", lambda values: values["config"].update(activation="sigmoid"))
    assert read_checkpoint(preset).multi_label


def test_pixels_scaled_by_one_number(preset):
    def change(values):
        values["config"]["image_converter"]["config"].update(scale=1 / 255, offset=None)

    edit(preset / "preprocessor.json", change)
    preprocessing = read_checkpoint(preset).preprocessing
    assert preprocessing.mean == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(preprocessing.std, 1.0)


def test_another_image_size_of_the_converter_is_told(preset):
    def change(values):
        values["config"]["image_converter"]["config"].update(image_size=[32, 48])

    edit(preset / "preprocessor.json", change)
    with pytest.warns(UserWarning, match=r"prepares pictures of \(32, 48\)"):
        read_checkpoint(preset)
