"""What makes a run resume: its state, its files, and the callback that keeps them.

`last.keras` holds the model, its optimizer and, as one more member of the archive,
the `TrainingState`; being one file, it is renamed into place in one step.
"""

import csv
import dataclasses
import json
import math
import pathlib
import shutil
import zipfile

import keras
import numpy as np
from keras import ops

from keras_vit.files import replacing
from keras_vit.training.run_directory import BEST_FILE, HISTORY_FILE, LAST_FILE

# What tells the best epoch, of the validation pictures: the first that a run has.
MONITORED = ("accuracy", "pr_auc")
_STATE_MEMBER = "training_state.json"


@dataclasses.dataclass
class TrainingState:
    """How far a run has come.

    Args:
        step: Updates so far.
        history: One row an epoch: its number, its last step and its metrics.
    """

    step: int = 0
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    @property
    def best_epoch(self) -> int | None:
        """Index of the row of highest validation accuracy, else of lowest training loss.

        With several labels a picture it is the area under precision over recall. Of equal ones,
        as a few validation pictures give them, the lowest loss counts.
        """
        if not self.history:
            return None
        names = [f"val_{name}" for name in MONITORED if f"val_{name}" in self.history[0]]
        scores = [
            (row[names[0]] if names else 0.0, -row.get("val_loss", row["loss"]))
            for row in self.history
        ]
        return scores.index(max(scores))

    def is_stalled(self, patience: int | None) -> bool:
        """Whether the last `patience` epochs brought nothing better."""
        if patience is None or not self.history:
            return False
        return len(self.history) - 1 - self.best_epoch >= patience


def save_training(model: keras.Model, state: TrainingState, path: pathlib.Path) -> None:
    """Write model, optimizer and state as one `.keras` file, whole or not at all."""
    with replacing(path) as temporary:
        model.save(temporary)
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.writestr(_STATE_MEMBER, json.dumps(dataclasses.asdict(state)))


def load_training(model: keras.Model, path: pathlib.Path) -> TrainingState:
    """Put weights and optimizer of `save_training` into a compiled model with a built optimizer.

    Returns:
        The state that was saved with them.

    Raises:
        ValueError: If the file is no such file.
    """
    state = read_state(path)
    model.load_weights(path)
    return state


def read_state(path: pathlib.Path) -> TrainingState:
    """Return the state that lies in a file of `save_training`.

    Raises:
        ValueError: If the file is no such file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            state = TrainingState(**json.loads(archive.read(_STATE_MEMBER)))
        if not isinstance(state.step, int) or not state.history:
            raise ValueError("its training state is empty")
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"A run resumes from a `{LAST_FILE}` that `keras_vit.finetune` wrote. "
            f"Received: {str(path)!r} ({error}). Start again with `overwrite=True`."
        ) from error
    return state


class RunKeeper(keras.callbacks.Callback):
    """Counts steps, ends the run at the last one, and keeps its files.

    The random state of dropout is set anew each epoch, since `.keras` files do not hold it.

    Args:
        state: Where the run begins; brought up to date in place.
        total_steps: Updates of the whole run; it may end within an epoch.
        seed: Of the run.
        patience: Epochs without a better one after which the run ends, or None.
        directory: Where last and best model and the history go, or None.
    """

    def __init__(
        self,
        state: TrainingState,
        total_steps: int,
        seed: int,
        patience: int | None = None,
        directory: pathlib.Path | None = None,
    ):
        super().__init__()
        self.state = state
        self.total_steps = total_steps
        self.seed = seed
        self.patience = patience
        self.directory = directory
        self._best_weights = None

    def on_epoch_begin(self, epoch: int, logs=None):
        generator = np.random.default_rng([self.seed, epoch])
        for variable in self.model.non_trainable_variables:
            if variable.path.endswith("seed_generator_state"):
                variable.assign(generator.integers(2**31, size=variable.shape))

    def on_train_batch_end(self, batch: int, logs=None):
        self.state.step += 1
        self._check_finite(logs["loss"])
        if self.state.step >= self.total_steps:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs=None):
        self._check_finite(sum(logs.values()))
        # The last update of an epoch shows in no loss.
        self._check_finite(sum(float(ops.sum(value)) for value in self.model.trainable_variables))
        row = {
            "epoch": epoch + 1,
            "step": self.state.step,
            "learning_rate": float(self.model.optimizer.learning_rate),
            **{name: float(value) for name, value in logs.items()},
        }
        self.state.history.append(row)
        try:
            self._keep(is_best=self.state.best_epoch == len(self.state.history) - 1)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror or error}: the files of step {self.state.step} could not be "
                "written. The last whole checkpoint was kept: make room, then `resume=True`",
                str(self.directory),
            ) from error
        if self.state.is_stalled(self.patience):
            self.model.stop_training = True

    def restore_best(self) -> None:
        """Put the best epoch's weights back into the model."""
        if self.directory is not None:
            self.model.load_weights(self.directory / BEST_FILE)
        elif self._best_weights is not None:
            self.model.set_weights(self._best_weights)

    def _keep(self, is_best: bool) -> None:
        if self.directory is None:
            if is_best and self.patience is not None:
                self._best_weights = self.model.get_weights()
            return
        # Best before last: a run cut between the two repeats the epoch.
        newest = self.directory / (BEST_FILE if is_best else LAST_FILE)
        save_training(self.model, self.state, newest)
        if is_best:
            with replacing(self.directory / LAST_FILE) as temporary:
                shutil.copyfile(newest, temporary)
        with (
            replacing(self.directory / HISTORY_FILE) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, self.state.history[0])
            writer.writeheader()
            writer.writerows(self.state.history)

    def _check_finite(self, value: float) -> None:
        if not math.isfinite(float(value)):
            raise FloatingPointError(
                f"The loss or a weight is no longer finite at step {self.state.step}. "
                "Use a lower `learning_rate`, or check the pictures and labels. The last whole "
                "checkpoint was kept."
            )
