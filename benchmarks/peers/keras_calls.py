"""How a Keras model is called fast on each backend, the same for ours and for keras-hub's."""

from typing import Any

import keras
import numpy as np

from benchmarks.memory import resident
from benchmarks.peers import Call
from benchmarks.peers.inputs import labels
from benchmarks.rows import Case


def forward(model: keras.Model, images: np.ndarray) -> Call:
    """Compiled where the backend has a compiler for it: tf.function without XLA, jax.jit."""
    backend = keras.backend.backend()
    notes = {"backend": backend, "policy": model.dtype_policy.name}
    return Call(_FORWARD[backend](model, keras.ops.convert_to_tensor(images)), notes)


def _tensorflow(model: keras.Model, images: Any):
    import tensorflow as tf

    function = tf.function(lambda images: model(images, training=False), autograph=False)
    return lambda: _drop(function(images).numpy())


def _jax(model: keras.Model, images: Any):
    import jax

    state = [[variable.value for variable in variables] for variables in _variables(model)]
    function = jax.jit(lambda *state_and_images: model.stateless_call(*state_and_images)[0])
    return lambda: _drop(function(*state, images).block_until_ready())


def _torch(model: keras.Model, images: Any):
    import torch

    def run():
        with torch.inference_mode():
            model(images, training=False)

    return run


_FORWARD = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}


def _variables(model: keras.Model):
    return model.trainable_variables, model.non_trainable_variables


def _drop(value: Any) -> None:
    """A call returns figures or nothing."""


def training_step(model: keras.Model, images: np.ndarray, case: Case, before: int) -> Call:
    """Forward, backward and update of all weights, by `train_on_batch`.

    Args:
        model: Not compiled.
        images: `(batch, height, width, channels)`.
        case: What is computed.
        before: What `forget_peak` returned before the model was built.
    """
    model.compile(
        optimizer=keras.optimizers.SGD(1e-3, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    targets = labels(case)
    notes = {"policy": model.dtype_policy.name, "jit_compile": model.jit_compile}

    def run():
        model.train_on_batch(images, targets)
        return {"peak_memory": (resident("VmHWM") - before) / 2**20}

    return Call(run, notes)
