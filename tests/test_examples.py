"""The examples run, small."""

import importlib.util
import json
import pathlib
import re
import xml.etree.ElementTree

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def _load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_finetune_on_a_folder(tmp_path, capsys):
    directory = tmp_path / "run"
    _load("finetune_on_a_folder").main(["--directory", str(directory), "--steps", "4"])
    printed = capsys.readouterr().out
    assert re.search(r"accuracy 0\.\d+; classes: coat, pullover, sandal, sneaker", printed)
    assert re.search(r"\.png of coat: \w+ \(0\.\d\d\)", printed)
    assert (directory / "saved_model" / "saved_model.pb").exists()
    assert (directory / "best.keras").exists()


def test_token_reduction(tmp_path, capsys, monkeypatch):
    script = _load("token_reduction")
    monkeypatch.setattr(script, "MERGED", (0, 8))
    monkeypatch.setattr(script, "DROPPED", (0.0, 0.5))
    script.main(["--directory", str(tmp_path), "--steps", "8", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert "Fashion-MNIST is left out" in printed
    assert re.search(r"\n +8 +\d+\.\d% +\d+ +\d\.\d\dx", printed)
    tables = json.loads((tmp_path / "token_reduction.json").read_text())
    for rows in tables.values():
        assert len(rows) == 2
        assert all(row["speed"] > 0 and 0.25 <= row["accuracy"] <= 1 for row in rows)
    drawing = xml.etree.ElementTree.parse(tmp_path / "token_reduction.svg")
    assert len(drawing.findall(".//{*}circle")) == 4
    words = [node.text for node in drawing.findall(".//{*}text")]
    assert {"8", "50%", "accuracy"} <= set(words) and len(words) == len(set(words))


def test_bundled_assets_are_what_the_script_makes():
    """No class in common with the pre-training; 25 and 150 pictures a class; under 4 MB."""
    import keras_vit
    from keras_vit import assets

    script = _load("make_bundled_assets")
    model = keras_vit.from_pretrained(assets.checkpoint())
    assert set(model.labels) | set(script.HELD_OUT) == set(script.CLASS_NAMES)
    assert not set(model.labels) & set(script.HELD_OUT)
    for part, count in (("train", script.TRAIN_PICTURES), ("test", script.TEST_PICTURES)):
        folders = sorted((assets.pictures() / part).iterdir())
        assert [folder.name for folder in folders] == sorted(script.HELD_OUT)
        assert [len(list(folder.glob("*.png"))) for folder in folders] == [count] * 4
    files = [path for path in assets.checkpoint().parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4e6
    assert "seed 0" in script.LOG.read_text()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_explains_itself(path):
    assert path.read_text().startswith('"""')
