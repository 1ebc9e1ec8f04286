"""`keras-vit evaluate`: how often a model is right about pictures whose classes are known."""

import csv
import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.progress_bar import ProgressBar

from keras_vit.cli.console import (
    console,
    errors,
    percent,
    print_tabbed,
    printable,
    replacing_csv,
    say,
    show_table,
)
from keras_vit.cli.sources import SOURCE_HELP, open_model
from keras_vit.data import ImageIndex, Split, evaluation_dataset, open_training_data
from keras_vit.data.folder import is_ignored
from keras_vit.data.index import Pictures
from keras_vit.data.table import index_table_split, is_table
from keras_vit.evaluation import ClassScore, Evaluation, LabelScore, MultiLabelEvaluation
from keras_vit.evaluation import evaluate as ask
from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.training.run_directory import RUN_FILE, read_run
from keras_vit.zoo.https import public_name

# Names of subfolders, and of splits in a table, in the order in which they are looked for.
_SPLITS = {"test": ("test",), "validation": ("val", "valid", "validation"), "train": ("train",)}
_MOST_ROWS = 10
_BAR_WIDTH = 20

Result = Evaluation | MultiLabelEvaluation
Score = ClassScore | LabelScore


def evaluate(
    source: Annotated[str, typer.Argument(help=f"{SOURCE_HELP}.")],
    data: Annotated[
        str,
        typer.Argument(
            help="A folder: one subfolder a class, or test/, val/ or train/ that hold those. Or a "
            ".csv, .tsv or .parquet table, or tfds:NAME, as `keras-vit finetune` takes them; of a "
            "TFDS set that has both, tfds:NAME?validation=test takes the test pictures."
        ),
    ],
    split: Annotated[
        Literal[tuple(_SPLITS)] | None,
        typer.Option(
            help="Which pictures. Those to validate on are drawn as `keras-vit finetune` draws "
            "them, where DATA does not say.",
            show_default="test, else validation, else all",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 32,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", dir_okay=False, help="Write one line a picture to this file."),
    ] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help=f"Show all classes, not the {_MOST_ROWS} worst.")
    ] = False,
    validation_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share of DATA to draw, if --split draws.")
    ] = 0.2,
    seed: Annotated[
        int | None, typer.Option(help="Of that draw.", show_default="that of the run, else 0")
    ] = None,
):
    """Count how often a model is right: top-1, top-5, class by class.

    \b
      keras-vit evaluate runs/1 flowers/                      flowers/test, or val, or all of it
      keras-vit evaluate runs/1 flowers/ --split validation   what `finetune` held out
      keras-vit evaluate google/vit-base-patch16-224 imagenet/val --per-class
      keras-vit evaluate runs/1 flowers/ --csv answers.csv    every picture, with the best five
      keras-vit evaluate runs/1 flowers/ | cut -f 1,3         into a pipe: tab-separated

    Every picture counts once. Classes of DATA are found among the model's by their names.
    """
    if csv_file and local_path(csv_file).resolve() == local_path(data).resolve():
        raise ValueError(f"`--csv` must not be DATA itself. Received: {data!r}. Give another name.")
    with replacing_csv(csv_file) as temporary:
        model = _open_pixel_model(source)
        settings = _settings_of_run(local_path(source)) if split else {}
        seed = settings.get("seed", 0) if seed is None else seed
        examples, index, where = _open_data(data, split, validation_fraction, seed, model, settings)
        _tell_data(examples, index, where)
        config = model.config
        result = ask(
            model,
            evaluation_dataset(
                examples, batch_size, config.image_size, model.preprocessing, config.num_channels
            ),
            index.class_names,
        )
        if temporary is not None:
            files = examples.paths if isinstance(examples, Split) else examples.names()
            with temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as to:
                csv.writer(to).writerows(_lines(files, result))
    if not console.is_terminal:
        _print_rows(result)
    elif isinstance(result, Evaluation):
        _show(result, None if per_class else _MOST_ROWS)
    else:
        _show_multi_label(result, None if per_class else _MOST_ROWS)


