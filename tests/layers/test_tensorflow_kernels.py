import keras
import numpy as np
import pytest

from keras_vit import ViT
from keras_vit.layers import LayerNorm
from keras_vit.layers.activations import ACTIVATION_FUNCTIONS, activation_function
from keras_vit.layers.spelling import spelled

if keras.backend.backend() != "tensorflow":
    pytest.skip("of TensorFlow alone", allow_module_level=True)

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

needs_onednn = pytest.mark.skipif(
    not _pywrap_util_port.IsMklEnabled(), reason="this TensorFlow has no oneDNN to fuse with"
)


@pytest.mark.parametrize("shape", [(5, 24), (3, 5, 24)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 2e-2)])
def test_layer_norm_is_that_of_keras(shape, dtype, tolerance, random_weights):
    layer = LayerNorm(epsilon=1e-3, dtype=dtype)
    layer.build((None, *shape[1:]))
    random_weights(layer)
    inputs = tf.cast(3.0 + 10.0 * np.random.default_rng(0).normal(size=shape), dtype)

    @tf.function(input_signature=[tf.TensorSpec((None, *shape[1:]), dtype)])
    def fused(inputs):
        with spelled("onednn"):
            return layer(inputs)

    kinds = {operation.type for operation in fused.get_concrete_function().graph.get_operations()}
    assert "FusedBatchNormV3" in kinds
    np.testing.assert_allclose(
        np.float32(fused(inputs)), np.float32(layer(inputs)), atol=tolerance, rtol=tolerance
    )


def test_layer_norm_has_its_gradient(random_weights):
    """Saliency maps ask for it in a graph that was traced for inference."""
    layer = LayerNorm(epsilon=1e-3)
    layer.build((None, 24))
    random_weights(layer)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(5, 24)), tf.float32)

    def gradient(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = tf.reduce_sum(layer(inputs) ** 3)
        return tape.gradient(outputs, inputs)

    @tf.function(input_signature=[tf.TensorSpec((None, 24))])
    def fused(inputs):
        with spelled("onednn"):
            return gradient(inputs)

    np.testing.assert_allclose(fused(inputs), gradient(inputs), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("name", ACTIVATION_FUNCTIONS)
def test_compiled_activations_have_the_same_values_and_gradients(name):
    inputs = tf.constant(np.linspace(-12.0, 12.0, 1001), tf.float32)
    found = []
    for training in (False, True):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = activation_function(name, training)(inputs)
            slopes = tape.gradient(outputs, inputs, output_gradients=tf.cos(inputs))
        found.append((outputs, slopes, outer.gradient(slopes, inputs)))
    for plain, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(compiled, plain, atol=1e-5, rtol=2e-6)


@pytest.mark.parametrize("name", ACTIVATION_FUNCTIONS)
def test_compiled_activations_round_once_in_bfloat16(name):
    """The arithmetic is float32: of the exact value, the error is that of one rounding."""
    inputs = tf.cast(tf.constant(np.linspace(-8.0, 8.0, 1001)), tf.bfloat16)
    exact = ACTIVATION_FUNCTIONS[name](tf.cast(inputs, tf.float32))
    outputs = activation_function(name, training=True)(inputs)
    assert outputs.dtype == tf.bfloat16
    np.testing.assert_allclose(np.float32(outputs), exact, rtol=2**-8, atol=1e-5)


def test_eager_operations_stay_plain(random_weights):
    """Nothing fuses them, and the batch norm alone would be slower."""
    layer = LayerNorm(epsilon=1e-3)
    layer.build((None, 24))
    random_weights(layer)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(5, 24)), tf.float32)
    with spelled("onednn"):
        np.testing.assert_array_equal(
            layer(inputs), keras.layers.LayerNormalization.call(layer, inputs)
        )


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_gpu_gets_the_plain_spellings(device, monkeypatch):
    monkeypatch.setattr(
        keras.distribution, "list_devices", lambda kind=None: [f"{device}:0"] * (kind == device)
    )
    is_plain = activation_function("gelu", training=True) is ACTIVATION_FUNCTIONS["gelu"]
    assert is_plain == (device == "gpu")
    model = ViT.from_variant("Ti/16", num_layers=1, image_size=32, num_classes=3)
    predict = tf.function(model.predict_step, autograph=False)
    graph = predict.get_concrete_function((tf.TensorSpec((None, 32, 32, 3)),)).graph
    kinds = {operation.type for operation in graph.get_operations()}
    assert ("FusedBatchNormV3" in kinds) == (device == "cpu")


def test_an_activation_is_compiled_once():
    """Each layer of a model takes the same function, so that XLA compiles it once a shape."""
    assert activation_function("gelu", True) is activation_function("gelu", True)


@needs_onednn
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_predict_runs_fused_operations(activation, dtype, random_weights, fused_operations):
    """What speed rests on: norms, GELUs and residuals are no operations of their own."""
    fields = dict(num_layers=2, image_size=32, num_classes=3, activation=activation)
    model = random_weights(ViT.from_variant("Ti/16", dtype=dtype, **fields))
    images = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3)).astype("float32")
    found = fused_operations(lambda: model.predict(images, verbose=0))
    gelu = {"gelu": "GeluExact", "gelu_tanh": "GeluApproximate"}[activation]
    assert found["_MklLayerNorm"] == 5
    assert found[f"_FusedMatMul BiasAdd,{gelu}"] == 2
    assert found["_FusedMatMul BiasAdd,Add"] == 4
