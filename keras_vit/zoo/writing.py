"""Write files so that a name never holds half a file, and weights one tensor at a time."""

import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from keras_vit.zoo import keymap
from keras_vit.zoo.keymap import Rule


def write_files(directory: str | Path, writers: dict[str, Callable[[Path], None]]) -> None:
    """Write files of one directory under temporary names, then give them their own.

    Files of the same names are replaced, all or none. A process that is killed between two of
    them leaves no `config.json`, and the old files in a `.writing-...` folder beside the new.

    Args:
        directory: Made where it does not exist.
        writers: By file name, a function that writes the path it is given. The last one's file,
            `config.json`, is that without which nobody loads the others.

    Raises:
        OSError: If a folder has one of the names, or the disk fails.
    """
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(
            f"`directory` must be a folder. Received: directory={str(directory)!r}, a file. "
            "Give another name."
        )
    check_files(directory, writers)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=directory) as temporary:
        new, old = Path(temporary) / "new", Path(temporary) / "old"
        new.mkdir()
        old.mkdir()
        for name, write in writers.items():
            write(new / name)
            _flush_to_disk(new / name)
        _exchange(directory, new, old, list(writers))


def check_files(directory: Path, names: Iterable[str]) -> None:
    """Refuse a directory in which a folder has the name of a file that is to be written.

    Raises:
        IsADirectoryError: If there is one.
    """
    for name in names:
        if (directory / name).is_dir():
            raise IsADirectoryError(
                f"`directory` must hold no folder named {name!r}, a file to be written. "
                f"Received: directory={str(directory)!r}. Give another name."
            )


def _exchange(directory: Path, new: Path, old: Path, names: list[str]) -> None:
    """Put new files in the places of old ones, which go to a folder of theirs, or change nothing.

    The last goes first: what says how to read the weights never lies beside those of another.
    """
    try:
        for name in reversed(names):
            if os.path.lexists(directory / name):
                (directory / name).replace(old / name)
        for name in names:
            (new / name).replace(directory / name)
    except BaseException:
        for name in names:
            if os.path.lexists(old / name):
                (old / name).replace(directory / name)
            elif not (new / name).exists():
                (directory / name).unlink(missing_ok=True)
        raise


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def json_writer(value: dict) -> Callable[[Path], None]:
    """Return a writer of one JSON file."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return write


def weights_writer(
    rules: Iterable[Rule],
    shapes: dict[str, tuple[int, ...]],
    read_ours: Callable[[str], np.ndarray],
) -> Callable[[Path], None]:
    """Return a writer of a float32 safetensors file in the names of a key table.

    The library's own writer wants every tensor in memory, twice; this one holds one variable.

    Args:
        rules: The key table, without `{i}`.
        shapes: Of our variables, by path.
        read_ours: Returns one of our variables by path; called once a rule.
    """
    rules = tuple(rules)
    header = _safetensors_header(tensor_shapes(rules, shapes))

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(header)
            for rule in rules:
                value = np.asarray(read_ours(rule.ours))
                if value.shape != shapes[rule.ours]:
                    raise ValueError(
                        f"{rule.ours!r} must have the shape {shapes[rule.ours]}. "
                        f"Received: {value.shape}. Give the configuration of this model."
                    )
                for array in keymap.invert(rule, value).values():
                    file.write(array.astype("<f4", order="C", copy=False).data)

    return write


def tensor_shapes(
    rules: Iterable[Rule], shapes: dict[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a file, by name, in the order of their bytes.

    A name in brackets, as `x[:1/3]`, is that of rows of a tensor `x`. Rows that follow each other
    make it whole: together their bytes are its own.

    Args:
        rules: The key table, without `{i}`.
        shapes: Of our variables, by path.

    Raises:
        ValueError: If something comes between two rows, or a name comes twice.
    """
    whole, last = {}, None
    for rule in rules:
        for name, shape in keymap.their_shapes(rule, shapes[rule.ours]).items():
            tensor, is_part, _ = name.partition("[")
            if tensor not in whole:
                whole[tensor] = shape
            elif is_part and tensor == last:
                whole[tensor] = (whole[tensor][0] + shape[0], *shape[1:])
            else:
                raise ValueError(
                    f"A key table must name each tensor once, rows of one together. Received: "
                    f"{name!r} a second time. Move its rule."
                )
            last = tensor
    return whole


def _safetensors_header(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """Return the length and the JSON that a safetensors file begins with."""
    # transformers asks for this very metadata before it reads a file.
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of eight
    return struct.pack("<Q", len(text)) + text
