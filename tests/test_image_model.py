import dataclasses
import warnings

import keras
import numpy as np
import pytest

from keras_vit import Mixer, MixerConfig, ViT

MIXER = MixerConfig(
    num_layers=2,
    hidden_dim=16,
    tokens_mlp_dim=8,
    channels_mlp_dim=32,
    patch_size=4,
    image_size=16,
    num_classes=5,
)


@pytest.fixture(params=["vit", "mixer"])
def model(request, tiny_config, random_weights):
    """One model of each class."""
    return random_weights(ViT(tiny_config) if request.param == "vit" else Mixer(MIXER))


def _images(model, size: int = 3) -> np.ndarray:
    shape = (size, *model.config.image_size, model.config.num_channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype("float32")


def test_a_config_of_another_model_is_refused(tiny_config):
    with pytest.raises(ValueError, match="`config` must be a `keras_vit.MixerConfig`.*ViTConfig"):
        Mixer(tiny_config)
    with pytest.raises(ValueError, match="`config` must be a `keras_vit.ViTConfig`.*dict"):
        ViT({})


def test_reset_head_shares_all_but_the_head(model):
    """FAULTS C1: another number of classes, and the body is the same."""
    images = _images(model)
    before = model(images)
    new = model.reset_head(3, labels=["a", "b", "c"])
    assert new.output.shape == (None, 3) and new.labels == ("a", "b", "c")
    assert type(new) is type(model) and new.config.num_classes == 3
    assert not new.get_layer("head").kernel.numpy().any()
    assert new.get_layer("block_1") is model.get_layer("block_1")
    features = model.reset_head(0)
    assert features.output.shape == (None, 16)
    pooled = model.intermediates("pooled")(images)["pooled"]
    np.testing.assert_array_equal(features(images), pooled)
    new.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    new.get_layer("head").kernel.assign(np.eye(16, 3))
    new.fit(images, np.array([0, 1, 2]), verbose=0)
    assert np.abs(np.asarray(model(images)) - np.asarray(before)).max() > 0  # weights are shared


def test_reset_head_of_as_many_classes_is_new(model):
    """FAULTS C1: asked for, so done."""
    new = model.reset_head(5)
    assert not np.asarray(new(_images(model))).any()
    assert np.asarray(model(_images(model))).any()


def test_reset_head_drops_a_tanh_layer(tiny_config, random_weights):
    """FAULTS C4."""
    model = random_weights(ViT(dataclasses.replace(tiny_config, representation_size=7)))
    new = model.reset_head(3)
    assert new.config.representation_size is None
    assert "pre_logits" not in [layer.name for layer in new.layers]


def test_views_of_views_work(model, tmp_path):
    new = model.reset_head(3).reset_head(4)
    new.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    images = _images(model)
    np.testing.assert_array_equal(again(images), new(images))


def test_quantized_models_are_refused(model):
    model.quantize("int8")
    with pytest.raises(ValueError, match="`reset_head` needs float weights"):
        model.reset_head(3)


def test_probabilities_are_a_softmax_or_sigmoids(model):
    logits = np.array([[0.0, 1.0, 2.0]], "float32")
    np.testing.assert_allclose(np.sum(model.probabilities(logits)), 1.0, atol=1e-6)
    model.multi_label = True
    np.testing.assert_allclose(model.probabilities(logits), 1 / (1 + np.exp(-logits)), atol=1e-6)


def test_multi_label_is_saved(model, tmp_path):
    model.multi_label = True
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").multi_label


def test_no_warning_for_usual_pixels(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(_images(model), verbose=0)
