import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit.data.arrays import Arrays
from keras_vit.data.index import ImageIndex, Split
from keras_vit.data.inputs import SOURCES, count_batches, open_training_data

IMAGES = np.full((4, 8, 8, 3), 200, "uint8")
LABELS = np.array([0, 1, 2, 1])
SEVERAL = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]], "float32")


def write_classes(root, names=("cat", "dog")):
    for name in names:
        (root / name).mkdir(parents=True)
        for index in range(5):
            Image.fromarray(IMAGES[0]).save(root / name / f"{index}.png")
    return root


def write_table(root, label="{}"):
    """A table of the pictures of two classes."""
    write_classes(root)
    rows = [f"{name}/{i}.png,{label.format(name)}" for name in ("cat", "dog") for i in range(5)]
    (root / "t.csv").write_text("\n".join(["path,label", *rows]))
    return root / "t.csv"


def batches(labels, images=IMAGES):
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)


def test_a_path_is_indexed(tmp_path):
    data = open_training_data(str(write_classes(tmp_path)), validation_fraction=0.2)
    assert data.class_names == ("cat", "dog")
    assert data.num_classes == 2
    assert not data.is_multi_label
    assert (len(data.train), len(data.validation)) == (8, 2)
    assert "8 pictures to train" in data.summary


def test_every_source_has_a_row(tmp_path, write_tfds, pets):
    """The first that recognises a text reads it; all give the same form."""
    assert list(SOURCES) == ["tfds", "table", "folder"]
    table = write_table(tmp_path / "pictures")
    texts = {
        "tfds": f"tfds:{write_tfds({'train': [pets(range(10))]})}",
        "table": table,
        "folder": table.parent,
    }
    for kind, text in texts.items():
        recognising = [name for name in SOURCES if SOURCES[name].recognises(str(text))]
        assert recognising[0] == kind
        data = open_training_data(text, seed=3)
        assert data.class_names == ("cat", "dog")
        assert (len(data.train), len(data.validation)) == (8, 2)
        assert data.class_counts().tolist() == [4, 4]
        assert data.unreadable == ()


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "a.png").touch()
    message = "one of: `tfds:NAME`, a .csv, .tsv or .parquet table, a folder of one subfolder"
    with pytest.raises(NotADirectoryError, match=message):
        open_training_data(tmp_path / "a.png")
    with pytest.raises(FileNotFoundError, match="`directory` must be an existing folder"):
        open_training_data("no such folder")


def test_two_paths(tmp_path):
    data = open_training_data(write_classes(tmp_path / "a"), write_classes(tmp_path / "b"))
    assert (len(data.train), len(data.validation)) == (10, 10)


def test_other_validation_leaves_the_whole_folder_to_train(tmp_path):
    data = open_training_data(write_classes(tmp_path), (IMAGES, LABELS))
    assert len(data.train) == 10
    assert isinstance(data.validation, Arrays)


def test_an_index_without_validation_has_none():
    split = Split(("a", "b"), (0, 1))
    index = ImageIndex(("cat", "dog"), split, Split(), (("x", "is empty"),), "none asked for")
    data = open_training_data(index)
    assert data.validation is None
    assert data.unreadable == (("x", "is empty"),)
    assert open_training_data(data) is data


def test_opened_data_takes_no_more_arguments():
    data = open_training_data((IMAGES, LABELS))
    for arguments in (dict(validation=(IMAGES, LABELS)), dict(multi_label=True)):
        with pytest.raises(ValueError, match="opened already"):
            open_training_data(data, **arguments)


def test_arrays():
    data = open_training_data((IMAGES, LABELS[:, None]))
    assert data.train.labels.tolist() == [0, 1, 2, 1]
    assert data.num_classes == 3
    assert data.class_names is None
    assert data.class_counts().tolist() == [1, 2, 1]
    assert data.class_counts(5).tolist() == [1, 2, 1, 0, 0]


@pytest.mark.parametrize(
    "train", [(IMAGES, SEVERAL), (IMAGES, SEVERAL.astype(bool)), batches(SEVERAL)]
)
def test_rows_that_are_not_one_hot_are_multi_label(train):
    data = open_training_data(train, (IMAGES, np.eye(4, 3, dtype="float32")))
    assert data.is_multi_label
    assert data.num_classes == 3
    assert "Any number of classes a picture" in data.summary
    assert data.validation.labels.shape == (4, 3)


