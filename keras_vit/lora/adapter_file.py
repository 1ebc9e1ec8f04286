"""One small safetensors file with the adapters and the head of a model."""

import json
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_vit.checks import as_labels
from keras_vit.files import replacing
from keras_vit.lora.adapters import (
    add_lora,
    in_words,
    is_adapter,
    is_head,
    lora_settings,
    target_layers,
)

FORMAT = "keras_vit_lora"
FORMAT_VERSION = "1"
# Fields of a configuration in which the model may differ from that of the file.
FREE_FIELDS = (
    *("image_size", "dropout_rate", "attention_dropout_rate", "drop_path_rate", "remat"),
    *("patch_drop_rate", "merged_tokens_per_block"),
)
# How far lengths of frozen vectors may differ: rounding to bfloat16 changes them by up to 0.4 %.
BASE_TOLERANCE = 0.01


def save_lora(model: keras.Model, path: str | os.PathLike) -> None:
    """Write adapters and head alone into one file, whole or not at all.

    Args:
        model: A `keras_vit` model with adapters.
        path: Ends in `.safetensors`. Its folder is made where it does not exist.

    Raises:
        ValueError: If the model has no adapters, or `path` another ending.
        OSError: If the file cannot be written.
    """
    path = Path(path)
    settings = lora_settings(model)
    if settings is None:
        raise ValueError("The model has no adapters to save. `model.add_lora(rank)` adds them.")
    if path.suffix != ".safetensors":
        raise ValueError(f"`path` must end in '.safetensors'. Received: path={str(path)!r}.")
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "lora": json.dumps(settings),
        "model": json.dumps(_description(model)),
        "labels": json.dumps(model.labels),
        "base": json.dumps(_base_lengths(model)),
    }
    tensors = {
        variable.path: ops.convert_to_numpy(variable).astype("float32")
        for variable in model.weights
        if is_adapter(variable.path) or is_head(variable.path)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata)


def load_lora(model: keras.Model, path: str | os.PathLike) -> None:
    """Put adapters, head, labels and `multi_label` of a file of `save_lora` into a model.

    A model without adapters gets them, as by `add_lora`, and has to be compiled again. If
    anything does not fit, the model stays as it was.

    Args:
        model: Built from the same checkpoint, with as many classes.
        path: The file.

    Raises:
        ValueError: If the file is no such file, damaged, or of another model or checkpoint.
        OSError: If it cannot be read.
    """
    path = Path(path)
    settings, description, labels, base, tensors = _read(path)
    multi_label = description.pop("multi_label", False)  # the head's, as the labels are
    _check_description(path, description, _description(model))
    _check_base(path, base, _base_lengths(model))
    present = lora_settings(model)
    if present not in (None, settings):
        raise ValueError(
            f"The model has other adapters than {path}. Received: {in_words(present)}; the file: "
            f"{in_words(settings)}. Load into `model.remove_lora()`."
        )
    _check_tensors(path, tensors, _expected_shapes(model, settings))
    labels = as_labels(labels, model.config.num_classes)
    if present is None:
        add_lora(model, **settings)
    for variable in model.weights:
        if variable.path in tensors:
            variable.assign(tensors[variable.path])
    model.labels, model.multi_label = labels, multi_label


def _description(model: keras.Model) -> dict[str, Any]:
    """What a model must have in common with that of the file, as JSON values."""
    fields = model.config.to_dict()
    kept = {name: value for name, value in fields.items() if name not in FREE_FIELDS}
    return {"model": type(model).__name__, "multi_label": model.multi_label, **kept}


def _base_lengths(model: keras.Model) -> list[float]:
    """Return the length of each scale and offset vector in the blocks, to tell checkpoints apart.

    Neither adapters nor quantization change these, and another floating point type hardly does.
    """
    return [
        float(f"{np.linalg.norm(ops.convert_to_numpy(variable).astype('float32')):.5g}")
        for variable in model.weights
        if variable.path.startswith("block_") and variable.path.endswith(("/gamma", "/beta"))
    ]


def _check_base(path: Path, stored: list[float], own: list[float]) -> None:
    if not stored:  # a file of before these were kept
        return
    if len(stored) != len(own) or not np.allclose(own, stored, rtol=BASE_TOLERANCE, atol=1e-5):
        raise ValueError(
            f"{path} belongs to other weights. Received: a model of the same architecture whose "
            "frozen weights differ from those that the adapters were trained on. Build it from "
            "the checkpoint that they were added to, then `load_lora`."
        )


def _read(
    path: Path,
) -> tuple[dict, dict, list[str] | None, list[float], dict[str, np.ndarray]]:
    """Return the adapters' settings, the model's description, labels, base and tensors."""
    if not path.is_file():
        raise FileNotFoundError(
            f"No file there. Received: path={str(path)!r}. `model.save_lora(path)` writes one."
        )
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError("it holds no adapters of keras_vit")
            if metadata.get("format_version") != FORMAT_VERSION:
                raise ValueError(
                    f"it is of format_version {metadata.get('format_version')}, and this "
                    f"keras_vit reads {FORMAT_VERSION}: update it"
                )
            settings = json.loads(metadata["lora"])
            settings = {name: settings[name] for name in ("rank", "targets", "alpha")}
            description = dict(json.loads(metadata["model"]))
            labels = json.loads(metadata["labels"])
            base = [float(length) for length in json.loads(metadata.get("base", "[]"))]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"`path` must be a whole file that `model.save_lora(path)` wrote. Received: {path}: "
            f"{error}. Copy or save it again; whole models are for `keras_vit.from_pretrained`."
        ) from error
    return settings, description, labels, base, tensors


def _check_description(path: Path, stored: dict[str, Any], own: dict[str, Any]) -> None:
    names = [name for name in stored if stored[name] != own.get(name)]
    if names:
        raise ValueError(
            f"{path} is of another model. Received: "
            f"{in_words({name: own.get(name) for name in names})}; the file: "
            f"{in_words({name: stored[name] for name in names})}. Build the model as for "
            "`add_lora`: from the same checkpoint, with the same `num_classes`."
        )


def _expected_shapes(model: keras.Model, settings: dict[str, Any]) -> dict[str, tuple]:
    """Return path and shape of each tensor that the file must hold."""
    shapes = {
        variable.path: tuple(variable.shape) for variable in model.weights if is_head(variable.path)
    }
    for layer in target_layers(model, settings["targets"]):
        inputs, outputs = layer.kernel.shape
        shapes[f"{layer.path}/lora_kernel_a"] = (inputs, settings["rank"])
        shapes[f"{layer.path}/lora_kernel_b"] = (settings["rank"], outputs)
    return shapes


def _check_tensors(path: Path, tensors: dict[str, np.ndarray], expected: dict[str, tuple]) -> None:
    for name in sorted({*tensors, *expected}):
        received = tensors[name].shape if name in tensors else "no such tensor"
        wanted = expected.get(name, "no such tensor")
        if received != wanted:
            raise ValueError(
                f"{path} does not fit the model. Received: {name} of shape {received}; the model: "
                f"{wanted}. Take the file that belongs to this model."
            )
    for name, value in tensors.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"{path} holds NaN or infinite numbers in {name}: the training before it "
                "diverged. Take another file, or train again with a lower learning rate."
            )
