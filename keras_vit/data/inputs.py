"""What a caller may train on, brought to one of three forms.

A `Split` of files, `Arrays` of decoded pictures, or a `tf.data.Dataset` of finished batches.
"""

import dataclasses
import hashlib
import os
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.data.folder import ImageFolder, Split, index_folder


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays:
    """Decoded pictures of one size.

    Args:
        images: `(pictures, height, width, channels)`, pixels 0..255.
        labels: `(pictures,)`, integers.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)


Examples = Split | Arrays | tf.data.Dataset


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Examples to train and to validate on.

    Args:
        train: To train on.
        validation: To validate on, or None.
        folder: The index they come from, or None.
    """

    train: Examples
    validation: Examples | None
    folder: ImageFolder | None = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name a class, where a folder says it."""
        return self.folder.class_names if self.folder else None

    @property
    def num_classes(self) -> int | None:
        """Number of classes, as far as the examples say."""
        if self.folder:
            return len(self.folder.class_names)
        return int(self.train.labels.max()) + 1 if isinstance(self.train, Arrays) else None

    @property
    def summary(self) -> str:
        """One sentence for people."""
        if self.folder:
            return self.folder.summary
        if isinstance(self.train, Arrays):
            return f"{len(self.train)} pictures to train on, in arrays."
        return "Batches of a tf.data.Dataset."

    def fingerprint(self) -> dict[str, Any]:
        """JSON values that change when the examples do."""
        return {
            "class_names": list(self.class_names or ()),
            "train": _fingerprint(self.train),
            "validation": _fingerprint(self.validation),
        }


def open_training_data(
    train: Any, validation: Any = None, validation_fraction: float = 0.2, seed: int = 0
) -> TrainingData:
    """Bring what the caller has to one form, and check what can be checked without a model.

    Args:
        train: A folder of pictures (a path, see `index_folder`), an `ImageFolder`, a pair of
            arrays `(images, labels)` with pixels 0..255 and integer labels, or a
            `tf.data.Dataset` of such batches at the model's size.
        validation: None for what a folder says, or any of the same but an `ImageFolder`.
        validation_fraction: See `index_folder`.
        seed: See `index_folder`.

    Raises:
        ValueError: If either is none of these, or has no meaning.
    """
    if isinstance(train, str | os.PathLike):
        is_folder = isinstance(validation, str | os.PathLike)
        train = index_folder(
            train,
            validation=validation if is_folder else None,
            validation_fraction=validation_fraction if validation is None else 0.0,
            seed=seed,
        )
        validation = None if is_folder else validation
    if not isinstance(train, ImageFolder):
        held_out = None if validation is None else _as_examples(validation, "validation")
        return TrainingData(_as_examples(train, "train"), held_out)
    if validation is not None:
        return TrainingData(train.train, _as_examples(validation, "validation"), train)
    return TrainingData(train.train, train.validation if len(train.validation) else None, train)


def count_batches(dataset: tf.data.Dataset) -> int | None:
    """Batches of one pass; None without end. A dataset that does not know is read once."""
    number = int(dataset.cardinality())
    if number == tf.data.UNKNOWN_CARDINALITY:
        number = int(dataset.reduce(0, lambda count, _: count + 1))
    return None if number == tf.data.INFINITE_CARDINALITY else number


def _as_examples(data: Any, name: str) -> Examples:
    if isinstance(data, tf.data.Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        raise ValueError(
            f"`{name}` may be a folder where `train` is one. Received: {name}={str(data)!r}."
        )
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            f"`{name}` must be a folder, a pair (images, labels) or a tf.data.Dataset. "
            f"Received: {name} of type {type(data).__name__}."
        )
    try:
        images, labels = np.asarray(data[0]), np.asarray(data[1])
    except ValueError as error:
        raise ValueError(
            f"`{name}` must hold images of one size. Received: {name}=(images, labels) that "
            "make no array. Pictures of several sizes are read from a folder."
        ) from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4 or not len(images) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"`{name}` must hold images (pictures, height, width, channels) and labels "
            f"(pictures,). Received: shapes {images.shape} and {labels.shape}. One-hot labels "
            "become class indices by `labels.argmax(-1)`."
        )
    if images.dtype.kind not in "iuf":
        raise ValueError(
            f"`{name}` must hold images of integers or floats. "
            f"Received: images of dtype {images.dtype}. Cast them to uint8, 0..255."
        )
    if labels.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must hold integer labels. Received: labels of dtype {labels.dtype}."
        )
    return Arrays(images, labels.astype("int32"))


def _fingerprint(examples: Examples | None) -> dict[str, Any] | None:
    if examples is None:
        return None
    if isinstance(examples, Split):
        # The last two parts of a path, so that a folder may move.
        names = (path.rsplit(os.sep, 2)[-2:] for path in examples.paths)
        text = "\n".join("/".join(parts) for parts in names) + repr(examples.labels)
        digest = hashlib.sha256(os.fsencode(text)).hexdigest()
        return {"pictures": len(examples), "sha256": digest}
    if isinstance(examples, Arrays):
        digest = hashlib.sha256(examples.labels.tobytes()).hexdigest()
        return {"shape": list(examples.images.shape), "sha256": digest}
    return {"elements": str(examples.element_spec)}
