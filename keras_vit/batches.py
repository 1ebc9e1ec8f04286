"""Batches of pictures and labels that a model is asked about, and what it answers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from keras_vit.image_model import ImageModel


def check_image_model(model: Any) -> None:
    """Refuse what is no model of this package."""
    if not isinstance(model, ImageModel):
        raise ValueError(
            "`model` must be a `keras_vit.ViT` or a `keras_vit.Mixer`. Received: an object of type "
            f"{type(model).__name__}. A name or path becomes one by `keras_vit.from_pretrained`."
        )


def count_finite(dataset: Any, name: str) -> int | None:
    """Batches of a `tf.data.Dataset`, None if it does not know.

    Args:
        dataset: The batches.
        name: How errors call them.

    Raises:
        ValueError: If it never ends.
    """
    import tensorflow as tf

    batches = int(dataset.cardinality())
    if batches == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            f"`{name}` must come to an end. Received: an endless tf.data.Dataset. "
            "Use `.take(batches)`."
        )
    return batches if batches >= 0 else None


def with_progress(batches: Iterable[Any], description: str, total: int | None) -> Iterable[Any]:
    """The same, with a progress bar on stderr if that is a terminal."""
    console = Console(stderr=True)
    return track(
        batches,
        description=description,
        total=total,
        console=console,
        disable=not console.is_terminal,
    )


def checked_batch(batch: Any, model: ImageModel, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images `(batch, height, width, channels)` at the model's size, and a label for each.

    Args:
        batch: What a data set gave.
        model: That is asked.
        name: How errors call the data.

    Raises:
        ValueError: If it is anything else.
    """
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise ValueError(
            f"`{name}` must give batches of (images, labels). "
            f"Received: a batch of type {type(batch).__name__}."
        )
    images, labels = (np.asarray(part) for part in batch)
    shape = (*model.config.image_size, model.config.num_channels)
    if images.shape[1:] != shape or images.shape[:1] != labels.shape[:1]:
        raise ValueError(
            f"`{name}` must give images (batch, {', '.join(map(str, shape))}) and a label for "
            f"each. Received: shapes {images.shape} and {labels.shape}. Resize with "
            "`model.preprocess`, and batch with `.batch(size)`."
        )
    return images, labels


def check_finite(answers: np.ndarray, what: str, start: int) -> None:
    """Refuse NaN and infinite numbers.

    Args:
        answers: `(batch, numbers)`, of a model.
        what: They are.
        start: Pictures before this batch.

    Raises:
        FloatingPointError: If there is one, with its picture.
    """
    is_wrong = ~np.isfinite(answers).all(axis=1)
    if is_wrong.any():
        raise FloatingPointError(
            f"`model` must give finite {what}. Received: NaN or infinite ones for picture "
            f"{start + int(np.argmax(is_wrong))}, counted from 0. Its weights are damaged, or its "
            "dtype has too small a range: load it with dtype='float32'."
        )
