"""How the command line speaks: results on stdout; notices, progress and errors on stderr."""

import contextlib
import csv
import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.progress import track
from rich.table import Table

from keras_vit.files import local_path, replacing

# Names of files may look like markup.
console = Console(markup=False, highlight=False, emoji=False)
errors = Console(markup=False, highlight=False, emoji=False, stderr=True)

# How an error of the Python functions names an argument, and how the shell does.
_PYTHON_SPELLING = re.compile(
    r"`(resume|overwrite|multi_label|validation|validation_fraction|steps|epochs|batch_size|"
    r"learning_rate|warmup_steps|early_stopping|image_size|seed|class_weights|augment)(?:ation)?"
    r"(?:=True|=([\d.]+))?`"
)
# What the shell words otherwise; it has no options for the columns of a table.
_REWORDED = (
    (re.compile(r", or give `index_table\(.*?\)`"), ""),
    (re.compile(r"`(path|label|split)_column`"), r"The column `\1`"),
    (re.compile(r"\b(path|label|split)_column="), ""),
    (re.compile(r"`layout`"), "`--to`"),
    (re.compile(r", or None for the first of them"), ""),
    (re.compile(r"\blayout="), "--to "),
    (re.compile(r"pass `token=`"), "set HF_TOKEN"),
    (re.compile(r"`local_files_only` and without "), ""),
)


class _Notices(logging.Handler):
    """The package's log on the console, unwrapped."""

    def emit(self, record: logging.LogRecord) -> None:
        errors.print(self.format(record), soft_wrap=True, style="yellow")


_NOTICES = _Notices()


def show_notices() -> None:
    """Show what the package tells by its logger."""
    logging.getLogger("keras_vit").addHandler(_NOTICES)


def say(text: str) -> None:
    """Print a result."""
    console.print(text, soft_wrap=True)


def remark(text: str) -> None:
    """Print what belongs to the results for people, and not for another program."""
    (console if console.is_terminal else errors).print(text, soft_wrap=True)


def complain(text: str) -> None:
    """Print what went wrong."""
    errors.print(text, soft_wrap=True, style="red")


def printable(path: str | os.PathLike) -> str:
    """A path as text that every terminal takes; file names may be any bytes."""
    return os.fsencode(path).decode("utf-8", "replace")


def percent(share: float) -> str:
    """`0.934` as `93.4 %`."""
    return f"{share:.1%}".replace("%", " %")


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], justify: JustifyMethod = "right"
) -> None:
    """Print a table; `justify` is for all columns but the first."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify=justify if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_tabbed(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows for another program to read, under one line of names."""
    writer = csv.writer(sys.stdout, "excel-tab", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def with_progress(items: Iterable[Any], total: int, what: str) -> Iterable[Any]:
    """The same items, with a progress bar on a terminal."""
    return track(items, what, total, console=errors, disable=not errors.is_terminal)


@contextlib.contextmanager
def replacing_file(path: Path | None, option: str) -> Iterator[Path | None]:
    """A temporary file that becomes `path`; whether it can be written is known at once."""
    if path is None:
        yield None
        return
    path = local_path(path).resolve()  # what a link points to, not the link
    if path.exists() and not path.is_file():
        raise ValueError(f"`{option}` must be a file. Received: {str(path)!r}, which is none.")
    with replacing(path) as temporary:
        try:
            temporary.touch()
        except OSError as error:
            reason = f"`{option}` cannot be written ({error.strerror})"
            raise OSError(error.errno, reason, path) from error
        yield temporary


def guarded(verb: Callable) -> Callable:
    """Make a verb end, for a fault that is not the program's own, with one line and a code.

    `KERAS_VIT_TRACEBACK=1` leaves errors as they are. A `KeyboardInterrupt` may carry a text.
    """

    @functools.wraps(verb)
    def run(*args, **kwargs):
        try:
            return verb(*args, **kwargs)
        except KeyboardInterrupt as interruption:
            complain(str(interruption) or "interrupted")
            raise typer.Exit(130) from None
        except (ValueError, OSError, ImportError, FloatingPointError, MemoryError) as error:
            if os.environ.get("KERAS_VIT_TRACEBACK") or not _is_explained(error):
                raise
            complain(f"error: {_message(error)}")
            raise typer.Exit(1) from None

    return run


def _is_explained(error: Exception) -> bool:
    """Whether the error's text tells a user all; a stray `ValueError` is a fault of ours."""
    if isinstance(error, BrokenPipeError):
        return False  # typer ends quietly
    if not isinstance(error, ValueError):
        return True
    traceback = error.__traceback__
    while traceback.tb_next:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "keras_vit"


def _message(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {printable(error.filename)}" if error.filename else "")
    for pattern, words in _REWORDED:
        text = pattern.sub(words, text)
    text = _PYTHON_SPELLING.sub(_as_option, text)
    return text or "out of memory"


def _as_option(match: re.Match) -> str:
    return f"`--{match[1].replace('_', '-')}{' ' + match[2] if match[2] else ''}`"
