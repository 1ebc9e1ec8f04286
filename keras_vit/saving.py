"""From a Keras model to files that others load, here or on the Hugging Face Hub."""

import dataclasses
import itertools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_vit import lora, resample
from keras_vit.base_config import ACTIVATIONS
from keras_vit.checks import check_choice
from keras_vit.config import (
    FINAL_NORMS,
    POOLS,
    POSITION_EMBEDDING_NAMES,
    POSITION_INSERTIONS,
    REPRESENTATIONS,
    STEM_NUMERICS,
    ModelConfig,
    PreprocessingConfig,
    ViTConfig,
)
from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.zoo import (
    hf_preprocessing,
    hf_safetensors,
    native,
    npz_writing,
    timm_writing,
    upload,
)
from keras_vit.zoo.checkpoint import ORIGIN
from keras_vit.zoo.model_card import model_card
from keras_vit.zoo.writing import Contents

_LOGGER = logging.getLogger("keras_vit")

# How files can be laid out. Each module has `can_express(config)`, and
# `write(contents, directory)`.
LAYOUTS = {
    "hf": hf_safetensors,
    "timm": timm_writing,
    "native": native,
    "npz": npz_writing,
}
# What is tried in turn where none is named: first what most people can load.
PREFERRED = ("hf", "timm", "native")
RUN_FILE = "run.json"
# Files of one layout that would be read with those of another, in a repository that has both.
_STALE = (hf_preprocessing.FILE_NAME,)
# Values of fields of `ViTConfig` that layouts have, the default first: by them we find out which
# fields of a model a layout has no place for.
_USUAL = {
    **dict.fromkeys(("patch_bias", "qkv_bias", "class_token"), (True, False)),
    **dict.fromkeys(("axial", "gated_mlp", "qk_norm", "embedding_norm"), (False, True)),
    "stem_layers": (None,),
    "stem_width": (64,),
    "stem_numerics": STEM_NUMERICS,
    "distillation_token": (False,),
    "num_register_tokens": (0,),
    "merged_tokens_per_block": (0,),
    "num_prefix_positions": (None, 0),
    "position_embedding": POSITION_EMBEDDING_NAMES,
    "position_insertion": POSITION_INSERTIONS,
    "activation": ("gelu_tanh", *ACTIVATIONS),
    "layer_scale_init": (None, 1e-5),
    "final_norm": FINAL_NORMS,
    "pool": POOLS,
    "representation_size": (None,),
    "representation": REPRESENTATIONS,
    "layer_norm_epsilon": (1e-6, 1e-5, 1e-12),
}
# Layouts of libraries that resize pictures as PIL does.
_ANTIALIASED = {"hf": "transformers", "timm": "timm"}


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
            the card then tells data, recipe, settings and metrics. With `"epoch"` among the
            contents it says which one the metrics are of.

    Returns:
        The layout.

    Raises:
        ValueError: If the model is not one that can be written, or not in this layout, or if
            `card` is no run, or one of other classes.
        OSError: If the directory cannot be written, or there is no run at `card`, or if with
            `layout="npz"` a model of another layout lies there.
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
    _check_classes(model, run)
    layout = _choose(model, layout)
    origin = dict(model.origin or {})
    notice = _notice(layout, model.preprocessing)
    contents = Contents(
        config=model.config,
        preprocessing=model.preprocessing,
        read_ours=_reader(model),
        labels=model.labels,
        multi_label=model.multi_label,
        position_resize=origin.get("position_resize", resample.DEFAULT_POSITION_RESIZE),
        origin={name: origin[name] for name in ORIGIN if origin.get(name)},
        card=model_card(model.config, layout, model.labels, origin, run, repository, notice),
    )
    LAYOUTS[layout].write(contents, directory)
    if notice:
        _LOGGER.warning(notice)
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
    for label in model.labels or ():
        if label.encode("utf-8", "ignore").decode() != label:
            raise ValueError(
                f"`model.labels` must be texts that files can hold. Received: {label!r}, with half "
                "of a character (a surrogate). Give it another name."
            )


def _check_classes(model: ImageModel, run: dict | None) -> None:
    """Refuse the run of another model: of other classes, or another number of them."""
    data = ((run or {}).get("settings") or {}).get("data")
    names = data.get("class_names") if isinstance(data, dict) else None
    ours = list(model.labels or ())
    if not isinstance(names, list) or not names:
        return
    if names != ours if ours else len(names) != model.config.num_classes:
        raise ValueError(
            f"`card` must be the run that trained the model. Received: a run of {len(names)} "
            f"classes ({', '.join(map(str, names[:10]))}), for a model of "
            f"{model.config.num_classes} ({', '.join(ours[:10]) or 'without labels'})."
        )


def _notice(layout: str, preprocessing: PreprocessingConfig) -> str | None:
    """Return what the layout's library does to pictures that the model's preprocessing does not."""
    if layout not in _ANTIALIASED or preprocessing.antialias:
        return None
    if preprocessing.interpolation == "nearest":  # the same with and without
        return None
    return (
        f"{_ANTIALIASED[layout]} antialiases pictures when it makes them smaller, and this model "
        "was made for pictures without that: what it predicts there can differ a little. "
        "keras_vit prepares them as they were."
    )


def _choose(model: ImageModel, layout: str | None) -> str:
    able = [name for name, module in LAYOUTS.items() if module.can_express(model.config)]
    if layout is None:
        return next(name for name in PREFERRED if name in able)
    check_choice("layout", layout, tuple(LAYOUTS))
    if layout not in able:
        lacks = _what_it_lacks(model.config, LAYOUTS[layout].can_express)
        values = ", ".join(f"{name}={value!r}" for name, value in lacks.items())
        raise ValueError(
            f"`layout` must be one that has this model: {', '.join(able)}, or None for the first "
            f"of them. Received: layout={layout!r}"
            + (f", which has no model with {values}." if lacks else ".")
        )
    return layout


def _what_it_lacks(config: ModelConfig, can_express: Callable[[Any], bool]) -> dict[str, Any]:
    """Return the fields, with their values, for which a layout does not have a model.

    Those of which one alone, with a usual value, would do, or else two; or else all that must have
    their defaults. Empty where that is not it.
    """
    if not isinstance(config, ViTConfig):
        return {}

    def would_do(changes: dict) -> bool:
        try:
            return can_express(dataclasses.replace(config, **changes))
        except ValueError:  # no model at all
            return False

    def options(names: Iterable[str]) -> Iterable[dict]:
        for values in itertools.product(*(usual[name] for name in names)):
            yield dict(zip(names, values, strict=True))

    (rows, columns), (height, width) = config.grid, config.image_size
    usual = {**_USUAL, "image_size": ((height, width // columns * rows),)}
    for count in (1, 2):
        found = itertools.combinations(usual, count)
        found = [names for names in found if any(map(would_do, options(names)))]
        lacks = list(itertools.chain(*found))
        if lacks:
            break
    else:
        plain = {name: values[0] for name, values in usual.items()}
        if not would_do(plain):
            return {}
        for name in usual:
            rest = {other: value for other, value in plain.items() if other != name}
            plain = rest if would_do(rest) else plain
        lacks = list(plain)
    return {name: getattr(config, name) for name in lacks}


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
    if not isinstance(card, (str, os.PathLike)):
        raise ValueError(
            "`card` must be the directory of a run, the contents of its run.json, or None. "
            f"Received: card={card!r}."
        )
    path = local_path(card)
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
