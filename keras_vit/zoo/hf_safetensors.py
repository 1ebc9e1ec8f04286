"""transformers' vision models: safetensors beside a `config.json`, read and written.

Which models, `hf_families` says. Both dialects of names are read, the old one is written, as
`save_pretrained` of transformers does.
"""

from pathlib import Path

import numpy as np

from keras_vit.checks import as_pair
from keras_vit.config import ModelConfig, ViTConfig
from keras_vit.zoo import hf_config, hf_preprocessing, writing
from keras_vit.zoo.checkpoint import (
    ORIGIN_KEY,
    Checkpoint,
    read_origin,
    source_config,
    whole_image_size,
)
from keras_vit.zoo.hf_families import FAMILIES, HEADS, Family, express
from keras_vit.zoo.hf_fused import unfuse
from keras_vit.zoo.hf_layout import Layout
from keras_vit.zoo.keymap import Rule, rename_theirs
from keras_vit.zoo.tensor_files import WEIGHTS_NAME, TensorFile
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

NAME = "hf_safetensors"


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether `config.json` names one of the families, or without it, whether the names do."""
    return _find_family(unfuse(tensors), config_json) is not None


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand one of transformers' models.

    Args:
        tensors: The open file, or directory.
        config_json: Contents of its `config.json`; without it sizes follow from shapes.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If `config.json` asks for what we do not have, or a size is nowhere said.
        MissingWeightsError: If a tensor is missing that a size is inferred from.
    """
    tensors = unfuse(tensors)
    family = _find_family(tensors, config_json)
    layout = Layout(tensors, family)
    values = hf_config.tower_values(config_json, family)
    task = hf_config.find_task(family, values, config_json, layout.has)
    fields = hf_config.read_fields(family, values)
    if config_json is None:
        fields |= _infer_fields(layout, family.fields | task.fields, overrides)
    fields |= family.fields | task.fields
    labels, fields["num_classes"] = None, 0
    if task.sets == "num_classes":
        width = layout.width(task.layer)
        labels, fields["num_classes"] = hf_config.read_classes(config_json, width)
    elif task.sets:
        fields[task.sets] = layout.width(task.layer) or hf_config.read_width(task, values)
    if task.layer == "pooler.dense" and values.get("pooler_act", "tanh") != "tanh":
        raise ValueError(
            "`pooler_act` of config.json must be 'tanh'. Received: "
            f"pooler_act={values['pooler_act']!r}. Remove the pooler's tensors to get the "
            "features before it."
        )
    if not {"image_size", "source_image_size"} & overrides.keys():
        patch_size = as_pair(fields["patch_size"], "patch_size")
        fields["image_size"] = whole_image_size(tensors.path, fields["image_size"], patch_size)
    config = source_config(fields, overrides)
    rules = rename_theirs(layout.dialect.key_table(config), layout.spell)
    return Checkpoint(
        config=config,
        preprocessing=hf_preprocessing.read_preprocessing(
            tensors.json(hf_preprocessing.FILE_NAME),
            config.image_size,
            config.num_channels,
            family.preprocessing,
        ),
        labels=labels,
        rules=rules,
        tensors=tensors,
        position_resize=family.position_resize,
        family=NAME,
        ignored=layout.unused(rules),
        multi_label=(config_json or {}).get("problem_type") == hf_config.MULTI_LABEL,
        origin=read_origin(config_json),
    )


def can_express(config: ModelConfig) -> bool:
    """Whether one of transformers' classes can be this model."""
    return isinstance(config, ViTConfig) and express(config) is not None


def stored_shapes(config: ViTConfig) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the tensors of the file that `write` writes; reads no weight.

    Raises:
        ValueError: If transformers has no such model.
    """
    return writing.tensor_shapes(*_key_table(config)[:2])


def write(contents: Contents, directory: str | Path) -> None:
    """Write `model.safetensors`, `config.json` and `preprocessor_config.json`.

    Args:
        contents: For its configuration see `can_express`. The rule for other image sizes becomes
            that of the family.
        directory: Made where it does not exist; files of these names are replaced.

    Raises:
        ValueError: If transformers has no such model.
    """
    config = contents.config
    rules, shapes, fillers = _key_table(config)

    def read(path: str) -> np.ndarray:
        if path in fillers:
            return np.full(shapes[path], fillers[path], np.float32)
        return contents.read_ours(path)

    values = hf_config.write_config(config, *express(config), contents.labels, contents.multi_label)
    if contents.origin:
        values[ORIGIN_KEY] = contents.origin
    preprocessor = hf_preprocessing.write_preprocessing(contents.preprocessing, config.image_size)
    contents.write_files(
        directory,
        {
            WEIGHTS_NAME: writing.weights_writer(rules, shapes, read),
            hf_preprocessing.FILE_NAME: writing.json_writer(preprocessor),
            "config.json": writing.json_writer(values),
        },
    )


def _find_family(tensors: TensorFile, config_json: dict | None) -> Family | None:
    model_type = (config_json or {}).get("model_type")
    if model_type is not None:
        is_hf = any("embeddings." in name for name in tensors.tensors)
        named = (f for f in FAMILIES if model_type in (f.model_type, f.nesting_type))
        return next(named, None) if is_hf else None
    layouts = [Layout(tensors, family) for family in FAMILIES]
    layouts = [layout for layout in layouts if layout.is_whole()]
    # The one that knows most of its names; the first of equals.
    return max(layouts, key=lambda layout: len(layout.known)).family if layouts else None


def _infer_fields(layout: Layout, fields: dict, overrides: dict) -> dict:
    """Return what shapes tell, for a file without `config.json`.

    Args:
        layout: The file.
        fields: Of its family and task.
        overrides: As in `read`.
    """
    if "num_heads" not in overrides:
        raise ValueError(
            f"`num_heads` must be given for {layout.tensors.path}: there is no config.json beside "
            "it, and no shape tells it."
        )
    tokens = fields.get("class_token", True) + fields.get("distillation_token", False)
    prefix = fields.get("num_prefix_positions", tokens + fields.get("num_register_tokens", 0))
    return layout.infer_fields(prefix, overrides.get("source_image_size"))


def _key_table(
    config: ViTConfig,
) -> tuple[tuple[Rule, ...], dict[str, tuple[int, ...]], dict[str, float]]:
    """Return the rules and shapes of all that is written, and the numbers that are not ours."""
    if not can_express(config):
        raise ValueError(
            "`config` must be a ViT as transformers has it (ViT, DeiT, DINOv2, SigLIP or CLIP, "
            f"with what their heads read). Received: {config}. Use the `native` layout."
        )
    family, task = express(config)
    rules = family.dialects[0].key_table(config)
    written = {name for rule in rules for name in rule.theirs}
    fillers = [(rule, value) for rule, value in family.fillers if not written & {*rule.theirs}]
    prefix = family.prefix if task.has_outer_head else ""

    def spell(name: str) -> str:
        return name if name.startswith(HEADS) else prefix + name

    rules = rename_theirs([*rules, *(rule for rule, _ in fillers)], spell)
    shapes = variable_shapes(config)
    shapes |= {rule.ours: (config.hidden_dim,) for rule, _ in fillers}
    return rules, shapes, {rule.ours: value for rule, value in fillers}
