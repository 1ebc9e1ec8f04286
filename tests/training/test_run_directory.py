import json
import shutil

import pytest

from keras_vit.training.run_directory import (
    check_run_directory,
    check_settings,
    prepare_run_directory,
    read_run,
    write_run,
    write_unreadable,
)

SETTINGS = {
    **{"total_steps": 5, "steps_per_epoch": 5, "batch_size": 2, "learning_rate": 0.1},
    **{"warmup_steps": 1, "early_stopping": None, "data": {}, "crop_area": (0.05, 1.0)},
    "seed": 0,
}


def test_a_new_directory_is_made(tmp_path):
    path = tmp_path / "deep" / "run"
    check_run_directory(path, resume=False, overwrite=False)
    prepare_run_directory(path, 1000, resume=False)
    assert path.is_dir()
    assert not list(path.iterdir())


@pytest.mark.parametrize("name", ["run.json", "last.keras", "best.keras", "history.csv"])
def test_any_file_of_a_run_counts(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(FileExistsError, match=name):
        check_run_directory(tmp_path, resume=False, overwrite=False)
    check_run_directory(tmp_path, resume=False, overwrite=True)
    prepare_run_directory(tmp_path, 0, resume=False)
    assert not (tmp_path / name).exists()


def test_resuming_keeps_the_files(tmp_path):
    write_run(tmp_path, {"settings": SETTINGS})
    (tmp_path / "last.keras").write_bytes(b"weights")
    check_run_directory(tmp_path, resume=True, overwrite=False)
    prepare_run_directory(tmp_path, 0, resume=True)
    assert (tmp_path / "last.keras").read_bytes() == b"weights"
    check_settings(tmp_path, SETTINGS)  # tuples come back as lists


def test_files_to_be_replaced_count_as_room(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    (tmp_path / "last.keras").write_bytes(bytes(100))
    with pytest.raises(OSError, match="needs room"):
        prepare_run_directory(tmp_path, 111, resume=False)
    assert (tmp_path / "last.keras").exists()
    prepare_run_directory(tmp_path, 110, resume=False)


def test_every_difference_is_named(tmp_path):
    write_run(tmp_path, {"settings": SETTINGS})
    different = {**SETTINGS, "total_steps": 6, "flip": 1, "augmentation_settings": [{"factor": 1}]}
    said = r"other settings of `augmentation`; flip=1 \(the run has None\); total_steps=6 \(.* 5\)"
    with pytest.raises(ValueError, match=said):
        check_settings(tmp_path, different)


def test_unreadable_files(tmp_path):
    write_unreadable(tmp_path, ())
    assert not list(tmp_path.iterdir())
    write_unreadable(tmp_path, (("a/\udce9.png", "is empty"), ("b.png", "is a PDF")))
    assert (tmp_path / "unreadable.txt").read_bytes() == b"a/\xe9.png is empty\nb.png is a PDF\n"


def test_description_round_trip(tmp_path):
    settings = {**SETTINGS, "crop_area": [0.05, 1.0]}
    write_run(tmp_path, {"settings": settings, "data": "näme"})
    assert read_run(tmp_path) == {"settings": settings, "data": "näme"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"settings": 3}', '{"settings": {}}'),
        *(
            json.dumps({"settings": {**SETTINGS, **damage}})
            for damage in ({"seed": "x"}, {"batch_size": "4"}, {"data": 1}, {"class_weights": 2})
        ),
        json.dumps({"settings": SETTINGS, "metrics": []}),
        json.dumps({"settings": {k: v for k, v in SETTINGS.items() if k != "early_stopping"}}),
    ],
)
def test_a_damaged_description(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="run.json is damaged.*overwrite=True"):
        read_run(tmp_path)
