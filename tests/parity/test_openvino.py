"""OpenVINO on TensorFlow's graph of a model: it fuses the textbook spelling, and agrees."""

import collections

import numpy as np
import pytest

import keras_vit
from keras_vit.layers.spelling import spelled

pytestmark = pytest.mark.parity

FIELDS = dict(num_layers=2, image_size=32, num_classes=3)


def _converted(model, spelling):
    import openvino
    import tensorflow as tf

    def forward(images):
        with spelled(spelling):
            return model(images, training=False)

    function = tf.function(forward, autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec((None, 32, 32, 3), tf.float32, "images"))
    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    return openvino.compile_model(openvino.convert_model(graph), "CPU", hints)


def _kinds(network):
    """How many operations of each type run, those that are fused into others left out."""
    nodes = network.get_runtime_model().get_ops()
    return collections.Counter(str(node.get_rt_info()["layerType"].value) for node in nodes)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_the_textbook_spelling_is_fused(activation, batch, random_weights):
    model = keras_vit.ViT.from_variant("Ti/16", activation=activation, **FIELDS)
    random_weights(model)
    network = _converted(model, "textbook")
    images = np.random.default_rng(0).integers(0, 256, (batch, 32, 32, 3)).astype("float32")
    logits = model.predict(images, verbose=0)
    np.testing.assert_allclose(network([images])[0], logits, atol=1e-5 * np.abs(logits).max())
    kinds = _kinds(network)
    assert kinds["MVN"] == 5 and kinds["Reduce"] == 0  # normalizations
    # What is left beside them: residuals, positions, pixels. A GELU alone is some five.
    assert kinds["Eltwise"] <= 13, kinds
    assert _kinds(_converted(model, None))["Eltwise"] > 30
