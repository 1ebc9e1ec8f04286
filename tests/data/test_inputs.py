import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.data.folder import ImageFolder, Split
from keras_vit.data.inputs import Arrays, count_batches, open_training_data

IMAGES = np.full((4, 8, 8, 3), 200, "uint8")
LABELS = np.array([0, 1, 2, 1])
SHAPE = (8, 8, 3)


def write_classes(root, names=("cat", "dog")):
    for name in names:
        (root / name).mkdir(parents=True)
        for index in range(5):
            Image.fromarray(IMAGES[0]).save(root / name / f"{index}.png")
    return root


def test_a_path_is_indexed(tmp_path):
    data = open_training_data(str(write_classes(tmp_path)), validation_fraction=0.2)
    assert data.class_names == ("cat", "dog")
    assert data.num_classes == 2
    assert (len(data.train), len(data.validation)) == (8, 2)
    assert "8 pictures to train" in data.summary


def test_two_paths(tmp_path):
    data = open_training_data(write_classes(tmp_path / "a"), write_classes(tmp_path / "b"))
    assert (len(data.train), len(data.validation)) == (10, 10)


def test_other_validation_leaves_the_whole_folder_to_train(tmp_path):
    data = open_training_data(write_classes(tmp_path), (IMAGES, LABELS))
    assert len(data.train) == 10
    assert isinstance(data.validation, Arrays)


def test_a_folder_without_validation_has_none():
    split = Split(("a", "b"), (0, 1))
    folder = ImageFolder(("cat", "dog"), split, Split(), (), "none asked for")
    assert open_training_data(folder).validation is None


def test_arrays_of_the_usual_forms():
    data = open_training_data((IMAGES, LABELS[:, None]))  # as keras.datasets gives labels
    assert data.train.labels.tolist() == [0, 1, 2, 1]
    assert data.train.labels.dtype == "int32"
    assert data.num_classes == 3
    assert data.class_names is None
    grey = open_training_data((IMAGES[..., 0], LABELS))
    assert grey.train.images.shape == (4, 8, 8, 1)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (42, "of type int"),
        (IMAGES, "of type ndarray"),
        ((IMAGES, LABELS[:3]), r"\(4, 8, 8, 3\) and \(3,\)"),
        ((IMAGES, np.eye(4)), "argmax"),
        ((IMAGES[0, 0], LABELS), "must hold images"),
        ((IMAGES[:0], LABELS[:0]), "must hold images"),
        ((IMAGES, LABELS.astype("float32")), "dtype float32"),
        (([IMAGES[0], IMAGES[0, :4]], LABELS[:2]), "one size"),
    ],
)
def test_what_is_no_training_data(train, message):
    with pytest.raises(ValueError, match=message):
        open_training_data(train)


def test_a_validation_folder_needs_a_training_folder(tmp_path):
    with pytest.raises(ValueError, match="may be a folder where `train` is one"):
        open_training_data((IMAGES, LABELS), str(tmp_path))


def test_batches_are_counted():
    dataset = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(3)
    assert count_batches(dataset) == 2
    assert count_batches(dataset.filter(lambda *_: True)) == 2
    assert count_batches(dataset.repeat()) is None


def test_fingerprint_follows_the_examples(tmp_path):
    fingerprint = open_training_data(write_classes(tmp_path / "a")).fingerprint()
    assert open_training_data(write_classes(tmp_path / "b")).fingerprint() == fingerprint
    assert open_training_data(tmp_path / "a", seed=1).fingerprint() != fingerprint
    assert fingerprint["validation"]["pictures"] == 2
    arrays = open_training_data((IMAGES, LABELS)).fingerprint()
    assert open_training_data((IMAGES, LABELS[::-1])).fingerprint() != arrays


def test_masks_are_no_pictures():
    images = np.zeros((4, 8, 8, 3), bool)
    with pytest.raises(ValueError, match="images of dtype bool. Cast them to uint8"):
        open_training_data((images, np.arange(4)))
