"""TensorFlow SavedModel: pictures in, names and probabilities out, with TensorFlow alone.

| signature | input | output |
|---|---|---|
| `serving_default` | `images`: uint8 `(batch, height, width, channels)`, any size | predictions |
| `serve_float` | `images`: float32, the same, 0..255 | predictions |
| `serve_bytes` | `encoded`: string `(batch,)`, JPEG, PNG, WebP, GIF or BMP files | predictions |
| `embed` | `images`: uint8, as `serving_default` | `features` |
| `embed_bytes` | `encoded`, as `serve_bytes` | `features` |

Predictions are `logits` and `probabilities`, `(batch, classes)`, softmax, or sigmoid of a model
with `multi_label`, and the best `labels` and their `scores`, `(batch, top_k)`; of a model without
classes they are its `features`. `features` of the embed signatures are pooled, before any tanh
layer. Pictures are resized by the checkpoint's rule inside the signature. `serve_bytes` and
`embed_bytes` need a model of 1 or 3 channels.

`target="cpu"` writes the normalizations in the spelling that oneDNN fuses on a CPU, leaves the
casts around a bfloat16 softmax to oneDNN, and puts the scale of queries into copies of their
weights; a GPU runs it, without a gain. A process that serves and never trains shall have
TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1 in its environment when it starts: TensorFlow then arranges the
weights for the processor once, not in each call. `benchmarks/README.md` has the figures. (Constants
in the place of the weights do the same from within the file, but take many times the memory of the
weights to write and to load.)

`assets.extra/keras_vit.json` holds labels, sizes and preprocessing for the client to read.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import keras

from keras_vit.checks import as_labels, check_choice, check_integer
from keras_vit.image_model import ImageModel
from keras_vit.layers import PixelNormalization, SelfAttention
from keras_vit.layers.spelling import spelled
from keras_vit.preprocessing import resize_image

TARGETS = ("any", "cpu")


def export_saved_model(
    model: ImageModel,
    path: str | os.PathLike,
    labels: Iterable[str] | None = None,
    top_k: int = 5,
    overwrite: bool = False,
    target: str = "any",
) -> Path:
    """Write a SavedModel; the arguments are those of `keras_vit.exporters.export`."""
    if not isinstance(model, ImageModel):
        raise ValueError(
            "`model` must be a `keras_vit.ViT` or a `keras_vit.Mixer`. "
            f"Received: {type(model).__name__}."
        )
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "`format='tf_saved_model'` needs the TensorFlow backend, which decodes pictures in "
            f"the graph. Received: backend={keras.backend.backend()}. Save the model, then load "
            "and export it in a process with KERAS_BACKEND=tensorflow."
        )
    num_classes = model.config.num_classes
    if labels is None:
        labels = model.labels or map(str, range(num_classes))
    labels = as_labels(labels, num_classes)
    top_k = check_integer("top_k", top_k, 1)
    check_choice("target", target, TARGETS)
    description = {
        "labels": list(labels),
        "multi_label": model.multi_label,
        "image_size": list(model.config.image_size),
        "num_channels": model.config.num_channels,
        "preprocessing": model.preprocessing.to_dict(),
    }
    with _in_shape_for(target, model):
        # Endpoints track the variables that they use; `archive.track` as well would make Keras 3.15
        # store every one of them twice.
        archive = keras.export.ExportArchive()
        _add_endpoints(archive, model, labels, min(top_k, len(labels)), target)
        with _written_whole(Path(path), overwrite) as directory:
            archive.write_out(str(directory), verbose=False)
            extra = directory / "assets.extra"
            extra.mkdir()
            (extra / "keras_vit.json").write_text(json.dumps(description, indent=2), "utf-8")
    return Path(path)


@contextlib.contextmanager
def _in_shape_for(target: str, model: ImageModel) -> Iterator[None]:
    """Attention as the target wants it, while the model is written."""
    with contextlib.ExitStack() as stack:
        for layer in model._flatten_layers():
            if target == "cpu" and isinstance(layer, SelfAttention):
                stack.enter_context(layer.folded_scale())
        yield


def _add_endpoints(
    archive: Any, model: ImageModel, labels: tuple[str, ...], top_k: int, target: str
):
    import tensorflow as tf

    size, channels = model.config.image_size, model.config.num_channels
    predict, embed = _heads(model, labels, top_k, target)

    def of_images(head: Callable) -> Callable:
        return lambda images: head(resize_image(images, model.preprocessing, size))

    def of_floats(images):
        with tf.control_dependencies(_pixel_assertions(images)):
            images = tf.identity(images)
        return of_images(predict)(images)

    shape = (None, None, None, channels)
    images = [tf.TensorSpec(shape, tf.uint8, "images")]
    archive.add_endpoint("serving_default", of_images(predict), images)
    archive.add_endpoint("serve_float", of_floats, [tf.TensorSpec(shape, tf.float32, "images")])
    archive.add_endpoint("embed", of_images(embed), images)
    if channels not in (1, 3):
        return

    from keras_vit.decoding import decode_image

    def decode_all(encoded):
        return tf.map_fn(
            lambda one: resize_image(decode_image(one, channels), model.preprocessing, size),
            encoded,
            fn_output_signature=tf.TensorSpec((*size, channels), tf.float32),
        )

    def of_bytes(head: Callable) -> Callable:
        return lambda encoded: head(decode(encoded))

    encoded = tf.TensorSpec((None,), tf.string, "encoded")
    decode = _traced(decode_all, encoded)
    archive.add_endpoint("serve_bytes", of_bytes(predict), [encoded])
    archive.add_endpoint("embed_bytes", of_bytes(embed), [encoded])


def _heads(
    model: ImageModel, labels: tuple[str, ...], top_k: int, target: str
) -> tuple[Callable, Callable]:
    """Predictions, and pooled features, of pixels at the model's size."""
    import tensorflow as tf

    rule = model.preprocessing
    normalize = PixelNormalization(rule.mean, rule.std)
    if model.include_normalization:
        normalize = tf.identity
    pooled = model.intermediates(["pooled"]).outputs[0]
    both = keras.Model(model.inputs, [model.outputs[0], pooled])

    def outputs_and_pooled(pixels):
        with spelled("onednn" if target == "cpu" else None):
            values = both(normalize(pixels), training=False)
        return [tf.cast(value, tf.float32) for value in values]

    pixels = tf.TensorSpec((None, *model.config.image_size, model.config.num_channels))
    run = _traced(outputs_and_pooled, pixels)

    def predict(pixels):
        outputs = run(pixels)[0]
        if not labels:
            return {"features": outputs}
        return _predictions(outputs, model.probabilities(outputs), labels, top_k)

    # TensorFlow leaves out what a signature does not return: this one has no head.
    return predict, lambda pixels: {"features": run(pixels)[1]}


