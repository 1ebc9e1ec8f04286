"""`keras-vit export`: a model for serving."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Literal

import tensorflow as tf
import typer
from tensorflow.core.protobuf import saved_model_pb2

from keras_vit.cli.console import say, show_table
from keras_vit.cli.sources import SOURCE_HELP, open_model
from keras_vit.exporters import EXPORTERS
from keras_vit.exporters import export as write_export
from keras_vit.exporters.saved_model import TARGETS
from keras_vit.files import local_path

_SNIPPETS = {
    "serve_bytes": 'encoded=tf.constant([open("PICTURE", "rb").read()])',
    "serving_default": "images=IMAGES",
}


def export(
    source: Annotated[str, typer.Argument(help=f"{SOURCE_HELP}.")],
    path: Annotated[Path, typer.Argument(help="Where to write; parent folders are made.")],
    format: Annotated[
        Literal[tuple(EXPORTERS)], typer.Option(help="What to write.")
    ] = "tf_saved_model",
    top_k: Annotated[int, typer.Option(min=1, help="Labels a prediction, best first.")] = 5,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="A UTF-8 text file, one label a line, in the order of the classes.",
            show_default="the model's own",
        ),
    ] = None,
    target: Annotated[
        Literal[TARGETS],
        typer.Option(help="Where it will run: cpu makes it faster there, most of all in bfloat16."),
    ] = "any",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export at PATH.")
    ] = False,
):
    """Write a model for serving, with resizing, decoding and labels inside.

    \b
      keras-vit export runs/1 serving/flowers/1       what TensorFlow Serving reads
      keras-vit export google/vit-base-patch16-224 imagenet --top-k 3
      keras-vit export bundled demo --labels labels.txt --overwrite

    The SavedModel takes pictures of any size, or the bytes of their files, and runs with
    TensorFlow alone. Nothing is left at PATH if anything fails.
    """
    names = None if labels is None else _read_labels(labels)
    model, path = open_model(source), local_path(path)
    write_export(model, path, format, labels=names, top_k=top_k, overwrite=overwrite, target=target)
    say(f"Exported: {path}")
    if format == "tf_saved_model":
        _tell_signatures(path)


def _read_labels(path: Path) -> list[str]:
    try:
        lines = local_path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`--labels` must be a text file in UTF-8. Received: {str(path)!r} ({error})."
        ) from error
    return [line.strip() for line in lines if line.strip()]


def _tell_signatures(path: Path) -> None:
    """Print what the SavedModel takes and gives, and one line of Python that asks it."""
    content = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    signatures = {
        name: signature
        for name, signature in content.meta_graphs[0].signature_def.items()
        if not name.startswith("__")
    }
    show_table(
        ("signature", "takes", "gives"),
        [
            (name, _tensors(signatures[name].inputs), _tensors(signatures[name].outputs))
            for name in sorted(signatures)
        ],
        justify="left",
    )
    name = next(name for name in _SNIPPETS if name in signatures)
    outputs = signatures[name].outputs
    wanted = "labels" if "labels" in outputs else "features"
    # Double quotes only, for the shell's single ones.
    code = (
        f"import tensorflow as tf; model = tf.saved_model.load({json.dumps(str(path))}); "
        f'print(model.signatures["{name}"]({_SNIPPETS[name]})["{wanted}"])'
    )
    say(f"With TensorFlow alone:\n  python -c {shlex.quote(code)}")


def _tensors(tensors: dict) -> str:
    """`name: dtype (batch, ...)`, one a line; `?` for any size."""
    lines = []
    for name, tensor in sorted(tensors.items()):
        sides = ("?" if side.size < 0 else str(side.size) for side in tensor.tensor_shape.dim)
        lines.append(f"{name}: {tf.as_dtype(tensor.dtype).name} ({', '.join(sides)})")
    return "\n".join(lines)
