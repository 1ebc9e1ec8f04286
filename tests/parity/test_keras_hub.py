"""keras-hub itself, on fresh random presets: its numbers are ours, and so are its pictures."""

import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.parity

SMALL = dict(image_shape=(32, 32, 3), patch_size=8, num_layers=3, num_heads=4, hidden_dim=48)
SMALL |= dict(mlp_dim=96)
NO_TOKEN = dict(use_class_token=False)
NO_BIASES = dict(use_patch_bias=False, use_mha_bias=False, use_mlp_bias=False)
PRESETS = {
    "plain": (SMALL, dict(num_classes=7)),
    "oblong_patches": (
        SMALL | dict(image_shape=(32, 48, 3), patch_size=(8, 16)),
        dict(num_classes=7, intermediate_dim=20),
    ),
    "one_channel_gap": (
        SMALL | NO_TOKEN | dict(image_shape=(16, 32, 1)),
        dict(num_classes=2, pooling="gap"),
    ),
    "no_biases_other_epsilon": (
        SMALL | NO_BIASES | dict(layer_norm_epsilon=1e-3),
        dict(num_classes=3, activation="sigmoid"),
    ),
    "deep_gap_tanh": (
        SMALL | NO_TOKEN | dict(num_layers=7, num_heads=2, hidden_dim=24),
        dict(num_classes=5, pooling="gap", intermediate_dim=9, activation="softmax"),
    ),
    "backbone": (SMALL, None),
    "backbone_without_token": (SMALL | NO_TOKEN | NO_BIASES, None),
}


def _preset(arguments, head, directory):
    """Return a backbone and a model with random weights, saved as a preset."""
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    backbone = ViTBackbone(**arguments)
    model = backbone if head is None else ViTImageClassifier(backbone, **head)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if variable.dtype == "float32":
            variable.assign(rng.normal(variable.path.endswith("gamma"), 0.3, variable.shape))
    model.save_to_preset(str(directory))
    return backbone, model


def _logits(model, images):
    """Return what goes into the last activation, which ours leaves to the caller."""
    model.output_dense.activation = lambda values: values
    return model(images)


@pytest.mark.parametrize("name", PRESETS)
def test_logits_and_features_of_a_fresh_random_preset(name, tmp_path):
    arguments, head = PRESETS[name]
    backbone, theirs = _preset(arguments, head, tmp_path)
    ours = keras_vit.from_pretrained(tmp_path, include_normalization=False)
    assert ours.multi_label == ("sigmoid" in (head or {}).values())
    assert ours.config.layer_norm_epsilon == backbone.layer_norm_epsilon
    images = np.random.default_rng(1).normal(size=(3, *arguments["image_shape"]))
    images = images.astype("float32")
    views = ["encoder_norm"] if head is None else ["encoder_norm", "logits"]
    values = ours.intermediates(views)(images)
    features = backbone(images)
    np.testing.assert_allclose(values["encoder_norm"], features, rtol=0, atol=2e-5)
    if head is not None:
        expected = np.asarray(_logits(theirs, images))
        assert np.ptp(expected) > 0.5
        np.testing.assert_allclose(values["logits"], expected, rtol=0, atol=2e-5)


# With antialiasing ours rounds to whole levels after each axis, as PIL does.
@pytest.mark.parametrize(
    ("crop", "antialias", "levels"),
    [(False, False, 1e-3), (True, False, 1e-3), (False, True, 1.0)],
)
def test_pictures_are_prepared_as_theirs(crop, antialias, levels, tmp_path):
    from keras_hub.layers import ViTImageConverter
    from keras_hub.models import ViTImageClassifierPreprocessor

    converter = ViTImageConverter(
        image_size=(32, 32),
        scale=[0.02, 0.015, 0.01],
        offset=[-2.0, -1.5, -1.0],
        crop_to_aspect_ratio=crop,
        antialias=antialias,
    )
    preprocessor = ViTImageClassifierPreprocessor(converter)
    _preset(SMALL, dict(num_classes=2, preprocessor=preprocessor), tmp_path)
    model = keras_vit.from_pretrained(tmp_path)
    # Their centre is cut before the resize, ours after it: the same for whole factors.
    pictures = np.random.default_rng(2).integers(0, 256, (2, 64, 128, 3)).astype("float32")
    expected = np.asarray(preprocessor(pictures))
    mean, std = model.preprocessing.mean, model.preprocessing.std
    ours = (np.asarray(model.preprocess(pictures)) / 255 - mean) / std
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, rtol=0, atol=0.02 * levels)
