import keras
import numpy as np

from keras_vit.training.losses import SigmoidCrossentropy


def test_sums_over_classes():
    labels = np.array([[1, 0, 1], [0, 0, 0]], "float32")
    logits = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, -40.0]], "float32")
    odds = np.where(labels == 1, -logits, logits).astype("float64")
    expected = np.log1p(np.exp(odds)).sum(-1).mean()
    np.testing.assert_allclose(SigmoidCrossentropy()(labels, logits), expected, rtol=1e-6)


def test_comes_back_from_its_configuration():
    loss = SigmoidCrossentropy(label_smoothing=0.1)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(again, SigmoidCrossentropy)
    assert again.get_config() == loss.get_config()
    assert again.get_config()["from_logits"] is True
