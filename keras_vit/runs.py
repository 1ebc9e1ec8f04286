"""One run, from pictures to a trained model and its files."""

import dataclasses
import logging
import numbers
import os
import pathlib
import platform
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_vit import __version__
from keras_vit.data.checks import check_fits
from keras_vit.data.inputs import Examples, TrainingData, count_batches, open_training_data
from keras_vit.data.pipeline import evaluation_dataset, training_dataset
from keras_vit.model import ViT
from keras_vit.pretrained import from_pretrained
from keras_vit.recipes import Recipe
from keras_vit.recipes import recipe as find_recipe
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

# Unless another batch size is given: B/16 at 224 pixels then trains on a GPU of 16 GB.
_LARGEST_DEFAULT_BATCH = 64
# A run given in steps is validated this often, unless one pass over the pictures is longer.
_VALIDATIONS_OF_STEPS = 10

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run brought.

    Args:
        model: The trained model: of the last step, or of the best epoch with `early_stopping`.
        history: One list a quantity, one number an epoch, as in `keras.callbacks.History`.
        metrics: Loss and accuracy of `model`'s epoch; `val_...` where there was validation.
        directory: Where the files are, or None.
    """

    model: ViT
    history: dict[str, list[float]]
    metrics: dict[str, float]
    directory: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The numbers of one run."""

    total_steps: int
    steps_per_epoch: int
    batch_size: int | None
    learning_rate: float
    warmup_steps: int


def finetune(
    model: ViT | str,
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
    any file was left out, and logs for TensorBoard. Each file is whole at
    any time: an interrupted run goes on from its last epoch with `resume=True`, the same data and
    seed, and sees the batches that it would have seen. (A `tf.data.Dataset` must repeat itself
    for that.) Steps, batch size and rates that are not given again are those of the run.

    An epoch ends with validation and checkpoint. With `epochs` it is one pass over the pictures,
    `ceil(pictures / batch_size)` steps; with `steps` a tenth of the run, or one pass if that is
    longer.

    Args:
        model: A `ViT` with one logit a class, or what `from_pretrained` takes: that is loaded
            with a new head.
        train: A folder with one subfolder a class (`keras_vit.data.index_folder` says how), an
            `ImageFolder`, arrays `(images, labels)` with pixels 0..255 and integer labels, or a
            `tf.data.Dataset` of such batches at the model's size, used as it is.
        validation: The like; None for what the folder says, or for no validation.
        recipe: Name or value of a recipe.
        directory: Where the files go; None keeps none.
        steps: Updates of the weights; None for `epochs`, or else the recipe's number.
        epochs: Passes over the pictures, instead of `steps`.
        batch_size: Pictures a step; None for 64, or the recipe's if that is less; never more
            than there are.
        learning_rate: The highest rate; None for the recipe's, in proportion to the batch
            size: `paper_sgd`'s 0.03 is for 512 pictures a step, 0.00375 for 64.
        warmup_steps: Steps of rising rate; None for the recipe's share.
        validation_fraction: Share of a folder without validation pictures to draw for that.
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
    _check_counts(steps=steps, epochs=epochs, batch_size=batch_size, early_stopping=early_stopping)
    _check_seed(seed)
    path = _check_directory(directory, resume, overwrite)
    data = open_training_data(train, validation, validation_fraction, seed)
    _report(data)
    keras.utils.set_random_seed(seed)
    model = _open_model(model, data, path / LAST_FILE if resume else None)
    check_fits(model, data)
    plan = _make_plan(data.train, recipe, steps, epochs, batch_size, learning_rate, warmup_steps)
    if resume:
        stored = read_run(path)["settings"]
        early_stopping = early_stopping or stored["early_stopping"]
        if all(value is None for value in (steps, epochs, batch_size, learning_rate, warmup_steps)):
            plan = _Plan(**{field.name: stored[field.name] for field in dataclasses.fields(_Plan)})
    model.compile(
        **recipe.compile_arguments(plan.learning_rate, plan.total_steps, plan.warmup_steps)
    )
    # Built within the first step it would be traced twice.
    model.optimizer.build(model.trainable_variables)
    model.labels = data.class_names or model.labels
    state = TrainingState()
    description = _describe(model, data, recipe, plan, early_stopping, seed)
    if path is not None:
        state = _prepare(path, model, data, description, resume)
    keeper = RunKeeper(state, plan.total_steps, seed, early_stopping, path)
    if state.step < plan.total_steps and not state.is_stalled(early_stopping):
        _fit(model, data, recipe, plan, keeper, verbose, callbacks)
    if early_stopping is not None:
        keeper.restore_best()
    row = state.history[-1 if early_stopping is None else state.best_epoch]
    metrics = {name: row[name] for name in row if name.endswith(("loss", "accuracy"))}
    if path is not None:
        write_run(path, {**description, "metrics": metrics})
    history = {name: [row[name] for row in state.history] for name in row}
    return Run(model, history, metrics, path)


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
        path = pathlib.Path(directory).expanduser()
        check_run_directory(path, resume, overwrite)
        return path
    if resume:
        raise ValueError("`resume=True` needs `directory`. Received: directory=None.")
    return None


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if value is not None and not (is_count and value >= 1):
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}.")
    if counts["steps"] is not None and counts["epochs"] is not None:
        raise ValueError(
            "`steps` and `epochs` exclude each other. "
            f"Received: steps={counts['steps']}, epochs={counts['epochs']}."
        )


