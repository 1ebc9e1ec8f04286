"""The reassessed labels (ReaL) of ImageNet's validation pictures.

Several people said of every picture which of the likely classes it shows, any number of them. A
model is right about a picture if its best class is one of those; a picture that shows none of the
1000 classes does not count.

Reference: Beyer et al., Are we done with ImageNet? (arXiv 2006.07159). The labels are
`real.json` of google-research/reassessed-imagenet.
"""

import json
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.files import local_path

_PICTURE = re.compile(r"ILSVRC2012_val_(\d{8})")

RealLabels = Sequence[Sequence[int]]


def real_accuracy(predictions: np.ndarray, real_labels: RealLabels) -> float:
    """Share of the pictures whose best class is among their ReaL labels.

    Args:
        predictions: `(pictures,)`, the best class of each; or `(pictures, k)`, best first, of
            which the first counts.
        real_labels: The classes that each picture shows; those with none are left out.

    Raises:
        ValueError: If they are not as many, or no picture has a label.

    Example:

    ```python
    evaluation = evaluate(model, pictures)
    labels = real_labels_of(files, read_real_labels("real.json"), model.config.num_classes)
    real_accuracy(evaluation.predictions, labels)
    ```
    """
    predictions = np.asarray(predictions)
    if len(predictions) != len(real_labels):
        raise ValueError(
            "`real_labels` must hold the classes of each picture. "
            f"Received: {len(predictions)} predictions and {len(real_labels)} lists of classes. "
            "`real_labels_of` picks those of your pictures."
        )
    best = predictions[:, 0] if predictions.ndim == 2 else predictions
    pairs = zip(best.tolist(), real_labels, strict=True)
    hits = [label in classes for label, classes in pairs if len(classes)]
    if not hits:
        raise ValueError(
            "`real_labels` must name a class of some picture. "
            f"Received: {len(real_labels)} lists, all empty. Give other pictures."
        )
    return float(np.mean(hits))


def read_real_labels(path: str | os.PathLike) -> list[list[int]]:
    """Read the classes of every validation picture, in the order of their numbers.

    Args:
        path: A JSON list that holds a list of class indices, maybe empty, for each picture.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds anything else.
    """
    try:
        rows = json.loads(local_path(path).read_bytes())
    except ValueError:
        rows = None
    if not isinstance(rows, list) or not all(map(_is_list_of_classes, rows)):
        raise ValueError(
            "ReaL labels must be a JSON list with a list of class indices for each picture. "
            f"Received: {str(path)!r}. Take real.json of google-research/reassessed-imagenet."
        )
    return rows


def _is_list_of_classes(row: object) -> bool:
    return isinstance(row, list) and all(type(index) is int and index >= 0 for index in row)


def real_labels_of(
    files: Iterable[str], real_labels: RealLabels, num_classes: int
) -> list[Sequence[int]]:
    """Pick the labels of some pictures by the number in their names.

    Args:
        files: Names or paths, as `ILSVRC2012_val_00000001.JPEG`, in any order.
        real_labels: As of `read_real_labels`.
        num_classes: Classes of the model, whose order must be ImageNet's.

    Raises:
        ValueError: If a file has another name or no labels, or a label is no class of the model.
    """
    most = max((index for row in real_labels for index in row), default=0)
    if most >= num_classes:
        raise ValueError(
            "ReaL labels must be classes of the model, which are ImageNet's 1000 in their order. "
            f"Received: class {most}, for a model with num_classes={num_classes}. Take a model "
            "fine-tuned on ImageNet-1k."
        )
    chosen = []
    for file in files:
        match = _PICTURE.search(pathlib.PurePath(file).name)
        number = int(match[1]) if match else 0
        if not 1 <= number <= len(real_labels):
            raise ValueError(
                "A picture with ReaL labels must be named ILSVRC2012_val_ and a number from "
                f"00000001 to {len(real_labels):08}. Received: {file!r}. Give the validation "
                "pictures of ImageNet under their own names."
            )
        chosen.append(real_labels[number - 1])
    return chosen
