import keras
import numpy as np
import pytest

from keras_vit.layers.take_tokens import take_tokens


@pytest.mark.parametrize("width", [(), (3,), (2, 2)])
def test_each_example_gives_its_own_rows(width):
    tokens = np.random.default_rng(0).normal(size=(2, 5, *width)).astype("float32")
    indices = np.array([[4, 0, 0], [1, 2, 3]])
    expected = np.stack([tokens[0][indices[0]], tokens[1][indices[1]]])
    taken = keras.ops.convert_to_numpy(take_tokens(keras.ops.convert_to_tensor(tokens), indices))
    np.testing.assert_array_equal(taken, expected)
