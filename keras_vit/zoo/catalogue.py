"""The model zoo: what there is, and what it is called.

The rows are TOML, `zoo/*.toml`. `python -m keras_vit.zoo.catalogue` rewrites the table in the
checkout's zoo/README.md.
"""

import fnmatch
import functools
from pathlib import Path

from keras_vit.checks import check_integer, is_real, unknown_name
from keras_vit.zoo import augreg
from keras_vit.zoo.rows import ARCHITECTURES, ModelRow, read_folder


def list_models(
    pattern: str = "*",
    family: str | None = None,
    max_parameters: int | None = None,
    image_size: int | None = None,
    licence: str | None = None,
    min_top1: float | None = None,
) -> list[str]:
    """Return the zoo's ids that match a shell pattern and all filters that are given, sorted.

    Args:
        pattern: As in `fnmatch`: `"vit_base*"`, `"*in21k"`.
        family: Stem of a file of `zoo/`, or a shell pattern of stems: `"timm_*"`.
        max_parameters: The most numbers that a model may have.
        image_size: Side of the input, in pixels.
        licence: Its name, or a shell pattern; small and capital letters are alike.
        min_top1: The least published ImageNet-1k accuracy, in percent.

    Raises:
        ValueError: If no row has the family or the licence, or an argument is of the wrong type.
    """
    _check_text("pattern", pattern)
    rows = filter_rows(family, max_parameters, image_size, licence, min_top1)
    return sorted(fnmatch.filter([row.id for row in rows], pattern))


def filter_rows(
    family: str | None = None,
    max_parameters: int | None = None,
    image_size: int | None = None,
    licence: str | None = None,
    min_top1: float | None = None,
) -> list[ModelRow]:
    """Return the rows that pass all filters that are given; see `list_models`.

    Raises:
        ValueError: If no row has the family or the licence, or an argument is of the wrong type.
    """
    for name, value in (("max_parameters", max_parameters), ("min_top1", min_top1)):
        if value is not None and not is_real(value):
            raise ValueError(f"`{name}` must be a number or None. Received: {name}={value!r}.")
    if image_size is not None:
        check_integer("image_size", image_size, 1, "a positive integer or None")
    rows = list(catalogue().values())
    for what, wanted in (("family", family), ("licence", licence)):
        if wanted is None:
            continue
        _check_text(what, wanted)
        known = list(dict.fromkeys(getattr(row, what) for row in catalogue().values()))
        chosen = [name for name in known if fnmatch.fnmatchcase(name.lower(), wanted.lower())]
        if not chosen:
            raise unknown_name(f"`{what}`", wanted, known)
        rows = [row for row in rows if getattr(row, what) in chosen]
    if image_size is not None:
        rows = [row for row in rows if row.image_size == image_size]
    if min_top1 is not None:
        rows = [row for row in rows if row.top1 is not None and row.top1 >= min_top1]
    if max_parameters is not None:  # last: it has to count
        rows = [row for row in rows if row.parameters <= max_parameters]
    return rows


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string. Received: {name}={value!r}.")


def find(name: str) -> ModelRow:
    """Return the row of a zoo id, a Hub id, or an official file name.

    Args:
        name: Such as `"vit_base_patch16_384.orig_in21k_ft_in1k"`,
            `"google/vit-base-patch16-224"`, `"imagenet21k/ViT-B_16"` (`.npz` may follow), or any
            file of AugReg's bucket.

    Raises:
        ValueError: If no row has this name (close matches are listed), or several have.
    """
    _check_text("name", name)
    rows = catalogue()
    if name in rows:
        return rows[name]
    found = _with_alias(name.removesuffix(".npz"))
    if len(found) > 1:
        candidates = "; ".join(f"{row.aliases[-1]!r} is {row.id}" for row in found)
        raise ValueError(
            "`name` must name one checkpoint. "
            f"Received: name={name!r}, which lies in several directories. Say which: {candidates}."
        )
    if found:
        return found[0]
    if augreg.is_file_name(name):
        return augreg.make_row(name, _augreg_row())
    raise unknown_name("pretrained model", name, close_candidates())


