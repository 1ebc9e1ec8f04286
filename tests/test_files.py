import pytest

from keras_vit.files import replacing


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
