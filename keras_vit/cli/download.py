"""`keras-vit download`: fetch models now, for later use without a network."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import assets
from keras_vit.cli.cache import size_text
from keras_vit.cli.console import console, errors, print_tabbed, printable, say
from keras_vit.zoo.download import fetch
from keras_vit.zoo.https import public_name

_HELP = "Zoo ids, Hub ids, official file names or URLs; `@revision` may follow a Hub id."


def download(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help=_HELP, show_default=False)],
):
    """Fetch models into the cache, where every later use finds them.

    \b
      keras-vit download google/vit-base-patch16-224
      keras-vit download vit_tiny_patch16_224.augreg_in21k org/flowers@v2
      keras-vit download ID | cut -f 3      into a pipe: tab-separated

    What is cached already is not fetched again; what was interrupted goes on where it can. Each
    file is compared with its checksum. Private and gated models need `hf auth login` or HF_TOKEN.
    """
    if console.is_terminal:
        for name, size, path in _fetched(ids):
            say(f"{name}  {size_text(size)}  {path}")
    else:
        print_tabbed(("id", "size_bytes", "path"), _fetched(ids))


def _fetched(ids: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """One after the other, so that each is told as soon as it is there."""
    for name in ids:
        if name == "bundled":
            path = assets.checkpoint()
            errors.print("'bundled' is in the package already: nothing to fetch", soft_wrap=True)
        else:
            path = fetch(name).path
        size = sum(file.stat().st_size for file in _files(path))
        yield public_name(name), size, printable(path)


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
