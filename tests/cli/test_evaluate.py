import csv
import os
import shutil

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit


def rows_of(text: str, delimiter: str = "\t") -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(), delimiter=delimiter))


@pytest.fixture(scope="module")
def mixed_up(pictures, tmp_path_factory):
    """Six cats, and six dogs of which two lie among the cats; beside them a text."""
    root = tmp_path_factory.mktemp("mixed up") / "pictures"
    shutil.copytree(pictures, root)
    for name in ("0", "1"):
        (root / "dog" / f"{name}.png").rename(root / "cat" / f"dog_{name}.png")
    (root / "dog" / "[b]notes.png").write_text("no picture")
    return root


def test_a_whole_folder(command, run_directory, mixed_up, tmp_path):
    """Eight called cats: six are, two are taken for dogs. By hand: 10 of 12, dogs 4 of 6."""
    table = tmp_path / "answers.csv"
    result = command("evaluate", run_directory, mixed_up, "--csv", table, "--batch-size", 5)
    assert result.code == 0, result.err
    rows = rows_of(result.out)
    calibration_error, rows[0]["calibration_error"] = rows[0]["calibration_error"], ""
    assert rows == [
        expected_row("(all)", 12, 10 / 12, None, "", 2),
        expected_row("cat", 8, 6 / 8, 6 / 6, "dog", 2),
        expected_row("dog", 4, 4 / 4, 4 / 6, "", 0),
    ]
    assert "12 pictures of 2 classes, all of " in result.err
    assert "1 unreadable files left out" in result.err
    assert "[b]notes.png is not a picture" in result.err
    assert " pictures a second, " in result.err and "is the bottleneck." in result.err

    lines = rows_of(table.read_text(), ",")
    assert len(lines) == 12
    assert list(lines[0]) == [
        *("file", "label", "predicted", "probability", "predicted_2", "probability_2")
    ]
    wrong = [line for line in lines if line["label"] != line["predicted"]]
    assert [line["file"] for line in wrong] == [str(mixed_up / f"cat/dog_{i}.png") for i in "01"]
    model = keras.saving.load_model(run_directory / "best.keras")
    for line in lines:
        logits = model.predict(model.preprocess(Image.open(line["file"])), verbose=0)[0]
        expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        best = ("cat", "dog")[expected.argmax()]
        assert line["predicted"] == best
        assert float(line["probability"]) == pytest.approx(expected.max(), abs=2e-6)
        assert float(line["probability_2"]) == pytest.approx(expected.min(), abs=2e-6)
    assert float(calibration_error) == pytest.approx(_calibration_error(lines), abs=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]


def _calibration_error(lines: list[dict[str, str]]) -> float:
    """From the CSV file, by the formula."""
    bins = {}
    for line in lines:
        sure, is_right = float(line["probability"]), line["label"] == line["predicted"]
        bins.setdefault(np.ceil(15 * sure), []).append((sure, is_right))
    distances = [len(part) * abs(np.subtract(*np.mean(part, axis=0))) for part in bins.values()]
    return sum(distances) / len(lines)


def expected_row(name, pictures, top1, precision, confused_with, confusions) -> dict[str, str]:
    return {
        "class": name,
        "pictures": str(pictures),
        "top1": f"{top1:.4f}",
        "top5": "",
        "precision": "" if precision is None else f"{precision:.4f}",
        "confused_with": confused_with,
        "confusions": str(confusions),
        "calibration_error": "",
    }


def test_a_model_whose_classes_have_another_order(command, model, pictures, tmp_path):
    """Numbers of classes are of the model, names are of the world."""
    other = keras.saving.load_model(_saved(model, tmp_path / "model.keras"))
    head = other.get_layer("head")
    head.set_weights([weight[..., ::-1] for weight in head.get_weights()])
    other.labels = ("dog", "cat")
    result = command("evaluate", _saved(other, tmp_path / "other.keras"), pictures)
    assert [row["top1"] for row in rows_of(result.out)] == ["1.0000"] * 3


def _saved(model, path):
    model.save(path)
    return path


