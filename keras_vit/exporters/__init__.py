"""Models out of Keras: one module a format, and the table of them."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from keras_vit.checks import unknown_name
from keras_vit.exporters.saved_model import export_saved_model

EXPORTERS = {"tf_saved_model": export_saved_model}


def export(
    model: Any,
    path: str | os.PathLike,
    format: str = "tf_saved_model",
    labels: Iterable[str] | None = None,
    top_k: int = 5,
    overwrite: bool = False,
    target: str = "any",
) -> Path:
    """Write a model for serving, preprocessing and labels included.

    Args:
        model: A `keras_vit.ViT` or `keras_vit.Mixer`.
        path: Where to write; missing parent directories are made.
        format: A key of `EXPORTERS`. `"tf_saved_model"`: a directory that TensorFlow and
            TensorFlow Serving run without Keras or this package; see
            `keras_vit.exporters.saved_model` for its signatures.
        labels: One name a class. None takes `model.labels`, or `"0"`, `"1"` ... without them.
        top_k: Classes that a prediction names, best first; at most all.
        overwrite: Whether an export that is already at `path` is replaced.
        target: `"cpu"` is faster on CPUs, most of all in bfloat16, and where
            TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1 is set; `"any"` is for anywhere.

    Returns:
        `path`.

    Raises:
        ValueError: If an argument has no meaning for this model, or the backend cannot write
            the format.
        FileExistsError: If something is at `path` and may not be replaced.
        OSError: If it cannot be written. Nothing is left behind.
    """
    if format not in EXPORTERS:
        raise unknown_name("`format`", format, EXPORTERS)
    return EXPORTERS[format](
        model, path, labels=labels, top_k=top_k, overwrite=overwrite, target=target
    )
