"""One row of the zoo, and the strict reading of `zoo/*.toml` (fields: zoo/SCHEMA.md)."""

import dataclasses
import functools
import tomllib
import urllib.parse
from pathlib import Path

from keras_vit.checks import check_choice, unknown_name
from keras_vit.config import ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.resample import POSITION_RESIZE_RULES
from keras_vit.variants import MIXER_VARIANTS, SIZES, VARIANTS
from keras_vit.zoo import READERS
from keras_vit.zoo.variables import count_parameters

# The named sizes with patches that the paper and its successors did not give them.
OTHER_PATCHES = {
    f"{size}/{patch_size}": ViTConfig(
        **dict(zip(("num_layers", "num_heads", "hidden_dim", "mlp_dim"), sizes, strict=True)),
        patch_size=patch_size,
    )
    for size, sizes in SIZES.items()
    for patch_size in (8, 14, 16, 32)
    if f"{size}/{patch_size}" not in VARIANTS
}
# What a row may have as its `variant`.
ARCHITECTURES: dict[str, ModelConfig] = {
    **VARIANTS,
    **OTHER_PATCHES,
    **{f"Mixer-{name}": config for name, config in MIXER_VARIANTS.items()},
}
# Name: (type, required). A float may be written as an integer.
FAMILY_FIELDS = {
    "paper": (str, True),
    "url": (str, True),
    "reader": (str, True),
    "licence": (str, True),
    "licence_note": (str, False),
    "preprocessing": (dict, True),
    "config": (dict, False),
    "config_overrides": (bool, False),
    "position_resize": (str, False),
}
PREPROCESSING_FIELDS = {
    "mean": (list, True),
    "std": (list, True),
    "interpolation": (str, True),
    "antialias": (bool, True),
    "resize": (str, True),
    "crop_fraction": (float, False),
}
# A row states what differs from its family.
ROW_PREPROCESSING_FIELDS = {name: (kind, False) for name, (kind, _) in PREPROCESSING_FIELDS.items()}
MODEL_FIELDS = {
    "id": (str, True),
    "source": (str, True),
    "variant": (str, False),
    "config": (dict, False),
    "image_size": (int, True),
    "num_classes": (int, True),
    "representation_size": (int, False),
    "zero_head": (int, False),
    "preprocessing": (dict, False),
    "licence": (str, False),
    "licence_note": (str, False),
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
        variant: Key of `ARCHITECTURES`, or None where `config_fields` has all sizes.
        config_fields: Fields of `ViTConfig` on top of the variant.
        config_overrides: Whether the reader takes `config_fields` over what the file says.
        position_resize: The source's rule, where the reader's is another; or None.
        image_size: Input side in pixels.
        num_classes: Rows of the file's head; 0 for a file without one.
        representation_size: Width of the file's layer before the head, or None.
        zero_head: Rows of a head in the file that is all zeros and is left out.
        family: Stem of the TOML file that holds the row.
        reader: Module of `keras_vit.zoo` that reads the file.
        licence: SPDX name, that of the Hub where SPDX has none, or `"unknown"`.
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
    variant: str | None = None
    config_fields: dict = dataclasses.field(default_factory=dict, hash=False)
    config_overrides: bool = False
    position_resize: str | None = None
    image_size: int
    num_classes: int
    representation_size: int | None = None
    zero_head: int = 0
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

    @functools.cached_property
    def config(self) -> ModelConfig:
        """The architecture that `from_pretrained(id)` gives."""
        fields = self.config_fields | {
            "image_size": self.image_size,
            "num_classes": self.num_classes,
        }
        if self.representation_size is not None:
            fields["representation_size"] = self.representation_size
        if self.variant is None:
            return ViTConfig(**fields)
        return dataclasses.replace(ARCHITECTURES[self.variant], **fields)

    @property
    def reader_fields(self) -> dict:
        """What the reader must be told: what the file does not say, or says otherwise."""
        if not self.config_overrides:
            return {}
        # Without a table of positions no tensor tells the size of the picture.
        is_learned = self.config.position_embedding == "learned"
        return self.config_fields | ({} if is_learned else {"source_image_size": self.image_size})

    @functools.cached_property
    def parameters(self) -> int:
        """Numbers in the model."""
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
    sources: dict[tuple[str, bool], str] = {}
    for path in sorted(folder.glob("*.toml")):
        for where, row in _read_family(path):
            file = row.source, row.config_overrides  # one file may be read in two ways
            if row.id in rows or file in sources:
                other = row.id if row.id in rows else sources[file]
                raise ValueError(f"{where}: `id` and `source` must be unique; see row {other!r}.")
            rows[row.id] = row
            sources[file] = row.id
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
    _check(family["preprocessing"], PREPROCESSING_FIELDS, f"{where}.preprocessing")
    try:
        check_choice("reader", family["reader"], READERS)
        PreprocessingConfig(**family["preprocessing"])
        if "position_resize" in family:
            check_choice("position_resize", family["position_resize"], POSITION_RESIZE_RULES)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    rows = []
    for number, fields in enumerate(document["model"], 1):
        name = fields.get("id", "no id") if isinstance(fields, dict) else "not a table"
        where = f"{path.name}, [[model]] {number} ({name})"
        rows.append((where, _read_row(fields, family | {"family": path.stem}, where)))
    return rows


def _read_row(fields: dict, family: dict, where: str) -> ModelRow:
    _check(fields, MODEL_FIELDS, where)
    values = family | fields
    values["config_fields"] = family.get("config", {}) | fields.get("config", {})
    values.pop("config", None)
    if "licence" in fields:  # the family's note is on the family's licence
        values["licence_note"] = fields.get("licence_note")
    preprocessing = fields.get("preprocessing", {})
    _check(preprocessing, ROW_PREPROCESSING_FIELDS, f"{where}, preprocessing")
    if "size_mib" in fields:
        values["size_bytes"] = round(values.pop("size_mib") * 2**20)
    if fields.get("variant", "B/16") not in ARCHITECTURES:
        raise ValueError(f"{where}: {unknown_name('`variant`', fields['variant'], ARCHITECTURES)}")
    config_type = type(ARCHITECTURES[fields["variant"]]) if "variant" in fields else ViTConfig
    known = [field.name for field in dataclasses.fields(config_type)]
    for name in values["config_fields"].keys() - known:
        raise ValueError(f"{where}: {unknown_name('field of `config`', name, known)}")
    try:
        values["preprocessing"] = PreprocessingConfig(**family["preprocessing"] | preprocessing)
        row = ModelRow(**values)
        _ = row.config
    except (TypeError, ValueError) as error:  # a Mixer has no `representation_size`
        raise ValueError(f"{where}: {error}") from error
    _check_row(row, where)
    return row


def _check_row(row: ModelRow, where: str) -> None:
    if not row.source.startswith(("https://", "hf://")):
        raise ValueError(f"{where}: `source` must start with https:// or hf://.")
    if (row.top1 is None) != (row.measured_by is None):
        raise ValueError(f"{where}: `top1` and `measured_by` must be given together.")
    if row.top1 is not None and not 0 < row.top1 <= 100:
        raise ValueError(f"{where}: `top1` must be a percentage. Received: {row.top1!r}.")
    if row.sha256 and (len(row.sha256) != 64 or set(row.sha256) - set("0123456789abcdef")):
        raise ValueError(f"{where}: `sha256` must be 64 lower-case hexadecimal digits.")


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
