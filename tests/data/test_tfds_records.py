import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit.data.tfds_records import class_label, read_split


@pytest.fixture
def builder(write_tfds, pets):
    folder = write_tfds({"train": [pets(range(3)), pets(range(3, 5))]})
    return tfds.builder_from_directory(folder)


def test_each_record_is_read_where_it_lies(builder, pets):
    records, unreadable = read_split(builder, "train", "image", "label")
    assert unreadable == []
    assert len(records) == 5
    assert records.pictures[:, 0].tolist() == [0, 0, 0, 1, 1]
    expected = [example["image"] for example in pets(range(5))]
    for number in (4, 0, 2, 1, 3):
        assert records.read(tf.constant(records.pictures[number])).numpy() == expected[number]
    dataset = tf.data.Dataset.from_tensor_slices(records.pictures[::-1]).map(records.read)
    assert list(dataset.as_numpy_iterator()) == expected[::-1]


def test_a_part_begins_inside_of_a_file(builder, pets):
    records, _ = read_split(builder, "train[1:4]", "image", "label")
    assert records.labels.tolist() == [1, 0, 1]
    picture = tf.constant(records.pictures[0])
    assert records.read(picture).numpy() == pets(range(1, 2))[0]["image"]


def test_a_part_of_the_records(builder):
    records, _ = read_split(builder, "train", "image", "label")
    part = records.where(np.array([False, True, False, False, True]))
    assert part.labels.tolist() == [1, 0]
    assert part.names() == [records.names()[1], records.names()[4]]
    assert part.names()[1].startswith("tiny_set-train.tfrecord-00001-of-00002 at byte ")


def test_a_damaged_file(builder):
    path = pathlib.Path(builder.info.splits["train"].file_instructions[1].filename)
    with path.open("r+b") as file:
        file.seek(30)
        file.write(b"xxxx")
    with pytest.raises(OSError, match="00001-of-00002.*prepare it again"):
        read_split(builder, "train", "image", "label")


def test_a_file_that_lacks_records(builder):
    path = pathlib.Path(builder.info.splits["train"].file_instructions[1].filename)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    path.write_bytes(content[: length + 16])
    with pytest.raises(OSError, match=r"00001-of-00002' \(1 records of 2\)"):
        read_split(builder, "train", "image", "label")
    records, _ = read_split(builder, "train[:4]", "image", "label")
    assert len(records) == 4


def test_labels_by_kind():
    label = tfds.features.ClassLabel(names=["a", "b"])
    assert class_label(label) is label
    assert class_label(tfds.features.Sequence(label)).names == ["a", "b"]
    assert class_label(tfds.features.Scalar(np.int64)) is None
    assert class_label(tfds.features.ClassLabel()) is None
