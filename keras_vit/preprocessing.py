"""Pictures of any size and dtype into a model's pixels, by the rule of its checkpoint.

Three rules are in use for the same weights: the official JAX evaluation squashes by TensorFlow's
bilinear sampling, Hugging Face squashes by PIL's antialiased filter, and timm resizes the shorter
side and cuts out the centre. `PreprocessingConfig` says which; nothing is guessed.

TensorFlow is imported where it is needed, so that the model can be imported without it.
"""

import itertools
import math
import types
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from PIL import Image, ImageOps

from keras_vit.checks import Pair
from keras_vit.config import PreprocessingConfig

_PIL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def preprocess(
    images: Any, preprocessing: PreprocessingConfig, image_size: Pair, num_channels: int
) -> Any:
    """Make pictures a model's input.

    Args:
        images: One picture, a list of pictures of any sizes, or one batch. A picture is a PIL
            image (EXIF orientation is applied, and its mode converted) or an array or tensor
            `(height, width)` or `(height, width, channels)`; a batch is
            `(batch, height, width, channels)`. Integers or floats, 0..255.
        preprocessing: The rule.
        image_size: The model's `(height, width)`.
        num_channels: The model's channels. Grey arrays are repeated for a model of 3; RGB
            arrays become grey, by PIL's weights, for a model of 1. Any other difference is an
            error, an alpha channel too: in an array it could be anything.

    Returns:
        float32 `(batch, height, width, channels)`, pixels 0..255: a `tf.Tensor` for a
        `tf.Tensor`, which may be symbolic, and a numpy array for all else.

    Raises:
        ValueError: If `images` are not such pictures, or their values look like 0..1.
    """
    import tensorflow as tf

    if tf.is_tensor(images):
        check_pixel_range(images, "images")
        return _resize_pixels(images, preprocessing, image_size, num_channels)
    pictures = images if isinstance(images, (list, tuple)) else [images]
    arrays = [_as_array(picture, num_channels) for picture in pictures]
    if not arrays:
        raise ValueError("`images` must hold at least one picture. Received: an empty list.")
    for array in arrays:
        check_pixel_range(array, "images")
    with tf.device("CPU"):
        batches = [
            _resize_pixels(tf.convert_to_tensor(array), preprocessing, image_size, num_channels)
            for array in arrays
        ]
        return tf.concat(batches, axis=0).numpy()


def resize_image(image: Any, preprocessing: PreprocessingConfig, image_size: Pair) -> Any:
    """Resize by a checkpoint's rule, as TensorFlow graph code.

    With `antialias` the result is what PIL gives, to one level of 255: like PIL, columns are
    resampled first, and each of the two passes is rounded and clipped to 0..255; nearest alone
    may differ where two pixels are equally near. Without `antialias` it is
    `tf.image.resize` with half-pixel centres, as in the official evaluation; bicubic is clipped.
    Where more than the model's size is kept to be cut, sizes and offsets round as torchvision's
    `Resize` and `CenterCrop` do; for an oblong model the resized picture covers
    `image_size / crop_fraction` on both axes.

    Args:
        image: A tensor `(height, width, channels)` or `(batch, height, width, channels)`,
            0..255, of any integer or float dtype.
        preprocessing: The rule.
        image_size: `(height, width)` of the result.

    Returns:
        float32, of the same rank as `image`.
    """
    import tensorflow as tf

    image = tf.convert_to_tensor(image)
    if image.dtype != tf.uint8:  # a quarter as long, and resized to the same bits
        image = tf.cast(image, tf.float32)
    if preprocessing.resize == "crop":
        size = _covering_size(image, preprocessing, image_size)
    elif preprocessing.crop_fraction < 1.0:
        size = tf.constant(_frame(preprocessing, image_size))
    else:
        return _resize(image, image_size, preprocessing)
    resized = _resize(image, size, preprocessing)
    # Half to even, as Python's round in torchvision.
    offset = tf.cast(tf.round(tf.cast(size - tf.constant(image_size), tf.float32) / 2.0), tf.int32)
    rows = slice(offset[0], offset[0] + image_size[0])
    columns = slice(offset[1], offset[1] + image_size[1])
    cropped = resized[..., rows, columns, :]
    return tf.ensure_shape(cropped, (*image.shape[:-3], *image_size, image.shape[-1]))


