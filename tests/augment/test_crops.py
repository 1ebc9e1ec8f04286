"""The official fine-tuning crops: area, aspect, flip, and chance from the seed alone."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.augment.crops import random_resized_crop, training_image
from keras_vit.decoding import decode_image

HEIGHT, WIDTH = 60, 90


def ramps():
    """A picture whose pixels tell where they are: row in red, column in green."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([rows, columns, 0 * rows], axis=-1).astype(np.uint8)


@tf.function
def crops(image, seeds, **arguments):
    return tf.map_fn(
        lambda seed: random_resized_crop(image, seed, (16, 16), **arguments),
        seeds,
        fn_output_signature=tf.TensorSpec((16, 16, 3)),
    )


def seeds(count):
    return np.stack([np.full(count, 7), np.arange(count)], axis=-1).astype(np.int32)


def crop_sides(images):
    """Heights and widths of the crops that `ramps` was resized from."""
    height = (images[:, 15, 0, 0] - images[:, 0, 0, 0]) * 16 / 15
    width = np.abs(images[:, 0, 15, 1] - images[:, 0, 0, 1]) * 16 / 15
    return height, width


def test_area_aspect_and_flip():
    images = crops(ramps(), seeds(300)).numpy()
    assert images.dtype == np.float32 and images.min() >= 0 and images.max() <= WIDTH - 1
    height, width = crop_sides(images)
    area, aspect = height * width / (HEIGHT * WIDTH), width / height
    assert 0.04 < area.min() < 0.15 and 0.7 < area.max() <= 1.0
    assert 0.68 < aspect.min() < 0.82 and 1.22 < aspect.max() < 1.42
    flipped = np.mean(images[:, 0, 15, 1] < images[:, 0, 0, 1])
    assert 0.4 < flipped < 0.6


def test_ranges_are_arguments():
    images = crops(
        ramps(), seeds(50), area_range=(0.3, 0.4), aspect_range=(1.9, 2.1), flip=False
    ).numpy()
    height, width = crop_sides(images)
    assert np.all((height * width / (HEIGHT * WIDTH) > 0.27) & (height * width < 0.43 * 5400))
    assert np.all((width / height > 1.8) & (width / height < 2.2))
    assert np.all(images[:, 0, 15, 1] > images[:, 0, 0, 1])


def test_same_seed_same_crop():
    first, second = crops(ramps(), seeds(8)), crops(ramps(), seeds(8))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first, axis=0)) == 8


def test_whole_picture_is_the_official_resize():
    image = random_resized_crop(
        ramps(), (1, 2), (20, 30), area_range=(1.0, 1.0), aspect_range=(1.5, 1.5), flip=False
    )
    np.testing.assert_allclose(image, tf.image.resize(ramps(), (20, 30)), atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_encoded_is_decoded_then_cropped(form, channels):
    """TRAPS 11: fused decoding keeps the accurate pixels and the EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    Image.fromarray(ramps()).save(buffer, form, exif=exif)
    encoded = buffer.getvalue()
    upright = decode_image(encoded, channels)
    assert upright.shape == (WIDTH, HEIGHT, channels)
    for seed in seeds(6):
        np.testing.assert_array_equal(
            training_image(encoded, seed, (16, 24), channels),
            random_resized_crop(upright, seed, (16, 24)),
        )


def test_in_tf_data():
    buffer = io.BytesIO()
    Image.fromarray(ramps()).save(buffer, "JPEG")
    dataset = tf.data.Dataset.from_tensor_slices(seeds(3)).map(
        lambda seed: training_image(buffer.getvalue(), seed, (16, 24))
    )
    assert dataset.element_spec == tf.TensorSpec((16, 24, 3), tf.float32)
    assert len(list(dataset)) == 3


def test_a_flip_is_the_exact_mirror():
    plain, maybe = crops(ramps(), seeds(20), flip=False), crops(ramps(), seeds(20))
    mirrored = [bool(np.all(one == two[:, ::-1])) for one, two in zip(maybe, plain, strict=True)]
    same = [bool(np.all(one == two)) for one, two in zip(maybe, plain, strict=True)]
    assert any(mirrored) and any(same)
    assert np.logical_xor(mirrored, same).all()
