"""From a Keras model to files that others load, here or on the Hugging Face Hub."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import lora, resample
from keras_vit.checks import check_choice
from keras_vit.image_model import ImageModel
from keras_vit.zoo import (
    hf_preprocessing,
    hf_safetensors,
    native,
    npz_writing,
    timm_writing,
    upload,
)
from keras_vit.zoo.model_card import model_card
from keras_vit.zoo.writing import write_files

# How files can be laid out. Each module has `can_express(config)` and `write(...)`.
LAYOUTS = {
    "hf": hf_safetensors,
    "timm": timm_writing,
    "native": native,
    "npz": npz_writing,
}
# What is tried in turn where none is named: first what most people can load.
PREFERRED = ("hf", "timm", "native")
# Layouts that can keep how positions are resized for other image sizes.
_KEEP_RESIZE_RULE = ("timm", "native")
RUN_FILE = "run.json"
# Files of one layout that another does not write over, and that would be read with its own.
_STALE = (hf_preprocessing.FILE_NAME,)


def save_pretrained(
    model: ImageModel,
    directory: str | os.PathLike,
    layout: str | None = None,
    card: str | os.PathLike | dict | None = None,
) -> str:
    """Write a model's weights, configuration, preprocessing, labels and a model card.

    | layout | who loads it besides `from_pretrained` |
    |---|---|
    | `"hf"` | transformers: `AutoModelForImageClassification.from_pretrained(directory)` |
    | `"timm"` | timm: `timm.create_model(f"local-dir:{directory}", pretrained=True)` |
    | `"native"` | nobody; every model of this package has it |
    | `"npz"` | Google's vision_transformer: `directory/model.npz` |

    `from_pretrained` reads all of them back bit for bit; whether the model normalises its pixels
    is not stored, but an argument there. Rates of dropout and stochastic depth are arguments
    there, too. An `.npz` holds weights alone: other preprocessing than the official one is an
    error, and labels go into a `labels.txt` beside it, with a notice.

    Args:
        model: The model. A quantized one has no such form: save it as a `.keras` file.
        directory: Made where it does not exist; files of the same names are replaced.
        layout: A key of the table. None: the first of `"hf"`, `"timm"` and `"native"` that has
            this model.
        card: The directory of the run that trained the model, or the contents of its `run.json`:
            the card then tells data, recipe, settings and metrics.

    Returns:
        The layout.

    Raises:
        ValueError: If the model is not one that can be written, or not in this layout.
        OSError: If the directory cannot be written, or there is no run at `card`.
    """
    return _save(model, directory, layout, _read_run(card))


def push_to_hub(
    model: ImageModel,
    repo_id: str,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    commit_message: str | None = None,
    layout: str | None = None,
    card: str | os.PathLike | dict | None = None,
) -> str:
    """Upload what `save_pretrained` writes to the Hugging Face Hub, in one commit.

    Args:
        model: The model.
        repo_id: `"namespace/name"`; made where it does not exist.
        private: Whether a new repository is private; None for the namespace's default. One that
            exists and is otherwise is an error.
        revision: Branch, made from `main` where it does not exist. None: `main`.
        token: Access token that may write; None for the one that `hf auth login` stored.
        commit_message: None for one that names the model.
        layout: `"hf"`, `"timm"`, `"native"`, or None as in `save_pretrained`.
        card: As in `save_pretrained`.

    Returns:
        The URL of the commit.

    Raises:
        ValueError: If the model or an argument does not fit.
        OSError: If it cannot be uploaded: no token, a token that is rejected or may not write, no
            such namespace, no connection.

    Example:

    ```python
    run = keras_vit.finetune("google/vit-base-patch16-224", "flowers/", directory="runs/1")
    keras_vit.push_to_hub(run.model, "me/flowers", private=True, card=run.directory)
    ```
    """
    if layout == "npz":
        raise ValueError(
            f"`layout` must be one of {', '.join(PREFERRED)} or None: nobody loads an .npz from a "
            "repository of the Hub. Received: layout='npz'."
        )
    upload.check_repository(repo_id, token)
    with tempfile.TemporaryDirectory(prefix="keras_vit-") as folder:
        _save(model, folder, layout, _read_run(card), repository=repo_id)
        message = commit_message or f"Upload a {type(model).__name__} with keras_vit"
        return upload.upload_folder(folder, repo_id, private, revision, token, message, _STALE)


def _save(
    model: ImageModel,
    directory: str | os.PathLike,
    layout: str | None,
    run: dict | None,
    repository: str | None = None,
) -> str:
    _check_model(model)
    layout = _choose(model, layout)
    origin = dict(model.origin or {})
    text = model_card(model.config, layout, model.labels, origin, run, repository)
    extras: dict[str, Any] = {}
    if layout in _KEEP_RESIZE_RULE:
        extras["position_resize"] = origin.get("position_resize", resample.DEFAULT_POSITION_RESIZE)
    if layout == "timm":
        extras["licence"] = origin.get("licence")
    LAYOUTS[layout].write(
        config=model.config,
        preprocessing=model.preprocessing,
        labels=model.labels,
        read_ours=_reader(model),
        directory=directory,
        multi_label=model.multi_label,
        **extras,
    )
    write_files(
        directory, {"README.md": lambda path: path.write_text(text, encoding="utf-8") and None}
    )
    if layout != "hf":
        for name in _STALE:
            (Path(directory) / name).unlink(missing_ok=True)
    return layout


def _check_model(model: ImageModel) -> None:
    """Refuse a model for whose weights these layouts have no place."""
    if not isinstance(model, ImageModel):
        raise ValueError(
            "`model` must be a `keras_vit.ViT` or a `keras_vit.Mixer`. "
            f"Received: {type(model).__name__}."
        )
    if any(layer.quantization_mode for layer in model._flatten_layers()):
        raise ValueError(
            "`model` must have float weights. Received: a quantized model. "
            "Save it with `model.save('model.keras')`."
        )
    if lora.lora_settings(model):
        raise ValueError(
            "`model` must have no adapters, for which these layouts have no place. Save "
            "`model.merge_lora()`, or the adapters alone by `model.save_lora(path)`."
        )


def _choose(model: ImageModel, layout: str | None) -> str:
    able = [name for name, module in LAYOUTS.items() if module.can_express(model.config)]
    if layout is None:
        return next(name for name in PREFERRED if name in able)
    check_choice("layout", layout, LAYOUTS)
    if layout not in able:
        raise ValueError(
            f"`layout` must be one that has this model: {', '.join(able)}, or None for the first "
            f"of them. Received: layout={layout!r}, for {model.config}."
        )
    return layout


def _reader(model: ImageModel) -> Callable[[str], np.ndarray]:
    """Return the function that gives a writer each weight."""
    variables = {variable.path: variable for variable in model.weights}

    def read(path: str) -> np.ndarray:
        value = keras.ops.convert_to_numpy(variables[path]).astype("float32")
        if not np.isfinite(value).all():
            raise ValueError(
                f"`model` must have finite weights. Received: NaN or infinite numbers in {path}. "
                "Its training diverged: go back to an earlier checkpoint."
            )
        return value

    return read


def _read_run(card: str | os.PathLike | dict | None) -> dict | None:
    """Return what a `run.json` says."""
    if card is None:
        return None
    if isinstance(card, dict):
        return _checked_run(card, "`card`")
    path = Path(card).expanduser()
    path = path / RUN_FILE if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(
            f"`card` must be the directory of a run, with its {RUN_FILE}. Received: {str(card)!r}."
        )
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). Leave `card` out.") from error
    return _checked_run(run, str(path))


def _checked_run(run: Any, what: str) -> dict:
    """Refuse what lacks the form of a run's description; parts of it may be missing."""
    parts = [run]
    if isinstance(run, dict):
        parts += [run.get(name) or {} for name in ("settings", "metrics", "versions")]
        parts.append(parts[1].get("recipe") or {} if isinstance(parts[1], dict) else {})
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"{what} is no description of a run. Give its directory, or nothing.")
    return run
