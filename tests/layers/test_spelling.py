import keras
import numpy as np
import pytest

from keras_vit import ViT
from keras_vit.layers.spelling import SPELLINGS, spelled, spelling

FIELDS = dict(num_layers=2, image_size=32, num_classes=3)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "quick_gelu", "silu"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("bfloat16", 0.15)])
def test_spellings_compute_the_same(name, activation, dtype, tolerance, random_weights):
    def run(name):
        model = ViT.from_variant("Ti/16", activation=activation, dtype=dtype, **FIELDS)
        random_weights(model)
        with spelled(name):
            return np.float32(keras.ops.cast(model(images, training=False), "float32"))

    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype("float32")
    plain = run(None)
    assert plain.std() > 0.1
    np.testing.assert_allclose(run(name), plain, atol=tolerance * plain.std())


def test_only_graphs_of_tensorflow_are_spelled_for_onednn():
    with spelled("onednn"):
        assert spelling() is None  # eager
    with spelled("textbook"):
        assert spelling() == "textbook"
    assert spelling() is None


def test_an_unknown_spelling_is_refused():
    with pytest.raises(ValueError, match="Unknown `name`.*'onedn'.*onednn"), spelled("onedn"):
        pass


def test_a_spelling_ends_with_its_context():
    with pytest.raises(RuntimeError), spelled("textbook"):
        raise RuntimeError
    assert spelling() is None
