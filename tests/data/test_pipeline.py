import itertools
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.config import PreprocessingConfig
from keras_vit.data.folder import Split
from keras_vit.data.inputs import Arrays
from keras_vit.data.pipeline import evaluation_dataset, training_dataset


def make_arrays(number=10) -> Arrays:
    """Pictures of one colour each, which says which they are through any crop."""
    images = np.full((number, 12, 20, 3), 0, "uint8")
    images += (np.arange(number, dtype="uint8") * 10)[:, None, None, None]
    return Arrays(images, np.arange(number, dtype="int32"))


def make_files(root, number=10) -> Split:
    generator = np.random.default_rng(0)
    paths = []
    for index in range(number):
        pixels = generator.integers(0, 256, (20 + index, 30, 3), "uint8")
        path = root / f"{index}.{('png', 'jpg')[index % 2]}"
        Image.fromarray(pixels).save(path)
        paths.append(str(path))
    return Split(tuple(paths), tuple(range(number)))


def take(dataset, number):
    return [
        (images.numpy(), labels.numpy()) for images, labels in itertools.islice(dataset, number)
    ]


def test_every_pass_shows_each_picture_once_in_another_order():
    batches = take(training_dataset(make_arrays(), 5, (8, 8), seed=3), 6)
    labels = np.concatenate([labels for _, labels in batches]).reshape(3, 10)
    assert [sorted(row) for row in labels.tolist()] == [list(range(10))] * 3
    assert len({tuple(row) for row in labels.tolist()}) == 3
    for images, labels in batches:
        assert images.dtype == "float32"
        assert images.shape == (5, 8, 8, 3)
        np.testing.assert_array_equal(images[:, 0, 0, 0], labels * 10)


def test_batches_run_over_the_end_of_a_pass():
    batches = take(training_dataset(make_arrays(), 4, (8, 8)), 5)
    assert {len(labels) for _, labels in batches} == {4}
    labels = np.concatenate([labels for _, labels in batches])
    assert sorted(labels.tolist()) == sorted([*range(10), *range(10)])


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_same_seed_same_batches_and_any_start(tmp_path, kind):
    if kind == "files":
        examples = make_files(tmp_path)
    else:
        images = np.random.default_rng(0).integers(0, 256, (10, 12, 20, 3), "uint8")
        examples = Arrays(images, np.arange(10, dtype="int32"))
    whole = take(training_dataset(examples, 4, (8, 8), seed=7), 5)
    later = take(training_dataset(examples, 4, (8, 8), seed=7, start_step=3), 2)
    for (images, labels), (later_images, later_labels) in zip(whole[3:], later, strict=True):
        np.testing.assert_array_equal(images, later_images)
        np.testing.assert_array_equal(labels, later_labels)
    other = take(training_dataset(examples, 4, (8, 8), seed=8), 1)
    assert not np.array_equal(other[0][0], whole[0][0])


def remove_files(split):
    for path in split.paths:
        pathlib.Path(path).unlink()


@pytest.mark.parametrize("num_channels", [1, 3])
def test_kept_pictures_give_the_same_batches(tmp_path, num_channels):
    split = make_files(tmp_path)
    arguments = {"image_size": (8, 8), "num_channels": num_channels, "seed": 7}
    plain = take(training_dataset(split, 4, **arguments), 12)
    later = take(training_dataset(split, 4, **arguments, start_step=3, cache_bytes=10**6), 5)
    dataset = training_dataset(split, 4, **arguments, cache_bytes=10**6)
    kept = take(dataset, 12)
    remove_files(split)
    again = take(dataset, 12)  # another iterator, the same pictures
    for expected, batches in ((plain, kept), (plain, again), (plain[3:8], later)):
        for (images, labels), (kept_images, kept_labels) in zip(expected, batches, strict=True):
            np.testing.assert_array_equal(images, kept_images)
            np.testing.assert_array_equal(labels, kept_labels)


def test_a_set_that_does_not_fit_is_not_kept(tmp_path):
    split = make_files(tmp_path)
    dataset = training_dataset(split, 4, (8, 8), cache_bytes=10 * 20 * 30 * 3)
    take(dataset, 6)
    remove_files(split)
    with pytest.raises(tf.errors.NotFoundError):
        take(dataset, 1)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [True, False])
