"""The command line in this process, on tiny models."""

import dataclasses

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.cli import main


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys, monkeypatch):
    """Return a function that runs `keras-vit` with arguments."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(ended.value.code, printed.out, printed.err)

    return run


@pytest.fixture
def terminal(monkeypatch):
    """Let output look as on a terminal."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="session")
def model():
    """A model of two classes, cat (dark) and dog (bright), that is always right."""
    config = keras_vit.ViTConfig(
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=16,
        patch_size=8,
        image_size=16,
        num_classes=2,
        pool="mean",
    )
    model = keras_vit.ViT(config, labels=("cat", "dog"))
    pixels = np.array([[60.0], [190.0]], "float32")[:, :, None, None] * np.ones((1, 16, 16, 3))
    cat, dog = keras.ops.convert_to_numpy(model.intermediates(["pooled"])(pixels)["pooled"])
    kernel = np.stack([cat - dog, dog - cat], axis=1) * 10
    model.get_layer("head").set_weights([kernel, -(cat + dog) @ kernel / 2])
    return model


@pytest.fixture(scope="session")
def checkpoint(model, tmp_path_factory):
    """That model, as `from_pretrained` takes it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    keras_vit.save_pretrained(model, folder)
    return folder


@pytest.fixture(scope="session")
def run_directory(model, tmp_path_factory):
    """What a run of that model would leave."""
    folder = tmp_path_factory.mktemp("run")
    model.save(folder / "best.keras")
    return folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Six pictures a class."""
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for name, mean in (("cat", 60), ("dog", 190)):
        (root / name).mkdir()
        for index in range(6):
            pixels = generator.normal(mean, 5, (20, 24, 3)).clip(0, 255).astype("uint8")
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root
