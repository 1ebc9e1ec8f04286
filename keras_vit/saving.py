"""From a Keras model to files that others load."""

import os
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_vit import lora, resample
from keras_vit.image_model import ImageModel
from keras_vit.zoo import hf_safetensors, native
from keras_vit.zoo.writing import write_files


def save_pretrained(model: ImageModel, directory: str | os.PathLike) -> None:
    """Write a model's weights, configuration, preprocessing and labels into a directory.

    The layout is that of Hugging Face transformers where it has this architecture
    (`config.json`, `model.safetensors`, `preprocessor_config.json`), so that transformers loads
    it too, and our own otherwise. `from_pretrained` reads both back bit for bit; whether the
    model normalises its pixels is not stored, but an argument there.

    Args:
        model: The model. A quantized one has no such form: save it as a `.keras` file.
        directory: Made where it does not exist; files of the same names are replaced.

    Raises:
        ValueError: If the model is not one that can be written.
        OSError: If the directory cannot be written.
    """
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
    variables = {variable.path: variable for variable in model.weights}

    def read(path: str) -> np.ndarray:
        value = keras.ops.convert_to_numpy(variables[path]).astype("float32")
        if not np.isfinite(value).all():
            raise ValueError(
                f"`model` must have finite weights. Received: NaN or infinite numbers in {path}. "
                "Its training diverged: go back to an earlier checkpoint."
            )
        return value

    arguments = {
        "config": model.config,
        "preprocessing": model.preprocessing,
        "labels": model.labels,
        "read_ours": read,
        "directory": directory,
        "multi_label": model.multi_label,
    }
    if hf_safetensors.can_express(model.config):
        hf_safetensors.write(**arguments)
    else:
        rule = (model.origin or {}).get("position_resize", resample.DEFAULT_POSITION_RESIZE)
        native.write(**arguments, position_resize=rule)
    write_files(directory, {"README.md": _card_writer(model)})


def _card_writer(model: ImageModel) -> Callable[[Path], None]:
    origin = dict(model.origin or {})
    height, width = model.config.image_size
    licence = origin.get("licence")
    lines = [
        "---",
        "library_name: keras",
        *([f"license: {licence.lower()}"] if licence else []),
        "pipeline_tag: image-classification",
        "tags: [keras_vit, vision-transformer]",
        "---",
        "",
        f"# Vision Transformer, {height} x {width} pixels, {model.config.num_classes} classes",
        "",
        f"Weights from: {origin.get('source', 'trained from random initialisation')}.",
        "",
        "```python",
        "import keras_vit",
        "",
        'model = keras_vit.from_pretrained("path/to/this/folder")',
        "```",
        "",
    ]
    text = "\n".join(lines)
    return lambda path: path.write_text(text, encoding="utf-8") and None
