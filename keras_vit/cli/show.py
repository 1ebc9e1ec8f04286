"""`keras-vit show`: what one model is, without building it where a file says so."""

import dataclasses
import itertools
import math
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from keras_vit import assets, lora
from keras_vit.checks import Pair
from keras_vit.cli.console import console, percent, print_tabbed
from keras_vit.cli.sources import SOURCE_HELP, is_saved_model, open_model
from keras_vit.config import MixerConfig, ModelConfig, PreprocessingConfig
from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.parts import frozen_paths, layers_by_part
from keras_vit.training.run_directory import BEST_FILE, LAST_FILE, RUN_FILE, read_run
from keras_vit.zoo import read_checkpoint
from keras_vit.zoo.catalogue import find, find_by_source
from keras_vit.zoo.download import NotCachedError, fetch
from keras_vit.zoo.https import public_name
from keras_vit.zoo.rows import ARCHITECTURES, ModelRow
from keras_vit.zoo.variables import Shapes, variable_shapes

_ALWAYS_SHOWN = ("image_size", "num_channels", "num_classes", "pool", "position_embedding")
_MOST_LABELS = 20
_NOT_ENDED = {"metrics": "not yet: the run has not ended"}

# A name, its value, and what a terminal alone gets beside it.
Rows = list[tuple[Any, ...]]
Sections = dict[str, Rows]


def show(source: Annotated[str, typer.Argument(help=f"{SOURCE_HELP}.")]):
    """Show what a model is: architecture, parameters, preprocessing, labels, licence, origin.

    \b
      keras-vit show google/vit-base-patch16-224     what the catalogue says of it
      keras-vit show runs/1                          a run: model, recipe, metrics
      keras-vit show flowers.keras                   a file, or a folder of weights
      keras-vit show bundled | grep num_             into a pipe: tab-separated

    Nothing is downloaded for it.
    """
    sections = {title: rows for title, rows in _describe(source).items() if rows}
    if console.is_terminal:
        for title, rows in sections.items():
            _show_panel(title, rows)
    else:
        print_tabbed(
            ("section", "name", "value"),
            [(title, *row[:2]) for title, rows in sections.items() for row in rows],
        )


def _describe(source: str) -> Sections:
    path = local_path(source)
    is_run = any((path / name).is_file() for name in (BEST_FILE, LAST_FILE, RUN_FILE))
    if is_run or is_saved_model(source) or (path.is_file() and path.suffix == ".keras"):
        return _describe_model(source, open_model(source), path)
    if source == "bundled":
        return _describe_files(source, assets.checkpoint())
    if not path.exists():
        row = _find_row(source)
        if row is not None:
            return _describe_row(row)
    try:
        file = fetch(source, local_files_only=True).path
    except NotCachedError as error:
        shown = public_name(source)
        raise FileNotFoundError(
            "`SOURCE` must be in the catalogue (`keras-vit list`) or on this machine, since "
            f"nothing is downloaded to show it. Received: {shown!r}. Fetch it by "
            f"`keras-vit download {shlex.quote(shown)}`, then show it."
        ) from error
    return _describe_files(public_name(source), file)


def _find_row(source: str) -> ModelRow | None:
    name = source.partition("@")[0]
    if "://" in name:
        return find_by_source(name)
    try:
        return find(name)
    except ValueError:
        return None  # if it is nothing else either, `fetch` says what is close


def _describe_row(row: ModelRow) -> Sections:
    top1 = "none is published of this file"
    if row.top1 is not None:
        top1 = f"{row.top1:.2f} % on ImageNet-1k, measured by {row.measured_by}"
    size = f"{row.size_bytes / 2**20:,.0f} MiB" if row.size_bytes else None
    return {
        "model": _without_none(
            ("id", row.id),
            ("other names", ", ".join(row.aliases)),
            ("top-1", top1),
            ("licence", row.licence, row.licence_note),
            ("paper", row.paper),
            ("publisher", row.url),
            ("file", row.source),
            ("size", size),
            ("on this machine", _cached(row)),
            ("note", row.note),
        ),
        "architecture": _architecture(row.config),
        "parameters": _parameters(variable_shapes(row.config)),
        "preprocessing": _preprocessing(row.preprocessing, row.config.image_size),
        "next": _commands(row.id, row.num_classes, is_pretrained=True),
    }


