import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.class_weights import as_class_weights
from keras_vit.data.index import ImageIndex, Split
from keras_vit.data.inputs import Arrays, TrainingData

# One cat, three dogs, no emu.
LABELS = np.array([1, 0, 1, 1], "int32")
DATA = TrainingData(Arrays(np.zeros((4, 2, 2, 3), "uint8"), LABELS), None)


def named() -> TrainingData:
    split = Split(("a", "b", "c", "d"), LABELS)
    index = ImageIndex(("cat", "dog", "emu"), split, Split(), (), "none")
    return TrainingData(split, None, index)


def test_balanced_classes_count_the_same():
    weights = as_class_weights("balanced", DATA, 2)
    assert weights == pytest.approx([2.0, 2 / 3])
    assert weights @ np.bincount(LABELS) == pytest.approx(4.0)
    assert as_class_weights("balanced", named(), 3)[:2] == pytest.approx([4 / 3, 4 / 9])


def test_by_index_name_and_order():
    assert as_class_weights(None, DATA, 3) is None
    assert as_class_weights({1: 2, np.int64(2): 0}, DATA, 3) == [1.0, 2.0, 0.0]
    assert as_class_weights({"emu": 0.5, 0: 3}, named(), 3) == [3.0, 1.0, 0.5]
    assert as_class_weights(np.array([1, 2, 3.5], "float32"), DATA, 3) == [1.0, 2.0, 3.5]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("balance", "Did you mean: balanced"),
        ({"cta": 1.0}, "Unknown class in `class_weights`.*Did you mean: cat"),
        ({3: 1.0}, "Unknown class in `class_weights`. Received: 3"),
        ({0.0: 1.0}, "Unknown class in `class_weights`. Received: 0.0"),
        ([1.0, 2.0], r"one a class.*Received: class_weights=\[1.0, 2.0\] for 3 classes"),
        ([1.0, 2.0, -1.0], "at least 0"),
        ([1.0, 2.0, float("nan")], "finite"),
        ([0.0, 0.0, 0.0], "not all 0"),
        (["1", "2", "3"], "finite numbers"),
        (2.0, "class_weights=2.0"),
    ],
)
def test_what_are_no_weights(value, message):
    with pytest.raises(ValueError, match=message):
        as_class_weights(value, named(), 3)


def test_batches_cannot_be_counted():
    batches = tf.data.Dataset.from_tensors((np.zeros((4, 2, 2, 3), "uint8"), LABELS))
    with pytest.raises(ValueError, match="a tf.data.Dataset. Give the weights"):
        as_class_weights("balanced", TrainingData(batches, None), 2)
    assert as_class_weights([1, 2], TrainingData(batches, None), 2) == [1.0, 2.0]


def test_numbers_are_no_names_of_classes_called_by_numbers():
    split = Split(("a", "b", "c", "d"), LABELS)
    data = TrainingData(split, None, ImageIndex(("1", "3", "7"), split, Split(), (), "none"))
    assert as_class_weights({"3": 5}, data, 3) == [1.0, 5.0, 1.0]
    with pytest.raises(ValueError, match="by their names.*Received: 3. Write '3'"):
        as_class_weights({3: 5}, data, 3)


def test_each_class_is_named_once():
    with pytest.raises(ValueError, match="name each class once"):
        as_class_weights({0: 2, "cat": 9}, named(), 3)
    with pytest.raises(ValueError, match="Unknown class in `class_weights`. Received: True"):
        as_class_weights({True: 2}, named(), 3)
