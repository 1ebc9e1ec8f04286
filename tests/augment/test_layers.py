"""Layers and functions on batches: labels, pixels, chance, and what is refused."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.augment.layers import (
    AUGMENTATIONS,
    as_augmentations,
    augment_batches,
    check_augmentations,
    mixes_labels,
    name_of,
)

NUM_CLASSES = 4


def batches(images, labels, number=3):
    return tf.data.Dataset.from_tensors((images, labels)).repeat(number)


def noise(dtype="float32"):
    return np.random.default_rng(0).uniform(0, 255, (6, 16, 24, 3)).astype(dtype)


def augmented(value, images, labels, number=3, **arguments):
    layers = as_augmentations(value)
    dataset = augment_batches(batches(images, labels, number), layers, NUM_CLASSES, **arguments)
    return [(images.numpy(), labels.numpy()) for images, labels in dataset]


LABELS = np.array([0, 1, 2, 3, 0, 1], "int32")
ONE_HOT = np.eye(NUM_CLASSES, dtype="float32")[LABELS]


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("labels", [LABELS, ONE_HOT, ONE_HOT.astype("float16")], ids=str)
def test_rows_of_mixed_labels_sum_to_one(name, dtype, labels):
    """FAULTS H3: integer and one-hot labels, images of any dtype."""
    for images, mixed in augmented(name, noise(dtype), labels):
        assert images.dtype == mixed.dtype == "float32"
        assert mixed.shape == (6, NUM_CLASSES)
        np.testing.assert_allclose(mixed.sum(-1), 1.0, atol=1e-6)
        assert ((mixed > 1e-3) & (mixed < 1 - 1e-3)).any()
        assert not np.array_equal(images, noise(dtype))


def test_several_labels_a_picture_are_mixed():
    several = np.array([[1, 1, 0, 0]] * 3 + [[0, 0, 1, 0]] * 3, "float32")
    for _, mixed in augmented("mixup", noise(), several):
        np.testing.assert_allclose(mixed[:, 0], mixed[:, 1])
        np.testing.assert_allclose(mixed[:, 0] + mixed[:, 2], 1.0, atol=1e-6)


def test_labels_follow_their_pictures():
    """Each picture is as bright as its label says."""
    images = np.broadcast_to(LABELS[:, None, None, None] * 50.0, (6, 64, 64, 3))
    # A box of CutMix is whole pixels, its label that of the box before rounding.
    for name, tolerance in (("mixup", 1e-3), ("cutmix", 150 * 2 / 64)):
        for mixed, labels in augmented(name, images, LABELS):
            expected = labels @ (np.arange(NUM_CLASSES) * 50.0)
            np.testing.assert_allclose(mixed.mean((1, 2, 3)), expected, atol=tolerance)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_published_settings(name):
    """Pixels stay pixels, something changes, labels are mixed or stay what they were."""
    for images, labels in augmented(name, noise(), LABELS):
        assert images.shape == (6, 16, 24, 3)
        assert images.min() >= 0 and images.max() <= 255 and np.ptp(images) > 50
        assert not np.array_equal(images, noise())
        if not mixes_labels(AUGMENTATIONS[name]()):
            np.testing.assert_array_equal(labels, LABELS)


def test_rand_augment_moves_no_further_than_published():
    """Keras' own maximum turns a picture around; ours is 30 degrees."""
    layer = AUGMENTATIONS["randaugment"]()
    assert layer.random_rotation.factor == pytest.approx((-30 / 360, 30 / 360))
    bright_top = np.zeros((64, 32, 32, 3), "float32")
    bright_top[:, :16] = 255.0
    batch = layer.random_rotation(bright_top)
    assert np.mean(batch[:, :8]) > 200 > 60 > np.mean(batch[:, -8:])


def test_colour_jitter_raises_and_lowers():
    grey = np.full((64, 4, 4, 3), 100.0, "float32")
    grey[:, :2] = 150.0
    jitter = AUGMENTATIONS["colorjitter"]()
    contrast = np.ptp(np.asarray(jitter.random_contrast(grey)), axis=(1, 2, 3))
    assert contrast.min() < 45 and contrast.max() > 55
    brightness = np.mean(jitter.random_brightness(grey), axis=(1, 2, 3))
    assert brightness.min() < 115 and brightness.max() > 135


