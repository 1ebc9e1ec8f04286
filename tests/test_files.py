import pathlib

import pytest

from keras_vit.files import local_path, replacing


def test_whole_or_unchanged(tmp_path):
    path = tmp_path / "model.keras"
    with replacing(path) as temporary:
        temporary.write_text("old")
        assert temporary.suffix == ".keras"
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_paths_are_read_as_a_shell_reads_them(monkeypatch):
    """Where the user has no home, or nobody is meant, Python raises a RuntimeError."""
    monkeypatch.setenv("HOME", "/home/of/somebody")
    assert local_path("~/model") == pathlib.Path("/home/of/somebody/model")
    assert local_path(pathlib.Path("~/model")) == pathlib.Path("/home/of/somebody/model")
    assert local_path("~nobody of this name/model") == pathlib.Path("~nobody of this name/model")
    assert local_path("model") == pathlib.Path("model")
