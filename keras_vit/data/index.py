"""The one form that folders, tables and TFDS sets are brought to: pictures found and decoded."""

import concurrent.futures
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import track

# Names of what is validated on; the first of these that a source has is taken.
VALIDATION_NAMES = ("val", "valid", "validation", "test")
# Between the class of most and the class of fewest pictures; worth a word from here on.
_IMBALANCE = 10
_AT_ONCE = 256

Item = TypeVar("Item")


class Pictures(Protocol):
    """Encoded pictures that the pipeline takes in any order, and what they show.

    Attributes:
        labels: int32 `(pictures,)`, class indices; or float32 `(pictures, classes)`, 1 for each
            class that a picture shows, 0 for the others.
        pictures: Where each picture is, `(pictures, ...)`: what TensorFlow makes a tensor of.
    """

    labels: np.ndarray
    pictures: np.ndarray

    def __len__(self) -> int: ...

    def read(self, picture: tf.Tensor) -> tf.Tensor:
        """Graph code: the bytes, a scalar string, of one row of `pictures`."""

    def where(self, keep: Sequence[bool]) -> Self:
        """The pictures for which `keep` is true."""

    def names(self) -> list[str]:
        """One name a picture, the same wherever the set lies."""


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Picture files and what they show; a `Pictures`.

    Args:
        paths: One file a picture.
        labels: Class indices `(pictures,)`, or `(pictures, classes)` of 0 and 1.
    """

    paths: tuple[str, ...] = ()
    labels: np.ndarray | Sequence[int] = ()

    def __post_init__(self):
        labels = np.asarray(self.labels)
        labels = labels.astype("int32" if labels.ndim == 1 else "float32")
        object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def pictures(self) -> np.ndarray:
        # Bytes, since a file's name may be no valid text.
        return np.array([os.fsencode(path) for path in self.paths], object)

    def read(self, picture: tf.Tensor) -> tf.Tensor:
        return tf.io.read_file(picture)

    def where(self, keep: Sequence[bool]) -> "Split":
        kept = tuple(itertools.compress(self.paths, keep))
        return Split(kept, self.labels[np.asarray(keep, bool)])

    def names(self) -> list[str]:
        # Without the folder that holds them all, which may move.
        if len(self) < 2:
            return [path.rpartition(os.sep)[2] for path in self.paths]
        start = len(os.path.commonpath(self.paths))
        return [path[start:].lstrip(os.sep) for path in self.paths]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageIndex:
    """What `index_folder`, `index_table` and `index_tfds` found.

    Args:
        class_names: A label is an index of it.
        train: Pictures to train on.
        validation: Pictures to validate on; may hold none.
        unreadable: Path and reason of every picture that was left out.
        split_rule: How `validation` was chosen, in words.
    """

    class_names: tuple[str, ...]
    train: Pictures
    validation: Pictures
    unreadable: tuple[tuple[str, str], ...]
    split_rule: str

    @property
    def is_multi_label(self) -> bool:
        """Whether a picture may show several classes, or none."""
        return self.train.labels.ndim == 2

    def as_multi_label(self) -> "ImageIndex":
        """The same with labels `(pictures, classes)`."""
        if self.is_multi_label:
            return self
        train, validation = (
            dataclasses.replace(
                part, labels=multi_hot(part.labels[:, np.newaxis], len(self.class_names))
            )
            for part in (self.train, self.validation)
        )
        return dataclasses.replace(self, train=train, validation=validation)

    @property
    def summary(self) -> str:
        """One or two sentences for people."""
        names = ", ".join(self.class_names[:10]) + (", ..." if len(self.class_names) > 10 else "")
        several = ", any number of them a picture" if self.is_multi_label else ""
        left_out = f"; {len(self.unreadable)} unreadable files left out" if self.unreadable else ""
        return (
            f"{len(self.class_names)} classes{several} ({names}): {len(self.train)} pictures to "
            f"train, {len(self.validation)} to validate ({self.split_rule}){left_out}."
            f"{self._imbalance()}"
        )

    def _imbalance(self) -> str:
        counts = count_classes(self.train.labels, len(self.class_names))
        least, most = counts.argmin(), counts.argmax()
        if counts[most] < _IMBALANCE * counts[least]:
            return ""
        names, counts = self.class_names, counts.tolist()
        return (
            f" Classes are unequal: {counts[most]} pictures of {names[most]}, "
            f"{counts[least]} of {names[least]}."
        )


def count_classes(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Pictures that show each class, int64 `(classes,)`."""
    if labels.ndim == 2:
        return np.count_nonzero(labels, axis=0)
    return np.bincount(labels, minlength=num_classes)


