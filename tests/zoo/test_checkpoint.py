"""FAULTS C2: missing, unexpected and misshapen tensors are errors that name them."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit.config import MixerConfig, ViTConfig
from keras_vit.zoo import READERS, checkpoint, keymap, read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.file_formats import WeightFileError
from keras_vit.zoo.tensor_files import open_tensors

GOLDEN = Path(__file__).parents[1] / "golden"
SOURCES = [
    *("vit_token.npz", "vit_gap_linen_names.npz", "vit_pre_logits.npz"),
    *("hybrid_root_only.npz", "hybrid_two_stages.npz", "mixer.npz"),
    *("bigvision_gap_sincos_rep.npz", "bigvision_map_scan_siglip.npz", "bigvision_token_bf16.npz"),
    *(f"hf_vit{kind}" for kind in ("", "_new_names", "_1channel_no_qkv_bias", "_backbone")),
    *("hf_vit_msn", "hf_deit_distilled", "hf_dinov2", "hf_dinov2_registers"),
    *("hf_siglip_vision", "hf_clip_vision"),
]
# What a file cannot say.
OVERRIDES = {
    "bigvision_gap_sincos_rep.npz": {"position_embedding": "sincos_2d", "source_image_size": 32}
}
# A class token without a row of its own leaves no trace: the rest is a model with mean pooling.
TRACELESS = {("bigvision_token_bf16.npz", "cls")}


def understand(path, source):
    return read_checkpoint(path, OVERRIDES.get(source))


def load(source):
    if source.endswith(".npz"):
        return dict(np.load(GOLDEN / source))
    return load_file(GOLDEN / source / "model.safetensors")


def needed(source):
    """Names of the arrays that are read: DINOv2's mask token, for one, is passed over."""
    ignored = understand(GOLDEN / source, source).ignored
    return [name for name in load(source) if name not in ignored]


def write(tmp_path, source, arrays):
    """Write arrays as the source's kind of file, with its config.json."""
    if source.endswith(".npz"):
        np.savez(tmp_path / source, **arrays)
        return tmp_path / source
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((GOLDEN / source / "config.json").read_bytes())
    return tmp_path


@pytest.mark.parametrize("source", SOURCES)
def test_whole_files_have_every_variable_and_nothing_else(source):
    understood = understand(GOLDEN / source, source)
    understood.check()
    shapes = checkpoint.variable_shapes(understood.config)
    assert {rule.ours for rule in understood.rules} == shapes.keys()
    used = 0
    for path, shape in shapes.items():
        weight = understood.weight(path)
        assert weight.shape == shape
        assert weight.dtype == np.float32
        assert weight.flags.c_contiguous and weight.flags.writeable
        assert weight.ctypes.data % 64 == 0
        used += weight.size
    stored = {name: a for name, a in load(source).items() if name not in understood.ignored}
    assert used == sum(array.size for array in stored.values())
    with pytest.raises(KeyError, match="no/such"):
        understood.weight("no/such")


def test_a_weight_is_a_fresh_array_in_memory_that_a_fork_does_not_share():
    """FAULTS H6: a variable takes it as its own, and training changes it."""
    understood = understand(GOLDEN / "hf_vit", "hf_vit")
    weight, again = (understood.weight("head/kernel") for _ in range(2))
    weight += 1
    assert (weight != again).all()
    address, places = weight.ctypes.data, []
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(place, 16) for place in line.split()[0].split("-"))
        places += [line.split()] if start <= address < end else []
    assert [place[1] for place in places] == ["rw-p"]
    assert places[0][4] == "0"  # of no file


@pytest.mark.parametrize("source", SOURCES)
def test_the_key_table_writes_back_what_it_read(source):
    """Of a stack, row by row."""
    understood, written = understand(GOLDEN / source, source), {}
    for rule in understood.rules:
        written |= keymap.invert(rule, understood.weight(rule.ours))
    assert written.keys() == understood.tensors.tensors.keys() - understood.ignored
    for name, array in written.items():
        np.testing.assert_array_equal(array, understood.tensors.read(name).astype(np.float32))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 2), (0, 0, 0, 0)])
def test_odd_shapes_are_errors_and_no_crashes(tmp_path, source, shape):
    """FAULTS E: whatever tensor has an odd rank."""
    arrays = load(source)
    for odd in needed(source):
        path = write(tmp_path, source, arrays | {odd: np.zeros(shape, np.float32)})
        with pytest.raises(ValueError):
            understand(path, source).check()


@pytest.mark.parametrize("source", SOURCES)
def test_each_tensor_removed_in_turn_is_named(tmp_path, source):
    arrays = load(source)
    for name in needed(source):
        if (source, name) in TRACELESS:
            continue
        rest = {other: array for other, array in arrays.items() if other != name}
        path = write(tmp_path, source, rest)
        with pytest.raises(ValueError) as error:
            understand(path, source).check()
        assert name in str(error.value)


@pytest.mark.parametrize("source", SOURCES)
def test_stray_and_misshapen_tensors_are_named(tmp_path, source):
    arrays = load(source)
    path = write(tmp_path, source, arrays | {"stray": np.zeros(1, np.float32)})
    with pytest.raises(MissingWeightsError, match=r"\+ stray") as error:
        understand(path, source).check()
    assert (error.value.missing, error.value.unexpected) == ([], ["stray"])
    understand(path, source).check(strict=False)
    norm = next(name for name in arrays if "norm" in name.lower() and arrays[name].ndim == 1)
    path = write(tmp_path, source, arrays | {norm: np.zeros(7, np.float32)})
    with pytest.raises(MissingWeightsError, match=rf"! {norm}: expected \(32,\), found \(7,\)"):
        understand(path, source).check(strict=False)


