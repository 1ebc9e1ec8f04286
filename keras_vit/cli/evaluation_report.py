"""What `keras-vit evaluate` prints and writes."""

import csv
import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress_bar import ProgressBar

from keras_vit.cli.console import console, percent, print_tabbed, remark, say, show_table
from keras_vit.evaluation import (
    ClassScore,
    Evaluation,
    LabelScore,
    MultiLabelEvaluation,
    Throughput,
    real_accuracy,
)
from keras_vit.evaluation.real_labels import RealLabels

MOST_ROWS = 10
_BAR_WIDTH = 20

Result = Evaluation | MultiLabelEvaluation
Score = ClassScore | LabelScore


def print_report(result: Result, most: int | None, real_labels: RealLabels | None = None) -> None:
    """Print the figures: tables on a terminal, else one tab-separated table.

    Args:
        result: The answers.
        most: Classes to show on a terminal, the worst first; None for all.
        real_labels: ReaL labels of each picture, if they are to be counted by.
    """
    if not console.is_terminal:
        _print_rows(result, real_labels)
    elif isinstance(result, Evaluation):
        _show(result, most, real_labels)
    else:
        _show_multi_label(result, most)
    if result.throughput is not None:
        remark(_in_words(result.throughput))


def write_answers(path: Path, files: Iterable[str], result: Result) -> None:
    """Write a CSV file of one line a picture."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file).writerows(_lines(files, result))


def _lines(files: Iterable[str], result: Result) -> Iterable[Iterable[Any]]:
    """Rows of that file."""
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


def _print_rows(result: Result, real_labels: RealLabels | None) -> None:
    """For another program: all pictures in the first row, then class by class."""
    if isinstance(result, Evaluation):
        scores = _worst_first(result.class_scores())
        wrong = sum(count for _, _, count in result.confused_pairs())
        total = ["(all)", len(result), result.top1, result.top5, None, None, wrong]
        overall = {"calibration_error": result.calibration_error}
        if real_labels is not None:
            overall["real_top1"] = real_accuracy(result.predictions, real_labels)
    else:
        scores = _worst_first(result.label_scores())
        total = ["(all)", len(result), result.mean_average_precision, None, None, result.f1]
        overall = {}
    columns = [field.name for field in dataclasses.fields(scores[0])]
    empty = [None] * len(overall)  # what all pictures have, and a class has not
    rows = [
        [*total, *overall.values()],
        *([*dataclasses.astuple(score), *empty] for score in scores),
    ]
    print_tabbed(
        ("class", *columns[1:], *overall),
        [[f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row] for row in rows],
    )


def _show(result: Evaluation, most: int | None, real_labels: RealLabels | None) -> None:
    columns, figures = ["pictures", "top-1"], [str(len(result)), percent(result.top1)]
    if result.top5 is not None:
        columns, figures = [*columns, "top-5"], [*figures, percent(result.top5)]
    columns, figures = [*columns, "loss"], [*figures, f"{result.loss:.3f}"]
    show_table((*columns, "calibration error"), [(*figures, percent(result.calibration_error))])
    if real_labels is not None:
        say(_real_in_words(result, real_labels))
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
    pairs = result.confused_pairs()[:MOST_ROWS]
    if pairs and len(scores) > 2:
        show_table(
            ("shown", "taken for", "pictures"),
            [(shown, named, str(count)) for shown, named, count in pairs],
        )
    show_table(
        ("how sure", "pictures", "on average", "right"),
        [
            (
                f"{percent(part.low)} to {percent(part.high)}",
                str(part.pictures),
                _percent(part.confidence),
                _percent(part.accuracy),
            )
            for part in result.reliability()
            if part.pictures
        ],
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


def _real_in_words(result: Evaluation, real_labels: RealLabels) -> str:
    # The share of the data's own labels tells a model whose classes have another order.
    share = real_accuracy(result.predictions, real_labels)
    own = real_accuracy(result.labels, real_labels)
    counted = sum(map(bool, real_labels))
    return (
        f"ReaL top-1: {percent(share)} of {counted} pictures; {len(real_labels) - counted} without "
        f"a ReaL label left out. The labels of DATA themselves reach {percent(own)}."
    )


def _in_words(throughput: Throughput) -> str:
    return (
        f"{throughput.pictures_per_second:.1f} pictures a second, "
        f"{percent(throughput.waiting_share)} of the time waiting for pictures: the "
        f"{throughput.bottleneck} is the bottleneck."
    )


def _tell_more(scores: list[Score], most: int | None) -> None:
    if len(scores) > len(scores[:most]):
        say(f"The worst {most} of {len(scores)} classes; --per-class shows all.")


def _percent(share: float | None) -> str:
    return "" if share is None else percent(share)


def _bar(share: float | None) -> ProgressBar | str:
    return "" if share is None else ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH)
