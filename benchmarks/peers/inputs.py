"""The same numbers for every peer."""

from typing import Any

import numpy as np

from benchmarks.flops import NUM_CLASSES
from benchmarks.rows import Case


def pixels(case: Case) -> np.ndarray:
    """Return float32 `(batch, height, width, 3)`, 0..255."""
    shape = (case.batch, case.image_size, case.image_size, 3)
    return np.random.default_rng(0).uniform(0.0, 255.0, shape).astype("float32")


def normalized(case: Case) -> np.ndarray:
    """Return float32 `(batch, height, width, 3)`, -1..1, for models that do not normalise."""
    return pixels(case) / 127.5 - 1.0


def channels_first(case: Case) -> np.ndarray:
    """Return `normalized` as `(batch, 3, height, width)`."""
    return np.ascontiguousarray(normalized(case).transpose(0, 3, 1, 2))


def labels(case: Case) -> np.ndarray:
    """Return int64 `(batch,)`."""
    return np.random.default_rng(1).integers(0, NUM_CLASSES, case.batch)


def random_value(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return random numbers in the place of a weight's initial value.

    Graph optimizers cancel additions of 0 and products with 0 or 1: of a model as it was
    initialised, with a head of zeros, they leave nothing to measure.
    """
    is_scale = value.ndim == 1 and bool(np.all(value == 1))
    return rng.normal(1.0 if is_scale else 0.0, 0.02, value.shape)


def randomize_keras(model: Any) -> Any:
    """Give a Keras model random weights, and return it."""
    import keras

    rng = np.random.default_rng(2)
    for variable in model.weights:
        if "float" in variable.dtype:
            value = keras.ops.convert_to_numpy(variable).astype("float32")
            variable.assign(random_value(value, rng))
    return model


def randomize_torch(model: Any) -> Any:
    """Give a torch model random weights, and return it."""
    import torch

    rng = np.random.default_rng(2)
    with torch.no_grad():
        for parameter in model.parameters():
            value = random_value(parameter.numpy(), rng)
            parameter.copy_(torch.from_numpy(np.asarray(value)))
    return model
