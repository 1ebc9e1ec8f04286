"""`keras-vit list`: what pretrained weights there are."""

import fnmatch
from typing import Annotated

import typer

from keras_vit.checks import unknown_name
from keras_vit.cli.console import console, print_tabbed, say, show_table
from keras_vit.zoo.catalogue import catalogue, close_candidates
from keras_vit.zoo.rows import ModelRow

_PATTERN_HELP = "A part of a name, or a shell pattern; of the id, or of the model's other names."


def list_models(
    pattern: Annotated[str, typer.Argument(help=_PATTERN_HELP, show_default=False)] = "*",
):
    """List the pretrained models, with size, licence and published accuracy.

    \b
      keras-vit list                    all of them
      keras-vit list base               those with "base" in their name
      keras-vit list 'google/*'         those of Google on the Hugging Face Hub
      keras-vit list | cut -f 1,3       into a pipe: tab-separated, under one line of names

    Top-1 is ImageNet-1k validation accuracy in percent, as published; who measured it is said.
    """
    rows = sorted((row for row in catalogue().values() if _fits(row, pattern)), key=_id)
    if not rows:
        raise unknown_name("model", pattern.strip("*"), close_candidates())
    if console.is_terminal:
        _show(rows)
    else:
        print_tabbed(
            ("id", "other_name", "parameters", "pixels", "classes", "top1", "measured_by")
            + ("licence",),
            [
                (row.id, row.aliases[-1], row.parameters, row.image_size, row.num_classes)
                + (row.top1, row.measured_by, row.licence)
                for row in rows
            ],
        )


def _id(row: ModelRow) -> str:
    return row.id


def _fits(row: ModelRow, pattern: str) -> bool:
    if not set(pattern) & set("*?["):
        pattern = f"*{pattern}*"
    return bool(fnmatch.filter((row.id, *row.aliases), pattern))


def _show(rows: list[ModelRow]) -> None:
    # A narrow terminal keeps the ids whole, since they are there to be copied.
    last = 5 if console.width >= 100 else 3
    measurers = list(dict.fromkeys(row.measured_by for row in rows if row.measured_by))
    show_table(
        ("id", "top-1", "parameters", "pixels", "classes")[:last],
        [
            (
                row.id,
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
    licences = sorted({row.licence for row in rows})
    which = "; `keras-vit show ID` says which" if len(licences) > 1 else ""
    say(f"Licence: {', '.join(licences)}{which}.")
