import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.data.arrays import Arrays
from keras_vit.data.checks import check_examples, check_fits
from keras_vit.data.inputs import open_training_data

IMAGES = np.full((4, 8, 8, 3), 200, "uint8")
LABELS = np.array([0, 1, 2, 1])
SHAPE = (8, 8, 3)
SEVERAL = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]], "float32")


def batches(labels, images=IMAGES):
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range(label):
    labels = np.array([0, 1, 2, label])
    for examples in (
        Arrays(IMAGES, labels),
        batches(labels),
    ):
        with pytest.raises(ValueError, match=f"0 to 2. Received: label {label} with num_classes=3"):
            check_examples(examples, SHAPE, 3, "train")


def test_pixels_of_0_to_1_are_refused():
    """TRAPS 15."""
    small = (IMAGES / 255.0).astype("float32")
    for examples in (
        Arrays(small, LABELS),
        batches(LABELS, small),
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
        (tf.data.Dataset.from_tensors((IMAGES, LABELS[:, None])), r"they are `labels\[:, 0\]`"),
        (tf.data.Dataset.from_tensors((IMAGES, LABELS)).take(0), "NoneType"),
    ],
)
def test_a_dataset_must_give_batches(dataset, message):
    with pytest.raises(ValueError, match=message):
        check_examples(dataset, SHAPE, 3, "train")


@pytest.mark.parametrize("labels", [LABELS + 0.5, np.array(["a", "b", "c", "a"])])
def test_labels_are_integers(labels):
    dataset = batches(labels)
    with pytest.raises(ValueError, match="Labels in `train` must be integers.*the first .*cast"):
        check_examples(dataset, SHAPE, 3, "train")


@pytest.mark.parametrize("kind", [Arrays, lambda images, labels: batches(labels, images)])
def test_rows_of_labels(kind):
    check_examples(kind(IMAGES, SEVERAL), SHAPE, 3, "train", is_multi_label=True)
    with pytest.raises(ValueError, match=r"one column a class.*\(4, 3\) with num_classes=2"):
        check_examples(kind(IMAGES, SEVERAL), SHAPE, 2, "train", is_multi_label=True)
    with pytest.raises(ValueError, match="`train` must be 0 or 1 for each class"):
        check_examples(kind(IMAGES, SEVERAL * 2), SHAPE, 3, "train", is_multi_label=True)


def test_a_dataset_of_several_labels_gives_rows():
    with pytest.raises(ValueError, match=r"labels \(batch, classes\). Received: .* and \(4,\)"):
        check_examples(batches(LABELS), SHAPE, 3, "train", is_multi_label=True)
    with pytest.raises(ValueError, match=r"labels \(batch,\)"):
        check_examples(batches(SEVERAL), SHAPE, 3, "train")


@pytest.mark.parametrize("train", [(IMAGES, SEVERAL), batches(SEVERAL)])
def test_a_model_has_one_logit_a_class(train):
    """FAULTS C1."""
    sizes = dict(
        num_layers=1, num_heads=1, hidden_dim=4, mlp_dim=4, patch_size=4, image_size=8
    )  # fmt: skip
    data = open_training_data(train, (IMAGES, SEVERAL))
    check_fits(keras_vit.ViT(keras_vit.ViTConfig(num_classes=3, **sizes)), data)
    with pytest.raises(ValueError, match="num_classes=2 for 3 classes"):
        check_fits(keras_vit.ViT(keras_vit.ViTConfig(num_classes=2, **sizes)), data)
    indices = open_training_data((IMAGES, LABELS))  # there may be more classes than these
    check_fits(keras_vit.ViT(keras_vit.ViTConfig(num_classes=5, **sizes)), indices)
