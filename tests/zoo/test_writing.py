import json

import numpy as np
import pytest
from safetensors import safe_open

from keras_vit.zoo import writing
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.transforms import LINEAR_KERNEL, QKV_BIAS

RULES = (Rule("kernel", ("k",), LINEAR_KERNEL), Rule("bias", ("q", "é", "v"), QKV_BIAS))
SHAPES = {"kernel": (2, 5), "bias": (9,)}
OURS = {
    "kernel": np.arange(10, dtype=np.float32).reshape(2, 5),
    "bias": np.arange(9, dtype=np.float32),
}


def test_weights_writer_writes_what_the_library_reads(tmp_path):
    asked = []

    def read(path):
        asked.append(path)
        return OURS[path]

    path = tmp_path / "x.safetensors"
    writing.weights_writer(RULES, SHAPES, read)(path)
    assert asked == ["kernel", "bias"]  # one variable at a time, each once
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == {"k", "q", "é", "v"}
        np.testing.assert_array_equal(file.get_tensor("k"), OURS["kernel"].T)
        np.testing.assert_array_equal(file.get_tensor("é"), [3, 4, 5])
    length = int.from_bytes(path.read_bytes()[:8], "little")
    assert length % 8 == 0


def test_rows_that_follow_each_other_become_one_tensor(tmp_path):
    rules = (
        Rule("query", ("w[:1/3]",), LINEAR_KERNEL),
        Rule("rest", ("w[1/3:]",), LINEAR_KERNEL),
        Rule("bias", ("b",)),
    )
    ours = {"query": np.ones((4, 2)), "rest": np.zeros((4, 5)), "bias": np.ones(3)}
    shapes = {path: array.shape for path, array in ours.items()}
    assert writing.tensor_shapes(rules, shapes) == {"w": (7, 4), "b": (3,)}
    writing.weights_writer(rules, shapes, ours.__getitem__)(tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="numpy") as file:
        assert set(file.keys()) == {"w", "b"}
        np.testing.assert_array_equal(file.get_tensor("w"), [[1.0] * 4] * 2 + [[0.0] * 4] * 5)
    for wrong in ((rules[0], rules[2], rules[1]), (rules[2], rules[2])):
        with pytest.raises(ValueError, match="must name each tensor once, rows of one together"):
            writing.tensor_shapes(wrong, shapes)


def test_weights_of_another_model_are_refused(tmp_path):
    write = writing.weights_writer(RULES, SHAPES, lambda path: np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"'kernel' must have the shape \(2, 5\).*\(2, 4\)"):
        write(tmp_path / "x")


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(NotADirectoryError, match="`directory` must be a folder.*/x', a file"):
        writing.write_files(tmp_path / "x", {"a.json": writing.json_writer({})})


def test_a_folder_with_the_name_of_a_file_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "config.json").mkdir()
    asked = []
    with pytest.raises(IsADirectoryError, match="no folder named 'config.json'"):
        writing.write_files(tmp_path, {"weights": asked.append, "config.json": asked.append})
    assert not asked and [entry.name for entry in tmp_path.iterdir()] == ["config.json"]


NAMES = ("weights", "other", "config.json")


def write_all(directory, text, names=NAMES):
    writing.write_files(
        directory, {name: lambda path: path.write_text(text) and None for name in names}
    )


def fail_at_rename(monkeypatch, number, error):
    """Have the rename of that number, and all that follow if it is a kill, not happen."""
    rename, count = type(writing.Path()).replace, iter(range(100))

    def replace(path, target):
        at = next(count)
        if at == number or (at > number and error is SystemExit):
            raise error("stopped")
        return rename(path, target)

    monkeypatch.setattr(type(writing.Path()), "replace", replace)


@pytest.mark.parametrize("number", range(5))
def test_a_rename_that_fails_brings_the_old_files_back(tmp_path, monkeypatch, number):
    write_all(tmp_path, "old", ("weights", "config.json"))
    fail_at_rename(monkeypatch, number, OSError)
    with pytest.raises(OSError, match="stopped"):
        write_all(tmp_path, "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "weights": "old",
        "config.json": "old",
    }


@pytest.mark.parametrize("number", range(6))
def test_a_kill_between_two_renames_leaves_no_mixture(tmp_path, monkeypatch, number):
    """Old weights never lie beside a new config.json, nor new ones beside an old one."""
    write_all(tmp_path, "old")
    fail_at_rename(monkeypatch, number, SystemExit)
    with pytest.raises(SystemExit):
        write_all(tmp_path, "new")
    left = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert "config.json" not in left or set(left.values()) == {"old"}


def test_files_are_replaced_together_or_not_at_all(tmp_path):
    directory = tmp_path / "new" / "model"
    writing.write_files(directory, {"a.json": writing.json_writer({"a": "é"})})
    assert json.loads((directory / "a.json").read_text(encoding="utf-8")) == {"a": "é"}

    def fail(path):
        path.write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        writing.write_files(directory, {"a.json": writing.json_writer({}), "b": fail})
    assert json.loads((directory / "a.json").read_text(encoding="utf-8")) == {"a": "é"}
    assert [entry.name for entry in directory.iterdir()] == ["a.json"]
