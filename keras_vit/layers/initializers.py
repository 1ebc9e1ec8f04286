"""Initial values: the official ones, and those that stream out of a weight file."""

import contextlib
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import ops

from keras_vit.layers.backend import is_tensorflow


class Donated:
    """An array that its maker gives away: its memory may become that of a variable.

    TensorFlow copies an ndarray before it makes a tensor of it, and then again where it does not
    begin on a 64-byte boundary. What `__array__` returns it takes as it is.

    Args:
        array: Nobody else may hold it, since training changes it.
    """

    def __init__(self, array: np.ndarray):
        self.array = array

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype)


ReadWeights = Callable[[str, tuple[int, ...]], np.ndarray | Donated | None]


def fused_xavier_uniform(parts: int = 3) -> keras.initializers.Initializer:
    """Xavier-uniform of each of the square kernels that one Dense holds side by side.

    The official code draws query, key and value kernels one by one, with a limit of
    sqrt(6 / (D + D)). Of the fused (D, parts * D) kernel the mean fan is (1 + parts) / 2 times
    D, so a scale of as much gives that limit.

    Args:
        parts: How many kernels.
    """
    scale = (1 + parts) / 2
    return keras.initializers.VarianceScaling(scale, mode="fan_avg", distribution="uniform")


class FromWeights(keras.initializers.Initializer):
    """The value that `read` has for one variable of `layer`, else `otherwise`.

    Args:
        read: Takes the variable's path and shape; returns its array, to be copied unless it is
            `Donated`, or None.
        layer: The layer that owns the variable; its path is known when it is built.
        variable: Name of the variable in the layer.
        otherwise: The initializer that this one stands in for.
    """

    def __init__(
        self,
        read: ReadWeights,
        layer: keras.layers.Layer,
        variable: str,
        otherwise: keras.initializers.Initializer,
    ):
        self.read = read
        self.layer = layer
        self.variable = variable
        self.otherwise = otherwise

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None):
        value = self.read(f"{self.layer.path}/{self.variable}", tuple(shape))
        if value is None:
            return self.otherwise(shape, dtype=dtype)
        if isinstance(value, Donated) and not is_tensorflow():
            value = value.array
        return ops.convert_to_tensor(value, dtype=dtype)


@contextlib.contextmanager
def weights_from(layer: keras.layers.Layer, read: ReadWeights | None) -> Iterator[None]:
    """Build `layer` inside this context to fill its variables with what `read` returns.

    One tensor at a time goes from file to variable, so that memory never holds the weights
    twice. The layers' own initializers are back afterwards, since a config must not name a file.
    """
    if read is None:
        yield
        return
    replaced = [
        (part, attribute, otherwise)
        for part in layer._flatten_layers()
        for attribute, otherwise in vars(part).items()
        if attribute.endswith("_initializer")
    ]
    try:
        for part, attribute, otherwise in replaced:
            variable = attribute.removesuffix("_initializer")
            setattr(part, attribute, FromWeights(read, part, variable, otherwise))
        yield
        _fill_quantized(layer, read)
    finally:
        for part, attribute, otherwise in replaced:
            setattr(part, attribute, otherwise)


def _fill_quantized(layer: keras.layers.Layer, read: ReadWeights) -> None:
    """Fill what Keras makes without the layer's initializers: quantized kernels and scales."""
    for part in layer._flatten_layers():
        if part.quantization_mode is None:
            continue
        for variable in part.weights:
            value = read(variable.path, tuple(variable.shape))
            if value is not None:
                variable.assign(value)
