import dataclasses

import numpy as np
import pytest

from keras_vit import VARIANTS, PreprocessingConfig, ViTConfig
from keras_vit.config import as_labels, unknown_name

BASE = VARIANTS["B/16"]


def test_sizes_become_pairs_and_the_grid_keeps_its_aspect():
    """FAULTS A2: nothing infers a square."""
    config = dataclasses.replace(BASE, image_size=(224, 448), patch_size=(16, 32))
    assert config.grid == (14, 14)
    assert dataclasses.replace(BASE, image_size=(32, 64)).grid == (2, 4)
    assert BASE.image_size == (224, 224) and BASE.num_tokens == 197
    assert dataclasses.replace(BASE, class_token=False, pool="mean").num_tokens == 196


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_size": 225}, r"image_size=\(225, 225\), patch_size=\(16, 16\).*try 224 or 240"),
        ({"image_size": (224, 8)}, "For the width try 16"),
        ({"image_size": (1, 2, 3)}, "`image_size` must be a positive integer or two"),
        ({"patch_size": 0}, "`patch_size` must be a positive integer.*patch_size=0"),
        ({"patch_size": 16.5}, "`patch_size`.*16.5"),
        ({"num_heads": 7}, "hidden_dim=768, num_heads=7"),
        ({"num_layers": 0}, "`num_layers` must be a positive integer. Received: 0"),
        ({"num_classes": -1}, "`num_classes` must be 0"),
        ({"num_classes": 2.0}, "`num_classes` must be 0"),
        ({"representation_size": 0}, "`representation_size` must be None"),
        ({"activation": "geul"}, "'geul'. Did you mean: gelu"),
        ({"pool": "max"}, "Unknown `pool`"),
        ({"position_embedding": "rope"}, "Unknown `position_embedding`"),
        ({"dropout_rate": 1.0}, "`dropout_rate` must be at least 0 and below 1"),
        ({"layer_norm_epsilon": 0.0}, "`layer_norm_epsilon` must be above 0"),
        ({"class_token": False}, "`class_token=False`. Use `pool='mean'`"),
    ],
)
def test_errors_name_argument_value_and_remedy(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BASE, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mean": (0.5,)}, "one finite number a channel"),
        ({"std": (0.5, 0.0, 0.5)}, "above 0"),
        ({"interpolation": "lanczos"}, "Unknown `interpolation`"),
        ({"resize": "pad"}, "Unknown `resize`"),
        ({"crop_fraction": 1.5}, "`crop_fraction` must be above 0 and at most 1"),
    ],
)
def test_preprocessing_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        PreprocessingConfig(**fields)


def test_dicts_rebuild_the_values():
    assert ViTConfig(**BASE.to_dict()) == BASE
    preprocessing = PreprocessingConfig(resize="crop", crop_fraction=0.875, antialias=True)
    assert PreprocessingConfig(**preprocessing.to_dict()) == preprocessing


def test_whole_numbers_of_numpy_are_taken():
    config = dataclasses.replace(BASE, num_classes=np.int64(3), num_layers=np.int32(2))
    assert (config.num_classes, config.num_layers) == (3, 2)
    assert type(config.num_classes) is int


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"drop_path_rate": "x"}, "`drop_path_rate` must be at least 0.*'x'"),
        ({"layer_norm_epsilon": "1e-6"}, "`layer_norm_epsilon` must be above 0.*'1e-6'"),
        ({"layer_norm_epsilon": True}, "`layer_norm_epsilon` must be above 0"),
        ({"qkv_bias": "x"}, "`qkv_bias` must be True or False"),
        ({"num_classes": True}, "`num_classes` must be 0"),
    ],
)
def test_wrong_types(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BASE, **fields)


def test_statistics_are_finite():
    with pytest.raises(ValueError, match="one finite number a channel"):
        PreprocessingConfig(mean=(float("nan"),) * 3)


def test_unknown_names_say_how_many_there_are():
    error = str(unknown_name("thing", "zzz", [f"name{i}" for i in range(30)] * 2))
    assert error.endswith("... (30 in all).")


def test_labels_are_one_a_class():
    assert as_labels(None, 3) is None
    assert as_labels(["a", 1], 2) == ("a", "1")
    with pytest.raises(ValueError, match="2 labels, num_classes=3"):
        as_labels(("a", "b"), 3)