def _open_pixel_model(source: str) -> ImageModel:
    model = open_model(source)
    if not model.include_normalization:
        raise ValueError(
            "`SOURCE` must normalise its pixels itself. Received: "
            f"{public_name(source)!r}, a model with include_normalization=False."
        )
    return model


def _settings_of_run(path: Path) -> dict[str, Any]:
    """How the run at `path` was started; nothing where there is no run."""
    return read_run(path)["settings"] if (path / RUN_FILE).is_file() else {}


def _open_data(
    data: str,
    split: str | None,
    validation_fraction: float,
    seed: int,
    model: ImageModel,
    settings: dict[str, Any],
) -> tuple[Pictures, ImageIndex, str]:
    """The pictures, the index that they are of, and which they are in words."""
    is_file = is_table(data) and local_path(data).is_file()
    rows = index_table_split(data, _names(split)) if is_file else None
    if rows is not None:
        rows = rows.as_multi_label() if model.multi_label else rows
        _check_labels(data, rows.is_multi_label, model)
        return rows.train, rows, rows.split_rule
    folder = _find_folder(local_path(data), split)
    is_drawn = folder is None and split is not None
    opened = open_training_data(
        data if folder is None else folder,
        validation_fraction=validation_fraction if is_drawn else 0.0,
        seed=seed,
        multi_label=model.multi_label,
    )
    _check_labels(data, opened.is_multi_label, model)
    rule = opened.index.split_rule
    if folder is not None:
        return opened.train, opened.index, f"the folder {printable(folder)}"
    if split == "test" and "'test'" not in rule:
        raise ValueError(
            "`--split test` needs pictures that DATA calls so. "
            f"Received: {data!r}, validation from {rule}. Leave the option out, use another, or "
            "write `?validation=test` behind the name of a TFDS set."
        )
    if split == "train":
        return opened.train, opened.index, f"those to train on; validation from {rule}"
    held_out = settings.get("data", {}).get("validation")
    if f"seed {seed}" in rule and held_out not in (None, opened.fingerprint()["validation"]):
        raise ValueError(
            "`--split validation` must draw the pictures that the run held out, or some that it "
            "trained on would count. Received: other pictures. Give DATA, --seed and "
            "--validation-fraction of that run, or a folder of other pictures without `--split`."
        )
    if opened.validation is not None:
        return opened.validation, opened.index, f"those to validate on, from {rule}"
    return opened.train, opened.index, f"all of {printable(data)}"


def _names(split: str | None) -> tuple[str, ...]:
    """What pictures of a split may be called; without `split` all names, in order."""
    return _SPLITS[split] if split else tuple(itertools.chain(*_SPLITS.values()))


def _find_folder(root: Path, split: str | None) -> Path | None:
    """The subfolder of the split, if there is one; without `split` that of the first."""
    if not root.is_dir():
        return None
    folders = {
        path.name.lower(): path
        for path in root.iterdir()
        if path.is_dir() and not is_ignored(path.name)
    }
    if split is None and "train" not in folders and not folders.keys() <= {*_names(None)}:
        return None  # they are classes
    return next((folders[name] for name in _names(split) if name in folders), None)


def _check_labels(data: str, several: bool, model: ImageModel) -> None:
    if several and not model.multi_label:
        raise ValueError(
            "`DATA` must show one class a picture, as `SOURCE` was trained. "
            f"Received: {data!r}, whose pictures show any number of classes. Give one label a "
            "picture, or a model of `keras-vit finetune --multi-label`."
        )


def _tell_data(examples: Pictures, index: ImageIndex, where: str) -> None:
    for file, reason in index.unreadable[:_MOST_ROWS]:
        errors.print(f"left out: {printable(file)} {reason}", soft_wrap=True, style="yellow")
    left_out = f"; {len(index.unreadable)} unreadable files left out" if index.unreadable else ""
    text = f"{len(examples)} pictures of {len(index.class_names)} classes, {where}{left_out}."
    if console.is_terminal:
        say(text)
    else:
        errors.print(text, soft_wrap=True)


