"""`keras-vit finetune`: a folder of pictures into a trained model."""

import contextlib
import datetime
import enum
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from keras_vit import runs
from keras_vit.augment import AUGMENTATIONS
from keras_vit.checks import Pair, as_pair
from keras_vit.cli.console import errors, percent, printable, say
from keras_vit.cli.demonstration import demonstrate
from keras_vit.cli.sources import open_model
from keras_vit.data import TrainingData, open_training_data
from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.pretrained import from_pretrained
from keras_vit.recipes import RECIPES
from keras_vit.training.resume import MONITORED
from keras_vit.training.run_directory import (
    BEST_FILE,
    HISTORY_FILE,
    LAST_FILE,
    RUN_FILE,
    TENSORBOARD_FOLDER,
    UNREADABLE_FILE,
    check_run_directory,
)

_TOLD_FILES = (BEST_FILE, LAST_FILE, HISTORY_FILE, RUN_FILE, UNREADABLE_FILE, TENSORBOARD_FOLDER)
_MOST_LEFT_OUT = 10


def _image_size(text: str) -> Pair:
    """`384`, or `384x256` for height and width."""
    sides = text.lower().split("x")
    try:
        return as_pair([int(side) for side in sides] * (3 - len(sides)), "--image-size")
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither SIDE nor HEIGHTxWIDTH, in pixels.") from None


Data = Annotated[
    str | None,
    typer.Argument(
        help="A folder: one subfolder a class, or train/ and val/ that hold those; a .csv, .tsv "
        "or .parquet table of paths and labels; or 'tfds:NAME'. "
        "Without it: a demonstration on bundled pictures.",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="What to start from: see `keras-vit list`; a path; or 'bundled'."
    ),
]
RecipeName = Annotated[
    Literal[tuple(RECIPES)],
    typer.Option(
        "--recipe",
        help="How to train: as in the paper; gentler with the lower blocks; adapters and head "
        "alone; the head alone.",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="Where the files of the run go.",
        show_default="runs/DATE_TIME",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="Updates of the weights.", show_default="the recipe's"),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Passes over the pictures, instead of --steps.")
]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Pictures a step.", show_default="64 or all")
]
LearningRate = Annotated[
    float | None,
    typer.Option(help="The highest rate.", show_default="the recipe's, by batch size"),
]
WarmupSteps = Annotated[
    int | None,
    typer.Option(min=0, help="Steps of rising rate.", show_default="the recipe's share"),
]
ImageSize = Annotated[
    Any,
    typer.Option(
        parser=_image_size,
        metavar="SIDE|HEIGHTxWIDTH",
        help="Pixels that the model sees. The paper fine-tunes at 384.",
        show_default="the model's",
    ),
]
Validation = Annotated[
    str | None, typer.Option(help="The like of DATA, of the same classes, to validate on.")
]
ValidationFraction = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.99, help="Else: share of DATA to draw for that, if it has no val/; 0: none."
    ),
]
MultiLabel = Annotated[
    bool,
    typer.Option("--multi-label", help="A picture may show several classes, or none."),
]
ClassWeights = Annotated[
    Literal["balanced"] | None,
    typer.Option(help="Have each class count as much as any other, however few its pictures."),
]
# A list of a Literal is more than typer takes.
_Augmentation = enum.StrEnum("_Augmentation", {name: name for name in AUGMENTATIONS})
Augment = Annotated[
    list[_Augmentation] | None,
    typer.Option(
        metavar="NAME",
        help="What to do to training pictures after crop and flip; may be repeated, in order: "
        f"{', '.join(AUGMENTATIONS)}.",
    ),
]
EarlyStopping = Annotated[
    int | None, typer.Option(min=1, help="End after so many epochs without a better one.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --directory.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete the run in --directory.")]
Seed = Annotated[int, typer.Option(help="Of split, order, augmentation and dropout.")]


