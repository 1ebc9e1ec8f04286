import dataclasses
import warnings

import keras
import numpy as np
import pytest

from keras_vit import Mixer, ViT


def _images(model, size: int = 3) -> np.ndarray:
    shape = (size, *model.config.image_size, model.config.num_channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype("float32")


def test_a_config_of_another_model_is_refused(tiny_config):
    with pytest.raises(ValueError, match="`config` must be a `keras_vit.MixerConfig`.*ViTConfig"):
        Mixer(tiny_config)
    with pytest.raises(ValueError, match="`config` must be a `keras_vit.ViTConfig`.*dict"):
        ViT({})


def test_reset_head_shares_all_but_the_head(image_model):
    """FAULTS C1: another number of classes, and the body is the same."""
    images = _images(image_model)
    before = image_model(images)
    new = image_model.reset_head(3, labels=["a", "b", "c"])
    assert new.output.shape == (None, 3) and new.labels == ("a", "b", "c")
    assert type(new) is type(image_model) and new.config.num_classes == 3
    assert not new.get_layer("head").kernel.numpy().any()
    assert new.get_layer("block_1") is image_model.get_layer("block_1")
    features = image_model.reset_head(0)
    assert features.output.shape == (None, 16)
    pooled = image_model.intermediates("pooled")(images)["pooled"]
    np.testing.assert_array_equal(features(images), pooled)
    new.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    new.get_layer("head").kernel.assign(np.eye(16, 3))
    new.fit(images, np.array([0, 1, 2]), verbose=0)
    moved = np.abs(np.asarray(image_model(images)) - np.asarray(before))
    assert moved.max() > 0  # the weights are shared


def test_reset_head_of_as_many_classes_is_new(image_model):
    """FAULTS C1: asked for, so done."""
    new = image_model.reset_head(5)
    assert not np.asarray(new(_images(image_model))).any()
    assert np.asarray(image_model(_images(image_model))).any()


def test_reset_head_drops_a_tanh_layer(tiny_config, random_weights):
    """FAULTS C4."""
    model = random_weights(ViT(dataclasses.replace(tiny_config, representation_size=7)))
    new = model.reset_head(3)
    assert new.config.representation_size is None
    assert "pre_logits" not in [layer.name for layer in new.layers]


def test_views_of_views_work(image_model, tmp_path):
    new = image_model.reset_head(3).reset_head(4)
    new.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    images = _images(image_model)
    np.testing.assert_array_equal(again(images), new(images))


def test_quantized_models_are_refused(image_model):
    image_model.quantize("int8")
    with pytest.raises(ValueError, match="`reset_head` needs float weights"):
        image_model.reset_head(3)


def test_probabilities_are_a_softmax_or_sigmoids(image_model):
    logits = np.array([[0.0, 1.0, 2.0]], "float32")
    np.testing.assert_allclose(np.sum(image_model.probabilities(logits)), 1.0, atol=1e-6)
    image_model.multi_label = True
    sigmoids = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(image_model.probabilities(logits), sigmoids, atol=1e-6)


def test_multi_label_is_saved(image_model, tmp_path):
    image_model.multi_label = True
    image_model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").multi_label


def test_no_warning_for_usual_pixels(image_model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image_model.predict(_images(image_model), verbose=0)


@pytest.mark.parametrize("change", ["add_lora", "quantize"])
def test_models_that_share_layers_see_what_changes(tiny_config, random_weights, change):
    """What one compiled before must not outlive the layers' change."""
    model = random_weights(ViT(tiny_config))
    images = _images(model)
    view, other = model.intermediates(["pooled"]), model.reset_head(0)
    for each in (model, view, other):
        each.predict(images, verbose=0)
    if change == "add_lora":
        other.add_lora(rank=2)
        for weight in other.weights:
            if "lora" in weight.path:
                weight.assign(np.full(weight.shape, 0.3))
    else:
        model.quantize("int8")
    np.testing.assert_allclose(model.predict(images, verbose=0), model(images), atol=1e-6)
    pooled = view.predict(images, verbose=0)["pooled"]
    np.testing.assert_allclose(pooled, other.predict(images, verbose=0), atol=1e-6)
    np.testing.assert_allclose(pooled, view(images)["pooled"], atol=1e-6)


def test_adapters_are_not_lost_where_layers_are_made_anew(tiny_config):
    """FAULTS J2."""
    axial = dataclasses.replace(tiny_config, axial=True, class_token=False, pool="mean")
    model = ViT(axial)
    model.add_lora(rank=2)
    with pytest.raises(ValueError, match="Adapters stay with the layers.*merge_lora"):
        model.with_image_size((16, 32))
    model.merge_lora().with_image_size((16, 32))


def test_a_quantized_policy_is_refused(tiny_config):
    with pytest.raises(ValueError, match="`dtype` must be a floating point policy"):
        ViT(tiny_config, dtype="int8_from_float32")