def check_pixel_range(images: Any, argument_name: str) -> None:
    """Refuse pixels that are not 0..255, as far as their values tell.

    A float batch that never leaves -1..1 was scaled or normalised already; only one that is all
    zeros passes. Symbolic tensors have no values and pass.

    Args:
        images: An array, a tensor, or a list of them.
        argument_name: How the caller calls them, for the message.

    Raises:
        ValueError: If the values are no pixels.
    """
    arrays = [_values(image) for image in (images if isinstance(images, list) else [images])]
    arrays = [array for array in arrays if array is not None and array.size]
    must = f"`{argument_name}` must be pixels 0..255"
    low, high = _range(array for array in arrays if array.dtype.kind in "iu")
    if low < 0 or high > 255:
        raise ValueError(
            f"{must}. Received: integers from {low:g} to {high:g}. "
            "Rescale deeper pictures to 8 bits first."
        )
    low, high = _range(array for array in arrays if array.dtype.kind not in "iu")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{must}. Received: NaN or infinite values.")
    if (low or high) and low >= -1.0 and high <= 1.0:
        undo = "(x + 1) * 127.5" if low < 0 else "x * 255"
        raise ValueError(
            f"{must}; the model normalises them itself. Received: values from {low:g} to "
            f"{high:g}. Undo the scaling, for instance by {undo}."
        )


def _range(arrays: Iterable[np.ndarray]) -> tuple[float, float]:
    """Least and greatest value of all, NaN if any is; zeros of no array."""
    pairs = [(float(array.min()), float(array.max())) for array in arrays] or [(0.0, 0.0)]
    lows, highs = zip(*pairs, strict=True)
    return float(np.min(lows)), float(np.max(highs))


def _values(image: Any) -> np.ndarray | None:
    """The numbers of an array or eager tensor; None if it has none."""
    try:
        array = np.asarray(image)
    except (NotImplementedError, TypeError, ValueError):  # symbolic
        return None
    return array if _is_number(array.dtype) else None


def _is_number(dtype: np.dtype) -> bool:
    # bfloat16 is no subtype of numpy's floats.
    return dtype.kind in "iuf" or dtype.name == "bfloat16"


def _as_array(picture: Any, num_channels: int) -> np.ndarray:
    if isinstance(picture, Image.Image):
        picture = ImageOps.exif_transpose(picture)
        # Modes of more than 8 bits would be clipped by a conversion.
        if picture.mode[0] not in "IF" and num_channels in _PIL_MODES:
            picture = picture.convert(_PIL_MODES[num_channels])
    array = np.asarray(picture)
    if array.dtype == np.uint16:  # has no kernels in TensorFlow
        array = array.astype("int32")
    if not _is_number(array.dtype):
        raise ValueError(
            "`images` must be PIL images or arrays of integers or floats. Received: "
            f"{type(picture).__name__} of dtype {array.dtype}. Open files with `PIL.Image.open`, "
            "and convert masks with `astype('uint8') * 255`."
        )
    return array


def _resize_pixels(
    images: Any, preprocessing: PreprocessingConfig, image_size: Pair, num_channels: int
) -> Any:
    import tensorflow as tf

    if not (images.dtype.is_integer or images.dtype.is_floating):
        raise ValueError(
            "`images` must be integers or floats. "
            f"Received: dtype={images.dtype.name}. Cast them to uint8 or float32, 0..255."
        )
    if images.shape.rank == 2:
        images = images[..., None]  # (height, width, 1)
    if images.shape.rank not in (3, 4) or 0 in images.shape:
        raise ValueError(
            "`images` must be (height, width), (height, width, channels) or (batch, height, "
            f"width, channels), none of them 0. Received: shape={images.shape}."
        )
    images = _match_channels(images, num_channels)
    if images.shape.rank == 3:
        images = images[None]  # (1, height, width, channels)
    return tf.ensure_shape(
        resize_image(images, preprocessing, image_size), (None, *image_size, num_channels)
    )


