import csv
import importlib
import pathlib

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit


@pytest.fixture(scope="module")
def saved_model(model, tmp_path_factory):
    return keras_vit.export(model, tmp_path_factory.mktemp("exported") / "saved", top_k=1)


def rows_of(text: str, delimiter: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(), delimiter=delimiter))


def test_a_folder_through_a_run(command, run_directory, pictures, tmp_path, monkeypatch):
    # Not by `from`: the package's attribute of this name is the verb.
    monkeypatch.setattr(importlib.import_module("keras_vit.cli.predict"), "_BATCH_SIZE", 5)
    table = tmp_path / "answers.csv"
    result = command("predict", run_directory, pictures, "--csv", table)
    assert result.code == 0, result.err
    rows = rows_of(result.out, "\t")
    assert len(rows) == 12 * 2
    for row in rows:
        true_class = pathlib.Path(row["file"]).parent.name
        assert (row["label"] == true_class) == (row["rank"] == "1")
    assert sum(float(row["score"]) for row in rows[:2]) == pytest.approx(1.0, abs=2e-6)
    assert rows_of(table.read_text(), ",") == rows
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]


def test_a_saved_model_answers_the_same(command, saved_model, run_directory, pictures):
    one = rows_of(command("predict", saved_model, pictures / "cat").out, "\t")
    other = rows_of(command("predict", run_directory, pictures / "cat").out, "\t")
    assert [row["label"] for row in one] == [row["label"] for row in other]
    for row, expected in zip(one, other, strict=True):
        assert float(row["score"]) == pytest.approx(float(expected["score"]), abs=1e-5)


def test_unreadable_files_are_listed_and_the_others_predicted(
    command, checkpoint, pictures, tmp_path
):
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / ".hidden").write_text("passed over")
    Image.new("RGB", (8, 8)).save(tmp_path / "caf\udce9[b].png")
    result = command(
        *("predict", checkpoint, tmp_path, tmp_path / "gone.png", pictures / "dog/0.png"),
        *("--top-k", 1, "--csv", tmp_path / "answers.csv"),
    )
    assert result.code == 1
    rows = rows_of(result.out, "\t")
    assert [row["label"] for row in rows] == ["cat", "dog"]
    assert rows[0]["file"].endswith("caf\N{REPLACEMENT CHARACTER}[b].png")
    assert b"caf\xe9[b].png,1,cat" in (tmp_path / "answers.csv").read_bytes()
    assert "text.png is not a picture" in result.err
    assert "gone.png cannot be read: No such file" in result.err


def test_a_terminal_gets_a_table(command, run_directory, pictures, terminal):
    result = command("predict", run_directory, pictures / "cat/0.png")
    assert result.code == 0
    assert result.out.count("0.png") == 1 and "dog" in result.out and " %" in result.out
    assert "Predicting" in result.err


def test_wrong_sources_and_places(command, checkpoint, run_directory, pictures, tmp_path):
    features = tmp_path / "features.keras"
    keras_vit.from_pretrained(checkpoint, num_classes=0).save(features)
    raw = tmp_path / "raw.keras"
    keras_vit.from_pretrained(checkpoint, include_normalization=False).save(raw)
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ((features, pictures), "gives features"),
        ((raw, pictures), "include_normalization=False"),
        (("vit_base_patch16_244", pictures), "Did you mean"),
        ((run_directory, tmp_path / "empty"), "without any"),
        ((run_directory, pictures, "--csv", tmp_path / "no/a.csv"), "`--csv` cannot be written"),
    ):
        result = command("predict", *arguments)
        assert result.code == 1
        assert result.err.startswith("error: ") and said in result.err, result.err
        assert result.out == ""


def test_a_saved_model_of_another(command, pictures, tmp_path):
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    result = command("predict", tmp_path / "other", pictures)
    assert (result.code, "that `keras-vit export` wrote" in result.err) == (1, True)


def test_several_classes_a_picture(command, run_directory, pictures, tmp_path):
    """All above one half, or the best alone; as many as asked for where a number is given."""
    model = keras.saving.load_model(run_directory / "best.keras")
    model.multi_label = True
    kernel, _ = model.get_layer("head").get_weights()
    for bias, count in ((9.0, 2), (-9.0, 1)):
        model.get_layer("head").set_weights([0 * kernel, np.array([bias, bias + 1])])
        model.save(tmp_path / "several.keras")
        exported = keras_vit.export(model, tmp_path / "exported", overwrite=True)
        for source in (tmp_path / "several.keras", exported):
            rows = rows_of(command("predict", source, pictures / "cat/0.png").out, "\t")
            assert [row["label"] for row in rows] == ["dog", "cat"][:count]
    rows = rows_of(command("predict", exported, pictures / "cat/0.png", "--top-k", 2).out, "\t")
    assert [row["label"] for row in rows] == ["dog", "cat"]
