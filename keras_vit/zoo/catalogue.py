"""The model zoo: what there is, and what it is called.

The rows are TOML, `zoo/*.toml`. `python -m keras_vit.zoo.catalogue` rewrites the table in the
checkout's zoo/README.md.
"""

import fnmatch
import functools
from pathlib import Path

from keras_vit.checks import unknown_name
from keras_vit.zoo.rows import ModelRow, read_folder


def list_models(pattern: str = "*") -> list[str]:
    """Return the zoo's ids that match a shell pattern, sorted.

    Args:
        pattern: As in `fnmatch`: `"vit_base*"`, `"*in21k"`.
    """
    return sorted(fnmatch.filter(catalogue(), pattern))


def find(name: str) -> ModelRow:
    """Return the row of a zoo id, a Hub id, or an official file name.

    Args:
        name: Such as `"vit_base_patch16_384.orig_in21k_ft_in1k"`,
            `"google/vit-base-patch16-224"` or `"imagenet21k/ViT-B_16"` (`.npz` may follow).

    Raises:
        ValueError: If no row has this name (close matches are listed), or several have.
    """
    rows = catalogue()
    if name in rows:
        return rows[name]
    alias = name.removesuffix(".npz")
    found = [row for row in rows.values() if alias in row.aliases]
    if len(found) > 1:
        candidates = "; ".join(f"{row.aliases[-1]!r} is {row.id}" for row in found)
        raise ValueError(
            "`name` must name one checkpoint. "
            f"Received: name={name!r}, which lies in several directories. Say which: {candidates}."
        )
    if not found:
        raise unknown_name("pretrained model", name, close_candidates())
    return found[0]


def find_by_source(source: str) -> ModelRow | None:
    """Return the row whose file lies at `source`, or None.

    Args:
        source: `https://...`, compared as a whole, or `hf://org/name`, at any `@revision`.
    """
    repository = source.partition("@")[0].removeprefix("hf://")
    for row in catalogue().values():
        if source == row.source or (source.startswith("hf://") and repository == row.repository):
            return row
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
    lines = [
        "# The model zoo",
        "",
        "Made from the TOML files beside it by `python -m keras_vit.zoo.catalogue`; edit those.",
        "SCHEMA.md explains the fields and the tags. Top-1 is ImageNet-1k validation accuracy in",
        "percent as published, with who published it; we have not measured any of them.",
    ]
    families: dict[str, list[ModelRow]] = {}
    for row in catalogue().values():
        families.setdefault(row.family, []).append(row)
    for name, rows in families.items():
        first = rows[0]
        lines += ["", f"## {name}", "", f"Paper: <{first.paper}>. Publisher: <{first.url}>."]
        lines += [f"Licence: {first.licence}. {first.licence_note or ''}".rstrip(), ""]
        lines += ["| id | other name | variant | pixels | classes | parameters | top-1 | notes |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [_markdown_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _markdown_row(row: ModelRow) -> str:
    top1 = "" if row.top1 is None else f"{row.top1:g}, {row.measured_by}"
    cells = (
        f"`{row.id}`",
        f"`{row.aliases[-1]}`",
        row.variant,
        str(row.image_size),
        str(row.num_classes),
        f"{row.parameters:,}",
        top1,
        row.note or "",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    target = Path(__file__).parents[2] / "zoo" / "README.md"
    target.write_text(markdown_table(), encoding="utf-8")
