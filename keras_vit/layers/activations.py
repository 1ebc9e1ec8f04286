"""The activations of the models here, by the names that a config has."""

import functools
import math
from collections.abc import Callable

from keras import ops

from keras_vit.layers.backend import is_tensorflow, is_tensorflow_on_cpu
from keras_vit.layers.spelling import spelling


def _gelu_tanh(x):
    if not is_tensorflow():
        return ops.gelu(x, approximate=True)
    # Of equal spellings the one in which TensorFlow finds the GELU to fuse with the MatMul before;
    # that of `ops.gelu` is lost when its optimizer has moved the constants.
    cubed = x * (0.044715 * ops.square(x))
    return (0.5 * x) * (1.0 + ops.tanh(0.7978845608028654 * (x + cubed)))  # sqrt(2 / pi)


def _quick_gelu(x):
    return x * ops.sigmoid(1.702 * x)


def _textbook_gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x / math.sqrt(2.0)))


def _textbook_gelu_tanh(x):
    return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATION_FUNCTIONS: dict[str, Callable] = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": _quick_gelu,
    "silu": ops.silu,
}

# TensorFlow's GELU is made of `erfc`, which ONNX has no operation for and OpenVINO does not fuse.
TEXTBOOK = {"gelu": _textbook_gelu, "gelu_tanh": _textbook_gelu_tanh}


def activation_function(name: str, training: bool) -> Callable:
    """Return the function of a key of `ACTIVATION_FUNCTIONS`.

    Args:
        name: The key.
        training: Whether gradients will be asked for. On a CPU TensorFlow's function is compiled
            then; at inference it is not, since it fuses with the MatMul before.
    """
    if training and is_tensorflow_on_cpu():
        return _compiled(name)
    if spelling() == "textbook":
        return TEXTBOOK.get(name, ACTIVATION_FUNCTIONS[name])
    return ACTIVATION_FUNCTIONS[name]


@functools.cache
def _compiled(name: str) -> Callable:
    from keras_vit.layers.tensorflow_kernels import compiled

    return compiled(ACTIVATION_FUNCTIONS[name])
