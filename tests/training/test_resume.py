import zipfile

import keras
import numpy as np
import pytest

from keras_vit.training.optimizers import MomentumSGD
from keras_vit.training.resume import (
    RunKeeper,
    TrainingState,
    load_training,
    read_state,
    save_training,
)


def make_model(learning_rate=0.1) -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(MomentumSGD(learning_rate), "mse", metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    return model


INPUTS = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
TARGETS = INPUTS[:, :2] * 2


def test_weights_velocity_and_state_come_back(tmp_path):
    model = make_model()
    model.fit(INPUTS, TARGETS, epochs=2, verbose=0)
    state = TrainingState(2, [{"epoch": 1, "loss": 0.5}])
    save_training(model, state, tmp_path / "last.keras")
    assert [path.name for path in tmp_path.iterdir()] == ["last.keras"]
    again = make_model()
    assert load_training(again, tmp_path / "last.keras") == state
    assert read_state(tmp_path / "last.keras") == state
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    loaded = keras.saving.load_model(tmp_path / "last.keras")
    np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))


def test_a_file_that_is_no_checkpoint(tmp_path):
    (tmp_path / "last.keras").write_bytes(b"half")
    with pytest.raises(ValueError, match="resumes from.*last.keras.*overwrite=True"):
        load_training(make_model(), tmp_path / "last.keras")
    with zipfile.ZipFile(tmp_path / "last.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match="resumes from"):
        load_training(make_model(), tmp_path / "last.keras")


def test_best_epoch_is_of_highest_accuracy_else_lowest_loss():
    assert TrainingState().best_epoch is None
    by_loss = [{"loss": 3.0}, {"loss": 1.0}, {"loss": 2.0}]
    assert TrainingState(history=by_loss).best_epoch == 1
    by_accuracy = [
        {"loss": 1.0, "val_accuracy": 0.5},
        {"loss": 0.5, "val_accuracy": 0.7},
        {"loss": 0.1, "val_accuracy": 0.7},
    ]
    assert TrainingState(history=by_accuracy).best_epoch == 2
    by_precision = [
        {"loss": 1.0, "val_pr_auc": 0.9},
        {"loss": 0.5, "val_pr_auc": 0.7},
    ]
    assert TrainingState(history=by_precision).best_epoch == 0


def test_stalled_after_patience():
    state = TrainingState(history=[{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}])
    assert state.is_stalled(2)
    assert not state.is_stalled(3)
    assert not state.is_stalled(None)


def test_ends_within_an_epoch():
    state = TrainingState()
    model = make_model()
    keeper = RunKeeper(state, total_steps=3, seed=0)
    model.fit(INPUTS, TARGETS, batch_size=2, epochs=9, callbacks=[keeper], verbose=0)
    assert int(model.optimizer.iterations) == 3
    assert [row["step"] for row in state.history] == [2, 3]
    assert state.history[0]["learning_rate"] == pytest.approx(0.1)


def test_weights_that_the_last_update_broke_are_not_kept(tmp_path):
    model = make_model(1e38)
    keeper = RunKeeper(TrainingState(), total_steps=9, seed=0, directory=tmp_path)
    with pytest.raises(FloatingPointError, match="at step 1"):
        model.fit(INPUTS * 1e10, TARGETS, batch_size=4, callbacks=[keeper], verbose=0)
    assert not list(tmp_path.iterdir())


def test_of_equal_accuracies_the_lowest_loss_is_best():
    """A few validation pictures give many equal accuracies, the first ones in the warm-up."""
    rows = [
        {"loss": 1.4, "val_loss": 1.37, "val_accuracy": 0.75},
        {"loss": 0.9, "val_loss": 0.77, "val_accuracy": 0.75},
        {"loss": 0.8, "val_loss": 0.70, "val_accuracy": 0.70},
    ]
    assert TrainingState(3, rows).best_epoch == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"step": 2, "history": []}', '{"other": 1}'])
def test_a_damaged_state(tmp_path, text):
    with zipfile.ZipFile(tmp_path / "last.keras", "w") as archive:
        archive.writestr("training_state.json", text)
    with pytest.raises(ValueError, match="that `keras_vit.finetune` wrote.*overwrite=True"):
        load_training(None, tmp_path / "last.keras")