def test_not_strict_gives_none_for_what_is_missing(tmp_path):
    arrays = load("vit_token.npz")
    key = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/key/kernel"
    del arrays[key], arrays["head/bias"]
    understood = read_checkpoint(write(tmp_path, "vit_token.npz", arrays))
    with pytest.raises(MissingWeightsError) as error:
        understood.check()
    assert error.value.missing == sorted([key, "head/bias"])
    assert f"- {key}\n- head/bias" in str(error.value)
    understood.check(strict=False)
    assert understood.weight("head/bias") is None
    assert understood.weight("block_1/attention/qkv/kernel") is None
    assert understood.weight("head/kernel").shape == (32, 10)


def test_variable_shapes_of_the_table():
    config = ViTConfig(
        num_layers=1, num_heads=2, hidden_dim=4, mlp_dim=6, patch_size=(2, 3), image_size=(4, 9)
    )
    shapes = checkpoint.variable_shapes(config)
    assert shapes["patch_embedding/projection/kernel"] == (2, 3, 3, 4)
    assert shapes["position_embedding/embeddings"] == (1 + 2 * 3, 4)
    assert shapes["block_0/attention/qkv/bias"] == (12,)
    assert shapes["head/kernel"] == (4, 1000)
    assert len(shapes) == 6 + 12 + 2


def test_source_config_overrides():
    fields = {"num_layers": 1, "num_heads": 2, "hidden_dim": 4, "mlp_dim": 6, "patch_size": 2}
    config = checkpoint.source_config(fields, {"source_image_size": (4, 6), "num_heads": 1})
    assert (config.image_size, config.num_heads) == ((4, 6), 1)
    with pytest.raises(ValueError, match="Did you mean: num_heads"):
        checkpoint.source_config(fields, {"num_head": 1})

    mixer = {"num_layers": 1, "hidden_dim": 4, "tokens_mlp_dim": 2, "channels_mlp_dim": 6}
    config = checkpoint.source_config(
        mixer | {"patch_size": 2}, {"source_image_size": 4}, MixerConfig
    )
    assert (type(config), config.image_size) == (MixerConfig, (4, 4))
    with pytest.raises(ValueError, match="Unknown config field.*num_heads"):
        checkpoint.source_config(mixer | {"patch_size": 2}, {"num_heads": 1}, MixerConfig)


def test_an_override_that_the_layout_cannot_serve_is_named():
    """Never a KeyError, nor a random variable."""
    understood = read_checkpoint(GOLDEN / "vit_token.npz", {"embedding_norm": True})
    with pytest.raises(MissingWeightsError, match="! no tensor.*our embedding_norm/beta"):
        understood.check(strict=False)
    understood = read_checkpoint(GOLDEN / "vit_token.npz", {"qkv_bias": False})
    with pytest.raises(MissingWeightsError, match=r"\+ Transformer/encoderblock_0/.*/key/bias"):
        understood.check()
    understood.check(strict=False)


def test_unknown_layouts_list_what_was_found(tmp_path):
    np.savez(tmp_path / "x.npz", weight_b=np.zeros(1), weight_a=np.zeros(1))
    with pytest.raises(ValueError, match="no reader knows.*weight_a, weight_b"):
        read_checkpoint(tmp_path / "x.npz")
    save_file({"blocks.0.x": np.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "swin"}')
    with pytest.raises(ValueError, match="'swin'.*blocks.0.x"):
        read_checkpoint(tmp_path)


def test_one_reader_recognises_each_file():
    starts = {"vit": "official_npz", "hybrid": "official_npz", "mixer": "mixer_npz"}
    starts |= {"bigvision": "big_vision_npz", "hf": "hf_safetensors"}
    for source in SOURCES:
        tensors = open_tensors(GOLDEN / source)
        config_json = tensors.json("config.json")
        names = [
            name for name, reader in READERS.items() if reader.recognises(tensors, config_json)
        ]
        assert names == [starts[source.removesuffix(".npz").split("_")[0]]]


def test_a_field_of_the_wrong_type_is_said_to_be(edited):
    path = edited("hf_vit", id2label=11)
    with pytest.raises(WeightFileError, match="cannot be understood.*config.json.*wrong type"):
        read_checkpoint(path)


def test_a_config_json_of_something_else_does_not_mislead(tmp_path):
    """A download folder may hold an .npz beside another model's config.json."""
    for model_type in ("vit", "keras_vit"):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{model_type}"}}')
        path = write(tmp_path, "vit_token.npz", load("vit_token.npz"))
        assert read_checkpoint(path).family == "official_npz"


def test_pictures_that_are_no_whole_number_of_patches(edited):
    """FAULTS A7, of a SigLIP of 384 pixels in patches of 14: as its convolution, but told."""
    with pytest.warns(UserWarning, match=r"image_size=\(35, 35\).*no whole number.*\(32, 32\)"):
        understood = read_checkpoint(edited("hf_siglip_vision", image_size=35))
    assert understood.config.image_size == (32, 32)
    understood.check()
