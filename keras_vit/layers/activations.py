"""The activations of the models here, by the names that a config has."""

from collections.abc import Callable

from keras import ops


def _quick_gelu(x):
    return x * ops.sigmoid(1.702 * x)


ACTIVATION_FUNCTIONS: dict[str, Callable] = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "quick_gelu": _quick_gelu,
    "silu": ops.silu,
}
