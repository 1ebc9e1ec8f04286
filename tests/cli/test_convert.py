import importlib
import json
import re
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training.resume import TrainingState, save_training


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """A model that every layout has."""
    config = keras_vit.ViTConfig(
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=16,
        patch_size=8,
        image_size=16,
        num_classes=2,
    )
    path = tmp_path_factory.mktemp("official") / "model.keras"
    keras_vit.ViT(config, labels=("cat", "dog")).save(path)
    return path


LOADED = {"hf": "config.json", "timm": "config.json", "native": "config.json", "npz": "model.npz"}


@pytest.mark.parametrize("to", [*LOADED, "keras"])
def test_what_is_printed_loads_the_same_weights(command, official, tmp_path, to):
    out = tmp_path / "it's" / ("out.keras" if to == "keras" else "out")
    result = command("convert", official, out, "--to", to)
    assert result.code == 0, result.err
    assert "compared all 20 weights" in result.out
    assert out.name + "/" + LOADED[to] in result.out if to in LOADED else str(out) in result.out
    code = re.split(r"\nWith \w+:\n", result.out)[1]
    names = {}
    exec("\n".join(line.removeprefix("  ") for line in code.splitlines()), names)
    ours = keras.saving.load_model(official, compile=False)
    for first, second in zip(ours.weights, names["model"].weights, strict=True):
        np.testing.assert_array_equal(first.numpy(), second.numpy())
    libraries = re.findall(r"With (\w+):", result.out)
    others = {"hf": ["transformers"], "timm": ["timm"], "npz": ["vision_transformer"]}.get(to, [])
    assert libraries == (["keras"] if to == "keras" else ["keras_vit", *others])


@pytest.mark.parametrize("file", ["best.keras", "last.keras"])
def test_a_run_brings_its_card(command, official, tmp_path, file):
    """The metrics are those of the model that is taken, not those of the last step."""
    run = tmp_path / "run"
    run.mkdir()
    model = keras.saving.load_model(official, compile=False)
    row = {"epoch": 2, "step": 9, "learning_rate": 0.1, "loss": 0.4, "val_accuracy": 0.625}
    save_training(model, TrainingState(9, [{"epoch": 1}, row]), run / file)
    numbers = ("total_steps", "steps_per_epoch", "learning_rate", "warmup_steps", "seed")
    settings = dict.fromkeys(numbers, 1) | {"batch_size": None, "early_stopping": None}
    settings |= {"data": {"class_names": ["cat", "dog"]}, "recipe": {"name": "paper_sgd"}}
    description = {"settings": settings, "metrics": {"val_accuracy": 0.5}}
    (run / "run.json").write_text(json.dumps(description))
    result = command("convert", run, tmp_path / "out", "--to", "hf")
    assert result.code == 0, result.err
    card = (tmp_path / "out/README.md").read_text()
    assert "Of epoch 2." in card and "| val_accuracy | 0.6250 |" in card
    assert "| step |" not in card and "0.5000" not in card

    shutil.copy(official, run / file)  # not the run's any more
    assert command("convert", run, tmp_path / "other", "--to", "hf").code == 0
    assert "## Metrics" not in (tmp_path / "other/README.md").read_text()


def test_nothing_is_replaced_unasked(command, official, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert command("convert", official, out, "--to", "timm").code == 0
    before = (out / "config.json").read_bytes()
    result = command("convert", official, out, "--to", "hf")
    assert result.code == 1 and "`OUT` must not exist yet" in result.err
    assert (out / "config.json").read_bytes() == before
    assert command("convert", official, out, "--to", "hf", "--overwrite").code == 0
    assert (out / "config.json").read_bytes() != before

    file = tmp_path / "out.keras"
    assert command("convert", official, file, "--to", "keras").code == 0
    assert command("convert", official, file, "--to", "keras").code == 1
    assert command("convert", official, file, "--to", "keras", "--overwrite").code == 0


def test_wrong_arguments(command, official, checkpoint, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.keras").mkdir()
    for arguments, said in (
        ((official, tmp_path / "out", "--to", "keras"), "must be a file that ends in .keras"),
        ((official, tmp_path / "out.keras", "--to", "hf"), "`OUT` must be a folder with `--to hf`"),
        ((official, tmp_path / "file", "--to", "hf"), "`OUT` must be a folder. Received"),
        ((official, tmp_path / "folder.keras", "--to", "keras"), "`OUT` must be a file. Received"),
        ((checkpoint, tmp_path / "out", "--to", "npz"), "must be one that has this model: "),
        ((tmp_path / "nowhere", tmp_path / "out", "--to", "hf"), "folder that exists"),
    ):
        result = command("convert", *arguments)
        assert result.code == 1
        assert result.err.startswith("error: ") and said in result.err, result.err
        assert not (tmp_path / "out").exists()
    assert command("convert", official, tmp_path / "out").code == 2
    assert command("convert", official, tmp_path / "out", "--to", "onnx").code == 2


def test_a_weight_that_differs_in_one_bit_is_found(official, tmp_path):
    convert = importlib.import_module("keras_vit.cli.convert")  # the package has the verb
    model = keras.saving.load_model(official, compile=False)
    keras_vit.save_pretrained(model, tmp_path, layout="timm")
    assert convert._differing_from_files(model, tmp_path) == []
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-2] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    assert convert._differing_from_files(model, tmp_path) == ["head/bias"]
    assert convert._differing_from_keras(model, official) == []
    model.get_layer("head").bias.assign([0.0, 1e-30])
    assert convert._differing_from_keras(model, official) == ["head/bias"]
