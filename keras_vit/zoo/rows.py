"""One row of the zoo, and the strict reading of `zoo/*.toml` (fields: zoo/SCHEMA.md)."""

import dataclasses
import tomllib
import urllib.parse
from pathlib import Path

from keras_vit.checks import unknown_name
from keras_vit.config import ModelConfig, PreprocessingConfig
from keras_vit.variants import MIXER_VARIANTS, VARIANTS
from keras_vit.zoo.variables import count_parameters

# What a row may have as its `variant`.
ARCHITECTURES: dict[str, ModelConfig] = VARIANTS | {
    f"Mixer-{name}": config for name, config in MIXER_VARIANTS.items()
}
# Name: (type, required). A float may be written as an integer.
FAMILY_FIELDS = {
    "paper": (str, True),
    "url": (str, True),
    "reader": (str, True),
    "licence": (str, True),
    "licence_note": (str, False),
    "preprocessing": (dict, True),
}
PREPROCESSING_FIELDS = {
    "mean": (list, True),
    "std": (list, True),
    "interpolation": (str, True),
    "antialias": (bool, True),
    "resize": (str, True),
    "crop_fraction": (float, False),
}
MODEL_FIELDS = {
    "id": (str, True),
    "source": (str, True),
    "variant": (str, True),
    "image_size": (int, True),
    "num_classes": (int, True),
    "representation_size": (int, False),
    "top1": (float, False),
    "measured_by": (str, False),
    "size_mib": (float, False),
    "sha256": (str, False),
    "note": (str, False),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One pretrained checkpoint of the zoo.

    Args:
        id: Our name, after timm's: `architecture.tag`.
        source: `https://...`, or `hf://org/name` with an optional `@revision`.
        variant: Key of `ARCHITECTURES`.
        image_size: Input side of the file, in pixels.
        num_classes: Rows of the file's head; 0 for a file without one.
        representation_size: Width of the file's tanh layer before the head, or None.
        family: Stem of the TOML file that holds the row.
        reader: Module of `keras_vit.zoo` that reads the file.
        licence: SPDX name.
        licence_note: On what the licence rests, where it is not plainly stated.
        paper: URL of the paper.
        url: URL of the publisher's page.
        top1: Published ImageNet-1k validation accuracy in percent, or None.
        measured_by: Who published it, and with which preprocessing.
        size_bytes: Size of the file as published, rounded as it was there, or None.
        sha256: Hexadecimal checksum of the file, or None.
        note: What else a user should know.
        preprocessing: How its pictures become pixels.
    """

    id: str
    source: str
    variant: str
    image_size: int
    num_classes: int
    representation_size: int | None = None
    family: str
    reader: str
    licence: str
    licence_note: str | None = None
    paper: str
    url: str
    top1: float | None = None
    measured_by: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    note: str | None = None
    preprocessing: PreprocessingConfig

    @property
    def repository(self) -> str | None:
        """The Hub repository `org/name`, or None for a file elsewhere."""
        if not self.source.startswith("hf://"):
            return None
        return self.source.removeprefix("hf://").partition("@")[0]

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names: the Hub id, or the official file name, with and without its directory."""
        if self.repository:
            return (self.repository,)
        path = urllib.parse.urlsplit(self.source).path.removesuffix(".npz").split("/")
        return (path[-1], "/".join(path[-2:]))

    @property
    def config(self) -> ModelConfig:
        """The architecture, with the file's image size, head and tanh layer."""
        sizes = {"image_size": self.image_size, "num_classes": self.num_classes}
        if self.representation_size is not None:
            sizes["representation_size"] = self.representation_size
        return dataclasses.replace(ARCHITECTURES[self.variant], **sizes)

    @property
    def parameters(self) -> int:
        """Numbers in the file's model."""
        return count_parameters(self.config)


def read_folder(folder: Path) -> dict[str, ModelRow]:
    """Parse and validate every TOML file of a folder.

    Args:
        folder: Where the files are; one file is one family, named by its stem.

    Returns:
        The rows by id, in the order of the files.

    Raises:
        ValueError: If a file breaks the schema; names the file, the row and the field.
        FileNotFoundError: If the folder holds no TOML file.
    """
    rows: dict[str, ModelRow] = {}
    sources: dict[str, str] = {}
    for path in sorted(folder.glob("*.toml")):
        for where, row in _read_family(path):
            if row.id in rows or row.source in sources:
                other = row.id if row.id in rows else sources[row.source]
                raise ValueError(f"{where}: `id` and `source` must be unique; see row {other!r}.")
            rows[row.id] = row
            sources[row.source] = row.id
    if not rows:
        raise FileNotFoundError(f"The model zoo is missing: no TOML file in {folder}. Reinstall.")
    return rows


def _read_family(path: Path) -> list[tuple[str, ModelRow]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}.") from error
    _check(document, {"family": (dict, True), "model": (list, True)}, path.name)
    family = dict(document["family"])
    where = f"{path.name}, [family]"
    _check(family, FAMILY_FIELDS, where)
    _check(family["preprocessing"], PREPROCESSING_FIELDS, f"{path.name}, [family.preprocessing]")
    try:
        family["preprocessing"] = PreprocessingConfig(**family["preprocessing"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}, [family.preprocessing]: {error}") from error
    rows = []
    for number, fields in enumerate(document["model"], 1):
        name = fields.get("id", "no id") if isinstance(fields, dict) else "not a table"
        where = f"{path.name}, [[model]] {number} ({name})"
        rows.append((where, _read_row(fields, family | {"family": path.stem}, where)))
    return rows


def _read_row(fields: dict, family: dict, where: str) -> ModelRow:
    _check(fields, MODEL_FIELDS, where)
    values = {key: value for key, value in fields.items() if key != "size_mib"}
    if "size_mib" in fields:
        values["size_bytes"] = round(fields["size_mib"] * 2**20)
    row = ModelRow(**family, **values)
    if row.variant not in ARCHITECTURES:
        raise ValueError(f"{where}: {unknown_name('`variant`', row.variant, ARCHITECTURES)}")
    if not row.source.startswith(("https://", "hf://")):
        raise ValueError(f"{where}: `source` must start with https:// or hf://.")
    if (row.top1 is None) != (row.measured_by is None):
        raise ValueError(f"{where}: `top1` and `measured_by` must be given together.")
    if row.top1 is not None and not 0 < row.top1 <= 100:
        raise ValueError(f"{where}: `top1` must be a percentage. Received: {row.top1!r}.")
    if row.sha256 and (len(row.sha256) != 64 or set(row.sha256) - set("0123456789abcdef")):
        raise ValueError(f"{where}: `sha256` must be 64 lower-case hexadecimal digits.")
    try:
        _ = row.config
    except (TypeError, ValueError) as error:  # a Mixer has no `representation_size`
        raise ValueError(f"{where}: {error}") from error
    return row


def _check(table: dict, fields: dict[str, tuple[type, bool]], where: str) -> None:
    """Raise unless the table has the required fields, no unknown one, and the right types."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table. Received: {table!r}.")
    for name, value in table.items():
        if name not in fields:
            raise ValueError(f"{where}: {unknown_name('field', name, fields)}")
        kind = fields[name][0]
        # bool is an int to Python, and TOML may write a float without a point.
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits:
            raise ValueError(
                f"{where}: `{name}` must be of type {kind.__name__}. Received: {value!r}."
            )
    missing = [name for name, (_, required) in fields.items() if required and name not in table]
    if missing:
        raise ValueError(f"{where}: required and missing: {', '.join(missing)}.")
