import keras
import numpy as np
import pytest

from keras_vit import Mixer


def test_pooled_is_the_mean_of_the_tokens(tiny_mixer_config, random_weights):
    model = random_weights(Mixer(tiny_mixer_config))
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")
    views = model.intermediates(["block_1", "encoder_norm", "pooled"])(images)
    views = {name: keras.ops.convert_to_numpy(view) for name, view in views.items()}
    assert views["block_1"].shape == views["encoder_norm"].shape == (3, 16, 16)
    np.testing.assert_allclose(views["pooled"], views["encoder_norm"].mean(1), atol=1e-6)


def test_another_image_size_is_refused_with_a_reason(tiny_mixer_config):
    """FAULTS A1: nothing resizes a token MLP."""
    with pytest.raises(ValueError, match=r"token MLPs know each patch.*image_size=32.*\(16, 16\)"):
        Mixer(tiny_mixer_config).with_image_size(32)
