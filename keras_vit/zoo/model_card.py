"""The README.md beside a model's files: what it is, how to load it, what it was made from."""

import shlex
from collections.abc import Iterable

from huggingface_hub import ModelCardData

from keras_vit.config import ModelConfig, ViTConfig
from keras_vit.zoo.catalogue import find_by_source
from keras_vit.zoo.rows import ModelRow
from keras_vit.zoo.variables import count_parameters

FOLDER = "path/to/this/folder"
PACKAGE = "keras-vit-zoo"
# What the Hub calls the library that loads a layout.
LIBRARIES = {"hf": "transformers", "timm": "timm", "native": "keras_vit", "npz": "keras_vit"}
# Licences that the Hub has a word for: SPDX names in lower case. Any other is "other".
HUB_LICENCES = (
    *("apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"),
    *("apple-amlr", "apple-ascl", "unknown"),
)
# The Hub's names of what checkpoints of the zoo were trained on, by the parts of their tags.
DATASETS = {"in21k": "imagenet-21k", "in1k": "imagenet-1k"}
# Settings of a run that are told, and the options that give them.
SETTINGS = {
    "total_steps": "--steps",
    "batch_size": "--batch-size",
    "learning_rate": "--learning-rate",
    "warmup_steps": "--warmup-steps",
    "augmentation": None,
    "class_weights": None,
    "early_stopping": "--early-stopping",
    "seed": "--seed",
}
MOST_CLASSES = 20


def model_card(
    config: ModelConfig,
    layout: str,
    labels: tuple[str, ...] | None = None,
    origin: dict | None = None,
    run: dict | None = None,
    repository: str | None = None,
    notice: str | None = None,
) -> str:
    """Return the text of a README.md with the metadata that the Hub reads.

    Args:
        config: The model's.
        layout: How its files are laid out, a key of `LIBRARIES`.
        labels: One name a class, or None.
        origin: Where its weights came from, as `Fetched.origin` says it, or None.
        run: What the `run.json` of the run that trained it says, or None; with `"epoch"`, the
            one that the metrics are of, where it is known.
        repository: The Hub's `org/name` that the card is for, or None for a folder.
        notice: What the files cannot say, in one sentence, or None.
    """
    origin, run = origin or {}, run or {}
    row = find_by_source(origin["source"]) if origin.get("source") else None
    kind = "Vision Transformer" if isinstance(config, ViTConfig) else "MLP-Mixer"
    height, width = config.image_size
    what = f"{config.num_classes} classes" if config.num_classes else "features"
    lines = [
        "---",
        _metadata(config, layout, origin, row, run),
        "---",
        "",
        f"# {kind}, {height} x {width} pixels, {what}",
        "",
        f"{config.num_layers} blocks of width {config.hidden_dim}, patches of "
        f"{config.patch_size[0]} x {config.patch_size[1]}, channels: {config.num_channels}, "
        f"{count_parameters(config):,} parameters.",
        *_use(loading_code(layout, repository or FOLDER, config.num_classes, bool(repository))),
        *(["", notice] if notice else []),
        *_classes(labels),
        *_base(origin, row),
        *_training(run, origin),
        *_metrics(run),
    ]
    # Names of files may hold bytes that are no text.
    return "\n".join(lines).encode("utf-8", "replace").decode() + "\n"


def loading_code(
    layout: str, address: str, num_classes: int, on_hub: bool = False
) -> dict[str, str]:
    """Return the Python code that loads a model's files, by library.

    Args:
        layout: A key of `LIBRARIES`.
        address: A folder, or the Hub's `org/name`.
        num_classes: Of the model; 0 for features.
        on_hub: Whether `address` is one of the Hub.
    """
    file = f"{address}/model.npz" if layout == "npz" else address
    code = {"keras_vit": f"import keras_vit\n\nmodel = keras_vit.from_pretrained({file!r})"}
    if layout == "timm":
        source = f"{'hf-hub' if on_hub else 'local-dir'}:{address}"
        code["timm"] = (
            f"import timm\n\nmodel = timm.create_model({source!r}, pretrained=True).eval()\n"
            "pictures = timm.data.resolve_model_data_config(model)\n"
            "transform = timm.data.create_transform(**pictures)"
        )
    if layout == "npz":
        code["vision_transformer"] = (
            f"from vit_jax import checkpoint\n\nparams = checkpoint.load({file!r})"
        )
    if layout == "hf":
        name = "AutoModelForImageClassification" if num_classes else "AutoModel"
        code["transformers"] = (
            f"from transformers import AutoImageProcessor, {name}\n\n"
            f"processor = AutoImageProcessor.from_pretrained({address!r})\n"
            f"model = {name}.from_pretrained({address!r})"
        )
    return code


