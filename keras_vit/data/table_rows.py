"""The rows of a CSV, TSV or Parquet file."""

import codecs
import csv
import dataclasses
import difflib
import io
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
# Between the labels of one cell of text; alone it stands for none.
SEPARATOR = "|"
_SPLIT = "split"
_MOST_ROWS_TOLD = 5
_BITS = {"0", "1", "False", "True"}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of columns.

    Args:
        path: Of the pictures' files.
        label: Of what they show.
        split: Of what they are for; None for `split`, where there is one.
    """

    path: str = "path"
    label: str = "label"
    split: str | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One picture of a table.

    Args:
        number: Line of the file, or row of a Parquet file, counted from 1.
        path: As written.
        labels: Names of classes; none where the picture shows none of them.
        split: As written, or None where the table has no such column.
        is_list: Whether the cell of the labels may hold several.
    """

    number: int
    path: str
    labels: tuple[str, ...]
    split: str | None
    is_list: bool


def read_rows(table: pathlib.Path, columns: Columns) -> list[Row]:
    """Read a table.

    Args:
        table: The file.
        columns: Names of its columns; all others are passed over.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no such table, naming the line.
    """
    read = _read_parquet if table.suffix.lower() == PARQUET else _read_text
    header, cells = read(table, columns)
    path_at, label_at, split_at = _find_columns(table, header, columns)
    rows, written = [], []
    for number, values in cells:
        where = f"{_count_word(table)} {number} of {table.name}"
        if len(values) != len(header):
            raise ValueError(
                f"A line must have a cell for each of the {len(header)} columns. Received: {where} "
                f"with {len(values)} cells. Put a cell that has the delimiter in it in quotes."
            )
        path = _text(values[path_at], columns.path, where)
        labels, is_list = _labels(values[label_at], columns.label, where)
        split = None if split_at is None else _text(values[split_at], header[split_at], where)
        written.append(labels)
        rows.append(Row(number, path, tuple(dict.fromkeys(labels)), split, is_list))
    if not rows:
        raise ValueError(
            f"`table` must have a {_count_word(table)} for each picture. Received: "
            f"{str(table)!r}, which has none."
        )
    _check_no_bits(table, columns.label, written)
    return rows


def tell_rows(table: pathlib.Path, rows: Sequence[Row]) -> str:
    """Where they are, for an error message."""
    numbers = ", ".join(str(row.number) for row in rows[:_MOST_ROWS_TOLD])
    more = f" and {len(rows) - _MOST_ROWS_TOLD} more" if len(rows) > _MOST_ROWS_TOLD else ""
    return f"{_count_word(table)}{'s' * (len(rows) > 1)} {numbers}{more} of {table.name}"


def _count_word(table: pathlib.Path) -> str:
    return "row" if table.suffix.lower() == PARQUET else "line"


def _read_text(
    table: pathlib.Path, columns: Columns
) -> tuple[list[str], Iterable[tuple[int, list[str]]]]:
    """The header; and number and cells of every line below that is not empty."""
    lines = io.StringIO(_decode(table), newline="")
    delimiter = DELIMITERS[table.suffix.lower()]
    # A space before a quote would make the quote part of the cell.
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)

    def records() -> Iterator[tuple[int, list[str]]]:
        number = 1
        try:
            for cells in reader:
                cells = [cell.strip() for cell in cells]
                if any(cells):
                    yield number, cells
                number = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"A table must be well formed. Received: line {number} of {table.name} ({error}). "
                "Close every quote, and double those inside of quotes."
            ) from error

    found = records()
    _, header = next(found, (1, []))
    return header, found


def _decode(table: pathlib.Path) -> str:
    content = table.read_bytes()
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"A table must be text in UTF-8. Received: line {line} of {table.name} with "
            f"{content[error.start : error.start + 1]!r}. Save it as UTF-8, in a spreadsheet as "
            "`CSV UTF-8`."
        ) from error
    before, zero, _ = text.partition("\0")
    if zero:
        line = before.count("\n") + 1
        raise ValueError(
            f"A table must be text. Received: line {line} of {table.name} with a zero byte. Save "
            "it as UTF-8."
        )
    return text


