"""What the tests of readers share, and `hub_server` made importable.

pytest's importlib mode puts no test folder on the path.
"""

import json
import pathlib
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit.zoo import read_checkpoint
from keras_vit.zoo.variables import variable_shapes

sys.path.append(str(pathlib.Path(__file__).parent))


@pytest.fixture
def read(tmp_path):
    """Return a function that saves arrays as .npz and reads the file."""

    def save_and_read(arrays, **overrides):
        np.savez(tmp_path / "x.npz", **arrays)
        return read_checkpoint(tmp_path / "x.npz", overrides)

    return save_and_read


@pytest.fixture
def edited(golden, tmp_path):
    """Return a function that copies a golden directory with changes to names and config.json."""

    def edit(source, rename=lambda name: name, add=None, **config_json):
        arrays = load_file(golden / source / "model.safetensors")
        arrays = {rename(name): array for name, array in arrays.items()}
        save_file(arrays | (add or {}), tmp_path / "model.safetensors")
        values = json.loads((golden / source / "config.json").read_text()) | config_json
        values = {key: value for key, value in values.items() if value is not None}
        (tmp_path / "config.json").write_text(json.dumps(values))
        return tmp_path

    return edit


@pytest.fixture
def same_weights():
    """Return a function that checks that two checkpoints are of one model."""

    def check(first, second):
        assert first.config == second.config
        for path in variable_shapes(first.config):
            np.testing.assert_array_equal(first.weight(path), second.weight(path))

    return check