@pytest.fixture(scope="module")
def divided(pictures, tmp_path_factory):
    """train/, val/ and test/, of four, two and three pictures a class."""
    root = tmp_path_factory.mktemp("divided")
    for split, count in (("train", 4), ("val", 2), ("test", 3)):
        for name in ("cat", "dog"):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                shutil.copy(pictures / name / f"{index}.png", root / split / name)
    return root


@pytest.mark.parametrize(
    ("options", "count", "said"),
    [
        ((), 6, "test."),
        (("--split", "test"), 6, "test."),
        (("--split", "validation"), 4, "val."),
        (("--split", "train"), 8, "train."),
    ],
)
def test_a_divided_folder(command, run_directory, divided, options, count, said):
    result = command("evaluate", run_directory, divided, *options)
    assert result.code == 0, result.err
    assert rows_of(result.out)[0]["pictures"] == str(count)
    assert f"{count} pictures of 2 classes, the folder {divided}/{said}" in result.err


def test_what_finetune_would_hold_out(command, run_directory, pictures):
    """The same fraction and seed draw the same pictures."""
    drawn = keras_vit.data.index_folder(pictures, validation_fraction=0.5, seed=3)
    options = ("--split", "validation", "--validation-fraction", 0.5, "--seed", 3)
    result = command("evaluate", run_directory, pictures, *options)
    assert result.code == 0, result.err
    assert rows_of(result.out)[0]["pictures"] == str(len(drawn.validation))
    assert "50% of every class, drawn with seed 3" in result.err
    rest = command("evaluate", run_directory, pictures, "--split", "train", *options[2:])
    assert rows_of(rest.out)[0]["pictures"] == str(len(drawn.train))


def test_a_table(command, run_directory, pictures, tmp_path):
    table = tmp_path / "pictures.csv"
    rows = [f"{pictures}/{name}/{i}.png,{name}" for name in ("dog", "cat") for i in range(3)]
    table.write_text("\n".join(["path,label", *rows]))
    result = command("evaluate", run_directory, table)
    assert result.code == 0, result.err
    assert [row["pictures"] for row in rows_of(result.out)] == ["6", "3", "3"]
    assert [row["top1"] for row in rows_of(result.out)] == ["1.0000"] * 3


@pytest.fixture
def table_of_splits(pictures, tmp_path):
    """A function that writes a table: two of each class and split, one dog more to test."""

    def write(*splits):
        rows = ["path,label,split"]
        for start, split in enumerate(splits):
            numbers = (2 * start, 2 * start + 1)
            rows += [f"{pictures}/{n}/{i}.png,{n},{split}" for n in ("cat", "dog") for i in numbers]
        (tmp_path / "pictures.csv").write_text("\n".join(rows))
        return tmp_path / "pictures.csv"

    return write


@pytest.mark.parametrize(
    ("splits", "options", "said"),
    [
        (("train", "val", "test"), (), "'test'"),
        (("train", "val", "test"), ("--split", "test"), "'test'"),
        (("train", "val", "test"), ("--split", "validation"), "'val'"),
        (("train", "val", "test"), ("--split", "train"), "'train'"),
        (("train", "val"), (), "'val'"),
        (("TEST",), (), "'test'"),
        (("val",), ("--split", "validation"), "'val'"),
        (("train", "test"), ("--split", "validation"), "'test'"),  # as `finetune` takes it
    ],
)
def test_a_table_that_says_the_split(
    command, run_directory, table_of_splits, splits, options, said
):
    result = command("evaluate", run_directory, table_of_splits(*splits), *options)
    assert result.code == 0, result.err
    assert [row["pictures"] for row in rows_of(result.out)] == ["4", "2", "2"]
    assert [row["top1"] for row in rows_of(result.out)] == ["1.0000"] * 3
    assert f"the rows of split {said}" in result.err


def test_a_table_without_that_split(command, run_directory, table_of_splits):
    result = command("evaluate", run_directory, table_of_splits("train", "val"), "--split", "test")
    assert result.code == 1 and "`--split test` needs pictures" in result.err
    result = command("evaluate", run_directory, table_of_splits("train", "tset"))
    assert result.code == 1 and "Unknown split" in result.err


