import pathlib

import keras
import numpy as np

import keras_vit
from keras_vit.recipes.paper_sgd import PAPER_SGD
from keras_vit.training.optimizers import MomentumSGD

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


class StepLosses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


def test_fit_follows_the_official_fine_tuning():
    official = np.load(GOLDEN / "finetune_vit_token.npz")
    model = keras_vit.from_pretrained(
        str(GOLDEN / "vit_token.npz"),
        num_classes=10,
        reset_head=True,
        include_normalization=False,
    )
    arguments = keras_vit.recipe("paper_sgd").compile_arguments(
        learning_rate=float(official["base_learning_rate"]),
        total_steps=int(official["total_steps"]),
        warmup_steps=int(official["warmup_steps"]),
    )
    model.compile(**arguments)
    steps = StepLosses()
    images, labels = official["images"], official["labels"]
    model.fit(images, labels, batch_size=8, epochs=24, callbacks=[steps], verbose=0)
    np.testing.assert_allclose(steps.losses, official["losses"], rtol=1e-4)
    logits = model.predict(images, verbose=0)
    np.testing.assert_allclose(logits, official["final_logits"], atol=1e-4)


def test_equals_the_paper():
    assert PAPER_SGD.clip_norm == 1.0
    assert PAPER_SGD.batch_size == 512
    assert PAPER_SGD.crop_area == (0.05, 1.0)
    assert PAPER_SGD.flip
    optimizer = PAPER_SGD.compile_arguments()["optimizer"]
    assert isinstance(optimizer, MomentumSGD)
    assert optimizer.momentum == 0.9
    assert not optimizer.nesterov
    assert optimizer.global_clipnorm == 1.0
    assert optimizer.weight_decay is None


def test_warmups_are_those_of_the_official_presets():
    for preset in PAPER_SGD.presets.values():
        assert PAPER_SGD.warmup_steps(preset.total_steps) == preset.warmup_steps
