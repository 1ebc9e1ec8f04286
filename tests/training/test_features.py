"""Features beside those of `model.intermediates`."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.training.features import features_of, headless

PICTURES = 11


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (PICTURES, 16, 16, 3)).astype("uint8")


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 7, PICTURES)


def expected_of(model, images, name: str = "pooled") -> np.ndarray:
    view = model.intermediates([name])
    return np.asarray(view.predict(images.astype("float32"), verbose=0)[name])


@pytest.mark.parametrize("batch_size", [1, 4, 32])
def test_every_picture_once_and_in_order(image_model, images, labels, batch_size):
    """The last batch is not full, and is not dropped."""
    features, classes = features_of(image_model, (images, labels), batch_size)
    np.testing.assert_array_equal(classes, labels)
    np.testing.assert_allclose(features, expected_of(image_model, images), atol=1e-5)
    assert features.dtype == np.float32


def test_a_dataset_gives_the_same(image_model, images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    expected, _ = features_of(image_model, (images, labels), batch_size=4)
    unknown_length = dataset.filter(lambda images, labels: True)
    for data in (dataset, unknown_length):
        features, classes = features_of(image_model, data)
        np.testing.assert_array_equal(classes, labels)
        np.testing.assert_allclose(features, expected, atol=1e-6)


@pytest.mark.parametrize("num_classes", [5, 0])
@pytest.mark.parametrize("representation", ["tanh", "linear"])
def test_a_layer_before_the_head_counts(
    tiny_config, random_weights, images, labels, representation, num_classes
):
    """As in big_vision's few-shot evaluation, which reads `pre_logits`."""
    config = dataclasses.replace(
        tiny_config,
        representation_size=7,
        representation=representation,
        num_classes=num_classes,
    )
    model = random_weights(keras_vit.ViT(config))
    features, _ = features_of(model, (images, labels))
    np.testing.assert_allclose(features, expected_of(model, images, "pre_logits"), atol=1e-5)


def test_two_tokens_count_half_each(tiny_config, random_weights, images, labels):
    model = random_weights(keras_vit.ViT(dataclasses.replace(tiny_config, distillation_token=True)))
    features, _ = features_of(model, (images, labels))
    np.testing.assert_allclose(features, expected_of(model, images), atol=1e-5)


def test_half_precision_gives_float32(tiny_config, random_weights, images, labels):
    model = random_weights(keras_vit.ViT(tiny_config, dtype="bfloat16"))
    features, _ = features_of(model, (images, labels))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected_of(model, images).astype("float32"), atol=1e-6)


def test_arrays_are_made_pixels_by_the_models_rule(image_model, labels):
    large = np.random.default_rng(3).integers(0, 256, (PICTURES, 40, 24, 3)).astype("uint8")
    features, _ = features_of(image_model, (large, labels))
    expected = expected_of(image_model, image_model.preprocess(large))
    np.testing.assert_allclose(features, expected, atol=1e-5)
    grey = large[..., 0]
    features, _ = features_of(image_model, (grey, labels))
    expected = expected_of(image_model, image_model.preprocess(grey[..., None]))
    np.testing.assert_allclose(features, expected, atol=1e-5)


def test_pixels_normalised_by_the_caller(tiny_config, random_weights, images, labels):
    model = random_weights(keras_vit.ViT(tiny_config, include_normalization=False))
    normalised = images / np.float32(127.5) - 1
    features, _ = features_of(model, (normalised, labels))
    np.testing.assert_allclose(features, expected_of(model, normalised), atol=1e-5)
    with pytest.raises(ValueError, match=r"images \(batch, 16, 16, 3\)"):
        features_of(model, (normalised[:, :8], labels))


def test_headless_shares_the_weights(image_model):
    extractor = headless(image_model)
    assert extractor.get_layer("block_1") is image_model.get_layer("block_1")
    assert headless(extractor) is extractor


def with_label(value: int) -> np.ndarray:
    labels = np.zeros(PICTURES, int)
    labels[9] = value
    return labels


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (with_label(7), "Labels in `train` must be from 0 to 6. Received: 7 for picture 9"),
        (with_label(-1), "Received: -1 for picture 9"),
        (np.eye(7)[with_label(0)], r"One-hot labels become integers by `argmax\(-1\)`"),
        (np.zeros(PICTURES), "dtype float64"),
    ],
)
@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_wrong_labels(image_model, images, labels, said, kind):
    data = (images, labels)
    if kind == "dataset":
        data = tf.data.Dataset.from_tensor_slices(data).batch(4)
    with pytest.raises(ValueError, match=said):
        features_of(image_model, data, num_classes=7, name="train")


def test_wrong_pictures(image_model, images, labels):
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    for data, said in (
        ((images / 255.0, labels), "must be pixels 0..255"),
        ((images[..., :2], labels), "channels on the last axis"),
        ((images, labels[:-1]), "a label for each"),
        (images, "`data` must be a tf.data.Dataset or two arrays"),
        ((images[:0], labels[:0]), "one or more"),
        (batches.take(0), "must hold a picture"),
        (batches.map(lambda images, labels: (images / 255, labels)), "must be pixels 0..255"),
        (batches.map(lambda images, labels: images), r"batches of \(images, labels\)"),
        (batches.map(lambda images, labels: (images[:, :8], labels)), r"\(4, 8, 16, 3\)"),
        (batches.repeat(), "must come to an end"),
    ):
        with pytest.raises(ValueError, match=said):
            features_of(image_model, data)
    with pytest.raises(ValueError, match="batch_size=0"):
        features_of(image_model, (images, labels), batch_size=0)


@pytest.mark.parametrize("other", ["bundled", keras.Sequential()])
def test_what_is_no_model_of_the_package(images, labels, other):
    with pytest.raises(ValueError, match=f"type {type(other).__name__}.*from_pretrained"):
        features_of(other, (images, labels))


def test_not_a_number_is_no_feature(image_model, images, labels):
    gamma = image_model.get_layer("encoder_norm").gamma
    gamma.assign(np.full(gamma.shape, np.nan))
    with pytest.raises(FloatingPointError, match="for picture 0"):
        features_of(image_model, (images, labels))


def test_progress_on_a_terminal_only(image_model, images, labels, capfd, monkeypatch):
    features_of(image_model, (images, labels))
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    features_of(image_model, (images, labels), name="train")
    assert "Features (train)" in capfd.readouterr().err
