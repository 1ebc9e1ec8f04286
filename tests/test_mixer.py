import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_vit import MIXER_VARIANTS, Mixer, MixerConfig, ViTConfig
from keras_vit.zoo.variables import count_parameters, variable_shapes


def _count(config: MixerConfig) -> int:
    """Parameters of the real model with one block, the rest of its equal blocks added."""
    model = Mixer(dataclasses.replace(config, num_layers=1))
    block = model.get_layer("block_0").count_params()
    return model.count_params() + (config.num_layers - 1) * block


def _batch(config: MixerConfig, size: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (size, *config.image_size, config.num_channels)
    return rng.integers(0, 256, shape).astype("float32")


@pytest.mark.parametrize("name", MIXER_VARIANTS)
def test_parameter_counts(name):
    """tests/zoo/test_variables.py compares these with the official table."""
    assert _count(MIXER_VARIANTS[name]) == count_parameters(MIXER_VARIANTS[name])


def test_blocks_are_all_counted(tiny_mixer_config):
    """The shortcut of `_count` is the count."""
    assert _count(tiny_mixer_config) == Mixer(tiny_mixer_config).count_params()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"num_classes": 0},
        {"image_size": (16, 32), "num_channels": 1},
        {"image_size": (12, 32), "patch_size": (3, 8)},
        {"activation": "gelu", "layer_norm_epsilon": 1e-5},
        {"dropout_rate": 0.1, "drop_path_rate": 0.2},
    ],
    ids=str,
)
def test_keras_file_reloads_in_a_fresh_process(
    tiny_mixer_config, fields, random_weights, fresh_process, tmp_path
):
    """FAULTS A2, B1, F1, F2, F3, J1, TRAPS 2, 4: after one step of fit, float and int8."""
    config = dataclasses.replace(tiny_mixer_config, **fields)
    model = random_weights(Mixer(config, origin={"source": "test"}))
    shapes = {w.path: tuple(w.shape) for w in model.weights if "seed" not in w.path}
    assert shapes == variable_shapes(config)
    images = _batch(config)
    before = {w.path: keras.ops.convert_to_numpy(w) for w in model.trainable_weights}
    model.compile("sgd", "mse")
    model.fit(images, np.zeros((3, config.num_classes or config.hidden_dim)), verbose=0)
    after = {w.path: keras.ops.convert_to_numpy(w) for w in model.trainable_weights}
    still = [path for path in after if np.array_equal(after[path], before[path])]
    # what this bias adds is the same in all channels of a token, and every norm takes it out
    assert not [path for path in still if not path.endswith("token_mixing/fc2/bias")]
    outputs = model.predict(images, verbose=0)
    assert outputs.dtype == np.float32 and np.isfinite(outputs).all()
    json.dumps(model.get_config())
    loaded = fresh_process.outputs_of(model, images, tmp_path / "float.keras")
    np.testing.assert_allclose(loaded, outputs, atol=1e-6)
    model.quantize("int8")
    quantized = keras.ops.convert_to_numpy(model(images))
    loaded = fresh_process.outputs_of(model, images, tmp_path / "int8.keras")
    np.testing.assert_array_equal(loaded, quantized)


def test_the_reloaded_model_says_what_it_is(tiny_mixer_config, tmp_path):
    model = Mixer(tiny_mixer_config, labels=list("abcde"), origin={"source": "test"})
    model.save(tmp_path / "mixer.keras")
    again = keras.saving.load_model(tmp_path / "mixer.keras")
    assert isinstance(again, Mixer)
    assert again.config == tiny_mixer_config and again.labels == tuple("abcde")
    assert again.origin == {"source": "test"} and again.name == "mixer"


def test_quantize_leaves_head_and_patch_projection_float(tiny_mixer_config):
    """FAULTS J1."""
    model = Mixer(tiny_mixer_config)
    model.quantize("int8")
    modes = {part.path: part.quantization_mode for part in model._flatten_layers()}
    assert modes["head"] is None and modes["patch_embedding/projection"] is None
    assert modes["block_0/token_mixing/fc1"] == modes["block_1/channel_mixing/fc2"] == "int8"


def test_intermediates_share_the_weights(tiny_mixer_config, random_weights):
    model = random_weights(Mixer(tiny_mixer_config))
    images = _batch(tiny_mixer_config)
    views = model.intermediates(["block_0", "block_1", "encoder_norm", "pooled", "logits"])(images)
    views = {name: keras.ops.convert_to_numpy(view) for name, view in views.items()}
    assert views["block_0"].shape == views["encoder_norm"].shape == (3, 16, 16)
    np.testing.assert_array_equal(views["logits"], keras.ops.convert_to_numpy(model(images)))
    np.testing.assert_allclose(views["pooled"], views["encoder_norm"].mean(1), atol=1e-6)
    block = model.get_layer("block_1")(views["block_0"])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(block), views["block_1"], atol=1e-5)
    with pytest.raises(ValueError, match="'block_2'.*Did you mean.*block_"):
        model.intermediates(["block_2"])


def test_the_head_starts_at_zero_and_the_last_block_drops_most(tiny_mixer_config):
    model = Mixer(dataclasses.replace(tiny_mixer_config, num_layers=3, drop_path_rate=0.4))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model(_batch(tiny_mixer_config))), 0.0)
    rates = [model.get_layer(f"block_{index}").drop_path2.rate for index in range(3)]
    assert rates == [0.0, 0.2, 0.4]


def test_reset_head_shares_the_rest(tiny_mixer_config):
    model = Mixer(tiny_mixer_config)
    new = model.reset_head(3, labels=["x", "y", "z"])
    assert isinstance(new, Mixer) and new.config.num_classes == 3 and new.labels == ("x", "y", "z")
    assert new.get_layer("block_0") is model.get_layer("block_0")


def test_another_image_size_is_refused_with_a_reason(tiny_mixer_config):
    """FAULTS A1: nothing resizes a token MLP."""
    with pytest.raises(ValueError, match=r"token MLPs know each patch.*image_size=32.*\(16, 16\)"):
        Mixer(tiny_mixer_config).with_image_size(32)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_outputs_are_float32_whatever_the_policy(tiny_mixer_config, policy):
    for num_classes in (0, 5):
        model = Mixer(dataclasses.replace(tiny_mixer_config, num_classes=num_classes), dtype=policy)
        outputs = model(_batch(tiny_mixer_config))
        assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
        assert model.get_layer("block_0").compute_dtype == keras.DTypePolicy(policy).compute_dtype


def test_from_variant():
    model = Mixer.from_variant("S/32", image_size=64, num_classes=3, num_layers=1)
    assert model.output.shape == (None, 3) and model.config.hidden_dim == 512
    with pytest.raises(ValueError, match="'B/61'.*Did you mean.*B/16"):
        Mixer.from_variant("B/61")
    with pytest.raises(ValueError, match="'num_heads'"):
        Mixer.from_variant("B/16", num_heads=3)


def test_config_of_another_kind_is_refused():
    config = ViTConfig(num_layers=1, num_heads=1, hidden_dim=4, mlp_dim=4, patch_size=16)
    with pytest.raises(ValueError, match="must be a `keras_vit.MixerConfig`. Received: ViTConfig"):
        Mixer(config)
