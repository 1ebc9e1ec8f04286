"""A table of pictures: a CSV, TSV or Parquet file with a row for each."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence

from keras_vit.checks import unknown_name
from keras_vit.data.folder import decode_files, is_ignored, without
from keras_vit.data.index import (
    VALIDATION_NAMES,
    ImageIndex,
    Split,
    build_index,
    check_fraction,
    multi_hot,
)
from keras_vit.data.table_rows import (
    DELIMITERS,
    PARQUET,
    SEPARATOR,
    Columns,
    Row,
    read_rows,
    tell_rows,
)
from keras_vit.files import local_path

_TRAIN = "train"
# Longer numbers are names; Python has a limit of thousands for what `int` reads.
_MOST_DIGITS = 20


def is_table(text: str) -> bool:
    """Whether a path is that of a table, by its suffix."""
    path = local_path(text)
    return path.suffix.lower() in (*DELIMITERS, PARQUET) and not path.is_dir()


def index_table(
    table: str | os.PathLike,
    validation: str | os.PathLike | None = None,
    validation_fraction: float = 0.2,
    seed: int = 0,
    *,
    path_column: str = "path",
    label_column: str = "label",
    split_column: str | None = None,
) -> ImageIndex:
    """Find and decode every picture of a table, once, before anything is computed from them.

    The first line of a `.csv` (commas) or `.tsv` (tabs) file, in UTF-8, names the columns:

    ```
    path,label,split
    images/1.jpg,cat,train
    images/2.jpg,cat|dog,train
    /elsewhere/3.jpg,|,validation
    ```

    - `path`: a file, absolute or relative to the table's folder. Each once.
    - `label`: the name of a class, or an integer. Several with `|` between, for a picture that
      shows several; `|` alone for one that shows none. If any cell has a `|`, or if the column of
      a Parquet file holds lists, the labels are `(pictures, classes)` of 0 and 1, and each class
      is learnt by itself. Lists of one 0 or 1 a class are refused, for they look like classes
      0 and 1. Classes are sorted by name, or by number where all are integers of at most 20
      digits: 1, 3 and 7 are classes 0, 1 and 2 with the names "1", "3" and "7". A number that is
      written in two ways, 1 and 01, is then an error.
    - `split`, may be missing: `train`, or one of `val`, `valid`, `validation` and `test`. The
      first of these that occurs is validated on; others are not read. Without validation rows,
      `validation_fraction` of every class is drawn by `seed`, as in `index_folder`; a picture
      of several classes counts as one of the rarest of them.

    Other columns are passed over. Files that are hidden, or cannot be decoded, are listed and left
    out, as in `index_folder`; a file that does not exist is an error.

    Args:
        table: The file.
        validation: Another table to validate on, without `split` in either.
        validation_fraction: Share to validate on where the table does not say; 0 for none.
        seed: Seed of that draw.
        path_column: The column's name.
        label_column: The column's name.
        split_column: The column's name; None for `split`, where there is one.

    Raises:
        FileNotFoundError: If a table or a picture does not exist, naming the lines.
        ValueError: If a table is malformed, naming the line; if a file is named twice, a class to
            validate on is not trained on, or for what `index_folder` raises it.
    """
    check_fraction(validation_fraction)
    columns = Columns(path_column, label_column, split_column)
    train, held_out, split_rule = _read(table, "table", columns), None, ""
    if validation is not None:
        held_out = _read(validation, "validation", columns)
        split_rule = f"the table {held_out.table.name!r}"
        _check_no_split(train, held_out)
    elif train.rows[0].split is not None:
        train, held_out, split_rule = _divide(train)
    parts = [train] if held_out is None else [train, held_out]
    _check_files(parts)
    class_names = _class_names(train.rows)
    if held_out:
        _check_known(held_out, class_names)
    is_multi_label = any(row.is_list for part in parts for row in part.rows)
    splits = [_as_split(part, class_names, is_multi_label) for part in parts]
    reasons = _check_pictures([path for split in splits for path in split.paths])
    splits = [without(split, reasons) for split in splits]
    return build_index(
        f"table={str(train.table)!r}",
        class_names,
        splits[0],
        splits[1] if held_out else None,
        reasons.items(),
        split_rule,
        validation_fraction,
        seed,
    )


def index_table_split(table: str | os.PathLike, names: Sequence[str]) -> ImageIndex | None:
    """Find and decode the pictures of one split of a table, to be asked about and not learnt from.

    Columns are those of `index_table`. Unlike there, rows to train on may be missing, and the
    split need not have pictures of every class.

    Args:
        table: The file.
        names: Names of splits; the first that the table has is taken.

    Returns:
        The pictures, as those to train on; None if the table has no such split.

    Raises:
        FileNotFoundError: If the table or a picture does not exist, naming the lines.
        ValueError: If the table is malformed, naming the line, or a file is named twice.
    """
    part = _read(table, "table", Columns())
    by_name = {} if part.rows[0].split is None else _by_split(part)
    name = next((name for name in names if name in by_name), None)
    if name is None:
        return None
    chosen = _Part(part.table, by_name[name])
    _check_files([chosen])
    class_names = _class_names(part.rows)
    is_multi_label = any(row.is_list for row in part.rows)
    pictures = _as_split(chosen, class_names, is_multi_label)
    reasons = _check_pictures(pictures.paths)
    pictures = without(pictures, reasons)
    return ImageIndex(class_names, pictures, Split(), tuple(reasons.items()), _rule(name))


@dataclasses.dataclass(frozen=True)
class _Part:
    """Rows of one table."""

    table: pathlib.Path
    rows: list[Row]

    def path(self, row: Row) -> str:
        return str(self.table.parent / row.path)

    def tell(self, rows: Sequence[Row]) -> str:
        return tell_rows(self.table, rows)


def _read(table: str | os.PathLike, name: str, columns: Columns) -> _Part:
    path = local_path(table)
    if path.suffix.lower() not in (*DELIMITERS, PARQUET):
        raise ValueError(
            f"`{name}` must be a .csv, .tsv or .parquet file, as a table. "
            f"Received: {name}={str(table)!r}."
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"`{name}` must be an existing file. Received: {name}={str(table)!r}, which does not "
            "exist or is no file."
        )
    return _Part(path.absolute(), read_rows(path, columns))


def _check_no_split(train: _Part, held_out: _Part) -> None:
    if any(part.rows[0].split is not None for part in (train, held_out)):
        raise ValueError(
            "`validation` and a column that says the split exclude each other. Received: "
            f"{held_out.table.name} with {train.table.name}. Leave `validation` out, or remove "
            "that column."
        )


def _by_split(part: _Part) -> dict[str, list[Row]]:
    """The rows of each split, by its name in lower case."""
    by_name: dict[str, list[Row]] = {}
    for row in part.rows:
        name = row.split.lower()
        if name not in (_TRAIN, *VALIDATION_NAMES):
            error = unknown_name("split", row.split, (_TRAIN, *VALIDATION_NAMES))
            raise ValueError(f"{error} That is {part.tell([row])}.")
        by_name.setdefault(name, []).append(row)
    return by_name


def _divide(part: _Part) -> tuple[_Part, _Part | None, str]:
    """Rows to train on, rows to validate on if the table says so, and how it does."""
    by_name = _by_split(part)
    if _TRAIN not in by_name:
        raise ValueError(
            f"A table must have pictures to train on. Received: {part.table.name} with the splits "
            f"{', '.join(by_name)}. Write {_TRAIN!r} for those."
        )
    train = _Part(part.table, by_name[_TRAIN])
    for name in VALIDATION_NAMES:
        if name in by_name:
            return train, _Part(part.table, by_name[name]), _rule(name)
    return train, None, ""


def _rule(split: str) -> str:
    return f"the rows of split {split!r}"


def _check_files(parts: Sequence[_Part]) -> None:
    """Refuse files that do not exist or are named twice."""
    first: dict[str, str] = {}
    for part in parts:
        missing = [row for row in part.rows if not os.path.lexists(part.path(row))]
        if missing:
            raise FileNotFoundError(
                f"Every picture of a table must exist. Received: {part.tell(missing)}, the first "
                f"with {part.path(missing[0])!r}. Paths are absolute, or relative to the table's "
                "folder."
            )
        for row in part.rows:
            path, here = os.path.realpath(part.path(row)), part.tell([row])
            if path in first:
                raise ValueError(
                    f"Every picture must be named once, to be trained on or to be validated on. "
                    f"Received: {row.path!r} in {first[path]} and in {here}. Remove one; several "
                    f"labels of a picture go into one cell, with {SEPARATOR!r} between."
                )
            first[path] = here


def _class_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """Sorted by name, or by number where all are numbers."""
    names = {name for row in rows for name in row.labels}
    digits = [name.removeprefix("-") for name in names]
    if not all(each.isdecimal() and len(each) <= _MOST_DIGITS for each in digits):
        return tuple(sorted(names))
    ordered = sorted(names, key=lambda name: (int(name), name))
    for name, other in itertools.pairwise(ordered):
        if int(name) == int(other):
            raise ValueError(
                "A class that is a number must be written in one way. Received: the labels "
                f"{name!r} and {other!r}. Write one of them in every row; if they are two "
                "classes, give them names that are no numbers."
            )
    return tuple(ordered)


def _check_known(part: _Part, class_names: tuple[str, ...]) -> None:
    known = set(class_names)
    for row in part.rows:
        for name in row.labels:
            if name not in known:
                error = unknown_name("class", name, class_names)
                raise ValueError(
                    f"{error} Every class to validate on must be trained on; this is in "
                    f"{part.tell([row])}."
                )


def _as_split(part: _Part, class_names: tuple[str, ...], is_multi_label: bool) -> Split:
    index = {name: label for label, name in enumerate(class_names)}
    labels = [[index[name] for name in row.labels] for row in part.rows]
    return Split(
        tuple(map(part.path, part.rows)),
        multi_hot(labels, len(class_names)) if is_multi_label else [row[0] for row in labels],
    )


def _check_pictures(paths: Sequence[str]) -> dict[str, str]:
    """The reason for each file that is left out."""
    hidden = {path for path in paths if is_ignored(pathlib.Path(path).name)}
    reasons = dict.fromkeys(hidden, "is hidden or a file manager's; rename it to use it")
    return reasons | decode_files(tuple(path for path in paths if path not in hidden))
