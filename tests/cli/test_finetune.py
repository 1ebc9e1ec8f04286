import json
import shutil

import pytest

from keras_vit import runs
from keras_vit.recipes import RECIPES

QUICK = ("--steps", 2, "--batch-size", 4, "--validation-fraction", 0.5)


@pytest.fixture(scope="module")
def with_text(pictures, tmp_path_factory):
    """The pictures, and a text that is called one."""
    root = tmp_path_factory.mktemp("with_text") / "pictures"
    shutil.copytree(pictures, root)
    (root / "cat" / "[b]notes.png").write_text("no picture")
    return root


def test_a_folder_is_trained_on_and_resumed(command, with_text, checkpoint, tmp_path):
    directory = tmp_path / "my run"
    arguments = ("finetune", with_text, "-d", directory, *QUICK)
    result = command(*arguments, "--model", checkpoint, "--image-size", "24x16")
    assert result.code == 0, result.err
    assert "2 classes (cat, dog): 6 pictures to train, 6 to validate" in result.out
    assert "[b]notes.png is not a picture" in result.err
    assert "head is new" in result.err
    assert "resized from 2x2 to 3x2 patches" in result.err
    assert "Best validation accuracy: " in result.out
    assert f"keras-vit predict '{directory}' PICTURE..." in result.out
    for name in ("best.keras", "last.keras", "history.csv", "run.json", "unreadable.txt"):
        assert (directory / name).exists() and name in result.out

    # The model comes from the run: it need not be named again, nor be had.
    assert command(*arguments, "--resume").code == 0
    result = command(*arguments, "--resume", "--image-size", 32)
    assert (result.code, "the run has (24, 16)" in result.err) == (1, True)

    result = command(*arguments)
    assert result.code == 1
    assert "must not hold another run" in result.err and "Traceback" not in result.err


def test_without_validation_the_training_accuracy_is_told(command, pictures, checkpoint, tmp_path):
    result = command(
        *("finetune", pictures, "-d", tmp_path, "-m", checkpoint, "--steps", 1),
        *("--validation-fraction", 0, "--augment", "erasing", "--augment", "mixup"),
    )
    assert result.code == 0, result.err
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert settings["augmentation"] == ["RandomErasing", "MixUp"]
    assert "Best training accuracy: " in result.out and "epoch 1 of 1" in result.out


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_runs_by_its_command(recipe, command, pictures, checkpoint, tmp_path):
    result = command(
        *("finetune", pictures, "-d", tmp_path, "-m", checkpoint, *QUICK, "--recipe", recipe)
    )
    assert result.code == 0, result.err
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert (settings["recipe"]["name"], settings["total_steps"]) == (recipe, 2)


def test_options_reach_the_run(command, pictures, checkpoint, tmp_path, monkeypatch):
    given = {}

    def finetune(model, train, **options):
        given.update(options, classes=model.config.num_classes, train=train)
        raise FloatingPointError("stop here")

    monkeypatch.setattr(runs, "finetune", finetune)
    result = command(
        *("finetune", pictures, "-d", tmp_path, "-m", checkpoint, "--epochs", 3, "--overwrite"),
        *("--learning-rate", 0.5, "--warmup-steps", 7, "--early-stopping", 2, "--seed", 9),
        *("--validation", pictures, "--class-weights", "balanced", "--multi-label"),
        *("--augment", "randaugment", "--augment", "cutmix"),
    )
    assert (result.code, result.err.splitlines()[-1]) == (1, "error: stop here")
    expected = {"epochs": 3, "overwrite": True, "learning_rate": 0.5, "warmup_steps": 7}
    expected |= {"early_stopping": 2, "seed": 9, "recipe": "paper_sgd", "directory": tmp_path}
    expected |= {"class_weights": "balanced", "augmentation": ["randaugment", "cutmix"]}
    assert {name: given[name] for name in expected} == expected
    assert (len(given["train"].train), len(given["train"].validation)) == (12, 12)
    assert given["train"].is_multi_label


def test_a_table_of_several_labels(command, pictures, checkpoint, tmp_path):
    rows = [f"{path},{path.parent.name}" for path in pictures.glob("*/*.png")]
    rows[0] = f"{rows[0].split(',')[0]},cat|dog"
    table = tmp_path / "pictures.csv"
    table.write_text("\n".join(["path,label", *rows]))
    result = command(
        *("finetune", table, "-d", tmp_path / "run", "-m", checkpoint, *QUICK, "--multi-label"),
    )
    assert result.code == 0, result.err
    assert "Best validation pr_auc: " in result.out
    result = command(
        *("finetune", table, "-d", tmp_path / "other", "-m", checkpoint, *QUICK),
        *("--multi-label", "--class-weights", "balanced"),
    )
    assert result.code == 1
    assert "need pictures of one class each" in result.err and not (tmp_path / "other").exists()


def test_ctrl_c_says_how_to_go_on(command, pictures, checkpoint, tmp_path, monkeypatch):
    def finetune(model, train, directory, **options):
        directory.mkdir(parents=True)
        (directory / "last.keras").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "finetune", finetune)
    monkeypatch.chdir(tmp_path)
    result = command("finetune", pictures, "--model", checkpoint, "--overwrite", *QUICK)
    directory = next(tmp_path.glob("runs/*")).relative_to(tmp_path)
    assert result.code == 130
    assert f"interrupted; the last checkpoint is whole: {directory / 'last.keras'}" in result.err
    quick = " ".join(map(str, QUICK))
    assert result.err.endswith(
        f"  keras-vit finetune {pictures} --model {checkpoint} {quick} "
        f"--directory {directory} --resume\n"
    )


def test_wrong_places(command, pictures, checkpoint, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for arguments, said in (
        ((tmp_path / "nowhere",), "does not exist"),
        ((tmp_path / "empty",), "without any subfolder"),
        ((pictures, "-m", "vit_base_patch16_244"), "Did you mean: vit_base_patch16_224"),
        ((pictures, "-m", tmp_path / "nowhere"), "must be a file or folder that exists"),
        ((pictures, "-m", checkpoint, "--image-size", 20), "must be a multiple of `patch_size`"),
        ((pictures, "-m", checkpoint, "--learning-rate", -1), "learning_rate"),
        ((pictures, "-m", checkpoint, "-d", tmp_path / "file"), "which is a file"),
        ((pictures, "-m", checkpoint, "-d", tmp_path / "file/run"), "can be written to"),
        ((pictures, "-d", tmp_path / "run", "--resume"), "needs the directory of a run"),
    ):
        result = command("finetune", "-d", tmp_path / "run", *arguments)
        assert result.code == 1, arguments
        assert said in result.err and "error: " in result.err, result.err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("DATA", "--resume"), "--resume"),
        (("DATA", "--recipe", "paper"), "--recipe"),
        (("DATA", "--steps", 0), "--steps"),
        (("DATA", "--steps", "many"), "--steps"),
        (("DATA", "--image-size", "1x2x3"), "--image-size"),
        (("DATA", "--image-size", "-16"), "--image-size"),
        (("DATA", "--augment", "flip"), "--augment"),
        (("DATA", "--class-weights", "equal"), "--class-weights"),
        (("--steps", 3), "needs DATA"),
    ],
)
def test_wrong_usage_is_code_2(command, arguments, named, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = command("finetune", *arguments)
    assert result.code == 2
    assert named in result.err
    assert not list(tmp_path.iterdir())