def _lines(files: Iterable[str], result: Result) -> Iterable[Iterable[Any]]:
    """The CSV file."""
    if isinstance(result, MultiLabelEvaluation):
        yield "file", "labels", "predicted", *result.class_names
        rows = zip(files, result.labels, result.logits > 0, result.probabilities, strict=True)
        for file, shown, named, probabilities in rows:
            names = (
                "|".join(itertools.compress(result.class_names, row)) for row in (shown, named)
            )
            yield file, *names, *(f"{value:.6f}" for value in probabilities)
        return
    others = range(2, 1 + result.predictions.shape[1])
    more = ((f"predicted_{rank}", f"probability_{rank}") for rank in others)
    yield "file", "label", "predicted", "probability", *itertools.chain(*more)
    rows = zip(files, result.labels, result.predictions, result.probabilities, strict=True)
    for file, label, best, probabilities in rows:
        answers = (
            (result.class_names[index], f"{probability:.6f}")
            for index, probability in zip(best, probabilities, strict=True)
        )
        yield file, result.class_names[label], *itertools.chain(*answers)


def _worst_first(scores: Iterable[Score]) -> list[Score]:
    """Classes that have no figure go last."""

    def figure(score: Score) -> float:
        value = score.top1 if isinstance(score, ClassScore) else score.average_precision
        return np.inf if value is None else value

    return sorted(scores, key=figure)


def _print_rows(result: Result) -> None:
    """For another program: all pictures in the first row, then class by class."""
    if isinstance(result, Evaluation):
        scores = _worst_first(result.class_scores())
        wrong = sum(count for _, _, count in result.confused_pairs())
        total = ("(all)", len(result), result.top1, result.top5, None, None, wrong)
    else:
        scores = _worst_first(result.label_scores())
        total = ("(all)", len(result), result.mean_average_precision, None, None, result.f1)
    rows = [total, *map(dataclasses.astuple, scores)]
    columns = [field.name for field in dataclasses.fields(scores[0])]
    print_tabbed(
        ("class", *columns[1:]),
        [[f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row] for row in rows],
    )


def _show(result: Evaluation, most: int | None) -> None:
    columns, figures = ["pictures", "top-1"], [str(len(result)), percent(result.top1)]
    if result.top5 is not None:
        columns, figures = [*columns, "top-5"], [*figures, percent(result.top5)]
    show_table((*columns, "loss"), [(*figures, f"{result.loss:.3f}")])
    scores = _worst_first(result.class_scores())
    show_table(
        ("class", "pictures", "top-1", "", "precision", "most often taken for"),
        [
            (
                score.name,
                str(score.pictures),
                _percent(score.top1),
                _bar(score.top1),
                _percent(score.precision),
                f"{score.confused_with} ({score.confusions})" if score.confusions else "",
            )
            for score in scores[:most]
        ],
    )
    _tell_more(scores, most)
    pairs = result.confused_pairs()[:_MOST_ROWS]
    if pairs and len(scores) > 2:
        show_table(
            ("shown", "taken for", "pictures"),
            [(shown, named, str(count)) for shown, named, count in pairs],
        )


def _show_multi_label(result: MultiLabelEvaluation, most: int | None) -> None:
    mean, f1 = _percent(result.mean_average_precision), _percent(result.f1)
    show_table(
        ("pictures", "mean average precision", "F1", "loss"),
        [(str(len(result)), mean, f1, f"{result.loss:.3f}")],
    )
    scores = _worst_first(result.label_scores())
    show_table(
        ("class", "pictures", "average precision", "", "precision", "recall", "F1"),
        [
            (
                score.name,
                str(score.pictures),
                _percent(score.average_precision),
                _bar(score.average_precision),
                *map(_percent, (score.precision, score.recall, score.f1)),
            )
            for score in scores[:most]
        ],
    )
    _tell_more(scores, most)


def _tell_more(scores: list[Score], most: int | None) -> None:
    if len(scores) > len(scores[:most]):
        say(f"The worst {most} of {len(scores)} classes; --per-class shows all.")


def _percent(share: float | None) -> str:
    return "" if share is None else percent(share)


def _bar(share: float | None) -> ProgressBar | str:
    return "" if share is None else ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH)
