"""A folder of pictures, one subfolder a class."""

import os
import pathlib
from collections.abc import Iterator

from keras_vit.data.index import (
    VALIDATION_NAMES,
    ImageIndex,
    Split,
    build_index,
    check_each,
    check_fraction,
)
from keras_vit.decoding import decode_error
from keras_vit.files import local_path

_IGNORED_NAMES = ("thumbs.db", "desktop.ini", "__macosx")


def index_folder(
    directory: str | os.PathLike,
    validation: str | os.PathLike | None = None,
    validation_fraction: float = 0.2,
    seed: int = 0,
) -> ImageIndex:
    """Find and decode every picture of a folder, once, before anything is computed from them.

    Two layouts are understood:

    - `train/CLASS/...` beside one of `val`, `valid`, `validation`, `test` with the same classes
      (the first of these that exists; other folders beside them are not read). A `train` that
      is the only subfolder is read as the next layout.
    - `CLASS/...`. Of every class, `validation_fraction` of the pictures, at least one, is drawn
      for validation, by `seed`; a class of one picture keeps it for training.

    Folders inside a class belong to it. Links are followed. Hidden files and what file managers
    leave behind are passed over. Every other file is decoded; those that cannot be are listed
    and left out.

    Args:
        directory: The folder.
        validation: Another folder of the same classes to validate on. `directory` is then
            trained on whole.
        validation_fraction: Share to validate on where the folder does not say; 0 for none.
        seed: Seed of that draw.

    Raises:
        FileNotFoundError: If a folder does not exist.
        NotADirectoryError: If it is a file.
        ValueError: If there is no picture, fewer than two classes, a class without pictures,
            a validation class that is not trained on, or nothing left to validate on.
    """
    check_fraction(validation_fraction)
    train_root, validation_root = _find_roots(directory, validation)
    class_names = tuple(path.name for path in _subfolders(train_root))
    if not class_names:
        raise ValueError(
            "`directory` must hold one subfolder a class, with pictures in it. "
            f"Received: directory={str(train_root)!r}, without any subfolder."
        )
    found = _find_files(train_root, class_names)
    found_validation, split_rule = Split(), ""
    if validation_root is not None:
        _check_known(validation_root, class_names)
        found_validation = _find_files(validation_root, class_names)
        split_rule = f"the folder {validation_root.name!r}"
    reasons = decode_files((*found.paths, *found_validation.paths))
    return build_index(
        f"directory={str(train_root)!r}",
        class_names,
        without(found, reasons),
        None if validation_root is None else without(found_validation, reasons),
        reasons.items(),
        split_rule,
        validation_fraction,
        seed,
    )


def _find_roots(
    directory: str | os.PathLike, validation: str | os.PathLike | None
) -> tuple[pathlib.Path, pathlib.Path | None]:
    """The folders that hold the classes: to train on, and to validate on if there is one."""
    root = _existing_folder(directory, "directory")
    if validation is not None:
        return root, _existing_folder(validation, "validation")
    by_name = {path.name.lower(): path for path in _subfolders(root)}
    train = by_name.get("train")
    if train is None or not _subfolders(train):
        return root, None
    for name in VALIDATION_NAMES:
        if name in by_name:
            return train, by_name[name]
    return (train if len(by_name) == 1 else root), None


def _existing_folder(path: str | os.PathLike, name: str) -> pathlib.Path:
    folder = local_path(path)
    if not folder.exists():
        raise FileNotFoundError(
            f"`{name}` must be an existing folder. Received: {name}={str(path)!r}, which does "
            "not exist."
        )
    if not folder.is_dir():
        raise NotADirectoryError(
            f"`{name}` must be a folder of one subfolder a class. "
            f"Received: {name}={str(path)!r}, which is a file."
        )
    return folder


def is_ignored(name: str) -> bool:
    """Whether a file or folder of this name is passed over: hidden, or a file manager's."""
    return name.startswith(".") or name.lower() in _IGNORED_NAMES


def _subfolders(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not is_ignored(path.name))


def _check_known(root: pathlib.Path, class_names: tuple[str, ...]) -> None:
    unknown = [path.name for path in _subfolders(root) if path.name not in class_names]
    if unknown:
        raise ValueError(
            f"Every class to validate on must be trained on. Received: {', '.join(unknown)} in "
            f"{str(root)!r}, where the classes are {', '.join(class_names[:20])}."
        )


def _find_files(root: pathlib.Path, class_names: tuple[str, ...]) -> Split:
    paths, labels = [], []
    for label, name in enumerate(class_names):
        files = sorted(_walk(root / name, set()))
        paths += files
        labels += [label] * len(files)
    return Split(tuple(paths), tuple(labels))


def _walk(folder: pathlib.Path, visited: set[pathlib.Path]) -> Iterator[str]:
    """Files at any depth. A folder that a link leads back to is read once."""
    if not folder.exists() or folder.resolve() in visited:
        return
    visited.add(folder.resolve())
    for path in folder.iterdir():
        if is_ignored(path.name):
            continue
        if path.is_dir():
            yield from _walk(path, visited)
        elif path.is_file() or path.is_symlink():  # broken links too: their decoding says so
            yield str(path)


def decode_files(paths: tuple[str, ...]) -> dict[str, str]:
    """Decode every file. Returns the reason for each that cannot be."""
    reasons = check_each(decode_error, paths, len(paths))
    return {path: reason for path, reason in zip(paths, reasons, strict=True) if reason}


def without(split: Split, left_out: dict[str, str]) -> Split:
    """The pictures whose files are not among `left_out`."""
    return split.where([path not in left_out for path in split.paths])