def test_rows_to_test_on_need_no_second_class(command, run_directory, pictures, tmp_path):
    table = tmp_path / "pictures.csv"
    (tmp_path / "cut.png").write_bytes(b"no picture")
    table.write_text(f"path,label,split\n{pictures}/dog/0.png,dog,test\ncut.png,dog,test\n")
    result = command("evaluate", run_directory, table)
    assert result.code == 0, result.err
    assert [row["pictures"] for row in rows_of(result.out)] == ["1", "1"]
    assert "left out: " in result.err and "cut.png" in result.err


def test_folders_to_test_on_alone_are_no_classes(command, run_directory, divided, tmp_path):
    """Of two classes `test` and `val`, the model's two would be taken in order."""
    for name in ("test", "val"):
        shutil.copytree(divided / name, tmp_path / name)
    (tmp_path / ".git").mkdir()
    result = command("evaluate", run_directory, tmp_path)
    assert result.code == 0, result.err
    assert f"the folder {tmp_path}/test." in result.err


def test_several_labels_for_a_model_of_one(command, run_directory, pictures, tmp_path):
    table = tmp_path / "pictures.csv"
    for header, end in (("path,label", ""), ("path,label,split", ",test")):
        lines = [f"{pictures}/{n}/0.png,{n}{end}" for n in ("cat", "dog")]
        table.write_text("\n".join([header, *lines, f"{pictures}/cat/1.png,cat|dog{end}"]))
        result = command("evaluate", run_directory, table)
        assert result.code == 1 and "`keras-vit finetune --multi-label`" in result.err


def test_several_classes_a_picture(command, model, pictures, tmp_path, terminal):
    other = keras.saving.load_model(_saved(model, tmp_path / "model.keras"))
    other.multi_label = True
    source = _saved(other, tmp_path / "several.keras")
    table, answers = tmp_path / "pictures.csv", tmp_path / "answers.csv"
    labels = {"cat/0": "cat", "cat/1": "cat|dog", "dog/0": "dog", "dog/1": "|"}
    rows = [f"{pictures}/{name}.png,{label}" for name, label in labels.items()]
    table.write_text("\n".join(["path,label", *rows]))
    result = command("evaluate", source, table, "--csv", answers)
    assert result.code == 0, result.err
    assert "mean average precision" in result.out and "F1" in result.out
    lines = rows_of(answers.read_text(), ",")
    assert [line["labels"] for line in lines] == ["cat", "cat|dog", "dog", ""]
    assert [line["predicted"] for line in lines] == ["cat", "cat", "dog", "dog"]
    for line in lines:
        logits = other.predict(other.preprocess(Image.open(line["file"])), verbose=0)[0]
        for name, logit in zip(("cat", "dog"), logits, strict=True):
            assert float(line[name]) == pytest.approx(0.5 + 0.5 * np.tanh(logit / 2), abs=2e-6)


def test_a_pipe_gets_several_classes_a_picture_too(command, model, pictures, tmp_path):
    other = keras.saving.load_model(_saved(model, tmp_path / "model.keras"))
    other.multi_label = True
    result = command("evaluate", _saved(other, tmp_path / "several.keras"), pictures)
    assert result.code == 0, result.err
    for row in rows_of(result.out):
        assert (row["average_precision"], row["f1"]) == ("1.0000", "1.0000")


def test_a_terminal_gets_tables(command, run_directory, mixed_up, terminal):
    result = command("evaluate", run_directory, mixed_up)
    assert result.code == 0, result.err
    assert "12 pictures of 2 classes" in result.out
    assert "83.3 %" in result.out and "dog (2)" in result.out and "top-5" not in result.out
    assert result.out.index(" cat ") < result.out.index(" dog ")  # the worst first
    assert "calibration error" in result.out and "how sure" in result.out
    assert "Evaluating" in result.err


def test_a_drawing_of_what_is_taken_for_what(command, run_directory, mixed_up, tmp_path):
    result = command("evaluate", run_directory, mixed_up, "--confusion", tmp_path / "taken.PNG")
    assert result.code == 0, result.err
    assert [path.name for path in tmp_path.iterdir()] == ["taken.PNG"]
    with Image.open(tmp_path / "taken.PNG") as drawing:
        assert drawing.format == "PNG" and min(drawing.size) > 200
        colours = {colour for _, colour in drawing.getcolors(1 << 16)}
    assert (8, 34, 84) in colours  # all of the four dogs are named so
    assert (255, 255, 255) in colours