def _cached(row: ModelRow) -> str:
    try:
        return str(fetch(row.id, local_files_only=True).path)
    except (OSError, ValueError):
        return "no: the first use downloads it"


def _describe_files(source: str, path: Path) -> Sections:
    """A weight file or the folder that holds one: only names and shapes are read."""
    checkpoint = read_checkpoint(path)
    checkpoint.check()
    tensors = checkpoint.tensors.tensors.values()
    size = sum(file.stat().st_size for file in {tensor.file for tensor in tensors})
    return {
        "model": _without_none(
            ("source", source),
            ("path", str(path)),
            ("layout", checkpoint.family),
            ("stored as", ", ".join(sorted({tensor.dtype for tensor in tensors}))),
            ("size", f"{size / 2**20:,.1f} MiB"),
            _labels(checkpoint.labels, checkpoint.config.num_classes),
        ),
        "architecture": _architecture(checkpoint.config),
        "parameters": _parameters(variable_shapes(checkpoint.config)),
        "preprocessing": _preprocessing(checkpoint.preprocessing, checkpoint.config.image_size),
        "next": _commands(source, checkpoint.config.num_classes, is_pretrained=True),
    }


def _describe_model(source: str, model: ImageModel, path: Path) -> Sections:
    """A `.keras` file, or the run that wrote it."""
    names = [name for name in (BEST_FILE, LAST_FILE) if (path / name).is_file()]
    file = path / names[0] if names else path
    weights = [variable for variable in model.weights if "seed_generator" not in variable.path]
    origin = [(f"origin: {name}", value) for name, value in (model.origin or {}).items()]
    sections = {
        "model": _without_none(
            ("file", str(file)),
            ("stored as", ", ".join(sorted({str(variable.dtype) for variable in weights}))),
            ("size", f"{file.stat().st_size / 2**20:,.1f} MiB"),
            _labels(model.labels, model.config.num_classes),
            ("several classes a picture", "yes" if model.multi_label else None),
            ("LoRA", _adapters(model)),
            ("trained", _trained(model)),
            *origin,
        ),
        "architecture": _architecture(model.config),
        "parameters": _parameters({variable.path: tuple(variable.shape) for variable in weights}),
        "preprocessing": _preprocessing(
            model.preprocessing, model.config.image_size, model.include_normalization
        ),
    }
    if (path / RUN_FILE).is_file():
        sections["run"] = _run(read_run(path))
    sections["next"] = _commands(source, model.config.num_classes, is_pretrained=False)
    return sections


def _adapters(model: ImageModel) -> str | None:
    settings = lora.lora_settings(model)
    if settings is None:
        return None
    targets = ", ".join(settings["targets"])
    return f"rank {settings['rank']}, alpha {settings['alpha']:g}, on {targets}"


def _trained(model: ImageModel) -> str | None:
    """How much learns and which parts do not; None where all do."""
    if not frozen_paths(model) and lora.lora_settings(model) is None:
        return None
    learning = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    frozen = [
        name
        for name, layers in layers_by_part(model).items()
        if any(layer.weights for layer in layers)
        and not any(layer.trainable_variables for layer in layers)
    ]
    return f"{learning:,} parameters" + (f"; frozen: {', '.join(frozen)}" if frozen else "")


def _run(run: dict[str, Any]) -> Rows:
    settings = dict(run["settings"])
    for name in ("model", "data", "augmentation_settings"):
        settings.pop(name, None)
    recipe = settings.pop("recipe", None)
    return _without_none(
        ("recipe", recipe.get("name") if isinstance(recipe, dict) else recipe),
        ("pictures", run.get("data")),
        *((name, _plain(value)) for name, value in settings.items()),
        *((name, _plain(value)) for name, value in run.get("metrics", _NOT_ENDED).items()),
        *((f"version of {name}", value) for name, value in run.get("versions", {}).items()),
    )


def _plain(value: Any) -> Any:
    """Numbers and lists as people read them."""
    if isinstance(value, list):
        return ", ".join(str(_plain(each)) for each in value)
    return f"{value:.4g}" if isinstance(value, float) else value


