import numpy as np
import pytest

from keras_vit.data.arrays import are_several, as_arrays

IMAGES = np.full((4, 8, 8, 3), 200, "uint8")
LABELS = np.array([0, 1, 2, 1])
SEVERAL = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]])


def test_the_usual_forms():
    arrays = as_arrays(IMAGES, LABELS[:, None], "train")  # as keras.datasets gives labels
    assert len(arrays) == 4
    assert arrays.labels.tolist() == [0, 1, 2, 1]
    assert arrays.labels.dtype == "int32"
    assert as_arrays(IMAGES[..., 0], LABELS, "train").images.shape == (4, 8, 8, 1)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_several_classes_a_picture(dtype):
    arrays = as_arrays(IMAGES, SEVERAL.astype(dtype), "train")
    assert arrays.labels.dtype == "float32"
    np.testing.assert_array_equal(arrays.labels, SEVERAL)


def test_one_hot_rows_only_on_demand():
    assert are_several(SEVERAL)
    assert not are_several(np.eye(4))
    with pytest.raises(ValueError, match="argmax"):
        as_arrays(IMAGES, np.eye(4), "train")
    arrays = as_arrays(IMAGES, np.eye(4), "train", multi_label=True)
    np.testing.assert_array_equal(arrays.labels, np.eye(4))
    assert as_arrays(IMAGES, np.ones((4, 1)), "train", multi_label=True).labels.shape == (4, 1)


@pytest.mark.parametrize("labels", [LABELS, np.zeros((4, 2, 2)), SEVERAL[:3]])
def test_multi_label_needs_rows(labels):
    with pytest.raises(ValueError, match=r"\(pictures, classes\) where a picture may show several"):
        as_arrays(IMAGES, labels, "train", multi_label=True)


@pytest.mark.parametrize("labels", [SEVERAL * 2, SEVERAL - 0.5, np.full((4, 3), np.nan)])
def test_rows_hold_0_and_1(labels):
    with pytest.raises(ValueError, match="labels of 0 and 1, one column a class"):
        as_arrays(IMAGES, labels, "train", multi_label=True)


def test_advice_fits_the_labels():
    for labels in (LABELS[:3], LABELS[:3, None]):
        with pytest.raises(ValueError) as raised:
            as_arrays(IMAGES, labels, "train")
        assert "argmax" not in str(raised.value)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, LABELS[:3], r"\(4, 8, 8, 3\) and \(3,\)"),
        (IMAGES[0, 0], LABELS, "must hold images"),
        (IMAGES[:0], LABELS[:0], "must hold images"),
        (IMAGES, 3, "must hold images"),
        (IMAGES, LABELS.astype("float32"), r"dtype float32. Cast .*astype\('int32'\)"),
        (IMAGES, LABELS + [0, 0.5, 0, 0], "label 1.5, dtype float64"),
        (IMAGES, LABELS + [0, 0, np.nan, np.inf], "label nan"),
        (IMAGES, LABELS - 1, "label -1, dtype int64"),
        (IMAGES, LABELS + [0, 2**31, 0, 0], "label 2147483649"),
        (IMAGES, LABELS.astype("uint64") + np.uint64(2**63), "label 9223372036854775808"),
        (IMAGES, LABELS == 1, "label False, dtype bool"),
        (IMAGES, ["cat"] * 4, "label cat"),
        (IMAGES, [["cat", "dog"]] * 4, "must hold images"),
        ([IMAGES[0], IMAGES[0, :4]], LABELS[:2], "one size"),
        (np.zeros((4, 8, 8, 3), bool), LABELS, "images of dtype bool. Cast them to uint8"),
    ],
)
def test_what_is_no_training_data(images, labels, message):
    with pytest.raises(ValueError, match=message):
        as_arrays(images, labels, "train")
