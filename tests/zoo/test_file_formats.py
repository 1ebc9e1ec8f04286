"""FAULTS E2, K1: what is no weight file is named for what it is."""

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from keras_vit.zoo.file_formats import WeightFileError, file_format, no_weights_error


def npy_bytes():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer.*lfs pull"),
        (b"\n<!DOCTYPE html><html></html>", "web page"),
        (b"<html><head>", "web page"),
        (b"<?xml version='1.0'?><Error><Code>NoSuchKey", "XML"),
        (npy_bytes(), "one bare .npy"),
        *((pickle.dumps({"a": 1}, protocol), "pickle.*never loaded") for protocol in (2, 4, 5)),
        (b"\xff\xd8\xff\xe0 a picture", "neither an .npz nor a safetensors"),
        (struct.pack("<Q", 2**40) + b"{", "neither"),
    ],
)
def test_other_files_are_named(tmp_path, content, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(WeightFileError, match=message) as error:
        file_format(path)
    assert str(path) in str(error.value)


def test_formats_are_told_from_bytes(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(struct.pack("<Q", 2) + b"{}")
    assert file_format(path) == "safetensors"
    path.write_bytes(b"\x89HDF\r\n\x1a\n\0")
    assert file_format(path) == "h5"
    path.write_bytes(b'{"weight_map": {}}')
    assert file_format(path) == "index"
    with zipfile.ZipFile(path, "w"):
        pass
    assert file_format(path) == "npz"


def test_only_pickles_there():
    names = ["pytorch_model.bin", "tf_model.h5", "config.json"]
    error = str(no_weights_error("someone/a-vit", names))
    assert "only pytorch_model.bin, tf_model.h5" in error
    assert "config.json" in error
    assert "refs/pr/N" in error
    assert "save_pretrained" in error
    assert "it holds: nothing" in str(no_weights_error("here", []))
