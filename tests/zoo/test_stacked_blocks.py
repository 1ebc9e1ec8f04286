"""One block out of a stack of them, without the rest."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit.zoo.file_formats import WeightFileError
from keras_vit.zoo.stacked_blocks import unstack
from keras_vit.zoo.tensor_files import open_tensors

KERNEL = "params/img/Transformer/encoderblock/MlpBlock_0/Dense_0/kernel"
BIAS = "params/img/Transformer/encoderblock/MlpBlock_0/Dense_0/bias"
STACK = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)


def check_rows(path):
    file = unstack(open_tensors(path))
    assert file.shapes == {f"{KERNEL}[{i}]": (4, 5) for i in range(3)} | {"other": (2,)}
    for i in range(3):
        row = file.read(f"{KERNEL}[{i}]")
        np.testing.assert_array_equal(row, STACK[i])
        row += 1  # a fresh array, not a view of what is read
    np.testing.assert_array_equal(file.read("other"), [1, 2])
    with pytest.raises(KeyError):
        file.read(f"{KERNEL}[3]")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "bfloat16"])
def test_npz(tmp_path, save, order, dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    stack = np.asarray(STACK, dtype, order=order)
    save(tmp_path / "x.npz", **{KERNEL: stack, "other": np.array([1, 2], np.float32)})
    check_rows(tmp_path / "x.npz")


def test_safetensors(tmp_path):
    save_file({KERNEL: STACK, "other": np.array([1.0, 2.0])}, tmp_path / "x.safetensors")
    check_rows(tmp_path / "x.safetensors")


def test_the_rest_of_the_stack_is_not_read(tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", **{KERNEL: STACK})
    file, counts = unstack(open_tensors(tmp_path / "x.npz")), []
    read = np.fromfile
    monkeypatch.setattr(
        np, "fromfile", lambda file, dtype, count: counts.append(count) or read(file, dtype, count)
    )
    monkeypatch.setattr(np, "load", None)
    file.read(f"{KERNEL}[1]")
    assert counts == [STACK[1].size]


def test_stacks_of_one_number_a_block_and_of_nothing(tmp_path):
    np.savez(tmp_path / "x.npz", **{KERNEL: np.float32(1), BIAS: np.float32([5, 6])})
    file = unstack(open_tensors(tmp_path / "x.npz"))
    assert file.shapes == {f"{BIAS}[0]": (), f"{BIAS}[1]": ()}
    assert file.read(f"{BIAS}[1]") == 6


def test_a_file_without_stacks_stays_what_it_is(tmp_path):
    np.savez(tmp_path / "x.npz", **{"Transformer/encoderblock_0/LayerNorm_0/scale": STACK})
    file = open_tensors(tmp_path / "x.npz")
    assert unstack(file) is file


def test_a_changed_byte_is_found_with_the_first_row(tmp_path):
    """FAULTS K1: rows are read without the rest, but the whole stack is compared once."""
    path = tmp_path / "x.npz"
    np.savez(path, **{KERNEL: np.zeros((3, 100, 100), np.float32)})
    content = bytearray(path.read_bytes())
    content[100_000] ^= 1  # in the last row
    path.write_bytes(content)
    with pytest.raises(WeightFileError, match=f"damaged at tensor '{KERNEL}'"):
        unstack(open_tensors(path)).read(f"{KERNEL}[0]")
