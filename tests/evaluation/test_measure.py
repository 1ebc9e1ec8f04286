"""`evaluate` beside the same figures computed by hand from `model.predict`."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.evaluation import evaluate

PICTURES = 11


@pytest.fixture
def model(tiny_config, random_weights):
    """Random, of seven classes."""
    config = dataclasses.replace(tiny_config, num_classes=7)
    return random_weights(keras_vit.ViT(config, labels=tuple("abcdefg")))


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 256, (PICTURES, 16, 16, 3)).astype("uint8")


@pytest.fixture
def labels():
    return np.random.default_rng(2).integers(0, 7, PICTURES)


def expected_of(model, images) -> tuple[np.ndarray, np.ndarray]:
    """Order of the classes and their probabilities, by hand."""
    logits = model.predict(images.astype("float32"), verbose=0).astype("float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return np.argsort(-logits, axis=1), probabilities


@pytest.mark.parametrize("batch_size", [1, 4, 32])
def test_every_picture_counts_once(model, images, labels, batch_size):
    """The last batch is not full, and is not dropped."""
    order, probabilities = expected_of(model, images)
    evaluation = evaluate(model, (images, labels), batch_size=batch_size)
    assert len(evaluation) == PICTURES
    np.testing.assert_array_equal(evaluation.labels, labels)
    np.testing.assert_array_equal(evaluation.predictions, order[:, :5])
    best = np.take_along_axis(probabilities, order[:, :5], axis=1)
    np.testing.assert_allclose(evaluation.probabilities, best, atol=1e-6)
    assert evaluation.top1 == np.mean(order[:, 0] == labels)
    assert evaluation.top5 == np.mean((order[:, :5] == labels[:, None]).any(axis=1))
    shown = probabilities[np.arange(PICTURES), labels]
    assert evaluation.loss == pytest.approx(-np.log(shown).mean(), abs=1e-5)
    assert evaluation.class_names == tuple("abcdefg")
    assert evaluation.data_classes == tuple(range(7))


def test_speed_is_of_batches_whose_size_came_before(model, images, labels):
    """Of 4, 4 and 3 pictures the second batch tells; of one batch none."""
    throughput = evaluate(model, (images, labels), batch_size=4).throughput
    assert throughput.pictures == 4 and throughput.pictures_per_second > 0
    assert 0 <= throughput.waiting_share <= 1
    assert evaluate(model, (images, labels)).throughput is None


def test_a_dataset_gives_the_same(model, images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    one, other = evaluate(model, dataset), evaluate(model, (images, labels))
    np.testing.assert_array_equal(one.predictions, other.predictions)
    unknown_length = dataset.filter(lambda images, labels: True)
    np.testing.assert_array_equal(evaluate(model, unknown_length).predictions, one.predictions)


def test_arrays_of_another_size_are_resized_by_the_models_rule(model, labels):
    large = np.random.default_rng(3).integers(0, 256, (PICTURES, 40, 24, 3)).astype("uint8")
    order, _ = expected_of(model, model.preprocess(large))
    np.testing.assert_array_equal(evaluate(model, (large, labels)).predictions, order[:, :5])


def test_grey_pictures_need_no_channel_axis(tiny_config, random_weights):
    config = dataclasses.replace(tiny_config, num_channels=1)
    model = random_weights(keras_vit.ViT(config))
    grey = np.random.default_rng(4).integers(0, 256, (3, 16, 16)).astype("uint8")
    evaluation = evaluate(model, (grey, np.zeros(3, int)))
    order, _ = expected_of(model, grey[..., None])
    np.testing.assert_array_equal(evaluation.predictions, order)
    assert evaluation.class_names == ("0", "1", "2", "3", "4")


def test_names_in_another_order_are_found_by_name(model, images):
    """A class's number in a folder is not its number in the model."""
    names = ("f", "a", "c")
    labels = np.arange(PICTURES) % 3
    evaluation = evaluate(model, (images, labels), names)
    order, _ = expected_of(model, images)
    shown = np.array([5, 0, 2])[labels]
    np.testing.assert_array_equal(evaluation.labels, shown)
    assert evaluation.top1 == np.mean(order[:, 0] == shown)
    assert evaluation.data_classes == (5, 0, 2)
    assert [score.name for score in evaluation.class_scores()] == list(names)
    assert [score.pictures for score in evaluation.class_scores()] == [4, 4, 3]


def test_names_of_a_model_without_labels(model, images):
    model.labels = None
    names = tuple("tuvwxyz")
    evaluation = evaluate(model, (images, np.arange(PICTURES) % 7), names)
    assert evaluation.class_names == names and evaluation.data_classes == tuple(range(7))


def test_as_many_other_names_are_taken_in_order_and_that_is_said(model, images, caplog):
    labels = np.arange(PICTURES) % 7
    names = tuple(f"n0{index}" for index in range(7))
    evaluation = evaluate(model, (images, labels), names)
    np.testing.assert_array_equal(evaluation.labels, labels)
    assert "taken in order: n00 as a, n01 as b" in caplog.text


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "rose"), "unknown to the model: rose. The model has 7: a, b, c, d, e, f, g"),
        (("b", "a", "c", "d", "e", "f", "rose"), "unknown to the model: rose"),
        (("rose", "tulip"), "2 classes, of them unknown to the model: rose, tulip"),
    ],
)
def test_names_that_do_not_fit(model, images, names, said):
    with pytest.raises(ValueError, match=said):
        evaluate(model, (images, np.zeros(PICTURES, int)), names)


