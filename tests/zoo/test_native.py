import dataclasses
import json

import numpy as np
import pytest

from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.zoo import native, read_checkpoint
from keras_vit.zoo.checkpoint import ORIGIN_KEY
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

TINY = ViTConfig(
    num_layers=2,
    num_heads=2,
    hidden_dim=8,
    mlp_dim=12,
    patch_size=4,
    image_size=16,
    num_classes=3,
    representation_size=6,
    drop_path_rate=0.1,
)
PREPROCESSING = PreprocessingConfig(mean=(0.1, 0.2, 0.3), resize="crop", crop_fraction=0.9)


def write(config, directory, labels=None, **more):
    random = np.random.default_rng(0)
    weights = {
        path: random.normal(size=shape).astype(np.float32)
        for path, shape in variable_shapes(config).items()
    }
    contents = Contents(
        config=config,
        preprocessing=PREPROCESSING,
        labels=labels,
        read_ours=weights.__getitem__,
        position_resize="bilinear",
        **more,
    )
    native.write(contents, directory)
    return weights


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": False, "num_channels": 1},
        {"pool": "mean", "class_token": False},
        {"image_size": (8, 24), "patch_size": (4, 8), "num_classes": 0},
    ],
)
def test_write_and_read_back(tmp_path, changes):
    config = dataclasses.replace(TINY, **changes)
    labels = ("a", "b", "ü") if config.num_classes else None
    weights = write(config, tmp_path, labels)
    understood = read_checkpoint(tmp_path)
    understood.check()
    assert (understood.config, understood.labels) == (config, labels)
    assert understood.preprocessing == PREPROCESSING
    assert understood.position_resize == "bilinear"
    for path, array in weights.items():
        np.testing.assert_array_equal(understood.weight(path), array)


def test_other_versions_and_damage(tmp_path):
    write(TINY, tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"format_version": 2}))
    with pytest.raises(ValueError, match="`format_version`.*must be 1.*format_version=2.*Update"):
        read_checkpoint(tmp_path)
    path.write_text(json.dumps(values | {"config": values["config"] | {"wings": 2}}))
    with pytest.raises(ValueError, match="one too many.*wings"):
        read_checkpoint(tmp_path)
    del values["labels"]
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="lacks a field.*labels"):
        read_checkpoint(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="config.json is missing"):
        read_checkpoint(tmp_path)


def test_origin_is_kept(tmp_path):
    write(TINY, tmp_path)
    assert read_checkpoint(tmp_path).origin == {}
    origin = {"source": "hf://google/x", "licence": "Apache-2.0"}
    write(TINY, tmp_path, origin=origin)
    assert read_checkpoint(tmp_path).origin == origin
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    for wrong in ([], {"source": 3}):
        path.write_text(json.dumps(values | {ORIGIN_KEY: wrong}))
        with pytest.raises(ValueError, match="keras_vit_origin must hold texts"):
            read_checkpoint(tmp_path)


def test_wrong_number_of_labels(tmp_path):
    with pytest.raises(ValueError, match="`labels` must"):
        write(TINY, tmp_path, ("a",))