def finetune(
    context: typer.Context,
    data: Data = None,
    model: Model = "google/vit-base-patch16-224-in21k",
    recipe: RecipeName = "paper_sgd",
    directory: Directory = None,
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    warmup_steps: WarmupSteps = None,
    image_size: ImageSize = None,
    validation: Validation = None,
    validation_fraction: ValidationFraction = 0.2,
    multi_label: MultiLabel = False,
    class_weights: ClassWeights = None,
    augment: Augment = None,
    early_stopping: EarlyStopping = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
):
    """Train a pretrained model on a folder of pictures.

    \b
      keras-vit finetune                       demonstration, minutes on a CPU, no network
      keras-vit finetune flowers/ -d runs/1    the paper's recipe, 500 steps
      keras-vit finetune flowers/ -d runs/1 --resume               after Ctrl-C
      keras-vit finetune flowers/ --image-size 384 --batch-size 64 --learning-rate 0.01
      keras-vit finetune flowers/ -m vit_small_patch16_224.augreg_in21k --epochs 20
      keras-vit finetune flowers/ --recipe linear_probe            tens of pictures
      keras-vit finetune pictures.csv --augment randaugment --augment mixup

    Every file is decoded once before the training; those that are no pictures are listed and
    left out. The directory keeps best.keras, last.keras, history.csv and run.json, each whole
    at any time.
    """
    if resume and directory is None:
        raise typer.BadParameter("needs the --directory of the run.", param_hint="'--resume'")
    if steps is not None and epochs is not None:
        raise typer.BadParameter("exclude each other.", param_hint="'--steps' and '--epochs'")
    path = directory or Path("runs") / f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
    path = local_path(path)
    if data is None:
        _refuse_options(context)
        demonstrate(path, overwrite)
        return
    check_run_directory(path, resume, overwrite)
    pictures = open_training_data(data, validation, validation_fraction, seed, multi_label)
    _tell_data(pictures, path)
    last = path / LAST_FILE if resume else None
    opened = _open(model, pictures.num_classes, image_size, last)
    with _ways_to_go_on(context.obj, path, named=directory is not None):
        run = runs.finetune(
            opened,
            pictures,
            recipe=recipe,
            directory=path,
            steps=steps,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warmup_steps=warmup_steps,
            class_weights=class_weights,
            augmentation=augment,
            early_stopping=early_stopping,
            resume=resume,
            overwrite=overwrite,
            seed=seed,
            verbose=1 if sys.stdout.isatty() else 2,
        )
    _tell_result(run)


def _refuse_options(context: typer.Context) -> None:
    """The demonstration has its own settings."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name).name == "COMMANDLINE"
        if given and parameter.name not in ("directory", "overwrite"):
            raise typer.BadParameter(
                "needs DATA; the demonstration takes --directory and --overwrite only.",
                param_hint=f"'{parameter.opts[0]}'",
            )


def _tell_data(pictures: TrainingData, directory: Path) -> None:
    say(pictures.summary)
    for file, reason in pictures.unreadable[:_MOST_LEFT_OUT]:
        errors.print(f"left out: {printable(file)} {reason}", soft_wrap=True, style="yellow")
    if len(pictures.unreadable) > _MOST_LEFT_OUT:
        errors.print(f"... all in {directory / UNREADABLE_FILE}", soft_wrap=True, style="yellow")


def _open(name: str, num_classes: int, image_size: Pair | None, last: Path | None) -> ImageModel:
    """The model to train, or, in form only, that of the run to go on with."""
    if last is None or not last.exists():
        return from_pretrained(name, num_classes, reset_head=True, image_size=image_size)
    model = open_model(str(last))
    if image_size not in (None, model.config.image_size):
        raise ValueError(
            "A run resumes with the arguments it was started with. Received: "
            f"--image-size {image_size}, the run has {model.config.image_size}."
        )
    return model


@contextlib.contextmanager
def _ways_to_go_on(arguments: list[str], directory: Path, named: bool) -> Iterator[None]:
    """Say after Ctrl-C what is kept and what to type."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* files were left out")  # said already
            yield
    except KeyboardInterrupt:
        command = [word for word in arguments if word not in ("--resume", "--overwrite")]
        command += [*([] if named else ["--directory", str(directory)]), "--resume"]
        last = directory / LAST_FILE
        kept = f"the last checkpoint is whole: {last}" if last.exists() else "no checkpoint yet"
        raise KeyboardInterrupt(
            f"interrupted; {kept}. Continue with --resume:\n  keras-vit {shlex.join(command)}"
        ) from None


def _tell_result(run: runs.Run) -> None:
    name = next(name for name in MONITORED if name in run.history)
    is_validated = f"val_{name}" in run.history
    values = run.history[f"val_{name}" if is_validated else name]
    what = f"{'validation' if is_validated else 'training'} {name}"
    # Of equal ones the lowest loss, as `TrainingState.best_epoch` chooses what best.keras holds.
    losses = run.history["val_loss" if is_validated else "loss"]
    best = max(range(len(values)), key=lambda index: (values[index], -losses[index]))
    say(f"\nBest {what}: {percent(values[best])}, epoch {best + 1} of {len(values)}.")
    directory = shlex.quote(str(run.directory))
    names = [name for name in _TOLD_FILES if (run.directory / name).exists()]
    say(f"Files in {directory}: {', '.join(names)}")
    say(
        f"Next:\n  keras-vit evaluate {directory} DATA\n"
        f"  keras-vit predict {directory} PICTURE...\n"
        f"  keras-vit export {directory} {shlex.quote(str(run.directory / 'saved_model'))}"
    )
