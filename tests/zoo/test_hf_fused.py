"""One tensor of theirs that is two layers of ours."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit.zoo.hf_fused import KEY_VALUE, QUERY, unfuse
from keras_vit.zoo.tensor_files import open_tensors

WEIGHT = "vision_model.head.attention.in_proj_weight"
ROWS = np.arange(18, dtype=np.float32).reshape(9, 2)


def file_of(tmp_path, **arrays):
    save_file(arrays, tmp_path / "x.safetensors")
    return open_tensors(tmp_path / "x.safetensors")


def test_rows_of_a_fused_tensor(tmp_path):
    bias = "head.attention.in_proj_bias"
    file = unfuse(file_of(tmp_path, **{WEIGHT: ROWS, bias: ROWS[:, 0], "other": ROWS}))
    assert file.shapes == {
        WEIGHT + QUERY: (3, 2),
        WEIGHT + KEY_VALUE: (6, 2),
        bias + QUERY: (3,),
        bias + KEY_VALUE: (6,),
        "other": (9, 2),
    }
    for name, expected in ((QUERY, ROWS[:3]), (KEY_VALUE, ROWS[3:])):
        rows = file.read(WEIGHT + name)
        np.testing.assert_array_equal(rows, expected)
        rows += 1  # a fresh array
        np.testing.assert_array_equal(file.read(WEIGHT + name), expected)
    np.testing.assert_array_equal(file.read("other"), ROWS)
    with pytest.raises(KeyError):
        file.read(WEIGHT)


@pytest.mark.parametrize("name", [WEIGHT, "attention.in_proj_weight", "ahead.attention.in_proj_x"])
def test_others_stay_what_they_are(tmp_path, name):
    array = ROWS[:7] if name == WEIGHT else ROWS  # seven rows have no thirds
    file = file_of(tmp_path, **{name: array})
    assert unfuse(file) is file
