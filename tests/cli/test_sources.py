import keras
import pytest

from keras_vit import assets, from_pretrained
from keras_vit.cli.sources import open_model


def test_best_goes_before_last(model, tmp_path):
    (tmp_path / "last.keras").write_bytes(b"not this one")
    model.save(tmp_path / "best.keras")
    assert open_model(str(tmp_path)).labels == ("cat", "dog")


def test_last_serves_where_there_is_no_best(run_directory, tmp_path):
    (tmp_path / "last.keras").write_bytes((run_directory / "best.keras").read_bytes())
    assert open_model(str(tmp_path)).labels == ("cat", "dog")
    assert open_model(str(tmp_path / "last.keras")).labels == ("cat", "dog")


def test_what_from_pretrained_takes(checkpoint):
    assert open_model(str(checkpoint)).labels == ("cat", "dog")


def test_bundled_is_the_model_of_the_package():
    assert open_model("bundled").labels == from_pretrained(assets.checkpoint()).labels


def test_a_damaged_file(run_directory, tmp_path):
    whole = (run_directory / "best.keras").read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"text"):
        (tmp_path / "cut.keras").write_bytes(content)
        with pytest.raises(ValueError, match="must be a whole .keras file"):
            open_model(str(tmp_path / "cut.keras"))


def test_another_model_of_keras(tmp_path):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match="a Sequential"):
        open_model(str(tmp_path / "other.keras"))


def test_a_run_without_checkpoint(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="ended before its first"):
        open_model(str(tmp_path))


def test_the_home_of_nobody():
    with pytest.raises(FileNotFoundError, match="must be a file or folder that exists"):
        open_model("~nouser/x")


def test_a_saved_model(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match="which is for serving"):
        open_model(str(tmp_path))