def _architecture(config: ModelConfig) -> Rows:
    """Sizes, what is always asked for, and what is not as by default."""
    height, width = config.grid
    prefix = getattr(config, "num_prefix_tokens", 0)
    before = f" after {prefix} of no patch" if prefix else ""
    rows = [
        ("kind", "MLP-Mixer" if isinstance(config, MixerConfig) else "Vision Transformer"),
        ("variant", _variant(config)),
        ("tokens", config.num_tokens, f"{height} x {width} patches{before}"),
    ]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_plain = value == field.default and field.name not in _ALWAYS_SHOWN
        if is_plain or field.name.endswith("_rate"):  # rates are of training alone
            continue
        if isinstance(value, tuple):
            joint = " x " if field.name.endswith("_size") else ", "
            value = joint.join(map(str, value))
        rows.append((field.name, value))
    return _without_none(*rows)


def _variant(config: ModelConfig) -> str | None:
    """The name in our table that has these sizes."""
    names = ("num_layers", "num_heads", "hidden_dim", "mlp_dim", "patch_size", "stem_layers")
    names += ("tokens_mlp_dim", "channels_mlp_dim")

    def sizes(config: ModelConfig) -> list[Any]:
        return [getattr(config, name, None) for name in names]

    wanted = sizes(config)
    return next((name for name, known in ARCHITECTURES.items() if sizes(known) == wanted), None)


def _parameters(shapes: Shapes) -> Rows:
    """One row a part of the model; equal blocks that follow each other are one part."""
    counts: dict[str, int] = {}
    for path, shape in shapes.items():
        part = path.partition("/")[0]
        counts[part] = counts.get(part, 0) + math.prod(shape)
    total = sum(counts.values())
    rows: Rows = [("all", total)]
    groups = itertools.groupby(
        counts.items(), lambda item: item[1] if item[0].startswith("block_") else item[0]
    )
    for _, group in groups:
        names, sizes = zip(*group, strict=True)
        name = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
        each = "" if len(names) == 1 else f"; {len(names)} x {sizes[0]:,}"
        rows.append((name, sum(sizes), percent(sum(sizes) / total) + each))
    return rows


def _preprocessing(
    preprocessing: PreprocessingConfig, image_size: Pair, include_normalization: bool = True
) -> Rows:
    height, width = image_size
    size = f"to {height} x {width}, whatever the aspect"
    if preprocessing.resize == "crop":
        covered = " x ".join(str(int(side / preprocessing.crop_fraction)) for side in image_size)
        size = f"to cover {covered}, aspect kept; the middle {height} x {width} is cut out"
    how = "as PIL does, antialiased" if preprocessing.antialias else "sampled as TensorFlow does"
    mean, std = map(_levels, (preprocessing.mean, preprocessing.std))
    where = "inside the model" if include_normalization else "by the caller, not in this model"
    return [
        ("resize", size),
        ("filter", f"{preprocessing.interpolation}, {how}"),
        ("normalise", f"pixels 0..255 minus {mean}, divided by {std}; {where}"),
    ]


def _levels(values: tuple[float, ...]) -> str:
    levels = [f"{255 * value:.6g}" for value in values]
    return levels[0] if len(set(levels)) == 1 else f"({', '.join(levels)})"


def _labels(labels: tuple[str, ...] | None, num_classes: int) -> tuple[str, str | None]:
    if not labels:
        return "labels", "none: classes have numbers alone" if num_classes else None
    rest = f", ... ({len(labels)} in all)" if len(labels) > _MOST_LABELS else ""
    return "labels", ", ".join(labels[:_MOST_LABELS]) + rest


def _commands(source: str, num_classes: int, is_pretrained: bool) -> Rows:
    """What to type next."""
    name = shlex.quote(source)
    rows = []
    if is_pretrained:  # a run is gone on with by its own directory
        rows.append(("fine-tune", f"keras-vit finetune PICTURES/ --model {name} -d runs/1"))
    if num_classes:
        rows.append(("predict", f"keras-vit predict {name} PICTURE..."))
        rows.append(("evaluate", f"keras-vit evaluate {name} PICTURES/"))
    return [*rows, ("export", f"keras-vit export {name} serving/1")]


def _without_none(*rows: tuple[Any, ...]) -> Rows:
    return [row for row in rows if row[1] is not None]


def _show_panel(title: str, rows: Rows) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold", justify="right" if title == "parameters" else "left")
    for name, value, *beside in rows:
        if title == "parameters":
            grid.add_row(name, f"{value:,}", *beside)
        else:
            grid.add_row(name, str(value) + "".join(f" ({text})" for text in beside if text))
    console.print(Panel(grid, title=Text(title), title_align="left", border_style="dim"))