def _report(data: TrainingData) -> None:
    _logger.info(data.summary)
    unreadable = data.folder.unreadable if data.folder else ()
    if unreadable:
        path, reason = unreadable[0]
        warnings.warn(
            f"{len(unreadable)} files were left out, since they could not be decoded. "
            f"The first: {path} {reason}.",
            stacklevel=3,
        )


def _open_model(model: Any, data: TrainingData, last: pathlib.Path | None) -> ViT:
    if isinstance(model, ViT):
        return model
    if last is not None and last.exists():
        return keras.saving.load_model(last, compile=False)
    if not isinstance(model, str | os.PathLike):
        raise ValueError(
            "`model` must be a `keras_vit.ViT`, or what `keras_vit.from_pretrained` takes. "
            f"Received: an object of type {type(model).__name__}."
        )
    if data.num_classes is None:
        raise ValueError(
            "A `tf.data.Dataset` does not say how many classes there are. Give `model` as "
            f"`keras_vit.from_pretrained({str(model)!r}, num_classes=..., reset_head=True)`."
        )
    if data.num_classes > len(data.train):
        raise ValueError(
            "Labels must be class indices from 0. Received: labels for "
            f"{data.num_classes} classes, but {len(data.train)} pictures. Correct the labels, or "
            "load the model with the `num_classes=` that you mean."
        )
    return from_pretrained(model, num_classes=data.num_classes, reset_head=True)


def _make_plan(
    train: Examples,
    recipe: Recipe,
    steps: int | None,
    epochs: int | None,
    batch_size: int | None,
    learning_rate: float | None,
    warmup_steps: int | None,
) -> _Plan:
    if isinstance(train, tf.data.Dataset):
        if batch_size is not None:
            raise ValueError(
                "`batch_size` is already decided by a `tf.data.Dataset`. "
                f"Received: batch_size={batch_size}."
            )
        steps_per_pass = count_batches(train)
    else:
        batch_size = batch_size or min(recipe.batch_size, _LARGEST_DEFAULT_BATCH)
        batch_size = min(int(batch_size), len(train))
        steps_per_pass = -(-len(train) // batch_size)
    if epochs is not None and steps_per_pass is None:
        raise ValueError(
            "`train` never ends, so that an epoch has no meaning. "
            f"Received: epochs={epochs}. Use `steps`."
        )
    if epochs is not None:
        total_steps, steps_per_epoch = int(epochs) * steps_per_pass, steps_per_pass
    else:
        total_steps = int(steps or recipe.total_steps)
        tenth = -(-total_steps // _VALIDATIONS_OF_STEPS)
        steps_per_epoch = min(max(tenth, steps_per_pass or 1), total_steps)
    if learning_rate is None:
        # In proportion to the batch (Goyal et al., arXiv 1706.02677).
        learning_rate = recipe.learning_rate * (batch_size or recipe.batch_size) / recipe.batch_size
    return _Plan(
        total_steps=total_steps,
        steps_per_epoch=steps_per_epoch,
        batch_size=batch_size,
        learning_rate=float(learning_rate),
        warmup_steps=int(
            recipe.warmup_steps(total_steps) if warmup_steps is None else warmup_steps
        ),
    )


def _describe(
    model: ViT,
    data: TrainingData,
    recipe: Recipe,
    plan: _Plan,
    early_stopping: int | None,
    seed: int,
) -> dict[str, Any]:
    """What `run.json` says; a run resumes with the same `settings` only."""
    values = dataclasses.asdict(recipe)
    del values["optimizer"], values["presets"]
    return {
        "settings": {
            "model": model.config.to_dict(),
            "data": data.fingerprint(),
            "recipe": values,
            **dataclasses.asdict(plan),
            "early_stopping": early_stopping,
            "seed": seed,
        },
        "data": data.summary,
        "origin": model.origin,
        "versions": {
            "keras_vit": __version__,
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
            "python": platform.python_version(),
        },
    }


def _prepare(
    path: pathlib.Path,
    model: ViT,
    data: TrainingData,
    description: dict[str, Any],
    resume: bool,
) -> TrainingState:
    """Make the directory ready. Returns where the run begins."""
    if resume:
        check_settings(path, description["settings"])
    # Weights and their velocity, in `last`, `best` and the file being written.
    prepare_run_directory(path, 3 * 2 * 4 * model.count_params(), resume)
    write_run(path, description)
    write_unreadable(path, data.folder.unreadable if data.folder else ())
    if resume and (path / LAST_FILE).exists():
        return load_training(model, path / LAST_FILE)
    return TrainingState()


def _fit(
    model: ViT,
    data: TrainingData,
    recipe: Recipe,
    plan: _Plan,
    keeper: RunKeeper,
    verbose: int | str,
    callbacks: Iterable[keras.callbacks.Callback],
) -> None:
    start = keeper.state.step
    size, channels = model.config.image_size, model.config.num_channels
    train, validation = data.train, data.validation
    if isinstance(train, tf.data.Dataset):
        train = train.repeat().skip(start)
    else:
        train = training_dataset(
            train, plan.batch_size, size, channels, recipe.crop_area, recipe.flip,
            seed=keeper.seed, start_step=start,
        )  # fmt: skip
    if validation is not None and not isinstance(validation, tf.data.Dataset):
        validation = evaluation_dataset(
            validation, plan.batch_size or recipe.batch_size, size, model.preprocessing, channels
        )
    kept = [keeper]
    if keeper.directory is not None:
        logs = keeper.directory / TENSORBOARD_FOLDER
        kept.append(keras.callbacks.TensorBoard(str(logs), write_graph=False))
    try:
        model.fit(
            train,
            validation_data=validation,
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
