import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.checks import check_examples
from keras_vit.data.inputs import Arrays

IMAGES = np.full((4, 8, 8, 3), 200, "uint8")
LABELS = np.array([0, 1, 2, 1])
SHAPE = (8, 8, 3)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range(label):
    labels = np.array([0, 1, 2, label])
    for examples in (
        Arrays(IMAGES, labels),
        tf.data.Dataset.from_tensor_slices((IMAGES, labels)).batch(4),
    ):
        with pytest.raises(ValueError, match=f"0 to 2. Received: label {label} with num_classes=3"):
            check_examples(examples, SHAPE, 3, "train")


def test_pixels_of_0_to_1_are_refused():
    """TRAPS 15."""
    small = (IMAGES / 255.0).astype("float32")
    for examples in (
        Arrays(small, LABELS),
        tf.data.Dataset.from_tensor_slices((small, LABELS)).batch(4),
    ):
        with pytest.raises(ValueError, match="`validation` must be pixels 0..255"):
            check_examples(examples, SHAPE, 3, "validation")
        check_examples(examples, SHAPE, 3, "validation", are_pixels=False)


def test_channels_must_fit():
    with pytest.raises(ValueError, match="num_channels=1"):
        check_examples(Arrays(IMAGES, LABELS), (8, 8, 1), 3, "train")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (tf.data.Dataset.from_tensor_slices(IMAGES), r"batches of \(images, labels\)"),
        (tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)), r"\(8, 8, 3\) and \(\)"),
        (tf.data.Dataset.from_tensors((IMAGES[:, :4], LABELS)), r"\(4, 4, 8, 3\)"),
        (tf.data.Dataset.from_tensors((IMAGES, np.eye(4))), "class indices"),
        (tf.data.Dataset.from_tensors((IMAGES, LABELS)).take(0), "NoneType"),
    ],
)
def test_a_dataset_must_give_batches(dataset, message):
    with pytest.raises(ValueError, match=message):
        check_examples(dataset, SHAPE, 3, "train")


@pytest.mark.parametrize("labels", [LABELS + 0.5, np.array(["a", "b", "c", "a"])])
def test_labels_are_integers(labels):
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, labels)).batch(4)
    with pytest.raises(ValueError, match="Labels in `train` must be integers"):
        check_examples(dataset, SHAPE, 3, "train")
