"""FAULTS H6: weights go into variables one by one, and never without being given away."""

import mmap

import keras
import numpy as np
import pytest

from keras_vit.layers.initializers import Donated, weights_from

SHAPE = (16, 8)
tensorflow_only = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="other backends copy, or see to it themselves"
)


def page_aligned(value: float) -> np.ndarray:
    pages = mmap.mmap(-1, 4 * 16 * 8, access=mmap.ACCESS_COPY)
    array = np.frombuffer(pages, np.float32).reshape(SHAPE)
    array[...] = value
    return array


def built(kernel: object, dtype: str = "float32") -> keras.layers.Dense:
    """A layer whose kernel is what was read; of its bias nothing was."""
    layer = keras.layers.Dense(8, dtype=dtype, bias_initializer="ones")
    with weights_from(layer, lambda path, shape: kernel if path.endswith("kernel") else None):
        layer.build((None, 16))
    return layer


@pytest.mark.parametrize("wrap", [np.asarray, Donated])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values_that_were_read(wrap, dtype):
    for array in (page_aligned(1.5), np.full(SHAPE, 1.5, np.float64)):
        layer = built(wrap(array), dtype)
        assert layer.kernel.dtype == layer.bias.dtype == dtype
        kernel = keras.ops.convert_to_numpy(keras.ops.cast(layer.kernel, "float32"))
        np.testing.assert_array_equal(kernel, np.full(SHAPE, 1.5))
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(keras.ops.cast(layer.bias, "float32")), np.ones(8)
        )
        assert isinstance(layer.kernel_initializer, keras.initializers.GlorotUniform)


@tensorflow_only
def test_donated_memory_becomes_the_variable_and_other_memory_never():
    given, kept = page_aligned(1.0), page_aligned(1.0)
    owner, other = built(Donated(given)), built(kept)
    given[...], kept[...] = 2.0, 2.0
    np.testing.assert_array_equal(owner.kernel.numpy(), np.full(SHAPE, 2.0))
    np.testing.assert_array_equal(other.kernel.numpy(), np.ones(SHAPE))


@tensorflow_only
def test_training_in_donated_memory_leaves_alone_who_read_the_value_before():
    layer = built(Donated(page_aligned(1.0)))
    before = layer.kernel.value.read_value()  # shares the memory until it changes
    model = keras.Sequential([layer])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(np.ones((4, 16), np.float32), np.zeros((4, 8), np.float32), verbose=0)
    assert not np.isclose(layer.kernel.numpy(), 1.0).any()
    np.testing.assert_array_equal(before.numpy(), np.ones(SHAPE))
