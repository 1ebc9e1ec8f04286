"""What a user of the shell may call a model."""

import zipfile
from pathlib import Path

import keras

from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.pretrained import from_pretrained
from keras_vit.training.run_directory import BEST_FILE, LAST_FILE, RUN_FILE

SOURCE_HELP = (
    "The directory of a run (its best.keras, else its last.keras), a .keras file, 'bundled', "
    "or a name, URL or path that keras_vit.from_pretrained takes"
)


def is_saved_model(source: str) -> bool:
    """Whether a SavedModel lies at `source`."""
    return (local_path(source) / "saved_model.pb").is_file()


def open_model(source: str) -> ImageModel:
    """Load the model that a user named.

    Args:
        source: As `SOURCE_HELP` says.

    Raises:
        ValueError: If it is no model of this package.
        OSError: If it cannot be had.
    """
    if is_saved_model(source):
        raise ValueError(
            "`SOURCE` must be a model to be loaded into Keras. "
            f"Received: {source!r}, a SavedModel, which is for serving. Give the run it came from."
        )
    path = local_path(source)
    for file in (path / BEST_FILE, path / LAST_FILE, path):
        if file.is_file() and file.suffix == ".keras":
            return _load_keras_file(file)
    if (path / RUN_FILE).exists():
        raise FileNotFoundError(
            f"`SOURCE` must hold a checkpoint. Received: {source!r}, a run that ended before its "
            "first. Go on with it by `keras-vit finetune ... --resume`."
        )
    return from_pretrained(source)


def _load_keras_file(path: Path) -> ImageModel:
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"`SOURCE` must be a whole .keras file. Received: {str(path)!r} ({error})."
        ) from error
    if not isinstance(model, ImageModel):
        raise ValueError(
            "`SOURCE` must be a `keras_vit.ViT` or a `keras_vit.Mixer`. "
            f"Received: {str(path)!r}, a {type(model).__name__}."
        )
    return model
