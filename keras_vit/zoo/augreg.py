"""Google's bucket vit_models/augreg: what its 52,268 file names say, and which one to take.

The models are those of "How to train your ViT?" (arXiv 2106.10270): 759 pre-trained, and 51,509
of them fine-tuned. A name spells out the whole recipe, so that any of them is a row of the zoo.
"""

import csv
import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from keras_vit.checks import unknown_name
from keras_vit.zoo.https import fetch_url
from keras_vit.zoo.rows import ModelRow

FAMILY = "augreg"  # of the table's rows of this bucket
FOLDER_URL = "https://storage.googleapis.com/vit_models/augreg/"
INDEX_URL = FOLDER_URL + "index.csv"
VARIANT_OF_MODEL = {
    "Ti_16": "Ti/16",
    "S_32": "S/32",
    "S_16": "S/16",
    "B_32": "B/32",
    "B_16": "B/16",
    "B_8": "B/8",
    "L_16": "L/16",
    "R_Ti_16": "R+Ti/16",
    "R26_S_32": "R26+S/32",
    "R50_L_32": "R50+L/32",
}
# Classes of what a model was trained on last. kitti is VTAB's task: the nearest car, in 4 ranges.
CLASSES_OF_DATASET = {"i1k": 1000, "i21k": 21843, "i21k_30": 21843}
CLASSES_OF_ADAPT_DATASET = {
    "cifar100": 100,
    "imagenet2012": 1000,
    "kitti": 4,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
}
AUGMENTATIONS = ("none", "light0", "light1", "medium1", "medium2", "strong1", "strong2")
UPSTREAM_SIZE = 224


class _Part(NamedTuple):
    """One part of a name: a field of `AugregFile`, its values, and what is written around them."""

    field: str
    values: Iterable[str] | None
    kind: Callable[[str], Any] = str
    before: str = ""
    behind: str = ""