def _metadata(
    config: ModelConfig, layout: str, origin: dict, row: ModelRow | None, run: dict
) -> str:
    """Return the YAML that the Hub reads, written by its own client."""
    source, licence = origin.get("source") or "", (origin.get("licence") or "").lower()
    is_other = licence and licence not in HUB_LICENCES
    return ModelCardData(
        library_name=LIBRARIES[layout],
        license="other" if is_other else licence or None,
        license_name=licence if is_other else None,
        base_model=source.removeprefix("hf://") if source.startswith("hf://") else None,
        datasets=_datasets(row) or None,
        metrics=[name for name in _metric_values(run) if name != "loss"] or None,
        pipeline_tag="image-classification" if config.num_classes else "image-feature-extraction",
        tags=["vision-transformer" if isinstance(config, ViTConfig) else "mlp-mixer", "keras"],
    ).to_yaml()


def _datasets(row: ModelRow | None) -> list[str]:
    tags = row.id.partition(".")[2].split("_") if row else []
    return [name for tag, name in DATASETS.items() if tag in tags]


def _use(code_by_library: dict[str, str]) -> Iterable[str]:
    whose = {
        "keras_vit": f" (the package {PACKAGE})",
        "vision_transformer": ", Google's code",
    }
    yield from ("", "## Use")
    for library, code in code_by_library.items():
        yield from ("", f"With {library}{whose.get(library, '')}:", "", "```python", code, "```")


def _classes(labels: tuple[str, ...] | None) -> Iterable[str]:
    if not labels:
        return
    yield from ("", "## Classes", "", "| number | name |", "|---|---|")
    for number, label in enumerate(labels[:MOST_CLASSES]):
        yield f"| {number} | {_plain(label)} |"
    if len(labels) > MOST_CLASSES:
        yield from ("", f"And {len(labels) - MOST_CLASSES} more, {len(labels)} in all.")


def _base(origin: dict, row: ModelRow | None) -> Iterable[str]:
    yield from ("", "## Base model", "")
    source, revision = origin.get("source"), origin.get("revision")
    if source is None:
        yield "None: trained from random initialisation."
        return
    yield f"- Weights: `{_plain(source)}`" + (f" at `{_plain(revision)}`" if revision else "")
    if row:
        yield f"- In the zoo of keras_vit: `{row.id}`, published at <{row.url}>"
        yield f"- Paper: <{row.paper}>"
    if _datasets(row):
        yield f"- Trained on: {', '.join(_datasets(row))}"
    if origin.get("licence"):
        note = f" {row.licence_note}" if row and row.licence_note else ""
        yield f"- Licence: {_plain(origin['licence'])}.{note}"


def _training(run: dict, origin: dict) -> Iterable[str]:
    settings, versions = run.get("settings"), run.get("versions")
    if not settings:
        return
    recipe = settings.get("recipe") or {}
    yield from ("", "## Training", "")
    if run.get("data"):
        yield from (f"Data: {_plain(run['data'])}", "")
    yield from ("| setting | value |", "|---|---|", f"| recipe | {_plain(recipe.get('name'))} |")
    for name in SETTINGS:
        value = settings.get(name)
        if isinstance(value, list):
            value = ", ".join(map(str, value[:MOST_CLASSES]))
        if value is not None:
            yield f"| {name} | {_plain(value)} |"
    yield from ("", "As a command, with your folder of pictures:", "")
    yield from ("```sh", shlex.join(_command(settings, recipe, origin)), "```")
    if versions:
        made = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield from ("", f"Made with {_plain(made)}.")


def _command(settings: dict, recipe: dict, origin: dict) -> list[str]:
    words = ["keras-vit", "finetune", "PICTURES"]
    if origin.get("source"):
        at_revision = f"@{origin['revision']}" if origin.get("revision") else ""
        words += ["--model", origin["source"] + at_revision]
    if recipe.get("name"):
        words += ["--recipe", recipe["name"]]
    for name, option in SETTINGS.items():
        if option and settings.get(name) is not None:
            words += [option, str(settings[name])]
    for name in settings.get("augmentation") or ():
        words += ["--augment", str(name)]
    return words


def _metrics(run: dict) -> Iterable[str]:
    values = run.get("metrics")
    if not values:
        return
    epoch = f"Of epoch {_plain(run['epoch'])}. " if run.get("epoch") else ""
    yield from ("", "## Metrics", "")
    yield f"{epoch}Names with `val_` are of pictures held out of training."
    yield from ("", "| metric | value |", "|---|---|")
    for name, value in values.items():
        value = f"{value:.4f}" if isinstance(value, float) else _plain(value)
        yield f"| {_plain(name)} | {value} |"


def _metric_values(run: dict) -> list[str]:
    """Return the names of the metrics, once each."""
    return list(dict.fromkeys(name.removeprefix("val_") for name in run.get("metrics") or ()))


def _plain(value: object) -> str:
    """Return a text as one line that Markdown and HTML take as it is."""
    text = " ".join(str(value).split())
    for sign, written in (("\\", "\\\\"), ("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'")):
        text = text.replace(sign, written)
    return text