def _with_alias(alias: str) -> list[ModelRow]:
    """The rows of this other name; of a file that is read in two ways, the first."""
    found = {row.source: row for row in reversed(catalogue().values()) if alias in row.aliases}
    return list(reversed(found.values()))


def _augreg_row() -> ModelRow:
    return next(row for row in catalogue().values() if row.family == augreg.FAMILY)


def find_by_source(source: str) -> ModelRow | None:
    """Return the row whose file lies at `source`, or None.

    Args:
        source: `https://...`, compared as a whole, or `hf://org/name`, at any `@revision`.
    """
    repository = source.partition("@")[0].removeprefix("hf://")
    for row in catalogue().values():
        if source == row.source or (source.startswith("hf://") and repository == row.repository):
            return row
    name = source.removeprefix(augreg.FOLDER_URL)
    if name != source and augreg.is_file_name(name):
        return augreg.make_row(name, _augreg_row())
    return None


def close_candidates() -> list[str]:
    """Return all names that `find` takes, ids first."""
    rows = catalogue().values()
    return [row.id for row in rows] + [alias for row in rows for alias in row.aliases]


@functools.cache
def catalogue() -> dict[str, ModelRow]:
    """Return all rows by id: those of the wheel, or else those of the checkout."""
    here = Path(__file__).parent
    folder = here / "_data"
    return read_folder(folder if folder.is_dir() else here.parents[1] / "zoo")


def markdown_table() -> str:
    """Return zoo/README.md: every row with its size, licence, figure and who measured it."""
    rows = catalogue().values()
    lines = [
        "# The model zoo",
        "",
        "Made from the TOML files beside it by `python -m keras_vit.zoo.catalogue`; edit those.",
        "SCHEMA.md explains the fields and the tags. Top-1 is ImageNet-1k validation accuracy in",
        "percent as published, with who published it; we have not measured any of them.",
        "",
        f"{len(rows)} checkpoints. Beside them any file name of AugReg's bucket is known, and any",
        "repository, URL, file or folder in a layout that is read.",
    ]
    families: dict[str, list[ModelRow]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    for name, rows in families.items():
        first = rows[0]
        lines += ["", f"## {name}", "", f"Paper: <{first.paper}>. Publisher: <{first.url}>."]
        licences = {(row.licence, row.licence_note): None for row in rows}
        for licence, note in licences:
            lines.append(f"Licence: {licence}. {note or ''}".rstrip())
        columns = list(_COLUMNS if len({row.licence for row in rows}) > 1 else _COLUMNS[:-1])
        lines += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for row in rows:
            lines.append(f"| {' | '.join(_cells(row)[: len(columns)])} |")
    return "\n".join(lines) + "\n"


_COLUMNS = (
    *("id", "other name", "variant", "pixels", "classes", "parameters", "top-1", "notes"),
    "licence",
)


def _cells(row: ModelRow) -> tuple[str, ...]:
    notes = [row.note] if row.note else []
    if row.zero_head:
        notes.append(f"The file's head of {row.zero_head} is all zeros and is left out.")
    return (
        f"`{row.id}`",
        f"`{row.aliases[-1]}`",
        _architecture(row),
        str(row.image_size),
        str(row.num_classes),
        f"{row.parameters:,}",
        "" if row.top1 is None else f"{row.top1:g}, {row.measured_by}",
        " ".join(notes),
        row.licence,
    )


def _architecture(row: ModelRow) -> str:
    """The row's variant, or its depth, width and patches where it is none of them."""
    config = row.config
    if row.variant and ARCHITECTURES[row.variant].patch_size == config.patch_size:
        return row.variant
    return f"{config.num_layers} x {config.hidden_dim} /{config.patch_size[0]}"


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "zoo" / "README.md"
    target.write_text(markdown_table(), encoding="utf-8")
