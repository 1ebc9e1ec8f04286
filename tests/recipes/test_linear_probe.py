import keras
import numpy as np

from keras_vit import ViT
from keras_vit.recipes.linear_probe import LINEAR_PROBE


def test_learns_what_features_separate(random_weights):
    """Two kinds of pictures: the head alone tells them apart, and nothing else moved."""
    model = random_weights(ViT.from_variant("Ti/16", num_layers=2, image_size=16, num_classes=2))
    features = model.reset_head(0)
    labels = np.arange(16) % 2
    images = np.random.default_rng(0).normal(60 + 130 * labels[:, None, None, None], 20)
    images = np.broadcast_to(images, (16, 16, 16, 3)).clip(0, 255).astype("float32")
    before = features.predict(images, verbose=0)
    LINEAR_PROBE.prepare(model)
    model.compile(**LINEAR_PROBE.compile_arguments(learning_rate=0.01, total_steps=60))
    model.fit(images, labels, batch_size=16, epochs=60, verbose=0)
    assert model.evaluate(images, labels, verbose=0, return_dict=True)["accuracy"] == 1.0
    np.testing.assert_array_equal(features.predict(images, verbose=0), before)
    assert [variable.path for variable in model.trainable_variables] == ["head/kernel", "head/bias"]


def test_clips_nothing():
    optimizer = LINEAR_PROBE.compile_arguments()["optimizer"]
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert optimizer.global_clipnorm is None
    assert optimizer.weight_decay is None
