import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as to_numpy

from keras_vit.layers import PatchDropout


def _numbered(batch: int, tokens: int) -> np.ndarray:
    """Tokens that say which one they are."""
    return np.broadcast_to(np.arange(tokens, dtype="float32")[None, :, None], (batch, tokens, 4))


@pytest.mark.parametrize(("rate", "kept"), [(0.5, 8), (0.3, 11), (0.99, 1)])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_same_count_in_order_after_the_whole_prefix(rate, kept, prefix):
    layer = PatchDropout(rate, prefix, seed=1)
    numbers = to_numpy(layer(_numbered(6, prefix + 16), training=True))[..., 0]
    assert numbers.shape == (6, prefix + kept)
    np.testing.assert_array_equal(numbers[:, :prefix], np.tile(np.arange(prefix), (6, 1)))
    assert (np.diff(numbers, axis=1) > 0).all()
    assert numbers.max() < prefix + 16


def test_each_example_and_each_step_keeps_others():
    layer = PatchDropout(0.5, 1, seed=1)
    first, second = (to_numpy(layer(_numbered(6, 17), training=True))[..., 0] for _ in range(2))
    assert len({tuple(row) for row in first}) > 1
    assert not np.array_equal(first, second)
    again = to_numpy(PatchDropout(0.5, 1, seed=1)(_numbered(6, 17), training=True))[..., 0]
    np.testing.assert_array_equal(again, first)


def test_each_patch_is_kept_equally_often():
    layer = PatchDropout(0.75, 0, seed=0)
    kept = to_numpy(layer(_numbered(4000, 8), training=True))[..., 0].astype(int)
    shares = np.bincount(kept.ravel(), minlength=8) / 4000
    np.testing.assert_allclose(shares, 0.25, atol=0.03)  # four standard deviations


def test_inference_keeps_all():
    tokens = _numbered(2, 17)
    layer = PatchDropout(0.5, 1)
    np.testing.assert_array_equal(layer(tokens), tokens)
    np.testing.assert_array_equal(PatchDropout(0.0, 1)(tokens, training=True), tokens)


def test_training_in_a_graph_draws_anew_for_any_batch():
    inputs = keras.Input((17, 4))
    pooled = keras.layers.GlobalAveragePooling1D()(PatchDropout(0.5, 1, seed=1)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(pooled))
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    losses = [model.train_on_batch(_numbered(3, 17), np.zeros((3, 1))) for _ in range(3)]
    assert len(set(map(float, losses))) == 3
    assert np.isfinite(model.train_on_batch(_numbered(5, 17), np.zeros((5, 1))))
    assert model.evaluate(_numbered(5, 17), np.zeros((5, 1)), verbose=0) == (4 * 8) ** 2


@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_a_rate_out_of_range_is_an_error(rate):
    with pytest.raises(ValueError, match="`rate` must be at least 0 and below 1. Received: rate="):
        PatchDropout(rate)
