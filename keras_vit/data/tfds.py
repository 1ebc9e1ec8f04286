"""A set of TensorFlow Datasets (TFDS)."""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.checks import check_choice, unknown_name
from keras_vit.data.index import VALIDATION_NAMES, ImageIndex, build_index, check_fraction
from keras_vit.data.tfds_records import Records, class_label, read_split
from keras_vit.files import local_path

PREFIX = "tfds:"
_OPTIONS = ("train", "validation", "image", "label", "data_dir")
_INFO_FILE = "dataset_info.json"
_PIXELS = ("uint8", "uint16")


def is_tfds(text: str) -> bool:
    """Whether a text names a TFDS set."""
    return text.startswith(PREFIX)


def index_tfds(
    source: str, validation: None = None, validation_fraction: float = 0.2, seed: int = 0
) -> ImageIndex:
    """Find and decode every picture of a TFDS set, once, before anything is computed from them.

    `source` is one of

    - `tfds:NAME`, `tfds:NAME/CONFIG`, `tfds:NAME/CONFIG:VERSION`, as in `tfds.load`. A set that is
      not yet on this machine is downloaded and prepared by TFDS.
    - `tfds:FOLDER`, a folder with a set's `dataset_info.json`.

    with options behind it, as in `tfds:cifar10?train=train[:90%]&validation=train[90%:]`:

    - `train`, `validation`: splits, as in `tfds.load`. Without them `train`, and the first of
      `val`, `valid`, `validation` and `test` that the set has and that is not trained on; if
      there is none, `validation_fraction` of every class is drawn by `seed`.
    - `image`, `label`: names of features. Without them `image`, `label` and `labels`, or the only
      one of its kind. A label is a `ClassLabel`; a sequence of those shows several classes, and
      makes the labels `(pictures, classes)` of 0 and 1.
    - `data_dir`: where TFDS keeps its sets.

    Classes have the set's own order and names; in a part of a set some may be without pictures.
    Pictures that cannot be decoded are listed and left out.

    Args:
        source: The set.
        validation: None: `source` says it.
        validation_fraction: Share to validate on where the set does not say; 0 for none.
        seed: Seed of that draw.

    Raises:
        ValueError: If there is no such set, split, option or feature; if splits share pictures,
            or for what `index_folder` raises it.
        OSError: If a file cannot be read.
    """
    check_fraction(validation_fraction)
    if validation is not None:
        raise ValueError(
            "`validation` of a TFDS set is a split of it. Received: "
            f"validation={validation!r} with {source!r}. Write `{PREFIX}NAME?validation=SPLIT`."
        )
    name, options = _parse_source(source)
    builder = _open_builder(name, options.get("data_dir"))
    image, label = _find_features(builder.info.features, options, source)
    names = [options.get("train", "train")]
    free = [name for name in builder.info.splits if name not in names[0]]
    held_out = [name for name in VALIDATION_NAMES if name in free][:1]
    names += [options["validation"]] if "validation" in options else held_out
    parts, unreadable = [], []
    for split in names:
        records, faults = read_split(builder, split, image, label)
        parts.append(records)
        unreadable += faults
    if len(parts) == 2:
        _check_apart(*parts, names)
    return build_index(
        f"train={source!r}",
        tuple(class_label(builder.info.features[label]).names),
        parts[0],
        parts[1] if len(parts) == 2 else None,
        unreadable,
        f"the split {names[-1]!r}",
        validation_fraction,
        seed,
        may_lack_classes=True,
    )


def _parse_source(source: str) -> tuple[str, dict[str, str]]:
    """Name and options."""
    name, _, query = source.removeprefix(PREFIX).partition("?")
    options = {}
    for part in query.split("&") if query else ():
        option, _, value = part.partition("=")
        if option not in _OPTIONS:
            raise unknown_name("option of a TFDS set", option, _OPTIONS)
        if not value:
            raise ValueError(
                f"An option of a TFDS set must have a value. Received: {part!r} in {source!r}. "
                f"Write `{option}=...`, or leave it out."
            )
        options[option] = value
    return name, options