def test_multi_label_on_demand(tmp_path):
    assert open_training_data((IMAGES, np.eye(4)), multi_label=True).is_multi_label
    assert not open_training_data(batches(np.eye(4))).is_multi_label  # check_examples refuses it
    assert open_training_data(batches(np.eye(4)), multi_label=True).num_classes == 4
    data = open_training_data(write_classes(tmp_path), multi_label=True)
    assert data.is_multi_label
    assert data.train.labels.shape == (8, 2)
    assert data.validation.labels.sum(axis=0).tolist() == [1, 1]


def test_multi_label_of_a_table(tmp_path):
    data = open_training_data(write_table(tmp_path, "{}|pet"))
    assert data.is_multi_label
    assert data.class_names == ("cat", "dog", "pet")
    assert data.class_counts().tolist() == [4, 4, 8]


def test_labels_to_validate_on_are_like_those_to_train_on():
    with pytest.raises(ValueError, match="several classes a picture to validate on, one to train"):
        open_training_data((IMAGES, LABELS), (IMAGES, SEVERAL))
    with pytest.raises(ValueError, match="`validation` must hold images.*multi_label=True"):
        open_training_data((IMAGES, SEVERAL), (IMAGES, LABELS))


def test_a_dataset_of_anything_is_left_to_the_checks():
    dataset = tf.data.Dataset.from_tensors((IMAGES, {"label": LABELS}))
    data = open_training_data(dataset, multi_label=True)
    assert data.num_classes is None
    assert not open_training_data(dataset).is_multi_label


def test_pictures_of_a_dataset_are_not_counted():
    with pytest.raises(ValueError, match="Received: a tf.data.Dataset"):
        open_training_data(batches(LABELS)).class_counts()


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (42, "a folder of one subfolder a class, a pair .* of type int"),
        (IMAGES, "of type ndarray"),
        ((IMAGES, np.eye(4)), "argmax"),
    ],
)
def test_what_is_no_training_data(train, message):
    with pytest.raises(ValueError, match=message):
        open_training_data(train)


def test_a_path_to_validate_on_needs_one_to_train_on(tmp_path):
    with pytest.raises(ValueError, match="may be a path where `train` is one"):
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
    rows = open_training_data(tmp_path / "a", multi_label=True).fingerprint()
    assert rows != fingerprint
    arrays = open_training_data((IMAGES, LABELS)).fingerprint()
    assert open_training_data((IMAGES.copy(), list(LABELS))).fingerprint() == arrays
    assert open_training_data((IMAGES, LABELS[::-1])).fingerprint() != arrays
    assert open_training_data((IMAGES - 1, LABELS)).fingerprint() != arrays
    assert arrays["train"]["shape"] == [4, 8, 8, 3]


@pytest.mark.parametrize(("number", "read"), [(1, 1), (16, 16), (17, 9), (100, 15)])
def test_fingerprint_of_arrays_reads_few_pictures(number, read):
    images, labels = np.zeros((number, 1, 1, 1), "uint8"), np.arange(number)
    first = open_training_data((images, labels)).fingerprint()
    changed = 0
    for index in range(number):
        images[index] = 1
        changed += open_training_data((images, labels)).fingerprint() != first
        images[index] = 0
    assert changed == read


@pytest.mark.parametrize("kind", ["table", "tfds"])
def test_fingerprint_stays_where_the_set_moves(tmp_path, kind, write_tfds, pets):
    if kind == "table":
        first = write_table(tmp_path / "first").parent
        second, text = tmp_path / "second", "{}/t.csv"
    else:
        first = write_tfds({"train": [pets(range(10))]})
        second, text = tmp_path / "second", "tfds:{}"
    fingerprint = open_training_data(text.format(first)).fingerprint()
    shutil.move(first, second)
    assert open_training_data(text.format(second)).fingerprint() == fingerprint
    assert open_training_data(text.format(second), seed=1).fingerprint() != fingerprint
    assert str(tmp_path) not in str(fingerprint)


@pytest.mark.parametrize("kind", ["table", "tfds"])
def test_a_run_of_two_steps(tmp_path, tiny_config, kind, write_tfds, pets):
    if kind == "tfds":
        train = f"tfds:{write_tfds({'train': [pets(range(10))]})}"
    else:
        train = write_table(tmp_path, "{}|pet")
    class_names = ("cat", "dog", "pet")[: 2 if kind == "tfds" else 3]
    model = keras_vit.ViT(dataclasses.replace(tiny_config, num_classes=len(class_names)))
    run = keras_vit.finetune(
        model, train, steps=2, batch_size=2, directory=tmp_path / "run", verbose=0
    )
    assert run.model.labels == class_names
    assert np.isfinite(run.metrics["val_loss"])
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["data"]["train"]["pictures"] == 8
