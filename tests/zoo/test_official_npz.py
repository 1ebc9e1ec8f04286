"""FAULTS C4, E4: Google's files say their sizes by names and shapes."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit.config import PreprocessingConfig
from keras_vit.variants import VARIANTS
from keras_vit.zoo import keymap, official_npz, read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.variables import variable_shapes

GOLDEN = Path(__file__).parents[1] / "golden"
POSITIONS = "Transformer/posembed_input/pos_embedding"


def load(name="vit_token"):
    return dict(np.load(GOLDEN / f"{name}.npz"))


@pytest.mark.parametrize(
    ("name", "class_token", "representation_size", "num_layers", "num_classes"),
    [
        ("vit_token", True, None, 3, 10),
        ("vit_gap_linen_names", False, None, 3, 10),
        ("vit_pre_logits", True, 24, 2, 7),
    ],
)
def test_everything_is_inferred(name, class_token, representation_size, num_layers, num_classes):
    understood = read_checkpoint(GOLDEN / f"{name}.npz")
    config = understood.config
    assert (config.num_layers, config.num_heads, config.hidden_dim, config.mlp_dim) == (
        num_layers,
        4,
        32,
        64,
    )
    assert (config.patch_size, config.image_size, config.num_channels) == ((8, 8), (32, 32), 3)
    assert config.class_token == class_token
    assert config.pool == ("token" if class_token else "mean")
    assert config.representation_size == representation_size
    assert config.num_classes == num_classes
    assert (config.activation, config.layer_norm_epsilon) == ("gelu_tanh", 1e-6)
    assert understood.preprocessing == PreprocessingConfig()
    assert (understood.labels, understood.ignored) == (None, frozenset())
    assert understood.position_resize == "align_corners_bilinear"


def test_query_columns_come_first_and_head_major():
    arrays, understood = load(), read_checkpoint(GOLDEN / "vit_token.npz")
    attention = "Transformer/encoderblock_2/MultiHeadDotProductAttention_1"
    qkv = understood.weight("block_2/attention/qkv/kernel")
    key = arrays[f"{attention}/key/kernel"]  # (hidden_dim, heads, head_dim)
    np.testing.assert_array_equal(qkv[:, 32 + 8 : 32 + 16], key[:, 1])


@pytest.mark.parametrize("prefix", ["opt/target/", "params/", "params/img/"])
@pytest.mark.parametrize("name", ["vit_token", "vit_gap_linen_names"])
def test_prefixes_and_training_state(read, prefix, name, same_weights):
    arrays = {prefix + key: array for key, array in load(name).items()}
    extra = {"opt/state/step": np.zeros(1), "opt/state/momentum/head/kernel": np.zeros((32, 10))}
    if prefix == "params/img/":
        extra |= {"params/t": np.zeros(1), "params/txt/head/kernel": np.zeros((2, 2))}
    understood = read(arrays | extra)
    understood.check()
    assert understood.ignored == extra.keys()
    same_weights(understood, read_checkpoint(GOLDEN / f"{name}.npz"))


def test_headless(read):
    arrays = load("vit_pre_logits")
    del arrays["head/kernel"], arrays["head/bias"]
    understood = read(arrays)
    understood.check()
    assert (understood.config.num_classes, understood.config.representation_size) == (0, 24)


@pytest.mark.parametrize("is_zero", [True, False])
def test_the_zeroed_imagenet21k_head_is_no_head(read, is_zero):
    head = np.zeros((24, 21843), np.float32)
    head[3, 5] = 0.0 if is_zero else 1.0
    bias = np.zeros(21843, np.float32)
    understood = read(load("vit_pre_logits") | {"head/kernel": head, "head/bias": bias})
    understood.check()
    assert understood.config.representation_size == 24
    assert understood.config.num_classes == (0 if is_zero else 21843)
    assert understood.ignored == ({"head/kernel", "head/bias"} if is_zero else set())


@pytest.mark.parametrize("channels", [1, 4])
def test_channels(read, channels):
    """FAULTS B3."""
    kernel = np.ones((8, 4, channels, 32), np.float32)
    understood = read(load() | {"embedding/kernel": kernel})
    understood.check()
    assert understood.config.num_channels == channels
    assert (understood.config.patch_size, understood.config.image_size) == ((8, 4), (32, 16))
    assert len(understood.preprocessing.mean) == channels


def test_rectangular_grid_needs_the_image_size(read):
    """FAULTS A2."""
    table = np.random.default_rng(0).normal(size=(1, 1 + 2 * 6, 32)).astype(np.float32)
    arrays = load() | {POSITIONS: table}
    with pytest.raises(ValueError, match="12 patches.*`source_image_size` must say"):
        read(arrays)
    understood = read(arrays, source_image_size=(16, 48))
    understood.check()
    assert understood.config.grid == (2, 6)
    np.testing.assert_array_equal(understood.weight("position_embedding/embeddings"), table[0])
    with pytest.raises(ValueError, match=r"expected \(1, 17, 32\), found \(1, 13, 32\)"):
        read(arrays, source_image_size=32).check()


def test_missing_class_token_is_not_taken_for_mean_pooling(read):
    arrays = load()
    del arrays["cls"]
    understood = read(arrays)
    assert understood.config.pool == "token"
    with pytest.raises(ValueError, match="- cls"):
        understood.check()


@pytest.mark.parametrize("prefix", ["img/", "params/img/"])
def test_the_image_model_of_lit(read, prefix, same_weights):
    """LiT's files hold a text model beside it, and a temperature."""
    root = prefix.removesuffix("img/")
    arrays = {prefix + name: array for name, array in load("vit_gap_linen_names").items()}
    text = ["txt/BertEncoder_0/encoder_layer_0/MlpBlock_3/x", "txt/head/kernel", "t"]
    extra = {root + name: np.zeros((2, 2), np.float32) for name in text}
    understood = read(arrays | extra)
    understood.check()
    assert (understood.family, understood.labels) == ("official_npz", None)
    assert understood.ignored == extra.keys()
    same_weights(understood, read_checkpoint(GOLDEN / "vit_gap_linen_names.npz"))
    with pytest.raises(MissingWeightsError, match=r"\+ stray"):
        read(arrays | extra | {"stray": np.zeros(1)}).check()