def test_a_label_that_the_model_has_twice(model, images):
    model.labels = ("a", "crane", "crane", *"defg")
    with pytest.raises(ValueError, match="crane, which it has more than once"):
        evaluate(model, (images, np.zeros(PICTURES, int)), ("a", "crane"))


def test_several_classes_a_picture(model, images):
    """Logits by sigmoid; columns of the labels found by name."""
    model.multi_label = True
    labels = np.random.default_rng(5).integers(0, 2, (PICTURES, 3))
    evaluation = evaluate(model, (images, labels.astype("float32")), ("g", "a", "b"), batch_size=4)
    logits = model.predict(images.astype("float32"), verbose=0)[:, [6, 0, 1]].astype("float64")
    assert evaluation.class_names == ("g", "a", "b")
    np.testing.assert_array_equal(evaluation.labels, labels.astype(bool))
    np.testing.assert_allclose(evaluation.logits, logits, atol=1e-5)
    assert evaluation.throughput.pictures == 4
    probabilities = 1 / (1 + np.exp(-logits))
    likelihood = np.where(labels == 1, probabilities, 1 - probabilities)
    assert evaluation.loss == pytest.approx(-np.log(likelihood).sum(1).mean(), abs=1e-5)


def with_label(value, position=9):
    labels = np.zeros(PICTURES, int)
    labels[position] = value
    return labels


@pytest.mark.parametrize(
    ("multi_label", "labels", "said"),
    [
        (False, with_label(7), "from 0 to 6.*Received: 7 for picture 9"),
        (False, with_label(-1), "Received: -1 for picture 9"),
        (False, np.eye(7)[np.zeros(PICTURES, int)], r"One-hot labels become.*argmax\(-1\)"),
        (False, np.zeros(PICTURES), "dtype float64"),
        (True, np.zeros(PICTURES, int), "rows of 0 and 1 for 7 classes"),
        (True, np.zeros((PICTURES, 6), int), r"labels of shape \(4, 6\)"),
        (True, np.full((PICTURES, 7), 2), "Received: 2 for picture 0"),
        (True, np.full((PICTURES, 7), 0.5), "Received: 0.5 for picture 0"),
    ],
)
def test_wrong_labels(model, images, multi_label, labels, said):
    model.multi_label = multi_label
    with pytest.raises(ValueError, match=said):
        evaluate(model, (images, labels), batch_size=4)


def test_wrong_pictures(model, images, labels):
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    for data, said in (
        ((images / 255.0, labels), "must be pixels 0..255"),
        ((images[:, :, :, :1], labels), "with the channels of the model"),
        ((images, labels[:-1]), "a label for each"),
        (images, "two arrays"),
        ((images[:0], labels[:0]), "must hold a picture"),
        (batches.map(lambda images, labels: (images / 255, labels)), "must be pixels 0..255"),
        (batches.map(lambda images, labels: images), "batches of \\(images, labels\\)"),
        (batches.map(lambda images, labels: (images[:, :8], labels)), r"\(4, 8, 16, 3\)"),
        (batches.repeat(), "must come to an end"),
    ):
        with pytest.raises(ValueError, match=said):
            evaluate(model, data)
    with pytest.raises(ValueError, match="batch_size=0"):
        evaluate(model, (images, labels), batch_size=0)


def test_pixels_normalised_by_the_caller(tiny_config, random_weights, images):
    model = random_weights(keras_vit.ViT(tiny_config, include_normalization=False))
    normalised = images / np.float32(127.5) - 1
    order, _ = expected_of(model, normalised)
    labels = np.zeros(PICTURES, int)
    np.testing.assert_array_equal(evaluate(model, (normalised, labels)).predictions, order)
    with pytest.raises(ValueError, match=r"images \(batch, 16, 16, 3\)"):
        evaluate(model, (normalised[:, :8], labels))


@pytest.mark.parametrize("other", ["bundled", keras.Sequential()])
def test_what_is_no_model_of_the_package(images, labels, other):
    with pytest.raises(ValueError, match=f"type {type(other).__name__}.*from_pretrained"):
        evaluate(other, (images, labels))


def test_features_are_no_answer(tiny_config, images, labels):
    model = keras_vit.ViT(dataclasses.replace(tiny_config, num_classes=0))
    with pytest.raises(ValueError, match="num_classes=0"):
        evaluate(model, (images, labels))


def test_not_a_number_is_not_counted_as_wrong(model, images, labels):
    """NaN compares false with everything: it would be a class like another."""
    kernel = model.get_layer("head").kernel
    kernel.assign(np.full(kernel.shape, np.nan))
    with pytest.raises(FloatingPointError, match="for picture 0"):
        evaluate(model, (images, labels))


def test_progress_on_a_terminal_only(model, images, labels, capfd, monkeypatch):
    evaluate(model, (images, labels))
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    evaluate(model, (images, labels))
    assert "Evaluating" in capfd.readouterr().err
