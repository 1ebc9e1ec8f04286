"""`keras-vit list`: what pretrained weights there are."""

import collections
import fnmatch
import math
import textwrap
from typing import Annotated, Literal

import typer

from keras_vit.checks import unknown_name
from keras_vit.cli.console import console, print_tabbed, say, show_table
from keras_vit.zoo.catalogue import close_candidates, filter_rows
from keras_vit.zoo.rows import ModelRow

_PATTERN_HELP = "A part of a name, or a shell pattern; of the id, or of the model's other names."
# Each gives (what comes first, the id).
_ORDERS = {
    "id": lambda row: row.id,
    "top1": lambda row: (-(row.top1 or 0.0), row.id),
    "parameters": lambda row: (row.parameters, row.id),
}


def list_models(
    pattern: Annotated[str, typer.Argument(help=_PATTERN_HELP, show_default=False)] = "*",
    family: Annotated[
        str | None, typer.Option(help="A file of the zoo, or a shell pattern of them: 'timm_*'.")
    ] = None,
    max_params: Annotated[
        float | None, typer.Option(min=0.0, help="The most parameters, in millions.")
    ] = None,
    pixels: Annotated[int | None, typer.Option(min=1, help="Side of the input.")] = None,
    licence: Annotated[
        str | None, typer.Option(help="Its name, or a shell pattern: 'cc-by-nc-*'.")
    ] = None,
    min_top1: Annotated[
        float | None, typer.Option(min=0.0, max=100.0, help="The least accuracy, in percent.")
    ] = None,
    sort: Annotated[
        Literal[tuple(_ORDERS)], typer.Option(help="What comes first: the best, the smallest.")
    ] = "id",
):
    """List the pretrained models, with size, licence and published accuracy.

    \b
      keras-vit list                    all of them
      keras-vit list base               those with "base" in their name
      keras-vit list 'google/*'         those of Google on the Hugging Face Hub
      keras-vit list --max-params 30 --sort top1     small ones, the best first
      keras-vit list | cut -f 1,3       into a pipe: tab-separated, under one line of names

    Top-1 is ImageNet-1k validation accuracy in percent, as published; who measured it is said.
    """
    most = None if max_params is None else max_params * 1e6
    if most is not None and not math.isfinite(most):
        raise ValueError(
            f"`--max-params` must be a number of millions. Received: {max_params}. Leave it out "
            "for models of any size."
        )
    named = [row for row in filter_rows() if _fitting_names(row, pattern)]
    if not named:
        raise unknown_name("model", pattern.strip("*"), close_candidates())
    allowed = {row.id for row in filter_rows(family, most, pixels, licence, min_top1)}
    rows = sorted((row for row in named if row.id in allowed), key=_ORDERS[sort])
    if not rows:
        raise ValueError(
            f"No model passes all filters. Received: {pattern!r}, of {len(named)} models. Leave "
            "out one of --family, --max-params, --pixels, --licence and --min-top1."
        )
    if console.is_terminal:
        _show(rows, pattern)
    else:
        print_tabbed(
            ("id", "other_name", "parameters", "pixels", "classes", "top1", "measured_by")
            + ("licence", "family"),
            [
                (row.id, row.aliases[-1], row.parameters, row.image_size, row.num_classes)
                + (row.top1, row.measured_by, row.licence, row.family)
                for row in rows
            ],
        )


def _fitting_names(row: ModelRow, pattern: str) -> list[str]:
    """The model's names that fit, its id first."""
    if not set(pattern) & set("*?["):
        pattern = f"*{pattern}*"
    return fnmatch.filter((row.id, *row.aliases), pattern)


def _show(rows: list[ModelRow], pattern: str) -> None:
    # A narrow terminal keeps the ids whole, since they are there to be copied.
    last = 5 if console.width >= 100 else 3
    measurers = list(dict.fromkeys(row.measured_by for row in rows if row.measured_by))
    show_table(
        ("id", "top-1", "params", "pixels", "classes")[:last],
        [
            (
                _fitting_names(row, pattern)[0],
                f"{row.top1:.2f} [{measurers.index(row.measured_by) + 1}]" if row.top1 else "",
                f"{row.parameters / 1e6:.1f} M",
                str(row.image_size),
                str(row.num_classes),
            )[:last]
            for row in rows
        ],
    )
    for number, measurer in enumerate(measurers, 1):
        say(f"[{number}] measured by: {measurer}")
    for line in textwrap.wrap(_licences(rows), console.width):
        say(line)


def _licences(rows: list[ModelRow]) -> str:
    counts = collections.Counter(row.licence for row in rows)
    if len(counts) == 1:
        return f"Licence: {rows[0].licence}."
    named = ", ".join(f"{licence} ({count})" for licence, count in counts.most_common())
    return f"Licences: {named}; `keras-vit show ID` says which."
