"""`keras-vit predict`: names for pictures."""

import concurrent.futures
import csv
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import keras
import numpy as np
import tensorflow as tf
import typer

from keras_vit.cli.console import (
    complain,
    console,
    percent,
    print_tabbed,
    printable,
    replacing_file,
    show_table,
    with_progress,
)
from keras_vit.cli.sources import SOURCE_HELP, is_saved_model, open_model
from keras_vit.data import Split, evaluation_dataset
from keras_vit.data.folder import is_ignored
from keras_vit.decoding import decode_error
from keras_vit.files import local_path
from keras_vit.zoo.https import public_name

_BATCH_SIZE = 32
_TOP_K = 5
_COLUMNS = ("file", "rank", "label", "score")

# Takes paths and gives the probabilities of one batch after another.
Predictor = Callable[[list[str]], Iterator[np.ndarray]]
# One name a class, whether a picture may show several, and how to ask.
Opened = tuple[tuple[str, ...], bool, Predictor]


def predict(
    source: Annotated[str, typer.Argument(help=f"{SOURCE_HELP}; or an exported SavedModel.")],
    pictures: Annotated[list[Path], typer.Argument(help="Files, or folders of files.")],
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Labels a picture, best first.",
            show_default=f"{_TOP_K}; of a multi-label model the best and all above 0.5",
        ),
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", dir_okay=False, help="Write the answers to this file, too."),
    ] = None,
):
    """Name what pictures show.

    \b
      keras-vit predict runs/1 photo.jpg holiday/        the best checkpoint of a run
      keras-vit predict serving/flowers/1 *.jpg --csv answers.csv        an exported model
      keras-vit predict google/vit-base-patch16-224 cat.jpg --top-k 3
      keras-vit predict runs/1 holiday/ | cut -f 1,3     into a pipe: tab-separated

    Files that are no pictures are listed, and make the exit code 1 after the others were
    predicted.
    """
    files = _find(pictures)
    with replacing_file(csv_file, "--csv") as temporary:
        labels, multi_label, predictor = _open(source)
        reasons = _decode_all(files)
        readable = [file for file, reason in zip(files, reasons, strict=True) if reason is None]
        rows = _answers(readable, labels, predictor, top_k, multi_label)
        if temporary is not None:
            with temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as to:
                csv.writer(to).writerows([_COLUMNS, *rows])
    if console.is_terminal:
        _show(rows)
    else:
        print_tabbed(_COLUMNS, [(printable(file), *rest) for file, *rest in rows])
    for file, reason in zip(files, reasons, strict=True):
        if reason is not None:
            complain(f"error: {printable(file)} {reason}")
    if len(readable) < len(files):
        raise typer.Exit(1)


def _find(pictures: list[Path]) -> list[str]:
    files = []
    for path in map(local_path, pictures):
        if not path.is_dir():
            files.append(str(path))
            continue
        found = [file for file in path.rglob("*") if file.is_file()]
        files += sorted(
            str(file) for file in found if not any(map(is_ignored, file.relative_to(path).parts))
        )
    if not files:
        raise ValueError(
            "`PICTURES` must be files, or folders with files in them. "
            f"Received: {', '.join(printable(path) for path in pictures)}, without any."
        )
    return files


def _open(source: str) -> Opened:
    opened = _open_saved_model(source) if is_saved_model(source) else _open_vit(source)
    if not opened[0]:
        raise ValueError(
            "`SOURCE` must have classes to name. "
            f"Received: {public_name(source)!r}, which gives features. Fine-tune it first."
        )
    return opened


def _open_vit(source: str) -> Opened:
    model = open_model(source)
    if not model.include_normalization:
        raise ValueError(
            "`SOURCE` must normalise its pixels itself. Received: "
            f"{public_name(source)!r}, a model with include_normalization=False."
        )

    def probabilities(files: list[str]) -> Iterator[np.ndarray]:
        split = Split(tuple(files), (0,) * len(files))
        config = model.config
        for images, _ in evaluation_dataset(
            split, _BATCH_SIZE, config.image_size, model.preprocessing, config.num_channels
        ):
            logits = model.predict_on_batch(images)
            yield keras.ops.convert_to_numpy(model.probabilities(logits))

    labels = model.labels or tuple(map(str, range(model.config.num_classes)))
    return labels, model.multi_label, probabilities


def _open_saved_model(source: str) -> Opened:
    path = local_path(source)
    description = path / "assets.extra" / "keras_vit.json"
    try:
        loaded = tf.saved_model.load(str(path))
        described = json.loads(description.read_text(encoding="utf-8"))
        labels, multi_label = tuple(described["labels"]), described.get("multi_label", False)
    except (ValueError, KeyError, IndexError, tf.errors.OpError, FileNotFoundError) as error:
        raise ValueError(
            "`SOURCE` must be a whole SavedModel that `keras-vit export` wrote. "
            f"Received: {source!r} ({error}). Export it again."
        ) from error
    if "serve_bytes" not in loaded.signatures:
        raise ValueError(
            "`SOURCE` must be a SavedModel that `keras-vit export` wrote, for picture files. "
            f"Received: {source!r} with the signatures {', '.join(loaded.signatures)}."
        )
    serve = loaded.signatures["serve_bytes"]

    def probabilities(files: list[str]) -> Iterator[np.ndarray]:
        for start in range(0, len(files), _BATCH_SIZE):
            encoded = [Path(file).read_bytes() for file in files[start : start + _BATCH_SIZE]]
            yield serve(encoded=tf.constant(encoded))["probabilities"].numpy()

    return labels, multi_label, probabilities


def _decode_all(files: list[str]) -> list[str | None]:
    """What is wrong with each file; None for a picture."""
    with concurrent.futures.ThreadPoolExecutor() as executor:
        reasons = executor.map(decode_error, files)
        return list(with_progress(reasons, len(files), "Decoding pictures"))


def _answers(
    files: list[str],
    labels: tuple[str, ...],
    predictor: Predictor,
    top_k: int | None,
    multi_label: bool,
) -> list[tuple[str, int, str, str]]:
    if not files:
        return []
    rows = []
    scores = itertools.chain.from_iterable(predictor(files))
    for file, row in zip(files, with_progress(scores, len(files), "Predicting"), strict=True):
        # As `keras-vit evaluate` names them.
        count = max(1, np.count_nonzero(row > 0.5)) if multi_label else _TOP_K
        best = np.argsort(-row, kind="stable")[: top_k or count]
        rows += [
            (file, rank, labels[index], f"{row[index]:.6f}") for rank, index in enumerate(best, 1)
        ]
    return rows


def _show(rows: list[tuple[str, int, str, str]]) -> None:
    show_table(
        ("file", "label", "score"),
        [
            ("" if rank > 1 else printable(file), label, percent(float(score)))
            for file, rank, label, score in rows
        ],
    )
