"""What a caller may train on, brought to one of three forms.

`Pictures` that lie in files, `Arrays` of decoded ones, or a `tf.data.Dataset` of finished batches.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.data.arrays import Arrays, are_several, as_arrays
from keras_vit.data.folder import index_folder
from keras_vit.data.index import ImageIndex, Pictures, count_classes
from keras_vit.data.table import index_table, is_table
from keras_vit.data.tfds import index_tfds, is_tfds
from keras_vit.files import local_path


@dataclasses.dataclass(frozen=True)
class Source:
    """A kind of text or path that pictures are found by.

    Args:
        form: What it looks like, in words.
        recognises: Whether a text is of this kind.
        index: Takes the text, the validation text or None, a share to validate on and a seed.
    """

    form: str
    recognises: Callable[[str], bool]
    index: Callable[..., ImageIndex]


# The first that recognises a text reads it. A path that does not exist is told of as a folder.
SOURCES = {
    "tfds": Source("`tfds:NAME`", is_tfds, index_tfds),
    "table": Source("a .csv, .tsv or .parquet table", is_table, index_table),
    "folder": Source(
        "a folder of one subfolder a class",
        lambda text: not local_path(text).is_file(),
        index_folder,
    ),
}

Examples = Pictures | Arrays | tf.data.Dataset

# Pictures of arrays that a fingerprint reads.
_SAMPLE = 16


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Examples to train and to validate on.

    Args:
        train: To train on.
        validation: To validate on, or None.
        index: The index they come from, or None.
        is_multi_label: Whether a picture may show several classes, or none: labels are then
            float32 `(pictures, classes)` of 0 and 1, else int32 `(pictures,)`.
    """

    train: Examples
    validation: Examples | None
    index: ImageIndex | None = None
    is_multi_label: bool = False

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """One name a class, where the source says it."""
        return self.index.class_names if self.index else None

    @property
    def num_classes(self) -> int | None:
        """Number of classes, as far as the examples say."""
        if self.index:
            return len(self.index.class_names)
        if isinstance(self.train, Arrays):
            labels = self.train.labels
            return labels.shape[1] if self.is_multi_label else int(labels.max()) + 1
        shape = _label_shape(self.train)
        return shape[1] if self.is_multi_label and shape and shape.rank == 2 else None

    @property
    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """Path and reason of every picture that was left out."""
        return self.index.unreadable if self.index else ()

    @property
    def summary(self) -> str:
        """One or two sentences for people."""
        if self.index:
            return self.index.summary
        several = " Any number of classes a picture." if self.is_multi_label else ""
        if isinstance(self.train, Arrays):
            return f"{len(self.train)} pictures to train on, in arrays.{several}"
        return f"Batches of a tf.data.Dataset.{several}"

    def class_counts(self, num_classes: int | None = None) -> np.ndarray:
        """Pictures to train on that show each class.

        Args:
            num_classes: The model's classes; None for as many as the examples say.

        Returns:
            int64 `(classes,)`.

        Raises:
            ValueError: If the examples are a `tf.data.Dataset`.
        """
        if isinstance(self.train, tf.data.Dataset):
            raise ValueError(
                "The pictures of each class can be counted in a folder, a table, a TFDS set or "
                "arrays. Received: a tf.data.Dataset. Give the weights of the classes themselves."
            )
        return count_classes(self.train.labels, num_classes or self.num_classes)

    def fingerprint(self) -> dict[str, Any]:
        """JSON values that change when the examples do, and not when a folder moves.

        Of files labels and names are read, of arrays labels and at most 16 pictures, evenly
        spaced; of a `tf.data.Dataset` shapes and dtypes only.
        """
        return {
            "class_names": list(self.class_names or ()),
            "train": _fingerprint(self.train),
            "validation": _fingerprint(self.validation),
        }


