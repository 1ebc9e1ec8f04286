"""A folder of pictures, one subfolder a class."""

import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.progress import track

from keras_vit.decoding import decode_error

VALIDATION_NAMES = ("val", "valid", "validation", "test")
_IGNORED_NAMES = ("thumbs.db", "desktop.ini", "__macosx")
_FILES_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class Split:
    """Pictures and what they show.

    Args:
        paths: One file a picture.
        labels: One class index a picture.
    """

    paths: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def where(self, keep: Sequence[bool]) -> "Split":
        """The pictures for which `keep` is true."""
        return Split(
            tuple(itertools.compress(self.paths, keep)),
            tuple(itertools.compress(self.labels, keep)),
        )


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """What `index_folder` found.

    Args:
        class_names: Sorted; a label is an index of it.
        train: Pictures to train on.
        validation: Pictures to validate on; may hold none.
        unreadable: Path and reason of every file that was left out.
        split_rule: How `validation` was chosen, in words.
    """

    class_names: tuple[str, ...]
    train: Split
    validation: Split
    unreadable: tuple[tuple[str, str], ...]
    split_rule: str

    @property
    def summary(self) -> str:
        """One sentence for people."""
        names = ", ".join(self.class_names[:10]) + (", ..." if len(self.class_names) > 10 else "")
        return (
            f"{len(self.class_names)} classes ({names}): {len(self.train)} pictures to train, "
            f"{len(self.validation)} to validate ({self.split_rule}); "
            f"{len(self.unreadable)} unreadable files left out."
        )


def index_folder(
    directory: str | os.PathLike,
    validation: str | os.PathLike | None = None,
    validation_fraction: float = 0.2,
    seed: int = 0,
) -> ImageFolder:
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
    if not 0.0 <= validation_fraction < 1.0:
        raise ValueError(
            "`validation_fraction` must be at least 0 and below 1. "
            f"Received: validation_fraction={validation_fraction!r}."
        )
    train_root, validation_root = _find_roots(directory, validation)
    class_names = tuple(path.name for path in _subfolders(train_root))
    if not class_names:
        raise ValueError(
            "`directory` must hold one subfolder a class, with pictures in it. "
            f"Received: directory={str(train_root)!r}, without any subfolder."
        )
    found = _find_files(train_root, class_names)
    split_rule = "none asked for"
    found_validation = Split()
    if validation_root is not None:
        _check_known(validation_root, class_names)
        found_validation = _find_files(validation_root, class_names)
        split_rule = f"the folder {validation_root.name!r}"
    reasons = _decode_all((*found.paths, *found_validation.paths))
    train = _without(found, reasons)
    _check_classes(train, found, class_names, train_root)
    held_out = _without(found_validation, reasons)
    if validation_root is None and validation_fraction > 0.0:
        split_rule = f"{validation_fraction:.0%} of every class, drawn with seed {seed}"
        train, held_out = _draw_validation(train, validation_fraction, seed)
    if not held_out.paths and split_rule != "none asked for":
        raise ValueError(
            "There is no picture left to validate on. Received: "
            f"directory={str(directory)!r}, {len(train)} pictures, validation from {split_rule}. "
            "Add pictures, or use `validation_fraction=0` to go without."
        )
    return ImageFolder(class_names, train, held_out, tuple(reasons.items()), split_rule)


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
    folder = pathlib.Path(path).expanduser()
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


def _decode_all(paths: tuple[str, ...]) -> dict[str, str]:
    """Decode every file, many at a time. Returns the reason for each that cannot be."""
    console = Console(stderr=True)
    reasons = track(
        _decode_in_threads(paths),
        description="Decoding pictures",
        total=len(paths),
        console=console,
        disable=not console.is_terminal,
    )
    return {path: reason for path, reason in zip(paths, reasons, strict=True) if reason}


def _decode_in_threads(paths: tuple[str, ...]) -> Iterator[str | None]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
        for start in range(0, len(paths), _FILES_AT_ONCE):
            yield from executor.map(decode_error, paths[start : start + _FILES_AT_ONCE])


def _without(split: Split, left_out: dict[str, str]) -> Split:
    return split.where([path not in left_out for path in split.paths])


def _check_classes(
    train: Split, found: Split, class_names: tuple[str, ...], root: pathlib.Path
) -> None:
    """Refuse a folder that there is nothing to learn from."""
    if not train.paths:
        raise ValueError(
            f"No picture could be read. Received: directory={str(root)!r} with {len(found)} "
            "files in its class subfolders. JPEG, PNG, WebP, GIF and BMP are read."
        )
    if len(class_names) < 2:
        raise ValueError(
            "There must be two classes or more, one subfolder each. "
            f"Received: directory={str(root)!r} with the one class {class_names[0]!r}."
        )
    present = set(train.labels)
    for label, name in enumerate(class_names):
        if label not in present:
            raise ValueError(
                f"Every class needs a picture to train on. Received: class {name!r} in "
                f"{str(root)!r} with {found.labels.count(label)} files, none of them readable. "
                "Add pictures or remove the subfolder."
            )


def _draw_validation(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide every class by `fraction`, the same way for the same files and seed."""
    generator = np.random.default_rng(seed)
    labels = np.asarray(split.labels)
    is_validation = np.zeros(len(split), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        number = min(max(1, round(len(members) * fraction)), len(members) - 1)
        is_validation[generator.permutation(members)[:number]] = True
    return split.where(~is_validation), split.where(is_validation)