def _traced(function: Callable, shape: Any) -> Callable:
    """A graph that signatures share, where each would trace and store its own."""
    import tensorflow as tf

    return tf.function(function, autograph=False).get_concrete_function(shape)


def _predictions(
    logits: Any, probabilities: Any, labels: tuple[str, ...], top_k: int
) -> dict[str, Any]:
    import tensorflow as tf

    scores, best = tf.math.top_k(probabilities, top_k)
    return {
        "logits": logits,
        "probabilities": probabilities,
        "labels": tf.gather(tf.constant([os.fsencode(label) for label in labels]), best),
        "scores": scores,
    }


def _pixel_assertions(images: Any) -> list[Any]:
    """`preprocessing.check_pixel_range` in the graph."""
    import tensorflow as tf

    largest = tf.reduce_max(tf.abs(images))  # NaN if any is
    scaled = (largest > 0.0) & (largest <= 1.0)
    return [
        tf.debugging.Assert(
            tf.math.is_finite(largest) | (tf.size(images) == 0),
            ["`images` must be pixels 0..255. Received: NaN or infinite values."],
        ),
        tf.debugging.Assert(
            ~scaled,
            [
                "`images` must be pixels 0..255; the model normalises them itself. Received: "
                "no value outside -1..1. Undo the scaling, for instance by x * 255."
            ],
        ),
    ]


@contextlib.contextmanager
def _written_whole(path: Path, overwrite: bool) -> Iterator[Path]:
    """A new directory beside `path`, moved there if all goes well and removed if not."""
    import tensorflow as tf

    _check_free(path, overwrite)
    missing = [parent for parent in path.parents if not parent.exists()]
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        written = temporary / "new"
        written.mkdir()
        yield written
        if path.exists():
            path.rename(temporary / "old")
        written.rename(path)
    except BaseException as error:
        if temporary is not None:
            if (temporary / "old").exists():
                (temporary / "old").rename(path)
            shutil.rmtree(temporary, ignore_errors=True)
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        if isinstance(error, (OSError, tf.errors.OpError)):
            reason = getattr(error, "strerror", None) or getattr(error, "message", error)
            raise OSError(
                f"`path` cannot be written. Received: path={str(path)!r} ({reason}). Nothing was "
                "left there. Free space, or choose a directory that you may write to."
            ) from error
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def _check_free(path: Path, overwrite: bool):
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise FileExistsError(
            f"`path` must not exist yet. Received: path={str(path)!r}. "
            "Give another, or `overwrite=True`."
        )
    if not (path / "assets.extra" / "keras_vit.json").is_file():
        raise FileExistsError(
            "`overwrite=True` replaces an earlier export of this package only. "
            f"Received: path={str(path)!r}, which is none. Remove it, or give another path."
        )