def _open_builder(name: str, data_dir: str | None) -> Any:
    """TFDS' object for a set that is prepared."""
    import tensorflow_datasets as tfds  # slow to load

    folder = local_path(name)
    is_folder = (folder / _INFO_FILE).is_file()
    if not is_folder and name.startswith(("/", ".", "~")):
        raise FileNotFoundError(
            f"`{PREFIX}FOLDER` must be a folder that TFDS prepared, of one version. Received: "
            f"{str(folder)!r}, without {_INFO_FILE}."
        )
    try:
        if is_folder:
            builder = tfds.builder_from_directory(folder)
        else:
            builder = tfds.builder(name, data_dir=data_dir)
        file_format = builder.info.file_format
    except tfds.core.DatasetNotFoundError as error:
        kept = [path.name for path in pathlib.Path(data_dir).glob("*")] if data_dir else []
        raise ValueError(
            f"{unknown_name('TFDS set', name, [*kept, *tfds.list_builders()])} Write a name as in "
            "`tfds.load`, with `?data_dir=` for sets that lie elsewhere, or the folder of a set."
        ) from error
    except (OSError, ImportError):
        raise
    except Exception as error:  # its parsers' errors, of many kinds
        raise ValueError(
            "A TFDS set must be whole, and have the config and version that are named. Received: "
            f"{name!r}, data_dir={data_dir!r}, of which TFDS says: "
            f"{textwrap.shorten(str(error), 300)} Correct the name, or delete the set's folder "
            "and prepare it again."
        ) from error
    if not builder.info.splits:
        _prepare(builder)
    if file_format != tfds.core.FileFormat.TFRECORD:
        raise ValueError(
            "A TFDS set must be in TFRecord files to be read in any order. Received: "
            f"{builder.info.full_name} in {file_format.value}. Prepare it again, by "
            f"`tfds.builder({builder.info.name!r}, file_format='tfrecord', data_dir=...)` and its "
            "`download_and_prepare`."
        )
    return builder


def _prepare(builder: Any) -> None:
    """Let TFDS download a set and write its files."""
    try:
        builder.download_and_prepare()
    except ModuleNotFoundError as error:
        # TFDS 4.9.10 does not require importlib_resources, which it imports to prepare a set.
        raise ImportError(
            f"TFDS lacks a package to prepare {builder.info.full_name}: {error.name}. "
            f"`pip install {error.name}`"
        ) from error


def _find_features(features: Any, options: dict[str, str], source: str) -> tuple[str, str]:
    """Names of the picture and of what it shows."""
    import tensorflow_datasets as tfds

    kinds = {
        "image": lambda feature: (
            isinstance(feature, tfds.features.Image)
            and not isinstance(feature, tfds.features.LabeledImage)
            and np.dtype(feature.np_dtype).name in _PIXELS
        ),
        "label": lambda feature: class_label(feature) is not None,
    }
    names = []
    for option, is_kind in kinds.items():
        found = sorted(name for name, feature in features.items() if is_kind(feature))
        if option in options:
            check_choice(option, options[option], found)
            found = [options[option]]
        usual = [name for name in (option, f"{option}s") if name in found]
        if not usual and len(found) != 1:
            raise ValueError(
                f"A TFDS set must have pictures of {' or '.join(_PIXELS)} and labels that are "
                f"classes. Received: {source!r} with {len(found)} features of the kind "
                f"`{option}` ({', '.join(found)}) among {', '.join(sorted(features))}. Choose one "
                f"by `?{option}=NAME`."
            )
        names.append((usual or found)[0])
    return names[0], names[1]


def _check_apart(train: Records, validation: Records, splits: Sequence[str]) -> None:
    """Refuse pictures that are both trained on and validated on."""
    shared = {*train.names()} & {*validation.names()}
    if shared:
        raise ValueError(
            "Splits to train and to validate on must not share pictures. Received: "
            f"train={splits[0]!r} and validation={splits[1]!r} with {len(shared)} in both. "
            "Use parts such as `train[:80%]` and `train[80%:]`."
        )