_UPSTREAM_PARTS = (
    _Part("model", VARIANT_OF_MODEL),
    _Part("dataset", CLASSES_OF_DATASET),
    _Part("epochs", None, int, behind="ep"),
    _Part("learning_rate", None, float, "lr_"),
    _Part("augmentation", AUGMENTATIONS, before="aug_"),
    _Part("weight_decay", None, float, "wd_"),
    _Part("dropout", None, float, "do_"),
    _Part("stochastic_depth", None, float, "sd_"),
)
_ADAPTED_PARTS = (
    _Part("adapt_dataset", CLASSES_OF_ADAPT_DATASET),
    _Part("adapt_steps", None, int, "steps_", "k"),
    _Part("adapt_learning_rate", None, float, "lr_"),
    _Part("adapt_resolution", ("224", "384"), int, "res_"),
)
_CHOICE = re.compile(r"augreg/([A-Z]\w*)(?:--(\w+?)(?:-res_(\d+))?)?", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugregFile:
    """What the name of one file says.

    Args:
        name: The name, without folder and suffix.
        model: Key of `VARIANT_OF_MODEL`.
        dataset: What it was pre-trained on, key of `CLASSES_OF_DATASET`.
        epochs: Of pre-training.
        learning_rate: Of pre-training.
        augmentation: Of `AUGMENTATIONS`: mixup and RandAugment.
        weight_decay: Of pre-training.
        dropout: Of pre-training.
        stochastic_depth: Of pre-training.
        adapt_dataset: What it was fine-tuned on, key of `CLASSES_OF_ADAPT_DATASET`, or None.
        adapt_steps: Thousands of steps of fine-tuning, rounded down: 500 are 0.
        adapt_learning_rate: Of fine-tuning.
        adapt_resolution: Side of its pictures, in pixels.
    """

    name: str
    model: str
    dataset: str
    epochs: int
    learning_rate: float
    augmentation: str
    weight_decay: float
    dropout: float
    stochastic_depth: float
    adapt_dataset: str | None = None
    adapt_steps: int | None = None
    adapt_learning_rate: float | None = None
    adapt_resolution: int | None = None

    @property
    def variant(self) -> str:
        """Key of `keras_vit.variants.VARIANTS`."""
        return VARIANT_OF_MODEL[self.model]

    @property
    def image_size(self) -> int:
        return self.adapt_resolution or UPSTREAM_SIZE

    @property
    def num_classes(self) -> int:
        if self.adapt_dataset is None:
            return CLASSES_OF_DATASET[self.dataset]
        return CLASSES_OF_ADAPT_DATASET[self.adapt_dataset]


def is_file_name(name: str) -> bool:
    """Whether this begins as a file of the bucket does: with a model and a dash."""
    return _stem(name).partition("-")[0] in VARIANT_OF_MODEL and "-" in name.partition("--")[0]


def parse(name: str) -> AugregFile:
    """Read the name of a file.

    Args:
        name: `{model}-{dataset}-{epochs}ep-lr_{}-aug_{}-wd_{}-do_{}-sd_{}`, of a fine-tuned model
            followed by `--{dataset}-steps_{}k-lr_{}-res_{}`; `augreg/` may stand before it and
            `.npz` behind.

    Raises:
        ValueError: If a part is missing, unknown, or one too many; says which.
    """
    stem = _stem(name)
    upstream, is_adapted, adapted = stem.partition("--")
    values = _read_parts(upstream, _UPSTREAM_PARTS, name)
    if is_adapted:
        values |= _read_parts(adapted, _ADAPTED_PARTS, name)
    return AugregFile(name=stem, **values)


def make_row(name: str, like: ModelRow) -> ModelRow:
    """Return the row of any file of the bucket.

    Args:
        name: As `parse` takes it.
        like: A row of the same bucket, for licence, paper and preprocessing.

    Raises:
        ValueError: As `parse` does.
    """
    file = parse(name)
    return dataclasses.replace(
        like,
        id=f"augreg/{file.name}",
        source=f"{FOLDER_URL}{file.name}.npz",
        variant=file.variant,
        image_size=file.image_size,
        num_classes=file.num_classes,
        top1=None,
        measured_by=None,
        size_bytes=None,
        sha256=None,
        note=None,
    )


def is_choice(name: str) -> bool:
    """Whether this asks for the best file of a model: `augreg/B_16`, and what may follow."""
    return bool(_CHOICE.fullmatch(name))


def choose(
    name: str, cache_dir: str | os.PathLike | None = None, offline: bool = False
) -> AugregFile:
    """Return the file that the official code takes where only a model is named.

    Of a model alone it is the one with the best `final_val` among those pre-trained on
    ImageNet-21k; for a dataset, that with the best `adapt_final_val` among those fine-tuned on it.
    The bucket's `index.csv` tells; it is fetched once.

    Args:
        name: `augreg/B_16`, `augreg/B_16--imagenet2012` or `augreg/B_16--imagenet2012-res_384`.
        cache_dir: Where downloads are kept; see `https.fetch_url`.
        offline: Touch no network.

    Raises:
        ValueError: If the index has no such model or dataset.
        DownloadError: If the index cannot be had.
    """
    model, dataset, resolution = _CHOICE.fullmatch(name).groups()
    if model not in VARIANT_OF_MODEL:
        raise unknown_name("model of augreg", model, VARIANT_OF_MODEL)
    with fetch_url(INDEX_URL, cache_dir, offline=offline).open(
        encoding="utf-8", newline=""
    ) as file:
        rows = [row for row in csv.DictReader(file) if row["filename"].startswith(f"{model}-")]
    if dataset is None:
        column, figure = "filename", "final_val"
        rows = [row for row in rows if row["ds"] == "i21k"]
    else:
        column, figure = "adapt_filename", "adapt_final_val"
        known = {row["adapt_ds"] for row in rows} - {""}
        if rows and dataset not in known:
            raise unknown_name(f"dataset of augreg/{model}", dataset, sorted(known))
        rows = [
            row
            for row in rows
            if row["adapt_ds"] == dataset and resolution in (None, _whole(row["adapt_resolution"]))
        ]
    rows = [row for row in rows if _number(row[figure]) is not None]
    if not rows:
        raise ValueError(
            f"`source` must name what {INDEX_URL} lists. Received: {name!r}, and no file there "
            f"fits it with a figure. Leave out `-res_...`, or give a whole file name."
        )
    return parse(max(rows, key=lambda row: _number(row[figure]))[column])


def _stem(name: str) -> str:
    return name.removeprefix("augreg/").removesuffix(".npz")


def _read_parts(text: str, parts: tuple[_Part, ...], name: str) -> dict:
    """Return the value of each part by field."""
    found = text.split("-")
    values = {}
    for number, part in enumerate(parts):
        given = found[number] if number < len(found) else ""
        value = given.removeprefix(part.before).removesuffix(part.behind)
        is_known = (
            value in part.values if part.values else re.fullmatch(r"[0-9]+(\.[0-9]+)?", value)
        )
        if not is_known or given != part.before + value + part.behind:
            known = ", ".join(part.values) if part.values else "a number"
            raise ValueError(
                f"A file name of augreg must have a known {part.field}. Received: {given!r} in "
                f"{name!r}. Write {part.before}X{part.behind}, with X of: {known}."
            )
        values[part.field] = part.kind(value)
    if len(found) > len(parts):
        more = "-".join(found[len(parts) :])
        raise ValueError(
            f"A file name of augreg must end after its {parts[-1].field}. Received: {more!r} "
            f"behind it, in {name!r}. Remove it."
        )
    return values


def _number(text: str) -> float | None:
    """The number in a cell, or None for an empty one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str) -> str:
    """A whole number as pandas may have written it, with a point."""
    value = _number(text)
    return "" if value is None else f"{value:g}"
