"""`keras-vit convert`: a model from any source, as files that other libraries load."""

from pathlib import Path
from typing import Annotated, Literal

import keras
import numpy as np
import typer

from keras_vit.cli.console import say
from keras_vit.cli.sources import SOURCE_HELP, open_model
from keras_vit.files import local_path, replacing
from keras_vit.image_model import ImageModel
from keras_vit.saving import LAYOUTS, save_pretrained
from keras_vit.training.resume import read_state
from keras_vit.training.run_directory import BEST_FILE, LAST_FILE, RUN_FILE, read_run
from keras_vit.zoo import npz_writing, read_checkpoint
from keras_vit.zoo.model_card import loading_code
from keras_vit.zoo.variables import variable_shapes

KERAS = "keras"


def convert(
    source: Annotated[str, typer.Argument(help=f"{SOURCE_HELP}.")],
    out: Annotated[
        Path, typer.Argument(help="A folder to write; with --to keras, a file named .keras.")
    ],
    to: Annotated[
        Literal[(*LAYOUTS, KERAS)],
        typer.Option(
            help="Whose files: hf for transformers, timm, npz for Google's vision_transformer, "
            "native for this package alone, keras for one file with all that Keras keeps."
        ),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what lies at OUT under the same names.")
    ] = False,
):
    """Write a model as other libraries have it, and compare every weight of what was written.

    \b
      keras-vit convert runs/1 flowers --to hf       a run's best model, for transformers
      keras-vit convert vit_small_patch16_224.augreg_in21k small --to timm
      keras-vit convert google/vit-base-patch16-224 base.keras --to keras

    The model stays what it is: a layout that has no such model is an error that names one that
    has. The card of a run's model tells its data, recipe and metrics.
    """
    out = local_path(out)
    _check_out(out, to, overwrite)
    model = open_model(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    if to == KERAS:
        with replacing(out) as temporary:
            model.save(temporary)
        different = _differing_from_keras(model, out)
        code = {
            "keras": f"import keras, keras_vit\n\nmodel = keras.saving.load_model({str(out)!r})"
        }
    else:
        save_pretrained(model, out, to, card=_card(local_path(source)))
        different = _differing_from_files(
            model, out / npz_writing.WEIGHTS_NAME if to == "npz" else out
        )
        code = loading_code(to, str(out), model.config.num_classes)
    if different:
        raise OSError(
            f"{out} does not hold the model's weights: {', '.join(different[:5])} differ. Do not "
            "use it; check the disk, and convert again."
        )
    files = [out] if to == KERAS else sorted(path for path in out.iterdir() if path.is_file())
    say(f"Wrote, read back, and compared all {len(model.weights)} weights. There are now:")
    for path in files:
        say(f"  {path}  {path.stat().st_size:,} bytes")
    for library, lines in code.items():
        say(
            f"\nWith {library}:\n\n" + "\n".join(f"  {line}".rstrip() for line in lines.split("\n"))
        )


def _check_out(out: Path, to: str, overwrite: bool) -> None:
    """Refuse a place that the user cannot have meant, before a model is loaded."""
    if (out.suffix == ".keras") != (to == KERAS):
        kind = "a file that ends in .keras" if to == KERAS else "a folder"
        raise ValueError(f"`OUT` must be {kind} with `--to {to}`. Received: {str(out)!r}.")
    if out.exists() and out.is_dir() == (to == KERAS):
        raise ValueError(
            f"`OUT` must be a {'file' if to == KERAS else 'folder'}. Received: {str(out)!r}, which "
            "is none. Give another name."
        )
    is_taken = out.is_file() or (out.is_dir() and any(out.iterdir()))
    if is_taken and not overwrite:
        raise FileExistsError(
            f"`OUT` must not exist yet, or be an empty folder. Received: {str(out)!r}. Give "
            "another name, or `--overwrite`."
        )


def _card(directory: Path) -> dict | None:
    """Return what a run says, with the metrics of the epoch whose model is taken."""
    if not (directory / RUN_FILE).is_file():
        return None
    run = read_run(directory)
    file = next(path for name in (BEST_FILE, LAST_FILE) if (path := directory / name).is_file())
    try:
        row = dict(read_state(file).history[-1])
    except ValueError:  # not as the run wrote it: nobody knows its metrics
        row = {}
    epoch, _, _ = (row.pop(name, None) for name in ("epoch", "step", "learning_rate"))
    return {**run, "metrics": row, "epoch": epoch}


def _differing_from_files(model: ImageModel, path: Path) -> list[str]:
    """Return the weights that files of a layout do not hold bit for bit."""
    ours, theirs = {variable.path: variable for variable in model.weights}, read_checkpoint(path)
    theirs.check()
    return [
        name
        for name in variable_shapes(model.config)
        if not _same(keras.ops.convert_to_numpy(ours[name]), theirs.weight(name))
    ]


def _differing_from_keras(model: ImageModel, path: Path) -> list[str]:
    """Return the weights that a `.keras` file does not hold bit for bit."""
    again = keras.saving.load_model(path, compile=False)
    return [
        ours.path
        for ours, theirs in zip(model.weights, again.weights, strict=True)
        if not _same(*map(keras.ops.convert_to_numpy, (ours, theirs)))
    ]


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return np.array_equal(first.astype("float32"), second.astype("float32"))
