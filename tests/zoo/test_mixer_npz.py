"""FAULTS C, E: Google's MLP-Mixer."""

from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit.config import MixerConfig, PreprocessingConfig
from keras_vit.zoo import read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError

GOLDEN = Path(__file__).parents[1] / "golden"


def load():
    return dict(np.load(GOLDEN / "mixer.npz"))


def test_everything_is_inferred():
    understood = read_checkpoint(GOLDEN / "mixer.npz")
    understood.check()
    assert understood.family == "mixer_npz"
    assert understood.config == MixerConfig(
        num_layers=2,
        hidden_dim=32,
        tokens_mlp_dim=16,
        channels_mlp_dim=64,
        patch_size=8,
        image_size=32,
        num_classes=6,
        activation="gelu_tanh",
        layer_norm_epsilon=1e-6,
    )
    assert understood.preprocessing == PreprocessingConfig()


def test_tokens_and_channels_are_not_confused(read):
    """Here both MLPs are 16 wide outside or inside; with other widths each is told by its own."""
    arrays = load()
    for i in range(2):
        mixing = f"MixerBlock_{i}/token_mixing"
        arrays[f"{mixing}/Dense_0/kernel"] = np.zeros((16, 5), np.float32)
        arrays[f"{mixing}/Dense_0/bias"] = np.zeros(5, np.float32)
        arrays[f"{mixing}/Dense_1/kernel"] = np.zeros((5, 16), np.float32)
    understood = read(arrays)
    understood.check()
    assert (understood.config.tokens_mlp_dim, understood.config.num_tokens) == (5, 16)


def test_prefixes_training_state_and_missing_head(read):
    arrays = load()
    states = {f"opt/state/{name}": array for name, array in arrays.items()}
    prefixed = {f"opt/target/{name}": array for name, array in arrays.items()}
    for head in ("opt/target/head/kernel", "opt/target/head/bias"):
        del prefixed[head]
    understood = read(prefixed | states)
    understood.check()
    assert (understood.config.num_classes, understood.config.num_layers) == (0, 2)


def test_a_grid_that_is_no_square_needs_the_image_size(read):
    arrays = load()
    for i in range(2):
        mixing = f"MixerBlock_{i}/token_mixing"
        arrays[f"{mixing}/Dense_0/kernel"] = np.zeros((12, 16), np.float32)
        arrays[f"{mixing}/Dense_1/kernel"] = np.zeros((16, 12), np.float32)
        arrays[f"{mixing}/Dense_1/bias"] = np.zeros(12, np.float32)
    with pytest.raises(ValueError, match="12 patches.*`source_image_size` must say"):
        read(arrays)
    understood = read(arrays, source_image_size=(48, 16))
    understood.check()
    assert understood.config.grid == (6, 2)
    with pytest.raises(MissingWeightsError, match=r"expected \(16, 16\), found \(12, 16\)"):
        read(arrays, source_image_size=32).check()


def test_unknown_overrides_are_named(read):
    with pytest.raises(ValueError, match="Unknown config field.*num_heads"):
        read(load(), num_heads=4)


def test_predicts_as_the_official_code(golden):
    """Golden, 2e-5."""
    expected = np.load(golden / "mixer.expected.npz")
    model = keras_vit.from_pretrained(golden / "mixer.npz", include_normalization=False)
    logits = model.predict(expected["images"], verbose=0)
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=2e-5)