def multi_hot(labels: Sequence[Iterable[int]], num_classes: int) -> np.ndarray:
    """float32 `(pictures, classes)` of the class indices of each picture."""
    rows = np.zeros((len(labels), num_classes), "float32")
    for row, classes in zip(rows, labels, strict=True):
        row[list(classes)] = 1.0
    return rows


def check_fraction(validation_fraction: float) -> None:
    """Refuse a share that is none."""
    if not 0.0 <= validation_fraction < 1.0:
        raise ValueError(
            "`validation_fraction` must be at least 0 and below 1. "
            f"Received: validation_fraction={validation_fraction!r}."
        )


def check_each(
    check: Callable[[Item], str | None], items: Iterable[Item], total: int
) -> Iterator[str | None]:
    """Give `check`'s answer for each item, in order; many are checked at a time."""

    def answers() -> Iterator[str | None]:
        remaining = iter(items)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
            while batch := list(itertools.islice(remaining, _AT_ONCE)):
                yield from executor.map(check, batch)

    console = Console(stderr=True)
    yield from track(
        answers(),
        description="Decoding pictures",
        total=total,
        console=console,
        disable=not console.is_terminal,
    )


def build_index(
    source: str,
    class_names: tuple[str, ...],
    train: Pictures,
    validation: Pictures | None,
    unreadable: Iterable[tuple[str, str]],
    split_rule: str,
    validation_fraction: float,
    seed: int,
    may_lack_classes: bool = False,
) -> ImageIndex:
    """Refuse what cannot be learnt from, and draw the validation pictures where none are given.

    Args:
        source: Where the pictures come from, for error messages: `directory='...'`.
        class_names: A label is an index of it.
        train: Readable pictures to train on.
        validation: Readable pictures to validate on; None to draw them from `train`.
        unreadable: See `ImageIndex`.
        split_rule: See `ImageIndex`; not read where validation is drawn.
        validation_fraction: Share to draw; 0 for none.
        seed: Seed of that draw.
        may_lack_classes: Whether a class may be without pictures to train on.

    Raises:
        ValueError: If there is no picture, fewer than two classes of which a picture shows one,
            a class without pictures, or nothing left to validate on.
    """
    unreadable = tuple(unreadable)
    if not len(train):
        raise ValueError(
            f"No picture could be read. Received: {source} with {len(unreadable)} unreadable "
            "files. JPEG, PNG, WebP, GIF and BMP are read."
        )
    if len(class_names) < (2 if train.labels.ndim == 1 else 1):
        raise ValueError(
            f"There must be two classes or more, or one that some pictures do not show. Received: "
            f"{source} with {', '.join(map(repr, class_names)) or 'none'}. Add pictures of another."
        )
    for name, count in zip(class_names, count_classes(train.labels, len(class_names)), strict=True):
        if not count and not may_lack_classes:
            raise ValueError(
                f"Every class needs a picture to train on. Received: class {name!r} of {source}, "
                "without a readable one. Add pictures, or remove the class."
            )
    if validation is None:
        split_rule = "none asked for"
        is_held_out = np.zeros(len(train), bool)
        if validation_fraction > 0.0:
            split_rule = f"{validation_fraction:.0%} of every class, drawn with seed {seed}"
            is_held_out = draw_validation(train.labels, validation_fraction, seed)
        train, validation = train.where(~is_held_out), train.where(is_held_out)
    if not len(validation) and split_rule != "none asked for":
        raise ValueError(
            f"There is no picture left to validate on. Received: {source}, {len(train)} pictures, "
            f"validation from {split_rule}. Add pictures, or use `validation_fraction=0` to go "
            "without."
        )
    return ImageIndex(class_names, train, validation, unreadable, split_rule)


def draw_validation(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Choose `fraction` of every class, the same for the same labels and seed.

    Of every class at least one picture is chosen and one left. Where a picture may show several,
    it counts as one of the rarest class that it shows.

    Returns:
        Whether a picture is chosen, bool `(pictures,)`.
    """
    generator = np.random.default_rng(seed)
    groups = labels if labels.ndim == 1 else _rarest_classes(labels)
    chosen = np.zeros(len(labels), bool)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        number = min(max(1, round(len(members) * fraction)), len(members) - 1)
        chosen[generator.permutation(members)[:number]] = True
    if labels.ndim == 2:
        for shown in labels.T.astype(bool):
            if shown.any() and chosen[shown].all():  # never the rarest: leave one
                chosen[np.flatnonzero(shown)[0]] = False
    return chosen


def _rarest_classes(labels: np.ndarray) -> np.ndarray:
    """Of each picture the class that fewest pictures show; -1 where it shows none."""
    order = np.argsort(labels.sum(axis=0), kind="stable")
    ordered = labels[:, order]
    return np.where(ordered.any(axis=1), order[ordered.argmax(axis=1)], -1)
