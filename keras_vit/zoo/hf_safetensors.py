"""transformers' ViT (and ViT-MSN, the same model): safetensors beside a `config.json`.

Both dialects of names are read, the old one is written, as `save_pretrained` does.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_vit.checks import Pair, as_labels
from keras_vit.config import ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo import hf_preprocessing, writing
from keras_vit.zoo.checkpoint import (
    Checkpoint,
    source_config,
    square_image_size,
)
from keras_vit.zoo.hf_names import PATCH_KERNEL, POSITIONS, Layout, key_table
from keras_vit.zoo.keymap import rename_theirs
from keras_vit.zoo.tensor_files import WEIGHTS_NAME, TensorFile
from keras_vit.zoo.variables import variable_shapes

NAME = "hf_safetensors"
DEFAULT_EPSILONS = {"vit": 1e-12, "vit_msn": 1e-6}  # by model_type
ACTIVATION_OF_HIDDEN_ACT = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
MULTI_LABEL = "multi_label_classification"  # `problem_type` of sigmoid classifiers
HIDDEN_ACT_OF_ACTIVATION = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}
# Fields of `ViTConfig` that config.json has, beside the tanh layer of a model without a head.
EXPRESSED = (
    *("num_layers", "num_heads", "hidden_dim", "mlp_dim", "patch_size", "image_size"),
    *("num_channels", "num_classes", "activation", "layer_norm_epsilon", "qkv_bias"),
    *("dropout_rate", "attention_dropout_rate", "drop_path_rate", "remat"),
)
# Tensors of models that look alike and are not plain ViTs (BEiT, DeiT, DINOv2).
FOREIGN_PARTS = ("lambda", "distillation_token", "relative_position", "register_tokens")


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether `config.json` says ViT, or without it, whether the names do."""
    names = list(tensors.tensors)
    if config_json and "model_type" in config_json:
        is_known = config_json["model_type"] in DEFAULT_EPSILONS
        return is_known and any("embeddings." in name for name in names)
    return (
        any(name.endswith(PATCH_KERNEL) for name in names)
        and any("layernorm_before" in name for name in names)
        and not any(part in name for part in FOREIGN_PARTS for name in names)
    )


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand a transformers ViT.

    Args:
        tensors: The open file, or directory.
        config_json: Contents of its `config.json`; without it sizes follow from shapes.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If `config.json` asks for what we do not have, or a size is nowhere said.
        MissingWeightsError: If a tensor is missing that a size is inferred from.
    """
    layout = Layout(tensors)
    fields = _infer_fields(layout, overrides) if config_json is None else _read_fields(config_json)
    has_head = layout.has("classifier") or _is_classifier(config_json or {})
    labels = None
    if has_head:
        labels, fields["num_classes"] = _read_classes(config_json or {}, layout)
    else:
        fields |= {"num_classes": 0, "representation_size": _read_pooler(config_json, layout)}
    config = source_config(fields, overrides)
    return Checkpoint(
        config=config,
        preprocessing=hf_preprocessing.read_preprocessing(
            tensors.json(hf_preprocessing.FILE_NAME), config.image_size, config.num_channels
        ),
        labels=labels,
        rules=rename_theirs(key_table(config), layout.spell),
        tensors=tensors,
        position_resize="bicubic",
        family=NAME,
        ignored=layout.training_parts(has_head),
        multi_label=(config_json or {}).get("problem_type") == MULTI_LABEL,
    )


def can_express(config: ModelConfig) -> bool:
    """Whether transformers' ViT classes can be this model."""
    if not isinstance(config, ViTConfig) or config.activation not in HIDDEN_ACT_OF_ACTIVATION:
        return False
    # All that this layout does not store must be as in the paper.
    plain = ViTConfig(
        **{name: getattr(config, name) for name in EXPRESSED},
        representation_size=None if config.num_classes else config.representation_size,
    )
    return config == plain


def write(
    config: ViTConfig,
    preprocessing: PreprocessingConfig,
    labels: tuple[str, ...] | None,
    read_ours: Callable[[str], np.ndarray],
    directory: str | Path,
    multi_label: bool = False,
) -> None:
    """Write `model.safetensors`, `config.json` and `preprocessor_config.json`.

    Args:
        config: The model's; see `can_express`.
        preprocessing: The model's.
        labels: One name a class, or None.
        read_ours: Returns one of our variables by path.
        directory: Made where it does not exist; files of these names are replaced.
        multi_label: Whether a picture may have several of the classes.

    Raises:
        ValueError: If transformers has no such model, or labels and classes differ in number.
    """
    if not can_express(config):
        raise ValueError(
            "`config` must be a ViT as transformers has it: a class token, learned positions, "
            f"no tanh layer before a head. Received: {config}. Use the `native` layout."
        )
    labels = as_labels(labels, config.num_classes)
    prefix = "vit." if config.num_classes else ""

    def spell(name: str) -> str:
        return name if name.startswith("classifier.") else prefix + name

    weights = writing.weights_writer(
        rename_theirs(key_table(config), spell), variable_shapes(config), read_ours
    )
    values = _write_config(config, labels)
    if multi_label:
        values["problem_type"] = MULTI_LABEL
    preprocessor = hf_preprocessing.write_preprocessing(preprocessing, config.image_size)
    writing.write_files(
        directory,
        {
            WEIGHTS_NAME: weights,
            hf_preprocessing.FILE_NAME: writing.json_writer(preprocessor),
            "config.json": writing.json_writer(values),
        },
    )


