import keras
import pytest

import keras_vit
from keras_vit import assets, bundled
from keras_vit.cli import demonstration
from keras_vit.runs import Run

NAMES = tuple(sorted(path.name for path in (assets.pictures() / "test").iterdir()))


@pytest.fixture
def compare(monkeypatch):
    """Return a function that puts results in the place of ten trainings."""
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(
        num_layers=1,
        num_heads=1,
        hidden_dim=8,
        mlp_dim=8,
        patch_size=14,
        image_size=28,
        num_channels=1,
        num_classes=len(NAMES),
    )
    model = keras_vit.ViT(config, labels=NAMES)

    def put(pretrained, random):
        def results(directory, seeds, report):
            assert len(seeds) == len(pretrained)
            run = directory / "pretrained"
            run.mkdir(parents=True)
            (run / "run.json").touch()
            model.save(run / "best.keras")
            report("random", 1, random[1])
            return bundled.Comparison(pretrained, random, Run(model, {}, {}, run))

        monkeypatch.setattr(bundled, "SEEDS", (0, 1, 2))
        monkeypatch.setattr(bundled, "compare_with_random", results)

    return put


def test_the_whole_job(command, compare, tmp_path):
    compare((0.875, 0.9, 0.95), (0.6, 0.5, 0.75))
    result = command("finetune", "-d", tmp_path / "demo")
    assert result.code == 0, result.err
    lines = [line.split() for line in result.out.splitlines()]
    assert "seed 1, random:" in result.out
    assert ["pre-trained", "87.5", "%", "90.0", "%", "95.0", "%"] in lines
    assert ["random", "50.0", "%", "60.0", "%", "75.0", "%"] in lines
    for name in NAMES:  # the file, its class, and one of the labels
        row = next(line for line in lines if line and line[0] == f"{name}/000.png")
        assert row[1] == name and row[2] in NAMES
    assert (tmp_path / "demo" / "saved_model" / "saved_model.pb").exists()
    assert f"keras-vit predict {tmp_path / 'demo' / 'pretrained'} PICTURE..." in result.out

    result = command("finetune", "-d", tmp_path / "demo")
    assert result.code == 1
    assert "must not hold another run" in result.err


def test_pre_training_that_does_not_show_is_code_1(command, compare, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "export", lambda model, path, overwrite: None)
    monkeypatch.setattr(demonstration, "_classify", lambda path: None)
    compare((0.7, 0.9, 0.95), (0.6, 0.5, 0.75))
    result = command("finetune", "-d", tmp_path)
    assert result.code == 1
    assert "pre-training does not show" in result.err

    compare((0.8, 0.9, 0.95), (0.6, 0.5, 0.75))
    assert command("finetune", "-d", tmp_path, "--overwrite").code == 0


def test_what_is_no_demonstration_is_never_deleted(command, compare, tmp_path):
    compare((0.8, 0.9, 0.95), (0.6, 0.5, 0.75))
    (tmp_path / "pretrained").mkdir()
    (tmp_path / "pretrained" / "mine.txt").touch()
    assert command("finetune", "-d", tmp_path, "--overwrite").code == 1
    assert (tmp_path / "pretrained" / "mine.txt").exists()
