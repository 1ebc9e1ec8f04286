"""A model's answers to pictures whose classes are known.

On ImageNet this is the protocol under which accuracies are published: the 50,000 validation
pictures, each resized and cropped once by the rule that comes with the checkpoint
(`PreprocessingConfig`: Google's squash the whole picture, timm's mostly cut out the centre), and
the best class, or the best five, compared with the one label. The official evaluation drops the
pictures that fill no whole batch, and so counts 49,664 of them (vit_jax/input_pipeline.py); here
each counts.
"""

import logging
from collections.abc import Sequence
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
from keras_vit.evaluation.scores import TOP_K, Evaluation, MultiLabelEvaluation
from keras_vit.evaluation.throughput import Stopwatch, Throughput
from keras_vit.image_model import ImageModel
from keras_vit.preprocessing import check_pixel_range, resize_image

_LOGGER = logging.getLogger(__name__)


def evaluate(
    model: ImageModel,
    data: tf.data.Dataset | tuple[Any, Any],
    class_names: Sequence[str] | None = None,
    batch_size: int = 32,
) -> Evaluation | MultiLabelEvaluation:
    """Ask a model about pictures whose classes are known.

    Every picture counts once, the last batch too where it is not full. A picture may be given
    any class of the model, those too that the data do not know. Given ImageNet's 50,000
    validation pictures, resized by the checkpoint's own rule (`data.evaluation_dataset`, or
    arrays), this is the protocol of published accuracies. On a terminal a progress bar goes to
    stderr.

    Args:
        model: A model with one logit a class.
        data: Batches of pixels at the model's size and labels; or two arrays, images
            `(pictures, height, width[, channels])` of any one size and labels. Images in arrays
            are resized by the model's own rule; a model that does not normalise takes them as
            they are. Labels are integers `(pictures,)`; for a model with `multi_label` they are
            rows of 0 and 1, `(pictures, classes)`.
        class_names: What the labels stand for, where that is not the model's own classes. Names
            that are labels of the model mean those, in any order and number. If none of them
            is, and they are as many, they are the model's classes in order.
        batch_size: Pictures a batch, of arrays.

    Returns:
        An `Evaluation`, or a `MultiLabelEvaluation` of a model with `multi_label`.

    Raises:
        ValueError: If classes, labels, sizes or pixels do not fit the model, or there is no
            picture.
        FloatingPointError: If a logit is not finite.

    Example:

    ```python
    evaluation = evaluate(model, (images, labels))
    print(evaluation.top1, evaluation.class_scores()[0])
    ```
    """
    check_image_model(model)
    classes = _match_classes(class_names, model)
    dataset = data if isinstance(data, tf.data.Dataset) else _batched(model, data, batch_size)
    parts, pictures, stopwatch = [], 0, Stopwatch()
    batches = with_progress(dataset, "Evaluating", count_finite(dataset, "data"))
    for batch in stopwatch.watch(batches):
        images, labels = checked_batch(batch, model, "data")
        if not pictures and model.include_normalization:
            check_pixel_range(images, "data")
        _check_labels(labels, model.multi_label, len(classes), pictures)
        logits = np.asarray(model.predict_on_batch(images), np.float64)
        check_finite(logits, "logits", pictures)
        if model.multi_label:
            parts.append((labels.astype(bool), logits[:, classes]))
        else:
            parts.append(_ranked(logits, classes[labels]))
        pictures += len(labels)
    if not pictures:
        raise ValueError("`data` must hold a picture. Received: data without any.")
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    names = model.labels or class_names or map(str, range(model.config.num_classes))
    if model.multi_label:
        return _multi_label(tuple(names), classes, *columns, stopwatch.throughput)
    labels, predictions, probabilities, losses = columns
    loss = float(losses.mean())
    known = tuple(classes.tolist())
    return Evaluation(
        tuple(names), known, labels, predictions, probabilities, loss, stopwatch.throughput
    )


