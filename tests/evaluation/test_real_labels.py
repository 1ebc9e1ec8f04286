import json

import numpy as np
import pytest

from keras_vit.evaluation.real_labels import read_real_labels, real_accuracy, real_labels_of


def test_any_of_the_labels_is_right_and_pictures_without_are_left_out():
    """By hand: right, wrong, left out, right by the second of two."""
    real = [[3], [1, 2], [], [0, 5]]
    best = np.array([3, 0, 7, 5])
    assert real_accuracy(best, real) == pytest.approx(2 / 3)
    assert real_accuracy(np.stack([best, [0, 1, 2, 0]], axis=1), real) == pytest.approx(2 / 3)


def test_predictions_that_do_not_fit():
    with pytest.raises(ValueError, match="3 predictions and 2 lists.*`real_labels_of` picks"):
        real_accuracy(np.zeros(3, int), [[1], [2]])
    with pytest.raises(ValueError, match="must name a class of some picture. Received: 2 lists"):
        real_accuracy(np.zeros(2, int), [[], []])


def test_labels_are_found_by_the_number_in_the_name():
    real = [[0], [1], [2, 3]]
    files = ["/in/n01/ILSVRC2012_val_00000003.JPEG", "ILSVRC2012_val_00000001.png"]
    assert real_labels_of(files, real, 4) == [[2, 3], [0]]


@pytest.mark.parametrize(
    ("file", "num_classes", "said"),
    [
        ("cat.png", 4, "00000001 to 00000003. Received: 'cat.png'"),
        ("ILSVRC2012_val_00000004.JPEG", 4, "Received: 'ILSVRC2012_val_00000004.JPEG'"),
        ("ILSVRC2012_val_00000000.JPEG", 4, "Received: 'ILSVRC2012_val_00000000.JPEG'"),
        ("ILSVRC2012_val_00000001/cat.png", 4, "Give the validation pictures"),
        ("ILSVRC2012_val_00000001.JPEG", 3, "Received: class 3, for a model with num_classes=3"),
    ],
)
def test_pictures_and_models_without_such_labels(file, num_classes, said):
    with pytest.raises(ValueError, match=said):
        real_labels_of([file], [[0], [1], [2, 3]], num_classes)


def test_a_file(tmp_path):
    path = tmp_path / "real.json"
    path.write_text(json.dumps([[1], [], [2, 0]]))
    assert read_real_labels(path) == [[1], [], [2, 0]]
    for text in ("{}", "[1]", "[[1.5]]", "[[-1]]", "[[true]]", '[["1"]]', "[[1]", "", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match=r"must be a JSON list.*real\.json'. Take"):
            read_real_labels(path)
    with pytest.raises(FileNotFoundError):
        read_real_labels(tmp_path / "nowhere.json")
