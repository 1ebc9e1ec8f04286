"""Write files so that a name never holds half a file, and weights one tensor at a time."""

import dataclasses
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from keras_vit.checks import as_labels
from keras_vit.config import ModelConfig, PreprocessingConfig
from keras_vit.resample import DEFAULT_POSITION_RESIZE
from keras_vit.zoo import keymap
from keras_vit.zoo.keymap import Rule

CARD_FILE = "README.md"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """What there is to write of a model; each layout takes what it has a place for.

    Args:
        config: The model's.
        preprocessing: The model's.
        read_ours: Returns one of our variables by path; called once a variable.
        labels: One name a class, or None.
        multi_label: Whether a picture may have several of the classes.
        position_resize: The rule for other image sizes, that of the weights' first source.
        origin: What is known of that source, by names of `checkpoint.ORIGIN`.
        card: The text of the README.md to lie beside, or None.

    Raises:
        ValueError: If labels and classes differ in number.
    """

    config: ModelConfig
    preprocessing: PreprocessingConfig
    read_ours: Callable[[str], np.ndarray]
    labels: tuple[str, ...] | None = None
    multi_label: bool = False
    position_resize: str = DEFAULT_POSITION_RESIZE
    origin: dict[str, str] = dataclasses.field(default_factory=dict)
    card: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "labels", as_labels(self.labels, self.config.num_classes))

    def write_files(
        self,
        directory: str | Path,
        writers: dict[str, Callable[[Path], None]],
        removes: Iterable[str] = (),
    ) -> None:
        """Write a layout's files and the card; see `write_files`."""
        card = {} if self.card is None else {CARD_FILE: text_writer(self.card)}
        write_files(directory, card | writers, removes)


def write_files(
    directory: str | Path,
    writers: dict[str, Callable[[Path], None]],
    removes: Iterable[str] = (),
) -> None:
    """Write files of one directory under temporary names, then give them their own.

    Files of the same names are replaced, all or none. A process that is killed between two of
    them leaves no `config.json`, and the old files in a `.writing-...` folder beside the new.

    Args:
        directory: Made where it does not exist.
        writers: By file name, a function that writes the path it is given. The last one's file,
            `config.json`, is that without which nobody loads the others.
        removes: Names of files that must not lie beside these, and go with the old ones.

    Raises:
        OSError: If a folder has one of the names, or the disk fails.
    """
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(
            f"`directory` must be a folder. Received: directory={str(directory)!r}, a file. "
            "Give another name."
        )
    removes = [name for name in removes if name not in writers]
    _refuse_folders(directory, [*writers, *removes])
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=directory) as temporary:
        new, old = Path(temporary) / "new", Path(temporary) / "old"
        new.mkdir()
        old.mkdir()
        for name, write in writers.items():
            write(new / name)
            _flush_to_disk(new / name)
        _exchange(directory, new, old, list(writers), removes)


def _refuse_folders(directory: Path, names: Iterable[str]) -> None:
    """Refuse a directory in which a folder has the name of a file that is to be replaced."""
    for name in names:
        if (directory / name).is_dir():
            raise IsADirectoryError(
                f"`directory` must hold no folder named {name!r}, a file to be replaced. "
                f"Received: directory={str(directory)!r}. Give another name."
            )


def _exchange(directory: Path, new: Path, old: Path, names: list[str], removes: list[str]) -> None:
    """Put new files in the places of old ones, which go to a folder of theirs, or change nothing.

    The last goes first: what says how to read the weights never lies beside those of another.
    """
    try:
        for name in (*reversed(names), *removes):
            if os.path.lexists(directory / name):
                (directory / name).replace(old / name)
        for name in names:
            (new / name).replace(directory / name)
    except BaseException:
        for name in (*names, *removes):
            if os.path.lexists(old / name):
                (old / name).replace(directory / name)
            elif name in names and not (new / name).exists():
                (directory / name).unlink(missing_ok=True)
        raise


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def json_writer(value: dict) -> Callable[[Path], None]:
    """Return a writer of one JSON file."""
    return text_writer(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def text_writer(text: str) -> Callable[[Path], None]:
    """Return a writer of one text file, in UTF-8."""

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