def test_draws_are_a_function_of_seed_and_step():
    pipeline = keras.layers.Pipeline([keras.layers.RandomErasing(), keras.layers.MixUp()])
    whole = augmented(pipeline, noise(), LABELS, seed=5, number=4)
    resumed = augmented(pipeline, noise(), LABELS, seed=5, number=2, start_step=2)
    for (images, labels), (later_images, later_labels) in zip(whole[2:], resumed, strict=True):
        np.testing.assert_array_equal(images, later_images)
        np.testing.assert_array_equal(labels, later_labels)
    assert not np.array_equal(whole[0][1], whole[1][1])
    fresh = keras.layers.Pipeline([keras.layers.RandomErasing(), keras.layers.MixUp()])
    np.testing.assert_array_equal(augmented(fresh, noise(), LABELS, seed=5)[0][0], whole[0][0])
    assert not np.array_equal(augmented(fresh, noise(), LABELS, seed=6)[0][0], whole[0][0])


def test_functions_and_lists_work_in_turn():
    def darker(images):
        return images - 100.0

    outputs = augmented([darker, lambda images: images * 2.0], noise(), LABELS)
    np.testing.assert_allclose(
        outputs[0][0], np.clip(np.clip(noise() - 100, 0, 255) * 2, 0, 255), rtol=1e-6
    )
    assert outputs[0][1].dtype == "int32"


def test_layers_are_in_training():
    images = augmented(keras.layers.Dropout(0.5), noise(), LABELS)[0][0]
    assert 0.3 < np.mean(images == 0.0) < 0.7


def test_a_last_batch_of_another_size():
    dataset = tf.data.Dataset.from_tensor_slices((noise(), LABELS)).batch(4)
    outputs = augment_batches(dataset, as_augmentations("cutmix"), NUM_CLASSES)
    assert [images.shape[0] for images, _ in outputs] == [4, 2]


def test_names():
    values = as_augmentations(["mixup", keras.layers.AutoContrast(), tf.abs])
    assert [name_of(value) for value in values] == ["MixUp", "AutoContrast", "abs"]
    assert name_of(functools.partial(abs)) == "partial"
    assert as_augmentations(None) == ()


def test_a_subclass_mixes_too():
    class Mine(keras.layers.MixUp):
        pass

    assert mixes_labels(keras.layers.Pipeline([Mine()]))
    assert not mixes_labels(keras.layers.RandomFlip())


def test_layers_for_other_pixels_are_refused():
    layers = keras.layers
    for layer in (
        layers.RandAugment(value_range=(0, 1)),
        layers.Pipeline([layers.MixUp(), layers.RandomBrightness(0.1, value_range=(-1, 1))]),
    ):
        with pytest.raises(ValueError, match=r"with value_range=.*`value_range=\(0, 255\)`"):
            as_augmentations(layer)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mixpu", "Unknown `augmentation`.*Did you mean: mixup"),
        (3, "must be a Keras layer.*'erasing'.*Received: 3"),
        (keras.layers.MixUp, "Received: <class"),
        ([None], "Received: None"),
    ],
)
def test_what_is_no_augmentation(value, message):
    with pytest.raises(ValueError, match=message):
        as_augmentations(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (keras.layers.RandomCrop(8, 8), r"images \(batch, 16, 24, 3\).*RandomCrop.*ValueError"),
        (lambda images: images.numpy(), "<lambda>, which ended in .*numpy"),
        (keras.layers.Rescaling(1 / 255), "must be pixels 0..255.*x \\* 255"),
        (keras.layers.Rescaling(np.nan), "NaN"),
    ],
)
def test_what_cannot_work_is_known_before_the_first_step(value, message):
    with pytest.raises(ValueError, match=message):
        check_augmentations(as_augmentations(value), (16, 24, 3), NUM_CLASSES)


def test_colours_of_grey_pictures():
    message = "num_channels=1 with MixUp, RandomColorJitter, which work on 3 channels only"
    with pytest.raises(ValueError, match=message):
        check_augmentations(as_augmentations(["mixup", "colorjitter"]), (16, 24, 1), NUM_CLASSES)
    with pytest.raises(ValueError, match="RandomCrop, which ended in"):
        check_augmentations([keras.layers.RandomCrop(8, 8)], (16, 24, 1), NUM_CLASSES)


def test_what_works_passes():
    check_augmentations(as_augmentations(["mixup", tf.abs]), (16, 24, 1), NUM_CLASSES)
