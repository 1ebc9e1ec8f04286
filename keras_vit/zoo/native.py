"""Our own layout, for models that no other has: `config.json` and `model.safetensors`.

`config.json` says `model_type` "keras_vit" and a `format_version`; the tensors bear our
variable paths. What a version adds, an older one refuses.
"""

from pathlib import Path

from keras_vit.config import MixerConfig, ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo import hf_preprocessing, writing
from keras_vit.zoo.checkpoint import ORIGIN_KEY, Checkpoint, read_origin, source_config
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import WEIGHTS_NAME, TensorFile
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

NAME = "native"
MODEL_TYPE = "keras_vit"
FORMAT_VERSION = 1
CONFIGS = {"ViT": ViTConfig, "Mixer": MixerConfig}


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether the tensors bear our paths, and no `config.json` says otherwise."""
    has_our_paths = any(name.startswith("patch_embedding/") for name in tensors.tensors)
    model_type = (config_json or {}).get("model_type", MODEL_TYPE)
    return has_our_paths and model_type == MODEL_TYPE


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand a model that `write` wrote.

    Args:
        tensors: The open file, or directory.
        config_json: Contents of its `config.json`.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If `config.json` is missing, or of a later version.
    """
    where = tensors.directory / "config.json"
    if config_json is None:
        raise ValueError(f"{where} is missing; it says which architecture the tensors are of.")
    version = config_json.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"`format_version` of {where} must be {FORMAT_VERSION}, which is what this version of "
            f"keras_vit reads. Received: format_version={version!r}. Update keras_vit."
        )
    try:
        labels = config_json["labels"]
        kind = CONFIGS[config_json.get("architecture", "ViT")]
        config = source_config(config_json["config"], overrides, kind)
        return Checkpoint(
            config=config,
            preprocessing=PreprocessingConfig(**config_json["preprocessing"]),
            labels=None if labels is None else tuple(labels),
            rules=_rules(config),
            tensors=tensors,
            position_resize=config_json["position_resize"],
            family=NAME,
            multi_label=config_json.get("multi_label", False),
            origin=read_origin(config_json),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where} lacks a field, or has one too many: {error}.") from error


def can_express(config: ModelConfig) -> bool:
    """Whether this layout has the model: it has them all."""
    return type(config) in CONFIGS.values()


def write(contents: Contents, directory: str | Path) -> None:
    """Write `model.safetensors` and `config.json`.

    Args:
        contents: All of it has a place.
        directory: Made where it does not exist; files of these names are replaced.
    """
    config, labels = contents.config, contents.labels
    values = {
        "model_type": MODEL_TYPE,
        "format_version": FORMAT_VERSION,
        "architecture": next(name for name, kind in CONFIGS.items() if type(config) is kind),
        "config": config.to_dict(),
        "preprocessing": contents.preprocessing.to_dict(),
        "labels": None if labels is None else list(labels),
        "multi_label": contents.multi_label,
        "position_resize": contents.position_resize,
    }
    if contents.origin:
        values[ORIGIN_KEY] = contents.origin
    weights = writing.weights_writer(_rules(config), variable_shapes(config), contents.read_ours)
    contents.write_files(
        directory,
        {WEIGHTS_NAME: weights, "config.json": writing.json_writer(values)},
        removes=(hf_preprocessing.FILE_NAME,),
    )


def _rules(config: ModelConfig) -> tuple[Rule, ...]:
    return tuple(Rule(path, (path,)) for path in variable_shapes(config))
