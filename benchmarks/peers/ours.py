"""keras_vit in the forms that it is used in. Pixels 0..255 in: it normalises them itself."""

from typing import Any

import keras
import numpy as np

import keras_vit
from benchmarks.memory import forget_peak
from benchmarks.peers import Call
from benchmarks.peers.inputs import pixels, randomize_keras
from benchmarks.peers.keras_calls import forward, training_step
from benchmarks.rows import Case


def _model(case: Case) -> keras_vit.ViT:
    fields = {} if case.num_layers is None else {"num_layers": case.num_layers}
    keras.utils.set_random_seed(0)
    model = keras_vit.ViT.from_variant(
        case.model, dtype=case.dtype, image_size=case.image_size, activation="gelu", **fields
    )
    return randomize_keras(model)


def model_call(case: Case) -> Call:
    """The model itself, compiled, on the backend of the process."""
    return forward(_model(case), pixels(case))


def predict(case: Case) -> Call:
    """`predict_on_batch`, numpy in and out."""
    model, images = _model(case), pixels(case)

    def run():
        model.predict_on_batch(images)

    return Call(run, {"policy": model.dtype_policy.name})


def train(case: Case) -> Call:
    """One step of SGD with momentum."""
    before = forget_peak()
    return training_step(_model(case), pixels(case), case, before)


def saved_model(case: Case) -> Call:
    """The export, loaded by TensorFlow alone."""
    return _served(case)


def cpu_saved_model(case: Case) -> Call:
    """The export for CPUs, in a process that may take its weights for constant."""
    return _served(case, target="cpu")


def _served(case: Case, **arguments: Any) -> Call:
    """`serving_default`: of the signatures with logits the one that does least beside the model.

    Its resize is the identity here, but for a conversion of uint8; `serve_float` looks for
    numbers that are no pixels as well.
    """
    import tensorflow as tf

    model = _model(case)
    keras_vit.export(model, "saved_model", overwrite=True, **arguments)
    loaded = tf.saved_model.load("saved_model")
    images = tf.constant(pixels(case).astype("uint8"))

    def run():
        loaded.signatures["serving_default"](images=images)["logits"].numpy()

    return Call(
        run, {"policy": model.dtype_policy.name, "signature": "serving_default", **arguments}
    )


def openvino(case: Case) -> Call:
    """OpenVINO's conversion of the float32 model, run in the case's precision."""
    import tensorflow as tf

    from benchmarks.peers.openvino import compiled
    from keras_vit.layers.spelling import spelled

    model = _model(Case(**{**vars(case), "dtype": "float32"}))
    images = pixels(case)

    def forward(images):
        with spelled("textbook"):
            return model(images, training=False)

    function = tf.function(forward, autograph=False)
    spec = tf.TensorSpec(np.shape(images), tf.float32, "images")
    return compiled(function.get_concrete_function(spec), images, case)
