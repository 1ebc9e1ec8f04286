import pytest

from keras_vit.variants import MIXER_VARIANTS, VARIANTS
from keras_vit.zoo import READERS
from keras_vit.zoo.catalogue import catalogue
from keras_vit.zoo.rows import ARCHITECTURES, read_folder

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


def test_published_sizes_agree_with_the_parameter_counts():
    checked = [row for row in catalogue().values() if row.size_bytes]
    assert len(checked) >= 26
    for row in checked:
        assert row.size_bytes == pytest.approx(4 * row.parameters, rel=5e-3, abs=2**19), row.id


def test_every_row_has_a_reader_and_a_licence():
    for row in catalogue().values():
        assert row.reader in READERS, row.id
        assert row.licence == "Apache-2.0", row.id


def test_reads_a_row(tmp_path):
    row = read(tmp_path, FAMILY + MODEL + 'size_mib = 1.5\ntop1 = 75\nmeasured_by = "us"')[
        "vit_tiny_patch16_224.test"
    ]
    assert (row.family, row.size_bytes, row.top1, row.measured_by) == ("test", 1_572_864, 75, "us")
    assert row.parameters == 5_717_416
    assert row.aliases == ("Ti_16", "models/Ti_16")
    assert row.preprocessing.resize == "squash"


def test_a_row_of_any_architecture_has_its_config(tmp_path):
    hybrid = MODEL.replace("Ti/16", "R50+L/32") + "representation_size = 1024"
    row = read(tmp_path, FAMILY + hybrid)["vit_tiny_patch16_224.test"]
    assert (row.config.stem_layers, row.config.representation_size) == ((3, 4, 6, 3), 1024)
    assert row.parameters == 328_994_856 + 1024 * 1024 + 1024
    mixer = MODEL.replace("Ti/16", "Mixer-B/32")
    row = read(tmp_path, FAMILY + mixer)["vit_tiny_patch16_224.test"]
    assert (row.config, row.parameters) == (MIXER_VARIANTS["B/32"], 60_293_428)
    assert ARCHITECTURES.keys() == VARIANTS.keys() | {f"Mixer-{name}" for name in MIXER_VARIANTS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAMILY + MODEL + "colour = 3", r"\[\[model\]\] 1 \(vit_tiny.*field.*'colour'"),
        (FAMILY + MODEL.replace("image_size = 224\n", ""), "1 .*required and missing: image_size"),
        (FAMILY + MODEL.replace("224\nnum", '"224"\nnum'), "`image_size` must be of type int"),
        (FAMILY + MODEL.replace("224\nnum", "true\nnum"), "`image_size` must be of type int"),
        (FAMILY + MODEL.replace("Ti/16", "Ti/17"), "Unknown `variant`.*Ti/17.*Did you mean: Ti/16"),
        (FAMILY + MODEL.replace("224\nnum", "225\nnum"), "multiple of `patch_size`"),
        (
            FAMILY + MODEL.replace("Ti/16", "Mixer-B/16") + "representation_size = 768",
            r"\[\[model\]\] 1 .*representation_size",
        ),
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