def _read_parquet(
    table: pathlib.Path, columns: Columns
) -> tuple[list[str], Iterable[tuple[int, list[Any]]]]:
    """The header; and number and cells of every row. Other columns are left None."""
    import pyarrow  # which tensorflow-datasets requires; slow to load
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(table) as file:
            header = file.schema_arrow.names
            wanted = {columns.path, columns.label, columns.split or _SPLIT} & {*header}
            values = file.read(columns=sorted(wanted)).to_pydict()
            height = file.metadata.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"`table` must be a whole Parquet file. Received: {str(table)!r} ({error})."
        ) from error
    columns_of_cells = [values.get(name, [None] * height) for name in header]
    return header, enumerate(map(list, zip(*columns_of_cells, strict=True)), 1)


def _find_columns(
    table: pathlib.Path, header: list[str], columns: Columns
) -> tuple[int, int, int | None]:
    """Where path, label and split are in each row."""
    wanted = {"path_column": columns.path, "label_column": columns.label}
    if columns.split is not None:
        wanted["split_column"] = columns.split
    for argument, name in wanted.items():
        if header.count(name) != 1:
            raise ValueError(
                f"`{argument}` must be one of the columns, whose names are the first line. "
                f"Received: {argument}={name!r} for {table.name} with the columns "
                f"{_tell_columns(header)}.{_close(name, header)} Name the columns "
                "`path` and `label`, with commas between in a .csv and tabs in a .tsv, or give "
                "`index_table(..., path_column=, label_column=)`."
            )
    split = columns.split or _SPLIT
    if split not in header and (near := _close(split, header)):
        raise ValueError(
            f"It is not clear whether {table.name} says which pictures to validate on. Received: "
            f"columns {_tell_columns(header)}.{near} Name that column `{_SPLIT}`, or give "
            "`index_table(..., split_column=)`."
        )
    places = [header.index(name) for name in (columns.path, columns.label)]
    return *places, header.index(split) if split in header else None


def _tell_columns(header: list[str]) -> str:
    return ", ".join(map(repr, header[:20])) + (", ..." if len(header) > 20 else "") or "none"


def _close(name: str, header: list[str]) -> str:
    """Columns that may have been meant."""
    by_folded = {column.casefold().strip(): column for column in header}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.75)
    names = [by_folded[match] for match in close]
    return f" Did you mean: {', '.join(names)}?" if names else ""


def _text(value: Any, column: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"Every picture needs a `{column}`, a text. Received: {where} with {value!r}. "
            "Fill the cell, or remove the row."
        )
    return value.strip()


def _labels(value: Any, column: str, where: str) -> tuple[tuple[str, ...], bool]:
    """Names of classes as written, and whether the cell may hold several."""
    if isinstance(value, str) and value.strip() == SEPARATOR:
        return (), True
    is_text_list = isinstance(value, str) and SEPARATOR in value
    is_list = isinstance(value, list) or is_text_list
    names = value.split(SEPARATOR) if is_text_list else value if is_list else [value]
    if not all(isinstance(name, str | int) and str(name).strip() for name in names):
        raise ValueError(
            f"Every `{column}` must be the name of a class or an integer, or several of them with "
            f"{SEPARATOR!r} between. Received: {where} with {value!r}. Fill the cell, or remove "
            f"the row; {SEPARATOR!r} alone stands for none of the classes."
        )
    return tuple(str(name).strip() for name in names), is_list


def _check_no_bits(table: pathlib.Path, column: str, labels: Sequence[tuple[str, ...]]) -> None:
    """Refuse one 0 or 1 a class, which would be read as two classes called 0 and 1."""
    length = len(labels[0])
    if length > 1 and all(len(names) == length and _BITS.issuperset(names) for names in labels):
        raise ValueError(
            f"Every `{column}` must list the classes that a picture shows. Received: "
            f"{table.name}, in which each lists {length} values that are 0 or 1, such as "
            f"{', '.join(labels[0][:20])}. Write the places of the ones, counted from 0, or the "
            "names of those classes. Two classes called 0 and 1 need other names."
        )