@pytest.mark.parametrize(
    ("name", "stem_layers", "patch_size"),
    [("hybrid_root_only", (), 4), ("hybrid_two_stages", (2, 1), 1)],
)
def test_hybrids_tell_their_stem(name, stem_layers, patch_size):
    config = read_checkpoint(GOLDEN / f"{name}.npz").config
    assert (config.stem_layers, config.stem_width, config.stem_numerics) == (
        stem_layers,
        32,
        "official",
    )
    assert (config.patch_size, config.image_size) == ((patch_size, patch_size), (64, 64))
    assert (config.num_layers, config.num_heads, config.num_channels) == (2, 4, 3)
    assert (config.class_token, config.pool, config.num_classes) == (True, "token", 5)


def test_hybrid_units_keep_their_places():
    arrays = load("hybrid_two_stages")
    understood = read_checkpoint(GOLDEN / "hybrid_two_stages.npz")
    for ours, theirs in (
        ("root/kernel", "conv_root/kernel"),
        ("root_norm/gamma", "gn_root/scale"),
        ("stage_0/unit_1/conv3/kernel", "block1/unit2/conv3/kernel"),
        ("stage_0/unit_1/norm3/beta", "block1/unit2/gn3/bias"),
        ("stage_1/unit_0/shortcut/kernel", "block2/unit1/conv_proj/kernel"),
        ("stage_1/unit_0/shortcut_norm/gamma", "block2/unit1/gn_proj/scale"),
    ):
        weight = understood.weight(f"resnet_stem/{ours}")
        np.testing.assert_array_equal(weight, np.squeeze(arrays[theirs]).reshape(weight.shape))


def test_hybrid_norms_may_have_axes_of_one(read, same_weights):
    """Each array by itself: (C,), (1, 1, 1, C), and nothing else."""
    arrays = load("hybrid_two_stages")
    squeezed = {n: a.reshape(-1) if "gn" in n and "scale" in n else a for n, a in arrays.items()}
    understood = read(squeezed)
    understood.check()
    same_weights(understood, read_checkpoint(GOLDEN / "hybrid_two_stages.npz"))
    arrays["gn_root/scale"] = arrays["gn_root/scale"].reshape(1, 2, 1, 16)
    with pytest.raises(ValueError, match=r"! gn_root/scale: expected .*, found \(1, 2, 1, 16\)"):
        read(arrays).check()


def test_hybrids_of_the_paper_are_inferred(read):
    """R+Ti/16 and R50+B/16 as the released files have them, at 224 pixels."""
    for variant in ("R+Ti/16", "R50+B/16"):
        expected = dataclasses.replace(VARIANTS[variant], num_layers=1, dropout_rate=0.0)
        rules = official_npz.key_table(expected, {})
        shapes, arrays = variable_shapes(expected), {}
        for rule in keymap.expand(rules, 1):
            for name, shape in keymap.their_shapes(rule, shapes[rule.ours]).items():
                arrays[name] = np.broadcast_to(np.float16(0), shape)
        assert read(arrays).config == expected


def test_a_hybrid_without_a_tensor_of_its_root(read):
    arrays = load("hybrid_root_only")
    for name in ("conv_root/kernel", "gn_root/scale"):
        rest = {other: array for other, array in arrays.items() if other != name}
        with pytest.raises(MissingWeightsError, match=f"- {name}"):
            read(rest).check()


@pytest.mark.parametrize("name", ["hybrid_root_only", "hybrid_two_stages"])
def test_hybrids_predict_as_the_official_code(golden, name):
    """Golden, 2e-5."""
    expected = np.load(golden / f"{name}.expected.npz")
    model = keras_vit.from_pretrained(golden / f"{name}.npz", include_normalization=False)
    logits = model.predict(expected["images"], verbose=0)
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=2e-5)


def test_a_hybrid_at_another_size_resizes_positions_by_googles_rule(golden):
    """FAULTS A1: align-corners bilinear, on the grid behind the stem (stride 8)."""
    path = golden / "hybrid_two_stages.npz"
    model = keras_vit.from_pretrained(path, image_size=(64, 96), include_normalization=False)
    table = load("hybrid_two_stages")[POSITIONS][0]
    resized = model.get_layer("position_embedding").embeddings.numpy()
    np.testing.assert_array_equal(resized[0], table[0])
    old, new = np.arange(8), np.linspace(0, 7, 12)
    for channel in (0, 13, 31):
        grid = table[1:, channel].reshape(8, 8)
        expected = np.stack([np.interp(new, old, row) for row in grid])
        np.testing.assert_allclose(resized[1:, channel].reshape(8, 12), expected, atol=1e-6)
    assert model.predict(np.zeros((1, 64, 96, 3)), verbose=0).shape == (1, 5)
