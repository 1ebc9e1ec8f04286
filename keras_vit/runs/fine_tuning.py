"""Fine-tuning, from pictures to a trained model and its files."""

import dataclasses
import logging
import numbers
import os
import pathlib
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_vit.augment import as_augmentations
from keras_vit.data.checks import check_fits
from keras_vit.data.class_weights import ClassWeights, as_class_weights
from keras_vit.data.inputs import TrainingData, open_training_data
from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.pretrained import from_pretrained
from keras_vit.recipes import Recipe
from keras_vit.recipes import recipe as find_recipe
from keras_vit.recipes.definition import LABELS
from keras_vit.recipes.plan import Plan, check_counts, make_plan
from keras_vit.runs.job import Job
from keras_vit.training.resume import RunKeeper, TrainingState, load_training
from keras_vit.training.run_directory import (
    LAST_FILE,
    TENSORBOARD_FOLDER,
    check_run_directory,
    check_settings,
    prepare_run_directory,
    read_run,
    write_run,
    write_unreadable,
)

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run brought.

    Args:
        model: The trained model: of the last step, or of the best epoch with `early_stopping`.
        history: One list a quantity, one number an epoch, as in `keras.callbacks.History`.
        metrics: Loss and metrics of `model`'s epoch; `val_...` where there was validation.
        directory: Where the files are, or None.
    """

    model: ImageModel
    history: dict[str, list[float]]
    metrics: dict[str, float]
    directory: pathlib.Path | None


def finetune(
    model: ImageModel | str,
    train: Any,
    validation: Any = None,
    recipe: str | Recipe = "paper_sgd",
    directory: str | os.PathLike | None = None,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    validation_fraction: float = 0.2,
    multi_label: bool = False,
    class_weights: ClassWeights | None = None,
    augmentation: Any = None,
    early_stopping: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    verbose: int | str = "auto",
    callbacks: Iterable[keras.callbacks.Callback] = (),
) -> Run:
    """Train a model on pictures, by a recipe, and keep what matters in a directory.

    The model is compiled and trained in place; its `labels` become the names of the classes.
    What can be known to be wrong is refused before the first step.

    `directory` gets `run.json` (settings, versions, data), `history.csv`, `last.keras` and
    `best.keras` (highest validation accuracy, else lowest training loss), `unreadable.txt` if
    any file was left out, and logs for TensorBoard. Each file is whole at any time: an
    interrupted run goes on from its last epoch with `resume=True`, the same data, augmentation
    and seed, and sees the batches that it would have seen. (A `tf.data.Dataset` must repeat itself
    for that, and what KerasCV and functions draw in `augmentation` is drawn anew.) Steps, epochs,
    batch size and rates are those of the run if none of them is given again, and so are class
    weights and early stopping.

    An epoch ends with validation and checkpoint. With `epochs` it is one pass over the pictures,
    `ceil(pictures / batch_size)` steps; with `steps` a tenth of the run, or one pass if that is
    longer.

    The loss is softmax cross-entropy. Where a picture may show several classes, or none, it is
    that of a sigmoid a class, summed over classes; the model then says `multi_label`, and the
    best epoch is that of the highest `pr_auc`, the area under precision over recall.

    Args:
        model: A `ViT` or `Mixer` with one logit a class, or what `from_pretrained` takes: that
            is loaded with a new head.
        train: A folder with one subfolder a class, a table, a TFDS set, arrays
            `(images, labels)` with pixels 0..255, or a `tf.data.Dataset` of such batches at the
            model's size, used as it is. `keras_vit.data.open_training_data` says how.
        validation: The like; None for what the source says, or for no validation.
        recipe: Name or value of a recipe. `"paper_sgd"`: the paper's. `"adamw_layer_decay"`:
            gentler with what was pre-trained. `"lora"`: adapters and head. `"linear_probe"`:
            the head alone; the rest of `model` stays frozen afterwards.
        directory: Where the files go; None keeps none.
        steps: Updates of the weights; None for `epochs`, or else the recipe's number.
        epochs: Passes over the pictures, instead of `steps`.
        batch_size: Pictures a step; None for 64, or the recipe's if that is less; never more
            than there are.
        learning_rate: The highest rate; None for the recipe's, in proportion to the batch
            size: `paper_sgd`'s 0.03 is for 512 pictures a step, 0.00375 for 64.
        warmup_steps: Steps of rising rate; None for the recipe's share.
        validation_fraction: Share of a folder without validation pictures to draw for that.
        multi_label: Whether a picture may show several classes, or none. False: where labels
            say so. True: also where each picture happens to show one.
        class_weights: How much the pictures of each class count in the training loss:
            `"balanced"` for as much in sum, one number a class, or numbers by name or index.
        augmentation: What to do to training pictures after the recipe's crop and flip: a layer
            of Keras or KerasCV made for pixels 0..255, a name in
            `keras_vit.augment.AUGMENTATIONS`, a function of batches of float32 images in
            TensorFlow, or a list of these; None for the recipe's. Layers that mix pictures
            (`MixUp`, `CutMix`) mix their labels too; metrics of training are then of mixed
            pictures.
        early_stopping: Epochs without a better one after which the run ends and the best
            epoch's weights are put back; None for never.
        resume: Whether to go on with the run that `directory` holds.
        overwrite: Whether to delete the run that `directory` holds.
        seed: Of order, augmentation, dropout and split. Sets the global seeds of Python, NumPy
            and TensorFlow, by `keras.utils.set_random_seed`.
        verbose: As in `keras.Model.fit`.
        callbacks: More callbacks for `fit`.

    Raises:
        ValueError: If an argument has no meaning or two do not fit each other.
        FileNotFoundError: If a folder, or the run to resume, does not exist.
        FileExistsError: If `directory` holds a run, without `resume` or `overwrite`.
        OSError: If `directory` cannot be written to, or the disk is too full.
        FloatingPointError: If the loss is no longer finite.
        MemoryError: If the device has no memory for a step.

    Example:

    ```python
    run = keras_vit.finetune("google/vit-base-patch16-224", "flowers/", directory="runs/1")
    print(run.metrics["val_accuracy"])
    ```
    """
    recipe = recipe if isinstance(recipe, Recipe) else find_recipe(recipe)
    check_counts(steps=steps, epochs=epochs, batch_size=batch_size, early_stopping=early_stopping)
    _check_seed(seed)
    augmentations = as_augmentations(recipe.augmentation if augmentation is None else augmentation)
    path = _check_directory(directory, resume, overwrite)
    data = open_training_data(train, validation, validation_fraction, seed, multi_label)
    _report(data)
    keras.utils.set_random_seed(seed)
    model = _open_model(model, data, path / LAST_FILE if resume else None)
    check_fits(model, data)
    plan = make_plan(data.train, recipe, steps, epochs, batch_size, learning_rate, warmup_steps)
    weights = as_class_weights(class_weights, data, model.config.num_classes)
    if resume:
        stored = read_run(path)["settings"]
        early_stopping = early_stopping or stored["early_stopping"]
        weights = weights or stored.get("class_weights")
        if {steps, epochs, batch_size, learning_rate, warmup_steps} == {None}:
            plan = _plan_of(stored)
    job = Job(model, data, recipe, plan, augmentations, weights, early_stopping, seed)
    job.check()
    job.compile()
    state, description = TrainingState(), job.describe()
    if path is not None:
        state = _prepare(path, job, description, resume)
    keeper = RunKeeper(state, plan.total_steps, seed, early_stopping, path)
    if state.step < plan.total_steps and not state.is_stalled(early_stopping):
        _fit(job, keeper, verbose, callbacks)
    if early_stopping is not None:
        keeper.restore_best()
    if job.labels == "one_hot":  # The caller's labels are indices still.
        model.compile(optimizer=model.optimizer, **LABELS["integer"](recipe.label_smoothing))
    row = state.history[-1 if early_stopping is None else state.best_epoch]
    metrics = {name: row[name] for name in row if name not in ("epoch", "step", "learning_rate")}
    if path is not None:
        write_run(path, {**description, "metrics": metrics})
    return Run(model, {name: [row[name] for row in state.history] for name in row}, metrics, path)


def _check_seed(seed: int) -> None:
    if not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must be an integer from 0 to 2**32 - 1. Received: seed={seed!r}.")


def _check_directory(
    directory: str | os.PathLike | None, resume: bool, overwrite: bool
) -> pathlib.Path | None:
    """The directory as a path, if the run may use it."""
    if directory == "":
        raise ValueError("`directory` must be a path, or None. Received: directory=''.")
    if directory is not None:
        path = local_path(directory)
        check_run_directory(path, resume, overwrite)
        return path
    if resume:
        raise ValueError("`resume=True` needs `directory`. Received: directory=None.")
    return None


def _report(data: TrainingData) -> None:
    _logger.info(data.summary)
    if data.unreadable:
        path, reason = data.unreadable[0]
        warnings.warn(
            f"{len(data.unreadable)} files were left out, since they could not be decoded. "
            f"The first: {path} {reason}.",
            stacklevel=3,
        )


def _open_model(model: Any, data: TrainingData, last: pathlib.Path | None) -> ImageModel:
    if isinstance(model, ImageModel):
        return model
    if last is not None and last.exists():
        return keras.saving.load_model(last, compile=False)
    if not isinstance(model, str | os.PathLike):
        raise ValueError(
            "`model` must be a `keras_vit.ViT`, a `keras_vit.Mixer`, or what "
            "`keras_vit.from_pretrained` takes. "
            f"Received: an object of type {type(model).__name__}."
        )
    if data.num_classes is None:
        raise ValueError(
            "A `tf.data.Dataset` does not say how many classes there are. Give `model` as "
            f"`keras_vit.from_pretrained({str(model)!r}, num_classes=..., reset_head=True)`."
        )
    if not data.is_multi_label and data.num_classes > len(data.train):
        raise ValueError(
            "Labels must be class indices from 0. Received: labels for "
            f"{data.num_classes} classes, but {len(data.train)} pictures. Correct the labels, or "
            "load the model with the `num_classes=` that you mean."
        )
    return from_pretrained(model, num_classes=data.num_classes, reset_head=True)


def _plan_of(settings: dict[str, Any]) -> Plan:
    """The plan of the run that has these settings."""
    return Plan(**{field.name: settings[field.name] for field in dataclasses.fields(Plan)})


def _prepare(
    path: pathlib.Path, job: Job, description: dict[str, Any], resume: bool
) -> TrainingState:
    """Make the directory ready. Returns where the run begins."""
    if resume:
        check_settings(path, description["settings"])
    # Weights and their velocity, in `last`, `best` and the file being written.
    prepare_run_directory(path, 3 * 2 * 4 * job.model.count_params(), resume)
    write_run(path, description)
    write_unreadable(path, job.data.unreadable)
    if resume and (path / LAST_FILE).exists():
        return load_training(job.model, path / LAST_FILE)
    return TrainingState()


def _fit(
    job: Job,
    keeper: RunKeeper,
    verbose: int | str,
    callbacks: Iterable[keras.callbacks.Callback],
) -> None:
    start, plan = keeper.state.step, job.plan
    kept = [keeper]
    if keeper.directory is not None:
        logs = keeper.directory / TENSORBOARD_FOLDER
        kept.append(keras.callbacks.TensorBoard(str(logs), write_graph=False))
    try:
        job.model.fit(
            job.training_batches(start),
            validation_data=job.validation_batches(),
            class_weight=dict(enumerate(job.class_weights)) if job.class_weights else None,
            steps_per_epoch=plan.steps_per_epoch,
            initial_epoch=start // plan.steps_per_epoch,
            epochs=-(-plan.total_steps // plan.steps_per_epoch),
            callbacks=[*kept, *callbacks],
            shuffle=False,  # the pipeline shuffles
            verbose=verbose,
        )
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(
            "The device has no memory for a step of this size. "
            f"Received: batch_size={plan.batch_size}. Use a smaller one."
        ) from error
