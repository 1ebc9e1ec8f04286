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
        numbers = row.parameters + row.zero_head * ((row.representation_size or 0) + 1)
        assert row.size_bytes == pytest.approx(4 * numbers, rel=5e-3, abs=2**19), row.id


def test_every_row_has_a_reader_and_a_licence():
    for row in catalogue().values():
        assert row.reader in READERS, row.id
        if row.licence not in ("Apache-2.0", "MIT"):
            assert row.licence_note, row.id
        if "-nc-" in row.licence.lower():
            assert row.licence_note.startswith("Non-commercial"), row.id


def test_zeroed_heads_are_left_out():
    """FAULTS C4; official repository, issues 10 and 32."""
    rows = [row for row in catalogue().values() if row.family == "imagenet21k"]
    assert len(rows) == 9
    for row in rows:
        assert (row.zero_head, row.num_classes, row.config.num_classes) == (21843, 0, 0)
        assert row.representation_size == row.config.hidden_dim


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
    assert ARCHITECTURES.keys() >= VARIANTS.keys() | {f"Mixer-{name}" for name in MIXER_VARIANTS}
    assert (ARCHITECTURES["B/14"].patch_size, ARCHITECTURES["B/14"].hidden_dim) == ((14, 14), 768)


def test_a_family_and_a_row_change_the_variant(tmp_path):
    family = FAMILY + '[family.config]\nactivation = "gelu"\nlayer_norm_epsilon = 1e-5\n'
    changed = MODEL + 'config = { activation = "quick_gelu", class_token = false, pool = "mean" }'
    config = read(tmp_path, family + changed)["vit_tiny_patch16_224.test"].config
    assert (config.activation, config.layer_norm_epsilon) == ("quick_gelu", 1e-5)
    assert (config.pool, config.num_tokens, config.hidden_dim) == ("mean", 196, 192)


def test_a_row_without_variant_has_all_sizes(tmp_path):
    sizes = "{ num_layers = 2, num_heads = 2, hidden_dim = 16, mlp_dim = 32, patch_size = 7 }"
    model = MODEL.replace('variant = "Ti/16"', f"config = {sizes}")
    row = read(tmp_path, FAMILY + model)["vit_tiny_patch16_224.test"]
    assert (row.variant, row.config.grid, row.config.mlp_dim) == (None, (32, 32), 32)


def test_a_row_has_its_own_preprocessing_and_licence(tmp_path):
    family = FAMILY.replace('"Apache-2.0"', '"Apache-2.0"\nlicence_note = "As tagged."')
    own = 'preprocessing = { resize = "crop", crop_fraction = 0.9 }\nlicence = "MIT"'
    row = read(tmp_path, family + MODEL + own)["vit_tiny_patch16_224.test"]
    assert (row.preprocessing.resize, row.preprocessing.crop_fraction) == ("crop", 0.9)
    assert (row.preprocessing.mean, row.preprocessing.antialias) == ((0.5, 0.5, 0.5), False)
    assert (row.licence, row.licence_note) == ("MIT", None)


def test_what_the_reader_is_told(tmp_path):
    family = FAMILY + '[family.config]\nposition_embedding = "sincos_2d"\n'
    quiet = read(tmp_path, family + MODEL)["vit_tiny_patch16_224.test"]
    assert quiet.reader_fields == {}
    told = family.replace("reader =", "config_overrides = true\nreader =")
    row = read(tmp_path, told + MODEL)["vit_tiny_patch16_224.test"]
    assert row.reader_fields == {"position_embedding": "sincos_2d", "source_image_size": 224}
    learned = told.replace("sincos_2d", "learned")
    row = read(tmp_path, learned + MODEL)["vit_tiny_patch16_224.test"]
    assert row.reader_fields == {"position_embedding": "learned"}


def test_one_file_in_two_ways(tmp_path):
    (tmp_path / "a.toml").write_text(FAMILY + MODEL)
    other = MODEL.replace("224.test", "224.other")
    (tmp_path / "b.toml").write_text(
        FAMILY.replace("reader", "config_overrides = true\nreader") + other
    )
    assert list(read_folder(tmp_path)) == [
        "vit_tiny_patch16_224.test",
        "vit_tiny_patch16_224.other",
    ]
    (tmp_path / "b.toml").write_text(FAMILY + other)
    with pytest.raises(ValueError, match=r"b\.toml.*unique; see row 'vit_tiny_patch16_224.test'"):
        read_folder(tmp_path)


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
        (FAMILY + MODEL + "config = { heads = 3 }", r"\[\[model\]\] 1 .*heads"),
        (FAMILY + MODEL + 'config = { pool = "max" }', r"\[\[model\]\] 1 .*`pool`.*max"),
        (FAMILY + MODEL.replace('variant = "Ti/16"', ""), r"\[\[model\]\] 1 .*num_layers"),
        (FAMILY + MODEL + "preprocessing = { size = 3 }", "preprocessing.*field.*'size'"),
        (FAMILY + MODEL + "preprocessing = { crop_fraction = 3 }", "`crop_fraction` must be"),
        (
            FAMILY.replace("reader =", 'position_resize = "cubic"\nreader =') + MODEL,
            "`position_resize`.*cubic.*Did you mean: bicubic",
        ),
        (FAMILY + MODEL + "top1 = 75.0", "`top1` and `measured_by` must be given together"),
        (FAMILY + MODEL + 'top1 = 750.0\nmeasured_by = "us"', "`top1` must be a percentage"),
        (FAMILY + MODEL + 'sha256 = "abc"', "`sha256` must be 64"),
        (FAMILY + MODEL.replace("https", "ftp"), "`source` must start with"),
        (FAMILY + MODEL + MODEL, r"\[\[model\]\] 2 .*unique; see row 'vit_tiny_patch16_224.test'"),
        (FAMILY.replace("licence", "license") + MODEL, r"\[family\].*Did you mean: licence"),
        (FAMILY.replace('"squash"', '"stretch"') + MODEL, r"\[family\].*stretch"),
        (FAMILY.replace("[0.5, 0.5, 0.5]", '["a"]', 1) + MODEL, r"\[family\]"),
        (FAMILY.replace('"squash"', "3") + MODEL, r"\[family\]\.preprocessing: `resize` must"),
        (FAMILY, "required and missing: model"),
        (
            FAMILY.replace("official_npz", "oficial_npz") + MODEL,
            r"\[family\]: Unknown `reader`.*'oficial_npz'. Did you mean: official_npz",
        ),
        (
            FAMILY + "[family.config]\nhiden_dim = 8\n" + MODEL,
            r"\[\[model\]\] 1 .*Unknown field of `config`.*'hiden_dim'. Did you mean: hidden_dim",
        ),
        (
            FAMILY + MODEL.replace("Ti/16", "Mixer-B/32") + "config = { num_heads = 8 }",
            "Unknown field of `config`. Received: 'num_heads'",
        ),
        (FAMILY + MODEL + "id =", "is not valid TOML"),
    ],
)
def test_strict_reading_names_file_row_and_field(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"(?s)test\.toml.*" + message):
        read(tmp_path, text)


def test_missing_zoo(tmp_path):
    with pytest.raises(FileNotFoundError, match="no TOML file"):
        read_folder(tmp_path)