def test_kept_evaluation_pictures_are_the_same(tmp_path, antialias, interpolation):
    split = make_files(tmp_path, 5)
    preprocessing = PreprocessingConfig(antialias=antialias, interpolation=interpolation)
    plain = take(evaluation_dataset(split, 2, (8, 12), preprocessing), 9)
    dataset = evaluation_dataset(split, 2, (8, 12), preprocessing, cache_bytes=10**6)
    assert dataset.element_spec[0] == tf.TensorSpec((None, 8, 12, 3), tf.float32)
    first = take(dataset, 9)
    remove_files(split)
    for batches in (first, take(dataset, 9)):
        for (images, labels), (kept_images, kept_labels) in zip(plain, batches, strict=True):
            np.testing.assert_array_equal(images, kept_images)
            np.testing.assert_array_equal(labels, kept_labels)


@pytest.mark.parametrize("antialias, level_bytes", [(True, 1), (False, 4)])
def test_evaluation_pictures_that_do_not_fit_are_not_kept(tmp_path, antialias, level_bytes):
    split = make_files(tmp_path, 5)
    room = 5 * 8 * 12 * 3 * level_bytes - 1
    preprocessing = PreprocessingConfig(antialias=antialias)
    dataset = evaluation_dataset(split, 2, (8, 12), preprocessing, cache_bytes=room)
    take(dataset, 9)
    remove_files(split)
    with pytest.raises(tf.errors.NotFoundError):
        take(dataset, 1)


def test_crop_area_and_flip_are_used():
    images = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), "uint8")
    examples = Arrays(images, np.zeros(1, "int32"))
    plain = training_dataset(examples, 1, (16, 16), crop_area=(0.999, 1.0), flip=False)
    for batch, _ in take(plain, 4):
        np.testing.assert_array_equal(batch[0], images[0])
    mirrored = training_dataset(examples, 1, (16, 16), crop_area=(0.999, 1.0), flip=True)
    first_pixels = {batch[0, 0, 0, 0] for batch, _ in take(mirrored, 20)}
    assert first_pixels == {float(images[0, 0, 0, 0]), float(images[0, 0, -1, 0])}


def test_evaluation_gives_all_in_order_by_the_rule(tmp_path):
    split = make_files(tmp_path, 5)
    preprocessing = PreprocessingConfig(antialias=True)
    batches = take(evaluation_dataset(split, 2, (8, 12), preprocessing), 9)
    assert [len(labels) for _, labels in batches] == [2, 2, 1]
    assert np.concatenate([labels for _, labels in batches]).tolist() == list(range(5))
    with Image.open(split.paths[0]) as picture:
        expected = np.asarray(picture.resize((12, 8), Image.Resampling.BILINEAR))
    assert np.abs(batches[0][0][0] - expected).max() <= 1.0


def test_evaluation_of_arrays():
    batches = take(evaluation_dataset(make_arrays(3), 2, (6, 10), PreprocessingConfig()), 9)
    images = np.concatenate([images for images, _ in batches])
    assert images.shape == (3, 6, 10, 3)
    np.testing.assert_allclose(images[:, 0, 0, 0], [0, 10, 20])


def test_one_channel(tmp_path):
    split = make_files(tmp_path, 2)
    images, _ = take(training_dataset(split, 2, (8, 8), num_channels=1), 1)[0]
    assert images.shape == (2, 8, 8, 1)
    images, _ = take(evaluation_dataset(split, 2, (8, 8), PreprocessingConfig(), 1), 1)[0]
    assert images.shape == (2, 8, 8, 1)


def test_other_channels_of_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="channels=4"):
        training_dataset(make_files(tmp_path, 2), 2, (8, 8), num_channels=4)


def test_names_that_are_no_text(tmp_path):
    split = make_files(tmp_path, 1)
    raw = bytes(tmp_path) + b"/caf\xe9.png"
    pathlib.Path(split.paths[0]).rename(os.fsdecode(raw))
    split = Split((os.fsdecode(raw),), (0,))
    batch = take(evaluation_dataset(split, 1, (8, 8), PreprocessingConfig()), 1)[0]
    assert batch[0].shape == (1, 8, 8, 3)