def _read_fields(config_json: dict) -> dict:
    """Return the `ViTConfig` fields of a `config.json`; missing keys mean class defaults."""
    get = config_json.get
    hidden_act = get("hidden_act", "gelu")
    if hidden_act not in ACTIVATION_OF_HIDDEN_ACT:
        raise ValueError(
            f"`hidden_act` of config.json must be one of {sorted(ACTIVATION_OF_HIDDEN_ACT)}. "
            f"Received: hidden_act={hidden_act!r}."
        )
    return {
        "num_layers": get("num_hidden_layers", 12),
        "num_heads": get("num_attention_heads", 12),
        "hidden_dim": get("hidden_size", 768),
        "mlp_dim": get("intermediate_size", 3072),
        "patch_size": get("patch_size", 16),
        "image_size": get("image_size", 224),
        "num_channels": get("num_channels", 3),
        "activation": ACTIVATION_OF_HIDDEN_ACT[hidden_act],
        "layer_norm_epsilon": get("layer_norm_eps", DEFAULT_EPSILONS[get("model_type", "vit")]),
        "qkv_bias": get("qkv_bias", True),
        "dropout_rate": get("hidden_dropout_prob", 0.0),
        "attention_dropout_rate": get("attention_probs_dropout_prob", 0.0),
        "drop_path_rate": get("drop_path_rate", 0.0),
    }


def _infer_fields(layout: Layout, overrides: dict) -> dict:
    """Return the `ViTConfig` fields that shapes tell, for a file without `config.json`."""
    if "num_heads" not in overrides:
        raise ValueError(
            f"`num_heads` must be given for {layout.tensors.path}: there is no config.json beside "
            "it, and no shape tells it."
        )
    hidden_dim, num_channels, *patch_size = layout.need(PATCH_KERNEL)
    blocks = {re.search(r"layers?\.(\d+)\.", name) for name in layout.names}
    image_size = overrides.get("source_image_size")
    if image_size is None:
        rows = layout.need(POSITIONS)[1] - 1
        image_size = square_image_size(layout.tensors.path, rows, patch_size)
    mlp = "encoder.layer.0.intermediate.dense"
    query = layout.spell("encoder.layer.0.attention.attention.query.bias")
    return {
        "num_layers": 1 + max(int(block[1]) for block in blocks if block),
        "hidden_dim": hidden_dim,
        "mlp_dim": layout.outputs(mlp) or layout.need(f"{mlp}.weight")[0],
        "patch_size": tuple(patch_size),
        "image_size": image_size,
        "num_channels": num_channels,
        "activation": "gelu",
        "layer_norm_epsilon": DEFAULT_EPSILONS["vit"],
        "qkv_bias": query in layout.names,
    }


def _is_classifier(config_json: dict) -> bool:
    names = config_json.get("architectures") or []
    return any(name.endswith("ForImageClassification") for name in names)


def _read_classes(config_json: dict, layout: Layout) -> tuple[tuple[str, ...] | None, int]:
    """Return the labels, or None where there are none but invented ones, and their number."""
    names = config_json.get("id2label")
    num_classes = layout.outputs("classifier") or len(names or range(2))
    if names is None:
        return None, num_classes
    if sorted(names) != sorted(str(i) for i in range(num_classes)):
        raise ValueError(
            f"`id2label` of config.json must name the classes 0 to {num_classes - 1}, as the "
            f"classifier has them. Received {len(names)} keys: {', '.join(list(names)[:20])}. "
            "Correct config.json."
        )
    labels = tuple(str(names[str(i)]) for i in range(num_classes))
    return (None if labels == _invented_labels(num_classes) else labels), num_classes


def _invented_labels(num_classes: int) -> tuple[str, ...]:
    """What transformers calls classes that nobody named."""
    return tuple(f"LABEL_{i}" for i in range(num_classes))


def _read_pooler(config_json: dict | None, layout: Layout) -> int | None:
    """Return the width of a headless model's pooler: the paper's tanh layer, or None."""
    if not layout.has("pooler.dense"):
        return None
    if config_json is None:
        return layout.outputs("pooler.dense")
    act = config_json.get("pooler_act", "tanh")
    if act != "tanh":
        raise ValueError(
            f"`pooler_act` of config.json must be 'tanh'. Received: pooler_act={act!r}. "
            "Remove the pooler's tensors to get the features before it."
        )
    return config_json.get("pooler_output_size") or config_json.get("hidden_size", 768)


def _write_config(config: ViTConfig, labels: tuple[str, ...] | None) -> dict:
    """Return the `config.json` of a model."""

    def plain(pair: Pair) -> int | list[int]:
        return pair[0] if pair[0] == pair[1] else list(pair)

    values = {
        "architectures": ["ViTForImageClassification" if config.num_classes else "ViTModel"],
        "model_type": "vit",
        "hidden_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": HIDDEN_ACT_OF_ACTIVATION[config.activation],
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "layer_norm_eps": config.layer_norm_epsilon,
        "image_size": plain(config.image_size),
        "patch_size": plain(config.patch_size),
        "num_channels": config.num_channels,
        "qkv_bias": config.qkv_bias,
    }
    if config.drop_path_rate:
        values["drop_path_rate"] = config.drop_path_rate  # ours; transformers keeps it
    if config.representation_size:
        values |= {"pooler_output_size": config.representation_size, "pooler_act": "tanh"}
    if config.num_classes:
        labels = labels or _invented_labels(config.num_classes)
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    return values