def _match_channels(images: Any, num_channels: int) -> Any:
    import tensorflow as tf

    channels = images.shape[-1]
    if channels in (None, num_channels):
        return images
    if (channels, num_channels) == (1, 3):
        return tf.repeat(images, 3, axis=-1)
    if (channels, num_channels) == (3, 1):
        weights = tf.constant([19595.0, 38470.0, 7471.0]) / 65536.0
        grey = tf.reduce_sum(tf.cast(images, tf.float32) * weights, axis=-1, keepdims=True)
        return tf.floor(grey + 0.5) if images.dtype.is_integer else grey
    remedy = "Move the channels to the last axis; give a batch of grey pictures one."
    if (channels, num_channels) == (4, 3):
        remedy = "Drop an alpha channel with `images[..., :3]`."
    raise ValueError(
        f"`images` must have the model's {num_channels} channels on the last axis. "
        f"Received: shape={images.shape}. {remedy}"
    )


def _resize(image: Any, size: Any, preprocessing: PreprocessingConfig) -> Any:
    import tensorflow as tf

    method = preprocessing.interpolation
    if method == "nearest":
        return tf.cast(tf.image.resize(image, size, method), tf.float32)
    if not preprocessing.antialias:
        resized = tf.image.resize(image, size, method)
        return tf.clip_by_value(resized, 0.0, 255.0) if method == "bicubic" else resized
    batch = image if image.shape.rank == 4 else image[None]
    # Columns first, as rows of the picture on its side.
    for side in (size[1], size[0]):
        batch = _resample_rows(tf.transpose(batch, [0, 2, 1, 3]), side, method)
    return batch if image.shape.rank == 4 else batch[0]


def _resample_rows(images: Any, height: Any, method: str) -> Any:
    """Antialias and round along the first axis of pictures alone.

    TensorFlow's kernel resamples both axes, several channels at a time but columns one by one.
    So the pixels of a row are given to it as channels of a single column.
    """
    import tensorflow as tf

    shape = tf.shape(images)
    columns = tf.reshape(images, (shape[0], shape[1], 1, shape[2] * shape[3]))
    levels = tf.image.resize(columns, tf.stack([height, 1]), method, antialias=True)
    levels = tf.clip_by_value(tf.floor(levels + 0.5), 0.0, 255.0)
    return tf.reshape(levels, (shape[0], height, shape[2], shape[3]))


def _frame(preprocessing: PreprocessingConfig, image_size: Pair) -> list[int]:
    """What a picture is resized to before the centre is cut out, `[height, width]`."""
    return [math.floor(side / preprocessing.crop_fraction) for side in image_size]


def _covering_size(image: Any, preprocessing: PreprocessingConfig, image_size: Pair) -> Any:
    """int32 `(2,)`: the least size of the picture's own aspect that covers the crop's frame."""
    import tensorflow as tf

    frame_height, frame_width = _frame(preprocessing, image_size)
    height, width = tf.shape(image)[-3], tf.shape(image)[-2]
    by_height = tf.stack([frame_height, frame_height * width // height])
    by_width = tf.stack([frame_width * height // width, frame_width])
    return tf.where(frame_height * width >= frame_width * height, by_height, by_width)


def warn_of_unit_range(x: Any) -> Any:
    """Warn when the first batch of what `fit` takes looks like pixels 0..1 and not 0..255.

    Args:
        x: Arrays, a dataset, a generator ... as `keras.Model.fit` takes them.

    Returns:
        `x`, or an equal generator.
    """
    if isinstance(x, types.GeneratorType):
        first = next(x, None)
        x = itertools.chain([first], x) if first is not None else x
        x = (batch for batch in x)  # Keras takes generators, not iterators
    else:
        first = _first_batch(x)
    images = first[0] if isinstance(first, (tuple, list)) else first
    try:
        check_pixel_range(images, "x")
    except ValueError as error:
        warnings.warn(str(error), stacklevel=4)
    return x


def _first_batch(x: Any) -> Any:
    """The first batch of what `fit` takes, as far as looking does not use it up."""
    if hasattr(x, "element_spec") and hasattr(x, "take"):  # tf.data.Dataset
        return next(iter(x.take(1)), None)
    if isinstance(x, keras.utils.PyDataset):
        return x[0]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)) and len(x) == 1:
        x = x[0]
    return x[:64] if hasattr(x, "shape") and hasattr(x, "__getitem__") else None
