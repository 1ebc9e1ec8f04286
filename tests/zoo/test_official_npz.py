"""FAULTS C4, E4: Google's files say their sizes by names and shapes."""

from pathlib import Path

import numpy as np
import pytest

from keras_vit.config import PreprocessingConfig
from keras_vit.zoo import read_checkpoint
from keras_vit.zoo.checkpoint import variable_shapes

GOLDEN = Path(__file__).parents[1] / "golden"
POSITIONS = "Transformer/posembed_input/pos_embedding"


def load(name="vit_token"):
    return dict(np.load(GOLDEN / f"{name}.npz"))


@pytest.fixture
def read(tmp_path):
    def save_and_read(arrays, **overrides):
        np.savez(tmp_path / "x.npz", **arrays)
        return read_checkpoint(tmp_path / "x.npz", overrides)

    return save_and_read


def same_weights(first, second):
    assert first.config == second.config
    for path in variable_shapes(first.config):
        np.testing.assert_array_equal(first.weight(path), second.weight(path))


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
def test_prefixes_and_training_state(read, prefix, name):
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


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"conv_root/kernel": (7, 7, 3, 8)}, "a hybrid"),
        ({"MAPHead_0/probe": (1, 1, 32)}, "attention pooling"),
        ({"Transformer/encoderblock/LayerNorm_0/scale": (3, 32)}, "blocks stacked"),
        ({"pos_embedding": (1, 16, 32)}, "positions before the class token"),
        ({"MixerBlock_0/LayerNorm_0/scale": (32,)}, "an MLP-Mixer"),
    ],
)
def test_other_layouts_are_named(read, changes, what):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in changes.items()}
    for prefix in ("", "params/img/"):
        prefixed = {prefix + name: array for name, array in (load() | arrays).items()}
        with pytest.raises(ValueError, match=f"{what}.*This version.*plain Vision Transformers"):
            read(prefixed)


def test_sin_cos_positions_are_named(read):
    arrays = load("vit_gap_linen_names")
    del arrays[POSITIONS]
    with pytest.raises(ValueError, match=f"has no '{POSITIONS}'.*sin-cos"):
        read(arrays)