def open_training_data(
    train: Any,
    validation: Any = None,
    validation_fraction: float = 0.2,
    seed: int = 0,
    multi_label: bool = False,
) -> TrainingData:
    """Bring what the caller has to one form, and check what can be checked without a model.

    Args:
        train: A folder of pictures (a path, see `index_folder`), a table of them (a path, see
            `index_table`), a TFDS set (`"tfds:NAME"`, see `index_tfds`), an `ImageIndex`, a pair
            of arrays `(images, labels)` with pixels 0..255, a `tf.data.Dataset` of such batches
            at the model's size, or `TrainingData`, which is returned as it is. Labels of arrays
            and batches are integers, one a picture, or rows of one 0 or 1 a class.
        validation: None for what the source says, another path of the same kind, arrays or a
            `tf.data.Dataset`.
        validation_fraction: See `index_folder`.
        seed: See `index_folder`.
        multi_label: Whether a picture may show several classes, or none. False: where labels
            say so. True: also where each picture happens to show one.

    Raises:
        ValueError: If either is none of these, or has no meaning.
        OSError: If a file or folder does not exist or cannot be read.
    """
    if isinstance(train, TrainingData):
        if validation is not None or multi_label and not train.is_multi_label:
            raise ValueError(
                "`TrainingData` is opened already. Received: `validation` or `multi_label` with "
                "it. Give them to `open_training_data`."
            )
        return train
    if isinstance(train, str | os.PathLike):
        is_path = isinstance(validation, str | os.PathLike)
        train = _find_source(os.fspath(train)).index(
            os.fspath(train),
            os.fspath(validation) if is_path else None,
            validation_fraction if validation is None else 0.0,
            seed,
        )
        validation = None if is_path else validation
    if isinstance(train, ImageIndex):
        index = train.as_multi_label() if multi_label else train
        examples, held_out = index.train, index.validation if len(index.validation) else None
    else:
        index, examples, held_out = None, _as_examples(train, "train", multi_label), None
    is_multi_label = multi_label or _shows_several(examples)
    if validation is not None:
        held_out = _as_examples(validation, "validation", is_multi_label)
        if not is_multi_label and _shows_several(held_out):
            raise ValueError(
                "`validation` must have labels like those of `train`. Received: several classes a "
                "picture to validate on, one to train on. Use `multi_label=True`."
            )
    return TrainingData(examples, held_out, index, is_multi_label)


def count_batches(dataset: tf.data.Dataset) -> int | None:
    """Batches of one pass; None without end. A dataset that does not know is read once."""
    number = int(dataset.cardinality())
    if number == tf.data.UNKNOWN_CARDINALITY:
        number = int(dataset.reduce(0, lambda count, _: count + 1))
    return None if number == tf.data.INFINITE_CARDINALITY else number


def _find_source(text: str) -> Source:
    for source in SOURCES.values():
        if source.recognises(text):
            return source
    forms = ", ".join(source.form for source in SOURCES.values())
    raise NotADirectoryError(f"Pictures are found by one of: {forms}. Received: {text!r}, a file.")


def _as_examples(data: Any, name: str, multi_label: bool) -> Arrays | tf.data.Dataset:
    if isinstance(data, tf.data.Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        raise ValueError(
            f"`{name}` may be a path where `train` is one. Received: {name}={str(data)!r}."
        )
    if isinstance(data, tuple | list) and len(data) == 2:
        return as_arrays(*data, name, multi_label)
    forms = ", ".join(source.form for source in SOURCES.values())
    raise ValueError(
        f"`{name}` must be {forms}, a pair (images, labels) or a tf.data.Dataset. "
        f"Received: {name} of type {type(data).__name__}."
    )


def _shows_several(examples: Examples) -> bool:
    """Whether labels are one 0 or 1 a class. Of a dataset the first batch is read."""
    if not isinstance(examples, tf.data.Dataset):
        return examples.labels.ndim == 2
    shape = _label_shape(examples)
    if shape is None or shape.rank == 1:
        return False
    batch = next(iter(examples.take(1)), None)
    return batch is not None and are_several(np.asarray(batch[1]))


def _label_shape(dataset: tf.data.Dataset) -> tf.TensorShape | None:
    """As far as it is known; None where the elements are not (images, labels)."""
    spec = dataset.element_spec
    is_pair = isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], tf.TensorSpec)
    return spec[1].shape if is_pair else None


def _fingerprint(examples: Examples | None) -> dict[str, Any] | None:
    if examples is None:
        return None
    if isinstance(examples, tf.data.Dataset):
        return {"elements": str(examples.element_spec)}
    digest = hashlib.sha256(examples.labels.tobytes())
    if isinstance(examples, Arrays):
        digest.update(examples.images[:: -(-len(examples) // _SAMPLE)].tobytes())
        return {"shape": list(examples.images.shape), "sha256": digest.hexdigest()}
    digest.update(os.fsencode("\n".join(examples.names())))
    return {"pictures": len(examples), "sha256": digest.hexdigest()}
