"""Google's layout, written and read by the same table."""

import dataclasses
import logging
import tracemalloc
import zipfile

import numpy as np
import pytest

from keras_vit.config import MixerConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo import npz_writing, read_checkpoint
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

TINY = ViTConfig(
    num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12, patch_size=4, image_size=16, num_classes=3
)
SOURCES = ("vit_token", "vit_pre_logits", "vit_gap_linen_names")
HYBRID = {"stem_layers": (2, 1), "stem_width": 32, "patch_size": 1}


def write(config, directory, preprocessing=None, labels=None, multi_label=False):
    random = np.random.default_rng(0)
    values = {
        path: random.normal(size=shape).astype("float32")
        for path, shape in variable_shapes(config).items()
    }
    preprocessing = preprocessing or PreprocessingConfig().for_channels(config.num_channels)
    contents = Contents(
        config=config,
        preprocessing=preprocessing,
        labels=labels,
        read_ours=values.get,
        multi_label=multi_label,
    )
    npz_writing.write(contents, directory)
    return values


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"num_classes": 0},
        {"representation_size": 6},
        {"num_classes": 0, "representation_size": 6},
        {"class_token": False, "pool": "mean"},
        {"num_channels": 1, "image_size": (16, 32), "patch_size": (4, 8)},
        HYBRID,
        {"stem_layers": (), "stem_width": 32, "patch_size": 2},
    ],
    ids=str,
)
def test_what_is_written_is_read_back_bit_for_bit(fields, tmp_path):
    config = dataclasses.replace(TINY, **fields)
    assert npz_writing.can_express(config)
    values = write(config, tmp_path)
    again = read_checkpoint(tmp_path / "model.npz")
    again.check()
    assert (again.config, again.family) == (config, "official_npz")
    assert again.preprocessing == PreprocessingConfig().for_channels(config.num_channels)
    for path, value in values.items():
        np.testing.assert_array_equal(again.weight(path), value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.parametrize("other", ["config.json", "model.safetensors", "model.weights.h5"])
def test_a_folder_of_another_model_is_refused(tmp_path, other):
    """`from_pretrained` of the folder would load that one."""
    (tmp_path / other).write_text("{}")
    with pytest.raises(FileExistsError, match=f"no model of another layout.*holds {other}"):
        write(TINY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [other]


def test_labels_of_the_model_before_do_not_stay(tmp_path):
    write(TINY, tmp_path, labels=("a", "b", "c"))
    assert (tmp_path / "labels.txt").exists()
    write(TINY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]
    (tmp_path / "labels.txt").mkdir()
    with pytest.raises(IsADirectoryError, match="no folder named 'labels.txt'"):
        write(TINY, tmp_path)


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_of_the_official_code_comes_back_under_its_first_names(golden, tmp_path, name):
    source = read_checkpoint(golden / f"{name}.npz")
    config = source.config
    contents = Contents(config=config, preprocessing=source.preprocessing, read_ours=source.weight)
    npz_writing.write(contents, tmp_path)
    written = np.load(tmp_path / "model.npz")
    first_names = {
        key.replace("/LayerNorm_1/", "/LayerNorm_2/")
        .replace("/MultiHeadDotProductAttention_0/", "/MultiHeadDotProductAttention_1/")
        .replace("/MlpBlock_0/", "/MlpBlock_3/")
        if name == "vit_gap_linen_names"
        else key: array
        for key, array in np.load(golden / f"{name}.npz").items()
    }
    assert set(written.files) == first_names.keys()
    for key, array in first_names.items():
        np.testing.assert_array_equal(written[key], array)


def test_the_same_model_gives_the_same_bytes(tmp_path):
    write(TINY, tmp_path / "a")
    write(TINY, tmp_path / "b")
    first, second = ((tmp_path / name / "model.npz").read_bytes() for name in "ab")
    assert first == second
    with zipfile.ZipFile(tmp_path / "a/model.npz") as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_one_variable_is_in_memory_at_a_time(tmp_path):
    config = dataclasses.replace(TINY, num_layers=12, hidden_dim=128, mlp_dim=512)
    shapes = variable_shapes(config)
    largest = max(4 * int(np.prod(shape)) for shape in shapes.values())
    whole = sum(4 * int(np.prod(shape)) for shape in shapes.values())
    read = lambda path: np.ones(shapes[path], "float32")  # noqa: E731
    contents = Contents(config=config, preprocessing=PreprocessingConfig(), read_ours=read)
    npz_writing.write(contents, tmp_path)  # imports are done
    tracemalloc.start()
    npz_writing.write(contents, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * largest < whole / 4


def test_labels_lie_beside_and_it_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "keras_vit"):
        write(TINY, tmp_path, labels=("cat", "Hünd", "a b"), multi_label=True)
    assert (tmp_path / "labels.txt").read_text(encoding="utf-8") == "cat\nHünd\na b\n"
    assert "labels.txt" in caplog.text and "`model.multi_label = True`" in caplog.text
    caplog.clear()
    write(TINY, tmp_path / "silent")
    assert not caplog.text


@pytest.mark.parametrize("label", ["two\nlines", " edge", "", "a\u2028b"])
def test_labels_that_are_no_lines_are_refused(label, tmp_path):
    with pytest.raises(ValueError, match="`labels` must be one line each"):
        write(TINY, tmp_path, labels=("cat", "dog", label))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "fields",
    [
        {"activation": "gelu"},
        {"layer_norm_epsilon": 1e-12},
        {"pool": "mean"},
        {"pool": "map", "class_token": False},
        {"position_embedding": "sincos_2d"},
        {"image_size": (16, 32)},
        {"qkv_bias": False},
        {"layer_scale_init": 0.1},
        {"num_register_tokens": 1},
        {"distillation_token": True},
        {"num_prefix_positions": 0},
        {"representation_size": 6, "representation": "linear"},
        {"gated_mlp": True},
        {"final_norm": "pool"},
        HYBRID | {"stem_numerics": "timm"},
    ],
    ids=str,
)
def test_what_the_official_code_is_not(fields, tmp_path):
    config = dataclasses.replace(TINY, **fields)
    assert not npz_writing.can_express(config)
    with pytest.raises(ValueError, match="`config` must be a ViT of the official code"):
        write(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_mixer_is_not_written():
    mixer = MixerConfig(
        num_layers=1, hidden_dim=8, tokens_mlp_dim=4, channels_mlp_dim=8, patch_size=4
    )
    assert not npz_writing.can_express(mixer)


def test_other_preprocessing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`preprocessing` must be the official one"):
        write(TINY, tmp_path, PreprocessingConfig(antialias=True))
    assert not list(tmp_path.iterdir())
