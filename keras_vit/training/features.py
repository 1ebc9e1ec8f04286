"""What the head of a model takes: pooled features of pictures whose classes are known."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.batches import (
    check_finite,
    check_image_model,
    checked_batch,
    count_finite,
    with_progress,
)
from keras_vit.checks import check_integer
from keras_vit.image_model import ImageModel
from keras_vit.preprocessing import check_pixel_range
from keras_vit.training.least_squares import as_classes


def features_of(
    model: ImageModel,
    data: tf.data.Dataset | tuple[Any, Any],
    batch_size: int = 32,
    num_classes: int | None = None,
    name: str = "data",
) -> tuple[np.ndarray, np.ndarray]:
    """What a model's head takes, and what the pictures show.

    On a terminal a progress bar goes to stderr.

    Args:
        model: Any model of the package; its head does not matter.
        data: Batches of pixels at the model's size and labels; or two arrays, images
            `(pictures, height, width[, channels])` of any one size, as `model.preprocess` takes
            them, and labels. A model that does not normalise takes arrays as they are. Labels
            are integers from 0, `(pictures,)`.
        batch_size: Pictures a batch, of arrays.
        num_classes: What labels must be below, or None.
        name: How errors call `data`.

    Returns:
        Pooled features, after the `pre_logits` layer where there is one, `(pictures, features)`,
        float32 as the model gives them; and labels `(pictures,)`. Both in the order of `data`.

    Raises:
        ValueError: If labels, sizes or pixels do not fit, or there is no picture.
        FloatingPointError: If a feature is not finite.
    """
    extractor = headless(model)
    batches, total = _batches(model, data, batch_size, num_classes, name)
    features, labels, pictures = [], [], 0
    for batch in with_progress(batches, f"Features ({name})", total):
        pixels, classes = checked_batch(batch, model, name)
        if not pictures and model.include_normalization:
            check_pixel_range(pixels, name)
        labels.append(as_classes(classes, num_classes, f"Labels in `{name}`", pictures))
        features.append(np.asarray(extractor.predict_on_batch(pixels)))
        check_finite(features[-1], "features", pictures)
        pictures += len(classes)
    if not pictures:
        raise ValueError(f"`{name}` must hold a picture. Received: data without any.")
    return np.concatenate(features), np.concatenate(labels)


def headless(model: ImageModel) -> ImageModel:
    """The model that returns what the head of `model` takes."""
    check_image_model(model)
    return model.reset_head(0, keep_pre_logits=True) if model.config.num_classes else model


def _batches(
    model: ImageModel, data: Any, batch_size: int, num_classes: int | None, name: str
) -> tuple[Iterable[Any], int | None]:
    """Batches of pixels and labels, and how many, as far as that is known."""
    if isinstance(data, tf.data.Dataset):
        return data, count_finite(data, name)
    images, labels = as_image_arrays(data, name, num_classes)
    batch_size = check_integer("batch_size", batch_size, 1)
    pixels = model.preprocess if model.include_normalization else np.asarray
    slices = [slice(start, start + batch_size) for start in range(0, len(images), batch_size)]
    return ((pixels(images[part]), labels[part]) for part in slices), len(slices)


def as_image_arrays(
    data: Any, name: str, num_classes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return images `(pictures, height, width, channels)` and class indices `(pictures,)`."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            f"`{name}` must be a tf.data.Dataset or two arrays, (images, labels). "
            f"Received: data of type {type(data).__name__}."
        )
    images = np.asarray(data[0])
    labels = as_classes(data[1], num_classes, f"Labels in `{name}`")
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or len(images) != len(labels) or not len(labels):
        raise ValueError(
            f"`{name}` must hold images (pictures, height, width, channels), one or more, and a "
            f"label for each. Received: shapes {images.shape} and {labels.shape}."
        )
    return images, labels
