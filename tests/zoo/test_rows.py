import dataclasses
from pathlib import Path

import pytest

from keras_vit.config import VARIANTS, ViTConfig
from keras_vit.zoo.catalogue import catalogue
from keras_vit.zoo.rows import count_parameters, read_folder

FAMILY = """
[family]
paper = "https://arxiv.org/abs/2010.11929"
url = "https://example.org"
reader = "official_npz"
licence = "Apache-2.0"

[family.preprocessing]
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]
interpolation = "bilinear"
antialias = false
resize = "squash"
"""
MODEL = """
[[model]]
id = "vit_tiny_patch16_224.test"
source = "https://example.org/models/Ti_16.npz"
variant = "Ti/16"
image_size = 224
num_classes = 1000
"""


def read(folder, text):
    (folder / "test.toml").write_text(text)
    return read_folder(folder)


# The official unit test's counts at 224 pixels and 1000 classes (vit_jax/models_test.py).
OFFICIAL_COUNTS = {
    "Ti/16": 5_717_416,
    "S/16": 22_050_664,
    "S/32": 22_878_952,
    "B/8": 86_576_872,
    "B/16": 86_567_656,
    "B/32": 88_224_232,
    "L/16": 304_326_632,
    "L/32": 306_535_400,
    "H/14": 632_045_800,
}


def test_parameter_counts_are_the_official_ones_and_no_variant_is_left_out():
    assert {name: count_parameters(config) for name, config in VARIANTS.items()} == OFFICIAL_COUNTS


@pytest.mark.parametrize(
    ("variant", "count"),
    [("S/16", 22_049_896), ("S/32", 22_878_184), ("B/16", 86_566_120), ("B/32", 88_222_696)],
)
def test_parameter_counts_with_mean_pooling(variant, count):
    config = dataclasses.replace(VARIANTS[variant], class_token=False, pool="mean")
    assert count_parameters(config) == count


def test_parameter_count_of_every_optional_part():
    config = ViTConfig(
        num_layers=1,
        num_heads=1,
        hidden_dim=2,
        mlp_dim=3,
        patch_size=(2, 1),
        image_size=4,
        num_channels=1,
        num_classes=5,
        representation_size=4,
        qkv_bias=False,
    )
    stem, tokens = 2 * 2 + 2, 2 + 9 * 2
    block = 2 * 4 + (2 * 6 + 2 * 2 + 2) + (2 * 3 + 3 + 3 * 2 + 2)
    assert count_parameters(config) == stem + tokens + block + 4 + (2 * 4 + 4) + (4 * 5 + 5)


def test_published_sizes_agree_with_the_parameter_counts():
    checked = [row for row in catalogue().values() if row.size_bytes and row.parameters]
    assert len(checked) >= 19
    for row in checked:
        assert row.size_bytes == pytest.approx(4 * row.parameters, rel=5e-3), row.id


def test_every_row_has_a_reader_and_a_licence():
    readers = Path(count_parameters.__code__.co_filename).parent
    for row in catalogue().values():
        assert (readers / f"{row.reader}.py").is_file(), row.id
        assert row.licence == "Apache-2.0", row.id


def test_reads_a_row(tmp_path):
    row = read(tmp_path, FAMILY + MODEL + 'size_mib = 1.5\ntop1 = 75\nmeasured_by = "us"')[
        "vit_tiny_patch16_224.test"
    ]
    assert (row.family, row.size_bytes, row.top1, row.measured_by) == ("test", 1_572_864, 75, "us")
    assert row.parameters == OFFICIAL_COUNTS["Ti/16"]
    assert row.aliases == ("Ti_16", "models/Ti_16")
    assert row.preprocessing.resize == "squash"
    assert row.loadable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAMILY + MODEL + "colour = 3", r"\[\[model\]\] 1 \(vit_tiny.*field.*'colour'"),
        (FAMILY + MODEL.replace("image_size = 224\n", ""), "1 .*required and missing: image_size"),
        (FAMILY + MODEL.replace("224\nnum", '"224"\nnum'), "`image_size` must be of type int"),
        (FAMILY + MODEL.replace("224\nnum", "true\nnum"), "`image_size` must be of type int"),
        (FAMILY + MODEL.replace("Ti/16", "Ti/17"), "Unknown `variant`.*Ti/17.*Did you mean: Ti/16"),
        (FAMILY + MODEL.replace("224\nnum", "225\nnum"), "multiple of `patch_size`"),
        (FAMILY + MODEL + "top1 = 75.0", "`top1` and `measured_by` must be given together"),
        (FAMILY + MODEL + 'top1 = 750.0\nmeasured_by = "us"', "`top1` must be a percentage"),
        (FAMILY + MODEL + 'sha256 = "abc"', "`sha256` must be 64"),
        (FAMILY + MODEL.replace("https", "ftp"), "`source` must start with"),
        (FAMILY + MODEL + MODEL, r"\[\[model\]\] 2 .*unique; see row 'vit_tiny_patch16_224.test'"),
        (FAMILY.replace("licence", "license") + MODEL, r"\[family\].*Did you mean: licence"),
        (FAMILY.replace('"squash"', '"stretch"') + MODEL, r"\[family\.preprocessing\].*stretch"),
        (FAMILY.replace("[0.5, 0.5, 0.5]", '["a"]', 1) + MODEL, r"\[family\.preprocessing\]"),
        (FAMILY, "required and missing: model"),
        (FAMILY + MODEL + "id =", "is not valid TOML"),
    ],
)
def test_strict_reading_names_file_row_and_field(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"(?s)test\.toml.*" + message):
        read(tmp_path, text)


def test_missing_zoo(tmp_path):
    with pytest.raises(FileNotFoundError, match="no TOML file"):
        read_folder(tmp_path)
