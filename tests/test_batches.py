import numpy as np
import pytest
import tensorflow as tf

from keras_vit import ViT
from keras_vit.batches import (
    check_finite,
    check_image_model,
    checked_batch,
    count_finite,
    with_progress,
)


@pytest.fixture(scope="module")
def model():
    return ViT.from_variant("Ti/16", num_layers=1, image_size=16, num_classes=2)


def test_a_batch_is_made_of_arrays(model):
    images, labels = checked_batch((tf.zeros((3, 16, 16, 3)), tf.range(3)), model, "train")
    assert images.shape == (3, 16, 16, 3) and labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (np.zeros((3, 16, 16, 3)), "`train` must give batches of .images, labels.*type ndarray"),
        ((np.zeros((3, 16, 8, 3)), [0, 1, 2]), "`train` must give images .batch, 16, 16, 3"),
        ((np.zeros((3, 16, 16, 3)), [0, 1]), "shapes .3, 16, 16, 3. and .2,"),
    ],
)
def test_batches_that_do_not_fit(model, batch, message):
    with pytest.raises(ValueError, match=message):
        checked_batch(batch, model, "train")


def test_only_models_of_this_package(model):
    check_image_model(model)
    with pytest.raises(ValueError, match="Received: an object of type str.*from_pretrained"):
        check_image_model("bundled")


def test_batches_are_counted():
    dataset = tf.data.Dataset.range(7)
    assert count_finite(dataset.batch(3), "test") == 3
    assert count_finite(dataset.filter(lambda number: number > 2), "test") is None
    with pytest.raises(ValueError, match="`test` must come to an end"):
        count_finite(dataset.repeat(), "test")


def test_progress_leaves_batches_as_they_are():
    assert list(with_progress(iter("abc"), "Letters", None)) == ["a", "b", "c"]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_the_picture_that_is_not_finite_is_named(wrong):
    answers = np.zeros((4, 2))
    check_finite(answers, "logits", 8)
    answers[2, 1] = wrong
    with pytest.raises(FloatingPointError, match="finite logits.*for picture 10, counted from 0"):
        check_finite(answers, "logits", 8)
