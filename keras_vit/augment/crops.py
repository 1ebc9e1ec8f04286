"""The augmentation of the paper's fine-tuning, as TensorFlow graph code.

A random part of the picture, 5 to 100 % of its area, is resized to the model's size and flipped
with probability one half (`vit_jax/input_pipeline.py` of the official repository). Crops are
resized by bilinear sampling without antialiasing, as there, whatever rule the checkpoint has for
evaluation. All chance comes from `seed`: equal seeds give equal pictures.
"""

import tensorflow as tf

from keras_vit.checks import Pair
from keras_vit.decoding import decode_crop

AREA_RANGE = (0.05, 1.0)
ASPECT_RANGE = (3 / 4, 4 / 3)


def random_resized_crop(
    image: tf.Tensor,
    seed: tf.Tensor,
    image_size: Pair,
    area_range: tuple[float, float] = AREA_RANGE,
    aspect_range: tuple[float, float] = ASPECT_RANGE,
    flip: bool = True,
) -> tf.Tensor:
    """Cut a random part out of one picture, resize and maybe flip it.

    Args:
        image: `(height, width, channels)`, 0..255, of any integer or float dtype.
        seed: Two integers, `(2,)`.
        image_size: `(height, width)` of the result.
        area_range: Least and greatest part of the picture's area.
        aspect_range: Least and greatest width / height of the part.
        flip: Whether to mirror left and right in half of the cases.

    Returns:
        float32 `(height, width, channels)`, 0..255.
    """
    shape = tf.shape(image)
    box = _random_box(shape[0], shape[1], seed, area_range, aspect_range)
    crop = image[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]
    return _resize_and_flip(crop, seed, image_size, flip)


def training_image(
    encoded: tf.Tensor,
    seed: tf.Tensor,
    image_size: Pair,
    channels: int = 3,
    area_range: tuple[float, float] = AREA_RANGE,
    aspect_range: tuple[float, float] = ASPECT_RANGE,
    flip: bool = True,
) -> tf.Tensor:
    """`random_resized_crop` of an encoded picture; of a JPEG only the crop is decoded.

    Args:
        encoded: The bytes of a picture, as for `decoding.decode_image`.
        seed: Two integers, `(2,)`.
        image_size: `(height, width)` of the result.
        channels: 3 or 1.
        area_range: Least and greatest part of the picture's area.
        aspect_range: Least and greatest width / height of the part.
        flip: Whether to mirror left and right in half of the cases.

    Returns:
        float32 `(height, width, channels)`, 0..255: the same as decoding first would give.

    Raises:
        ValueError: If `channels` is neither 1 nor 3.
        tf.errors.InvalidArgumentError: If the bytes are no picture.
    """
    crop = decode_crop(
        encoded,
        lambda height, width: _random_box(height, width, seed, area_range, aspect_range),
        channels,
    )
    return _resize_and_flip(crop, seed, image_size, flip)


def _random_box(
    height: tf.Tensor,
    width: tf.Tensor,
    seed: tf.Tensor,
    area_range: tuple[float, float],
    aspect_range: tuple[float, float],
) -> tf.Tensor:
    """int32 `(4,)`: top, left, height, width. The whole picture where nothing fits."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.stack([height, width, 3]),
        tf.zeros((0, 0, 4)),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=aspect_range,
        area_range=area_range,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def _resize_and_flip(crop: tf.Tensor, seed: tf.Tensor, image_size: Pair, flip: bool) -> tf.Tensor:
    resized = tf.image.resize(tf.cast(crop, tf.float32), image_size)
    if not flip:
        return resized
    coin = tf.random.stateless_uniform((), tf.random.fold_in(seed, 1))
    # A slice of step -1 would take as long as decoding.
    return tf.cond(coin < 0.5, lambda: tf.reverse(resized, [1]), lambda: resized)
