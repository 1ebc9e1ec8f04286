import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_vit.training.losses import SigmoidCrossentropy, SmoothedCrossentropy


def test_sums_over_classes():
    labels = np.array([[1, 0, 1], [0, 0, 0]], "float32")
    logits = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, -40.0]], "float32")
    odds = np.where(labels == 1, -logits, logits).astype("float64")
    expected = np.log1p(np.exp(odds)).sum(-1).mean()
    np.testing.assert_allclose(SigmoidCrossentropy()(labels, logits), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_smoothing_gives_a_share_to_all_classes(shape):
    labels = np.array([0, 3, 1]).reshape(shape)
    logits = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    targets = 0.8 * np.eye(4)[[0, 3, 1]] + 0.2 / 4
    expected = -(targets * log_probabilities).sum(-1).mean()
    np.testing.assert_allclose(SmoothedCrossentropy(0.2)(labels, logits), expected, rtol=1e-5)
    plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    np.testing.assert_allclose(SmoothedCrossentropy(0.0)(labels, logits), plain, rtol=1e-6)


@pytest.mark.parametrize("kind", [SigmoidCrossentropy, SmoothedCrossentropy])
def test_comes_back_from_its_configuration(kind):
    loss = kind(label_smoothing=0.1)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(again, kind)
    assert again.get_config() == loss.get_config()
    assert again.get_config()["from_logits"] is True
    assert again.get_config()["label_smoothing"] == 0.1


def test_compiled_models_load_in_a_new_process(tmp_path):
    """TRAPS 2: `import keras_vit` alone makes Keras know the losses."""
    for kind in (SigmoidCrossentropy, SmoothedCrossentropy):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", kind())
        model.save(tmp_path / f"{kind.__name__}.keras")
    code = (
        "import sys, pathlib, keras, keras_vit\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.keras')):\n"
        "    print(type(keras.saving.load_model(path).loss).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.split() == ["SigmoidCrossentropy", "SmoothedCrossentropy"], done.stderr
