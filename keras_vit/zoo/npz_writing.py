"""Write a model as Google's vision_transformer does: one `.npz`, the arrays in its first names.

An `.npz` says nothing but names and arrays. The numerics are those of the official code, the grid
of positions is square, and pictures are prepared in the official way; labels lie beside it.
"""

import logging
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_vit.config import ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo import keymap, writing
from keras_vit.zoo.file_formats import INDEX_NAME, KERAS_WEIGHTS_NAME
from keras_vit.zoo.file_formats import WEIGHTS_NAME as SAFETENSORS_NAME
from keras_vit.zoo.flax_layout import BLOCK, NUMERICS, RELEASED_NAMES
from keras_vit.zoo.official_npz import key_table
from keras_vit.zoo.writing import Contents

WEIGHTS_NAME = "model.npz"
LABELS_NAME = "labels.txt"
# Files of other layouts: `from_pretrained` of a folder that holds one would load its model.
OTHERS = ("config.json", SAFETENSORS_NAME, INDEX_NAME, KERAS_WEIGHTS_NAME)
# Fields of `ViTConfig` that names and shapes tell, and those that are the trainer's.
EXPRESSED = (
    *("num_layers", "num_heads", "hidden_dim", "mlp_dim", "patch_size", "image_size"),
    *("num_channels", "num_classes", "stem_layers", "stem_width", "class_token"),
    *("representation_size", "dropout_rate", "attention_dropout_rate", "drop_path_rate"),
    *("patch_drop_rate", "remat"),
)
_LOGGER = logging.getLogger("keras_vit")


def can_express(config: ModelConfig) -> bool:
    """Whether the official code has this model, and names and shapes tell all of it."""
    if not isinstance(config, ViTConfig):
        return False
    plain = ViTConfig(
        **{name: getattr(config, name) for name in EXPRESSED},
        **NUMERICS,
        pool="token" if config.class_token else "mean",
    )
    return config == plain and config.grid[0] == config.grid[1]


def write(contents: Contents, directory: str | Path) -> None:
    """Write `model.npz`, and `labels.txt` where there are labels: one a line, in UTF-8.

    Without labels, an old `labels.txt` is removed.

    Args:
        contents: For its configuration see `can_express`; its preprocessing must be the official
            one. Of what else the file cannot say a notice tells.
        directory: Made where it does not exist; files of these names are replaced.

    Raises:
        ValueError: If the official code has no such model, or pictures are prepared otherwise.
        FileExistsError: If `directory` holds a model of another layout.
    """
    config, preprocessing = contents.config, contents.preprocessing
    if not can_express(config):
        raise ValueError(
            "`config` must be a ViT of the official code: tanh GELU, epsilon 1e-6, learned "
            "positions on a square grid, a class token, or without it the mean of all others. "
            f"Received: {config}. Use the `native` layout."
        )
    if preprocessing != PreprocessingConfig().for_channels(config.num_channels):
        raise ValueError(
            "`preprocessing` must be the official one, since an .npz file has no place for "
            f"another. Received: {preprocessing}. Use the `native` layout."
        )
    _refuse_other_models(Path(directory))
    labels = {LABELS_NAME: _labels_writer(contents.labels)} if contents.labels else {}
    weights = {WEIGHTS_NAME: _archive_writer(config, contents.read_ours)}
    contents.write_files(directory, labels | weights, removes=(LABELS_NAME,))
    _tell(contents.labels is not None, contents.multi_label)


def _refuse_other_models(directory: Path) -> None:
    others = [name for name in OTHERS if (directory / name).exists()]
    if others:
        raise FileExistsError(
            "`directory` must hold no model of another layout, which would be loaded instead of "
            f"{WEIGHTS_NAME}. Received: directory={str(directory)!r}, which holds "
            f"{', '.join(others)}. Give another name, or delete the other model first."
        )


def _archive_writer(
    config: ViTConfig, read_ours: Callable[[str], np.ndarray]
) -> Callable[[Path], None]:
    """Return a writer of the `.npz` that holds one variable in memory at a time."""
    rules = keymap.rename_theirs(
        keymap.expand(key_table(config, {}), config.num_layers), _released_name
    )

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for rule in rules:
                for name, array in keymap.invert(rule, read_ours(rule.ours)).items():
                    array = array.astype("<f4", order="C", copy=False)
                    # The same date in all, so that the same model gives the same bytes.
                    entry = zipfile.ZipInfo(f"{name}.npy")
                    with archive.open(entry, "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, array, allow_pickle=False)

    return write


def _released_name(name: str) -> str:
    """Return how the first releases, which every reader knows, spell one of Linen's names."""
    if re.match(BLOCK, name):
        for linen, released in RELEASED_NAMES.items():
            name = name.replace(f"/{linen}/", f"/{released}/")
    return name


def _labels_writer(labels: tuple[str, ...]) -> Callable[[Path], None]:
    odd = [label for label in labels if [label] != label.strip().splitlines()]
    if odd:
        raise ValueError(
            f"`labels` must be one line each to lie in {LABELS_NAME}. Received: {odd[0]!r}. "
            "Use the `native` layout."
        )
    return writing.text_writer("".join(f"{label}\n" for label in labels))


def _tell(has_labels: bool, multi_label: bool) -> None:
    """Say once what is not in the file."""
    lost = []
    if has_labels:
        lost.append(f"the labels, which are in {LABELS_NAME}: set `model.labels` after loading")
    if multi_label:
        lost.append("that pictures may have several classes: set `model.multi_label = True`")
    if lost:
        _LOGGER.warning("An .npz file cannot hold %s.", ", nor ".join(lost))
