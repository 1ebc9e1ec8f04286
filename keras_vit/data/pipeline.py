"""Examples into batches of pixels, by tf.data.

Order and augmentation are functions of the seed and of the number of pictures drawn before, so
that a run that resumes at any step sees what it would have seen.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from keras_vit.augment import AREA_RANGE, random_resized_crop, training_image
from keras_vit.checks import Pair
from keras_vit.config import PreprocessingConfig
from keras_vit.data.arrays import Arrays
from keras_vit.data.index import Pictures
from keras_vit.data.memory import DecodedPictures, decoded_size
from keras_vit.decoding import decode_image
from keras_vit.preprocessing import resize_image


def training_dataset(
    examples: Pictures | Arrays,
    batch_size: int,
    image_size: Pair,
    num_channels: int = 3,
    crop_area: tuple[float, float] = AREA_RANGE,
    flip: bool = True,
    seed: int = 0,
    start_step: int = 0,
    cache_bytes: int = 0,
) -> tf.data.Dataset:
    """Endless batches, shuffled anew for each pass over the examples, and augmented.

    As in the official code a batch may hold the end of one pass and the beginning of the next,
    so that all are full.

    Args:
        examples: Pictures and labels.
        batch_size: Pictures a batch.
        image_size: `(height, width)` of the pixels.
        num_channels: 3 or 1 for files; that of the arrays for arrays.
        crop_area: Least and greatest share of a picture's area that a crop shows.
        flip: Whether half of the crops are mirrored, left to right.
        seed: Of order and augmentation.
        start_step: Batches to leave out at the beginning, at no cost.
        cache_bytes: Where all files, decoded, take no more memory than this, each is decoded once
            and kept; the batches are the same.

    Returns:
        Batches of float32 pixels 0..255 `(batch, height, width, channels)` and labels: int32
        `(batch,)`, or float32 `(batch, classes)` of 0 and 1.
    """
    pictures, labels = _columns(examples)
    size = len(examples)
    is_decoded = isinstance(examples, Arrays)
    kept = None
    if cache_bytes and not is_decoded and decoded_size(examples, num_channels) <= cache_bytes:
        kept = DecodedPictures(examples, num_channels, cache_bytes)

    @tf.autograph.experimental.do_not_convert
    def example(count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        index = tf.random.experimental.index_shuffle(
            count % size,
            seed=tf.stack([tf.constant(seed, tf.int64), count // size]),
            max_index=tf.constant(size - 1, tf.int64),
        )
        picture_seed = tf.stack([tf.constant(seed, tf.int64), count])
        picture = tf.gather(pictures, index)
        if is_decoded or kept:
            decoded = kept(index, picture) if kept else picture
            pixels = random_resized_crop(decoded, picture_seed, image_size, crop_area, flip=flip)
        else:
            encoded = examples.read(picture)
            pixels = training_image(
                encoded, picture_seed, image_size, num_channels, crop_area, flip=flip
            )
        return pixels, tf.gather(labels, index)

    counts = tf.data.Dataset.counter(start_step * batch_size)
    return (
        counts.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .batch(batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def evaluation_dataset(
    examples: Pictures | Arrays,
    batch_size: int,
    image_size: Pair,
    preprocessing: PreprocessingConfig,
    num_channels: int = 3,
    cache_bytes: int = 0,
) -> tf.data.Dataset:
    """Every example once, in order, resized by the checkpoint's rule; the last batch may be small.

    Args:
        examples: Pictures and labels.
        batch_size: Pictures a batch.
        image_size: `(height, width)` of the pixels.
        preprocessing: The checkpoint's rule.
        num_channels: 3 or 1 for files; that of the arrays for arrays.
        cache_bytes: Where all resized pictures take no more memory than this, they are kept from
            the first pass on; the batches are the same.

    Returns:
        As `training_dataset`.
    """
    # Antialiasing rounds, so that a byte a level is enough.
    is_rounded = preprocessing.antialias and preprocessing.interpolation != "nearest"
    kept_dtype = tf.uint8 if is_rounded else tf.float32
    kept_bytes = len(examples) * math.prod(image_size) * num_channels * kept_dtype.size

    @tf.autograph.experimental.do_not_convert
    def example(picture: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if not isinstance(examples, Arrays):
            picture = decode_image(examples.read(picture), num_channels)
        return resize_image(picture, preprocessing, image_size), label

    def to_dtype(dtype: tf.DType) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
        return lambda images, labels: (tf.cast(images, dtype), labels)

    batches = (
        tf.data.Dataset.from_tensor_slices(_columns(examples))
        .map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .batch(batch_size)
    )
    if kept_bytes <= cache_bytes:
        batches = batches.map(to_dtype(kept_dtype)).cache().map(to_dtype(tf.float32))
    return batches.prefetch(tf.data.AUTOTUNE)


def _columns(examples: Pictures | Arrays) -> tuple[tf.Tensor, tf.Tensor]:
    """Pictures and labels as tensors in host memory."""
    with tf.device("CPU"):
        pictures = examples.images if isinstance(examples, Arrays) else examples.pictures
        return tf.convert_to_tensor(pictures), tf.convert_to_tensor(examples.labels)