@pytest.fixture
def validation_pictures(pictures, tmp_path):
    """Seven pictures by ImageNet's names: five of cat, of which 6 is a dog, and two of dog."""
    root = tmp_path / "val"
    for number, label, shown in (
        *((1, "cat", "cat"), (2, "cat", "cat"), (3, "cat", "cat"), (6, "cat", "dog")),
        *((4, "dog", "dog"), (5, "dog", "dog"), (7, "cat", "cat")),
    ):
        (root / label).mkdir(parents=True, exist_ok=True)
        name = f"ILSVRC2012_val_{number:08}.png"
        shutil.copy(pictures / shown / "0.png", root / label / name)
    return root


def test_reassessed_labels(command, run_directory, validation_pictures, tmp_path, monkeypatch):
    """Named are 0 0 0 1 1 1 0, in the order of the numbers; 3 has no label: 4 of 6 are right."""
    real = tmp_path / "real.json"
    real.write_text("[[0], [1], [], [1, 0], [0], [1], [0]]")
    result = command("evaluate", run_directory, validation_pictures, "--real", real)
    assert result.code == 0, result.err
    rows = rows_of(result.out)
    assert [row["real_top1"] for row in rows] == ["0.6667", "", ""]
    assert rows[0]["top1"] == f"{6 / 7:.4f}"
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = command("evaluate", run_directory, validation_pictures, "--real", real)
    assert "ReaL top-1: 66.7 % of 6 pictures; 1 without a ReaL label left out." in result.out
    assert "The labels of DATA themselves reach 50.0 %." in result.out


def test_reassessed_labels_that_do_not_fit(
    command, run_directory, pictures, validation_pictures, tmp_path
):
    """Known before the model is asked."""
    real, table = tmp_path / "real.json", tmp_path / "answers.csv"
    for data, text, said in (
        (pictures, "[[0]]", "must be named ILSVRC2012_val_"),
        (validation_pictures, "[[0], [1]]", "from 00000001 to 00000002. Received: "),
        (validation_pictures, "[[2]]", "class 2, for a model with num_classes=2"),
        (validation_pictures, "no", "must be a JSON list"),
    ):
        real.write_text(text)
        result = command("evaluate", run_directory, data, "--real", real, "--csv", table)
        assert result.code == 1 and said in result.err, result.err
        assert result.out == "" and not table.exists()
    result = command("evaluate", run_directory, pictures, "--real", tmp_path / "nowhere.json")
    assert result.code == 1 and "nowhere.json" in result.err


def test_several_classes_a_picture_are_not_drawn(command, model, pictures, tmp_path):
    other = keras.saving.load_model(_saved(model, tmp_path / "model.keras"))
    other.multi_label = True
    source = _saved(other, tmp_path / "several.keras")
    for option in (("--confusion", tmp_path / "taken.png"), ("--real", tmp_path / "real.json")):
        result = command("evaluate", source, pictures, *option)
        assert result.code == 1 and "need a model of one class a picture" in result.err
    assert not list(tmp_path.glob("*.png"))


