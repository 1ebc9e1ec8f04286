"""Decoded pictures that a caller has in memory."""

import dataclasses
from typing import Any

import numpy as np

_GREATEST_LABEL = np.iinfo("int32").max


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays:
    """Decoded pictures of one size.

    Args:
        images: `(pictures, height, width, channels)`, pixels 0..255.
        labels: int32 `(pictures,)`, class indices; or float32 `(pictures, classes)` of 0 and 1.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)


def as_arrays(images: Any, labels: Any, name: str, multi_label: bool = False) -> Arrays:
    """Bring images and labels to one form.

    Args:
        images: `(pictures, height, width)`, or that and channels, integers or floats.
        labels: Integers, `(pictures,)` or `(pictures, 1)`; or `(pictures, classes)` of 0 and 1.
        name: Argument name for the error message.
        multi_label: Whether labels are `(pictures, classes)` even if each row has a single 1.

    Raises:
        ValueError: If they are anything else, or no pictures.
    """
    try:
        images, labels = np.asarray(images), np.asarray(labels)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must hold images of one size. Received: {name}=(images, labels) that "
            "make no array. Pictures of several sizes are read from a folder."
        ) from error
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.dtype.kind not in "iuf":
        raise ValueError(
            f"`{name}` must hold images of integers or floats. "
            f"Received: images of dtype {images.dtype}. Cast them to uint8, 0..255."
        )
    are_rows = multi_label or are_several(labels)
    if not are_rows and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    are_as_many = images.ndim == 4 and labels.shape[:1] == images.shape[:1] != (0,)
    if not are_as_many or labels.ndim != (2 if are_rows else 1):
        is_one_hot = not are_rows and labels.ndim == 2 and labels.shape[1] > 1
        hint = " One-hot labels become class indices by `labels.argmax(-1)`." if is_one_hot else ""
        raise ValueError(
            f"`{name}` must hold images (pictures, height, width, channels) and labels "
            f"(pictures,), or (pictures, classes) where a picture may show several. Received: "
            f"shapes {images.shape} and {labels.shape}, multi_label={multi_label}.{hint}"
        )
    return Arrays(images, _check_rows(labels, name) if are_rows else _check_indices(labels, name))


def _check_indices(labels: np.ndarray, name: str) -> np.ndarray:
    wrong = labels
    if labels.dtype.kind in "iuf":
        is_index = (labels == np.floor(labels)) & (labels >= 0) & (labels <= _GREATEST_LABEL)
        wrong = labels[~is_index]
    if wrong.size:
        raise ValueError(
            f"`{name}` must hold labels that are whole numbers, counted from 0 to at most "
            f"{_GREATEST_LABEL}. Received: label {wrong[0]}, dtype {labels.dtype}. Number the "
            "classes from 0."
        )
    if labels.dtype.kind == "f":
        raise ValueError(
            f"`{name}` must hold integer labels. Received: labels of dtype {labels.dtype}. Cast "
            "them by `labels.astype('int32')`."
        )
    return labels.astype("int32")


def _check_rows(labels: np.ndarray, name: str) -> np.ndarray:
    if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise ValueError(
            f"`{name}` must hold labels of 0 and 1, one column a class. Received: labels of dtype "
            f"{labels.dtype} and shape {labels.shape} with other values. Class indices are given "
            "as one integer a picture."
        )
    return labels.astype("float32")


def are_several(labels: np.ndarray) -> bool:
    """Whether these are rows of numbers, not all of them one-hot."""
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "biuf":
        return False
    return not np.allclose(labels.sum(axis=1), 1)
