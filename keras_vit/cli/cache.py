"""`keras-vit cache`: which models are on this machine, and making room."""

import datetime
from typing import Annotated

import typer

from keras_vit.cli.console import console, print_tabbed, printable, say, show_table
from keras_vit.zoo.cache import Cached, clear, find_cached, list_cached

_CLEAR_HELP = "Delete this model; may be given several times."


def cache(
    to_clear: Annotated[
        list[str] | None,
        typer.Option("--clear", metavar="ID", help=_CLEAR_HELP, show_default=False),
    ] = None,
    clear_all: Annotated[
        bool, typer.Option("--clear-all", help="Delete every model that this verb lists.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
):
    """List the models on this machine, or delete some.

    \b
      keras-vit cache                      what there is, its size, last use
      keras-vit cache | cut -f 1,3         into a pipe: tab-separated
      keras-vit cache --clear org/flowers  delete one
      keras-vit cache --clear-all --yes    delete all, unasked

    Files of URLs lie in $KERAS_VIT_CACHE or ~/.cache/keras_vit. Those of the Hugging Face Hub lie
    in its client's cache, which other libraries use too: listed are models of the catalogue, and
    those that were loaded here.
    """
    if to_clear and clear_all:
        raise ValueError("`--clear` and `--clear-all` must not be given together.")
    items = list_cached()
    if to_clear:
        chosen = {item.path: item for item in (find_cached(name, items) for name in to_clear)}
        _delete(list(chosen.values()), yes)
    elif clear_all:
        _delete(items, yes)
    elif console.is_terminal:
        _show(items)
    else:
        print_tabbed(
            ("id", "source", "size_bytes", "last_used", "path"),
            [
                (item.names[0], item.source, item.size_bytes)
                + (item.last_used.isoformat(timespec="seconds"), printable(item.path))
                for item in items
            ],
        )


def size_text(size: int) -> str:
    """A number of bytes, short."""
    return f"{size / 2**20:,.1f} MiB"


def _show(items: list[Cached]) -> None:
    if not items:
        say("no models are cached")
        return
    show_table(
        ("id", "size", "last use", "path"),
        [
            (item.names[0], size_text(item.size_bytes), _day(item), printable(item.path))
            for item in items
        ],
        justify="left",
    )
    say(f"{_count(items)}, {size_text(sum(item.size_bytes for item in items))}")


def _day(item: Cached) -> str:
    return datetime.date.isoformat(item.last_used)


def _count(items: list[Cached]) -> str:
    return "1 model" if len(items) == 1 else f"{len(items)} models"


def _delete(items: list[Cached], yes: bool) -> None:
    if not items:
        say("no models are cached")
        return
    for item in items:
        say(f"{item.names[0]}  {size_text(item.size_bytes)}  {printable(item.path)}")
    shared = sum(item.is_repository for item in items)
    if not yes:
        note = f" Shared with other libraries: {shared}." if shared else ""
        typer.confirm(f"Delete {_count(items)}?{note}", abort=True, err=True)
    for item in items:
        clear(item)
    say(f"deleted {size_text(sum(item.size_bytes for item in items))}")