def test_many_classes_on_a_terminal(command, tmp_path, terminal):
    config = keras_vit.ViTConfig(
        **dict(num_layers=1, num_heads=1, hidden_dim=8, mlp_dim=8, patch_size=8, image_size=16),
        num_classes=12,
    )
    names = [f"class_{index:02}" for index in range(12)]
    source = _saved(keras_vit.ViT(config, labels=names), tmp_path / "zeros.keras")
    for name in names:
        (tmp_path / "pictures" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(tmp_path / "pictures" / name / "1.png")
    result = command("evaluate", source, tmp_path / "pictures")
    assert result.code == 0, result.err
    # A head of zeros names all the first class: five of twelve are among its best five.
    assert "8.3 %" in result.out and "41.7 %" in result.out
    assert "The worst 10 of 12 classes; --per-class shows all." in result.out
    assert "class_11" not in result.out.partition("taken for")[0]
    assert "shown" in result.out
    result = command("evaluate", source, tmp_path / "pictures", "--per-class")
    assert "The worst" not in result.out and result.out.count("100.0 %") == 1


def test_wrong_sources_and_places(command, checkpoint, run_directory, pictures, divided, tmp_path):
    features = _saved(keras_vit.from_pretrained(checkpoint, num_classes=0), tmp_path / "0.keras")
    raw = tmp_path / "raw.keras"
    keras_vit.from_pretrained(checkpoint, include_normalization=False).save(raw)
    birds = tmp_path / "birds"
    shutil.copytree(pictures, birds)
    (birds / "dog").rename(birds / "owl")
    (tmp_path / "empty").mkdir()
    shutil.copytree(pictures, tmp_path / "hole")
    (tmp_path / "hole" / "zebra").mkdir()
    for arguments, said in (
        ((run_directory, tmp_path / "nowhere"), "does not exist"),
        ((run_directory, tmp_path / "empty"), "without any subfolder"),
        ((run_directory, tmp_path / "hole"), "class 'zebra'"),
        ((run_directory, birds), "unknown to the model: owl. The model has 2: cat, dog"),
        ((run_directory, pictures, "--split", "test"), "`--split test` needs pictures"),
        ((features, pictures), "a model of features"),
        ((raw, pictures), "include_normalization=False"),
        (("vit_base_patch16_244", pictures), "Did you mean"),
        ((run_directory, pictures, "--csv", tmp_path / "no/a.csv"), "`--csv` cannot be written"),
        (
            (run_directory, pictures, "--confusion", tmp_path / "no/a.png"),
            "`--confusion` cannot be written",
        ),
        ((run_directory, pictures, "--confusion", tmp_path / "a.jpg"), "the name of a .png file"),
    ):
        result = command("evaluate", *arguments)
        assert result.code == 1, arguments
        assert "error: " in result.err and said in result.err, result.err
        assert result.out == ""
    assert not list(tmp_path.glob("*.csv"))


def test_numbers_that_are_none(command, model, pictures, tmp_path):
    other = keras.saving.load_model(_saved(model, tmp_path / "model.keras"))
    kernel = other.get_layer("head").kernel
    kernel.assign(np.full(kernel.shape, np.inf))
    table, drawing = tmp_path / "answers.csv", tmp_path / "taken.png"
    files = ("--csv", table, "--confusion", drawing)
    result = command("evaluate", _saved(other, tmp_path / "b.keras"), pictures, *files)
    assert result.code == 1 and "must give finite logits" in result.err
    assert not table.exists() and not drawing.exists()


def test_wrong_usage_is_code_2(command):
    for arguments in (("bundled",), ("bundled", "DATA", "--split", "half"), ()):
        assert command("evaluate", *arguments).code == 2
    assert command("evaluate", "bundled", "DATA", "--batch-size", 0).code == 2


def test_what_the_run_held_out_is_drawn_again(command, pictures, tmp_path):
    """With the run's own seed; another draw would count pictures that were trained on."""
    run = tmp_path / "run"
    options = ("--model", "bundled", "--steps", 1, "--batch-size", 2, "--seed", 7)
    assert command("finetune", pictures, "-d", run, *options).code == 0
    drawn = command("evaluate", run, pictures, "--split", "validation")
    assert drawn.code == 0 and "seed 7" in drawn.err
    for other in (("--seed", 3), ("--validation-fraction", 0.5)):
        wrong = command("evaluate", run, pictures, "--split", "validation", *other)
        assert wrong.code == 1 and "that the run held out" in wrong.err


def test_answers_never_replace_what_is_no_file(command, run_directory, pictures, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("path,label\n")
    wrong = command("evaluate", run_directory, table, "--csv", table)
    assert wrong.code == 1 and "must not be DATA itself" in wrong.err
    assert table.read_text() == "path,label\n"
    os.mkfifo(tmp_path / "fifo")
    wrong = command("evaluate", run_directory, pictures, "--csv", tmp_path / "fifo")
    assert wrong.code == 1 and "`--csv` must be a file" in wrong.err
    assert (tmp_path / "fifo").is_fifo()
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert command("evaluate", run_directory, pictures, "--csv", tmp_path / "link.csv").code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("file,label")
