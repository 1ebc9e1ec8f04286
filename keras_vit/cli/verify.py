"""`keras-vit verify`: whether cached files still are what was published."""

from collections.abc import Iterator
from typing import Annotated

import typer

from keras_vit.cli.cache import size_text
from keras_vit.cli.console import complain, console, print_tabbed, printable, say, show_table
from keras_vit.zoo.cache import (
    DAMAGED,
    Cached,
    CachedFile,
    delete_file,
    find_cached,
    list_cached,
    verify_files,
)

_HELP = "Cached models (`keras-vit cache`); all of them if none is given."


def verify(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help=_HELP, show_default=False)
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete damaged files; their next use fetches them.")
    ] = False,
):
    """Hash cached files again and compare with their checksums; exit code 1 if one is damaged.

    \b
      keras-vit verify                                all that is cached
      keras-vit verify google/vit-base-patch16-224    one model
      keras-vit verify --delete                       and delete what is damaged

    States: ok; damaged; not verifiable, where the server gave no checksum and only the size fits.
    """
    items = list_cached()
    chosen = [find_cached(name, items) for name in ids] if ids else items
    damaged: list[tuple[Cached, CachedFile]] = []

    def results() -> Iterator[tuple[str, str, int, str]]:
        for item in chosen:
            for file in verify_files(item):
                if file.state == DAMAGED:
                    damaged.append((item, file))
                yield item.names[0], file.state, file.size_bytes, printable(file.path)

    if not console.is_terminal:
        print_tabbed(("id", "state", "size_bytes", "path"), results())
    elif rows := [(name, state, size_text(size), path) for name, state, size, path in results()]:
        show_table(("id", "state", "size", "path"), rows, justify="left")
    else:
        say("no models are cached")
    if damaged and delete:
        for item, file in damaged:
            delete_file(item, file)
        complain(f"damaged files deleted: {len(damaged)}; their next use fetches them again")
    elif damaged:
        complain(f"damaged files: {len(damaged)}; `keras-vit verify --delete` deletes them")
    if damaged:
        raise typer.Exit(1)
