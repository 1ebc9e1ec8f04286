"""Pictures that are kept decoded are what decoding gives, and no more of them than fit."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.augment import random_resized_crop, training_image
from keras_vit.data import memory
from keras_vit.data.folder import Split
from keras_vit.data.memory import DecodedPictures, decoded_size, spare_memory
from keras_vit.decoding import decode_image

FORMATS = ("jpg", "png", "webp", "gif", "bmp")


def make_files(root) -> Split:
    """A picture of each format, and JPEG, PNG and WebP files of each EXIF orientation."""
    noise = np.random.default_rng(0).integers(0, 256, (7, 9, 3), "uint8")
    picture = Image.fromarray(noise).resize((30, 21), Image.Resampling.BICUBIC)
    paths = []
    for form in FORMATS:
        for orientation in range(1, 9) if form in ("jpg", "png", "webp") else (1,):
            exif = Image.Exif()
            exif[0x0112] = orientation
            paths.append(str(root / f"{orientation}.{form}"))
            picture.save(paths[-1], **({"exif": exif} if orientation > 1 else {}))
    return Split(tuple(paths), (0,) * len(paths))


def columns(split):
    return tf.data.Dataset.from_tensor_slices(split.pictures.tolist()).enumerate()


@pytest.mark.parametrize("num_channels", [1, 3])
def test_kept_pixels_are_the_decoded(tmp_path, num_channels):
    split = make_files(tmp_path)
    encoded = [pathlib.Path(path).read_bytes() for path in split.paths]
    kept = DecodedPictures(split, num_channels, 10**6)
    dataset = columns(split).map(kept, num_parallel_calls=4)
    assert dataset.element_spec == tf.TensorSpec((None, None, num_channels), tf.uint8)
    first = list(dataset.as_numpy_iterator())
    for path in split.paths:
        pathlib.Path(path).unlink()
    assert kept.size() == len(split)
    for one, pixels, again in zip(encoded, first, dataset.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(pixels, decode_image(one, num_channels))
        np.testing.assert_array_equal(pixels, again)
        seed = tf.constant([3, 4], tf.int64)
        np.testing.assert_array_equal(
            random_resized_crop(again, seed, (8, 6)),
            training_image(one, seed, (8, 6), num_channels),
        )


def test_threads_may_ask_for_the_same_picture(tmp_path):
    split = make_files(tmp_path)
    kept = DecodedPictures(split, 3, 10**6)
    indices = np.repeat(np.arange(3), 20)
    dataset = tf.data.Dataset.from_tensor_slices(indices).map(
        lambda index: kept(index, tf.gather(split.pictures.tolist(), index)), num_parallel_calls=8
    )
    expected = [decode_image(pathlib.Path(path).read_bytes()) for path in split.paths[:3]]
    for index, pixels in zip(indices, dataset.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(pixels, expected[index])
    assert kept.size() == 3


def test_what_exceeds_the_room_is_not_kept(tmp_path):
    split = make_files(tmp_path)
    size = 30 * 21 * 3
    kept = DecodedPictures(split, 3, 2 * size + 1)
    first = list(columns(split).map(kept).as_numpy_iterator())
    again = list(columns(split).map(kept).as_numpy_iterator())
    assert kept.size() == 2
    for pixels, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(pixels, other)


def test_decoded_size_is_of_all(tmp_path):
    split = make_files(tmp_path)
    assert len(split) == 26  # more than are looked at
    assert decoded_size(split, 3) == 26 * 30 * 21 * 3
    assert decoded_size(split, 1) == 26 * 30 * 21


def test_spare_memory_is_a_quarter_of_the_least(tmp_path, monkeypatch):
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_MEMINFO", meminfo)
    monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "absent", limit))
    assert spare_memory() == 0  # no such file
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:   4000 kB\nBuffers: 1 kB\n")
    assert spare_memory() == 1000 * 1024
    limit.write_text("max\n")
    assert spare_memory() == 1000 * 1024
    limit.write_text("2048000\n")
    assert spare_memory() == 512_000
    limit.unlink()
    meminfo.write_text("MemAvailable: 90000000 kB\n")
    assert spare_memory() == 4 * 2**30
    meminfo.write_text("MemFree: 5 kB\n")
    assert spare_memory() == 0