def _match_classes(names: Sequence[str] | None, model: ImageModel) -> np.ndarray:
    """The model's class for each class of the data."""
    own, count = model.labels or (), model.config.num_classes
    if not count:
        raise ValueError(
            "`model` must have one logit a class. Received: num_classes=0, a model of features. "
            "Fine-tune it first."
        )
    if names is None:
        return np.arange(count)
    index = {label: number for number, label in enumerate(own)}
    unknown = [name for name in names if name not in index]
    if not unknown:
        twice = [name for name in names if own.count(name) > 1]
        if twice:
            raise ValueError(
                "A class of the data must be one label of the model. "
                f"Received: {_listed(twice)}, which it has more than once. Set `model.labels`."
            )
        return np.array([index[name] for name in names], np.int64)
    if len(unknown) < len(names) or len(names) != count:
        raise ValueError(
            "The classes of the data must be labels of the model, or else as many as it has. "
            f"Received: {len(names)} classes, of them unknown to the model: {_listed(unknown)}. "
            f"The model has {count}{': ' + _listed(own) if own else ', without names'}. "
            "Name the classes as the model does."
        )
    if own:
        pairs = [f"{name} as {label}" for name, label in zip(names, own, strict=True)]
        _LOGGER.warning(
            "No class of the data is a label of the model. They are as many, and taken in order: "
            "%s.",
            _listed(pairs),
        )
    return np.arange(count)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f", ... ({len(names)} in all)" if len(names) > 10 else "")


def _batched(model: ImageModel, data: Any, batch_size: int) -> tf.data.Dataset:
    """Arrays as batches at the model's size."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            "`data` must be a tf.data.Dataset or two arrays, (images, labels). "
            f"Received: data of type {type(data).__name__}."
        )
    images, labels = (np.asarray(part) for part in data)
    images = images[..., None] if images.ndim == 3 else images
    channels = model.config.num_channels
    if images.ndim != 4 or images.shape[-1] != channels or images.shape[:1] != labels.shape[:1]:
        raise ValueError(
            "`data` must hold images (pictures, height, width, channels), with the channels of "
            f"the model, and a label for each. Received: shapes {images.shape} and "
            f"{labels.shape}, num_channels={channels}."
        )
    batch_size = check_integer("batch_size", batch_size, 1)
    with tf.device("CPU"):
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size)
    if not model.include_normalization:
        return dataset
    check_pixel_range(images, "data")  # before rounding hides it
    preprocessing, size = model.preprocessing, model.config.image_size
    return dataset.map(
        lambda images, labels: (resize_image(images, preprocessing, size), labels),
        num_parallel_calls=tf.data.AUTOTUNE,
    )


def _check_labels(labels: np.ndarray, multi_label: bool, num_classes: int, start: int) -> None:
    """Refuse what is no label; `start` is the number of pictures before this batch."""
    if multi_label:
        fits = labels.ndim == 2 and labels.shape[1] == num_classes
        what = f"rows of 0 and 1 for {num_classes} classes, since the model has multi_label=True"
        remedy = "Set `model.multi_label = False` if its pictures show one class each."
    else:
        fits = labels.ndim == 1 and labels.dtype.kind in "iu"
        what = f"integers from 0 to {num_classes - 1}, since the model has multi_label=False"
        remedy = (
            "One-hot labels become integers by `argmax(-1)`; if a picture may show several "
            "classes, set `model.multi_label = True`."
        )
    if not fits:
        raise ValueError(
            f"Labels in `data` must be {what}. "
            f"Received: labels of shape {labels.shape} and dtype {labels.dtype}. {remedy}"
        )
    is_label = np.isin(labels, (0, 1)) if multi_label else (labels >= 0) & (labels < num_classes)
    if not is_label.all():
        first = tuple(np.argwhere(~is_label)[0])
        raise ValueError(
            f"Labels in `data` must be {what}. "
            f"Received: {labels[first]} for picture {start + first[0]}, counted from 0."
        )


def _ranked(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Labels, best classes, their probabilities, and the loss of each picture."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    best = np.argsort(-logits, axis=1, kind="stable")[:, :TOP_K]
    probabilities = np.exp(np.take_along_axis(log_probabilities, best, axis=1))
    losses = -np.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]
    return labels, best, probabilities.astype(np.float32), losses


def _multi_label(
    names: tuple[str, ...],
    classes: np.ndarray,
    labels: np.ndarray,
    logits: np.ndarray,
    throughput: Throughput | None,
) -> MultiLabelEvaluation:
    # Softplus of the logit, turned so that the wrong side is positive.
    losses = np.logaddexp(0.0, np.where(labels, -logits, logits))
    return MultiLabelEvaluation(
        tuple(names[index] for index in classes),
        labels,
        logits.astype(np.float32),
        float(losses.sum(axis=1).mean()),
        throughput,
    )
