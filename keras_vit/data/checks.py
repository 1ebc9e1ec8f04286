"""Whether examples fit a model, known before the first step."""

import numpy as np
import tensorflow as tf

from keras_vit.data.arrays import Arrays
from keras_vit.data.inputs import Examples, TrainingData, count_batches
from keras_vit.image_model import ImageModel
from keras_vit.preprocessing import check_pixel_range


def check_fits(model: ImageModel, data: TrainingData) -> None:
    """Refuse a model and data that do not fit each other.

    Raises:
        ValueError: If classes, channels, sizes, labels or pixel range do not fit.
    """
    num_classes = model.config.num_classes
    # Of class indices the greatest is all that arrays tell.
    is_known = data.class_names or data.is_multi_label and data.num_classes
    wanted = data.num_classes if is_known else "..."
    if num_classes == 0 or is_known and wanted != num_classes:
        raise ValueError(
            f"`model` must have one logit a class. Received: num_classes={num_classes} for "
            f"{wanted} classes. Load it with `num_classes={wanted}, reset_head=True`."
        )
    pictures = [data.train] if data.validation is None else [data.train, data.validation]
    if not model.include_normalization and not all(
        isinstance(examples, tf.data.Dataset) for examples in pictures
    ):
        raise ValueError(
            "`model` must normalise its pixels itself to be trained on pictures. Received: a "
            "model with include_normalization=False. Leave that argument out, or give a "
            "`tf.data.Dataset` of normalised images."
        )
    image_shape = (*model.config.image_size, model.config.num_channels)
    are_pixels = model.include_normalization
    several = data.is_multi_label
    check_examples(data.train, image_shape, num_classes, "train", are_pixels, several)
    if data.validation is not None:
        if isinstance(data.validation, tf.data.Dataset) and count_batches(data.validation) is None:
            raise ValueError(
                "`validation` must come to an end. Received: an endless tf.data.Dataset. "
                "Use `.take(batches)`."
            )
        check_examples(data.validation, image_shape, num_classes, "validation", are_pixels, several)


def check_examples(
    examples: Examples,
    image_shape: tuple[int, int, int],
    num_classes: int,
    name: str,
    are_pixels: bool = True,
    is_multi_label: bool = False,
) -> None:
    """Refuse pictures and labels that do not fit a model. Of a dataset the first batch is read.

    Args:
        examples: What to check.
        image_shape: Height, width and channels of the model's input.
        num_classes: Its classes.
        name: Argument name for the error message.
        are_pixels: Whether the model takes 0..255; False leaves the range unchecked.
        is_multi_label: Whether labels are `(pictures, classes)` of 0 and 1.

    Raises:
        ValueError: If they do not fit.
    """
    if isinstance(examples, Arrays):
        if examples.images.shape[-1] != image_shape[-1]:
            raise ValueError(
                f"`{name}` must have the model's channels. Received: images of shape "
                f"{examples.images.shape}, num_channels={image_shape[-1]}. Repeat the channel, "
                "or load the model with `num_channels=`."
            )
        images, labels = examples.images, examples.labels
    elif isinstance(examples, tf.data.Dataset):
        images, labels = _first_batch(examples, image_shape, name, is_multi_label)
    else:
        return  # an index is right by construction
    if are_pixels:
        check_pixel_range(images, name)
    check_labels = _check_rows if is_multi_label else _check_indices
    check_labels(labels, num_classes, name)


def _check_indices(labels: np.ndarray, num_classes: int, name: str) -> None:
    if labels.dtype.kind not in "iu":
        raise ValueError(
            f"Labels in `{name}` must be integers. Received: labels of dtype {labels.dtype}, the "
            f"first {labels[:1]}. Number the classes from 0, and cast whole numbers to int32."
        )
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if wrong.size:
        raise ValueError(
            f"Labels in `{name}` must be in the range 0 to {num_classes - 1}. "
            f"Received: label {wrong[0]} with num_classes={num_classes}. Count classes from 0, "
            f"or load the model with `num_classes={max(int(labels.max()), 0) + 1}`."
        )


def _check_rows(labels: np.ndarray, num_classes: int, name: str) -> None:
    if labels.shape[1] != num_classes:
        raise ValueError(
            f"Labels in `{name}` must have one column a class. Received: labels of shape "
            f"{labels.shape} with num_classes={num_classes}. Load the model with "
            f"`num_classes={labels.shape[1]}, reset_head=True`."
        )
    if labels.dtype.kind not in "biuf" or not ((labels >= 0) & (labels <= 1)).all():
        raise ValueError(
            f"Labels in `{name}` must be 0 or 1 for each class. Received: labels of dtype "
            f"{labels.dtype} with other values."
        )


def _first_batch(
    examples: tf.data.Dataset,
    image_shape: tuple[int, int, int],
    name: str,
    is_multi_label: bool,
) -> tuple[np.ndarray, np.ndarray]:
    batch = next(iter(examples.take(1)), None)
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise ValueError(
            f"`{name}` must give batches of (images, labels). Received: {name} with elements "
            f"{examples.element_spec} whose first is {type(batch).__name__}."
        )
    images, labels = (np.asarray(part) for part in batch)
    rank, wanted = (2, "(batch, classes)") if is_multi_label else (1, "(batch,)")
    are_as_many = labels.ndim == rank and labels.shape[:1] == images.shape[:1]
    if images.shape[1:] != image_shape or not are_as_many:
        is_column = rank == 1 and labels.shape[1:] == (1,)
        hint = " Of a single column they are `labels[:, 0]`." if is_column else ""
        raise ValueError(
            f"`{name}` must give batches of images (batch, {', '.join(map(str, image_shape))}) "
            f"and labels {wanted}. Received: {images.shape} and {labels.shape}. Resize with "
            "`model.preprocess`, batch with `.batch(size)`; labels are class indices, or one 0 or "
            f"1 a class with `multi_label=True`.{hint}"
        )
    return images, labels
