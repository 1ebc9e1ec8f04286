"""FAULTS D1: statistics, crop and labels of timm's `pretrained_cfg`."""

import dataclasses

import pytest

from keras_vit.config import PreprocessingConfig
from keras_vit.zoo.timm_pretrained_cfg import read_labels, read_preprocessing, read_pretrained_cfg

DEFAULT = PreprocessingConfig(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    interpolation="bicubic",
    antialias=True,
    resize="crop",
    crop_fraction=0.875,
)


def preprocessing(num_channels=3, **values):
    return read_preprocessing(read_pretrained_cfg({"pretrained_cfg": values}), num_channels)


def test_nothing_said_is_what_timm_takes():
    assert preprocessing() == DEFAULT
    assert preprocessing(mean=None, crop_pct=None, crop_mode=None) == DEFAULT
    assert read_pretrained_cfg({})["input_size"] == (3, 224, 224)


def test_bare_file():
    values = read_pretrained_cfg(None)
    assert read_preprocessing(values, 3) == PreprocessingConfig(
        interpolation="bicubic", antialias=True, resize="crop", crop_fraction=0.9
    )
    assert read_labels(values, 3) is None
    assert not values["input_size"]


def test_what_is_said():
    said = preprocessing(mean=[0.1, 0.2, 0.3], std=[0.5, 0.5, 0.5], interpolation="bilinear")
    assert said == dataclasses.replace(
        DEFAULT, mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5), interpolation="bilinear"
    )
    squash = preprocessing(crop_mode="squash", crop_pct=0.95)
    assert squash == dataclasses.replace(DEFAULT, resize="squash", crop_fraction=0.95)
    grey = preprocessing(num_channels=1, mean=[0.1, 0.2, 0.3])
    assert grey.mean == pytest.approx((0.2,))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"crop_mode": "border"}, "`crop_mode`.*'border'"),
        ({"interpolation": "lanczos"}, "`interpolation`.*'lanczos'"),
    ],
)
def test_what_we_lack(values, message):
    with pytest.raises(ValueError, match=message):
        preprocessing(**values)


def test_flat_and_top_level():
    flat = read_pretrained_cfg({"crop_pct": 0.5, "num_classes": 2, "labels": ["a", "b"]})
    assert (flat["crop_pct"], flat["num_classes"], read_labels(flat, 2)) == (0.5, 2, ("a", "b"))
    config_json = {"num_classes": 2, "pretrained_cfg": {"num_classes": 1000, "crop_pct": 0.5}}
    assert read_pretrained_cfg(config_json)["num_classes"] == 2
    headless = read_pretrained_cfg(config_json | {"architectures": ["TimmWrapperModel"]})
    assert headless["num_classes"] == 0


@pytest.mark.parametrize(
    ("names", "descriptions", "labels"),
    [
        (None, None, None),
        (list("abc"), None, ("a", "b", "c")),
        ({"0": "a", "2": "c", "1": "b"}, None, ("a", "b", "c")),
        ({"0": "a", "2": "c"}, None, ("a", "1", "c")),  # timm allows gaps
        (["n1", "n2", "n3"], {"n1": "tench", "n3": "shark"}, ("tench", "n2", "shark")),
        (["LABEL_0", "LABEL_1", "LABEL_2"], None, None),  # of transformers' wrapper
    ],
)
@pytest.mark.parametrize("is_inside", [False, True])
def test_labels(names, descriptions, labels, is_inside):
    said = {"label_names": names, "label_descriptions": descriptions}
    config_json = {"pretrained_cfg": said if is_inside else {}} | ({} if is_inside else said)
    values = read_pretrained_cfg(config_json)
    assert read_labels(values, 3) == labels
    assert read_labels(values, 0) is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "2 labels, num_classes=3"),
        ({"0": "a", "3": "d"}, "classes 0 to 2.*Received: 3"),
        ({"first": "a"}, "classes 0 to 2.*Received: first"),
    ],
)
def test_labels_that_do_not_fit(names, message):
    with pytest.raises(ValueError, match=message):
        read_labels(read_pretrained_cfg({"label_names": names}), 3)
