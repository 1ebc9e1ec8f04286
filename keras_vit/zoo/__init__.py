"""Pretrained weights: what there is, fetching it, reading and writing foreign weight files."""

from pathlib import Path

from keras_vit.zoo import (
    big_vision_npz,
    hf_safetensors,
    keras_hub_h5,
    mixer_npz,
    native,
    official_npz,
    timm_safetensors,
)
from keras_vit.zoo.checkpoint import Checkpoint
from keras_vit.zoo.file_formats import WeightFileError
from keras_vit.zoo.tensor_files import open_tensors

# Each reads one key layout; the first that recognises a file reads it.
READERS = {
    reader.NAME: reader
    for reader in (
        native,
        hf_safetensors,
        timm_safetensors,
        official_npz,
        mixer_npz,
        big_vision_npz,
        keras_hub_h5,
    )
}


def read_checkpoint(path: str | Path, overrides: dict | None = None) -> Checkpoint:
    """Understand a weight file, whichever layout it has.

    Args:
        path: A file, or a directory that holds one.
        overrides: What the file cannot say: `ViTConfig` fields and `source_image_size`.

    Raises:
        ValueError: If no reader knows the layout.
    """
    tensors = open_tensors(path)
    config_json = tensors.json("config.json")
    try:
        for reader in READERS.values():
            if reader.recognises(tensors, config_json):
                return reader.read(tensors, config_json, overrides or {})
    except (TypeError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
        raise WeightFileError(
            tensors.path,
            "cannot be understood: a field of its config.json or preprocessor_config.json has the "
            f"wrong type, or a tensor the wrong rank ({error})",
            "Compare them with those of the checkpoint's publisher.",
        ) from error
    except ValueError as error:
        if type(error) is not ValueError or str(tensors.path) in str(error):
            raise
        raise ValueError(f"{tensors.path}: {error}") from error
    said = config_json.get("model_type") or config_json.get("architecture") if config_json else None
    raise ValueError(
        f"{path} has a layout that no reader knows ({', '.join(READERS)}). config.json says: "
        f"{said!r}. Its first tensors: {', '.join(sorted(tensors.tensors)[:10])}."
    )
