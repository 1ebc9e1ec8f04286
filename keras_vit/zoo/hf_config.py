"""transformers' `config.json`, to and from our fields and labels.

A key that is missing means the default of its class.
"""

from collections.abc import Callable

from keras_vit.checks import Pair, as_pair, is_real
from keras_vit.config import ViTConfig
from keras_vit.zoo.hf_families import Family, Task, mlp_dim, mlp_ratio

ACTIVATION_OF_HIDDEN_ACT = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}
HIDDEN_ACT_OF_ACTIVATION = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}
MULTI_LABEL = "multi_label_classification"  # `problem_type` of sigmoid classifiers
# Ours, where a class has no such key: transformers keeps them, and computes the same.
OWN_KEYS = {"dropout_rate": "hidden_dropout_prob", "drop_path_rate": "drop_path_rate"}
WIDTH_KEYS = {"pooler.dense": "pooler_output_size", "visual_projection": "projection_dim"}


def tower_values(config_json: dict | None, family: Family) -> dict:
    """Return the keys that describe the image tower, defaults for those that are missing.

    Args:
        config_json: Contents of `config.json`, or None where there is no such file.
        family: Whose file it is.
    """
    values = config_json or {}
    if family.nesting_type and values.get("model_type") == family.nesting_type:
        tower = values.get("vision_config") or {}
        # Old CLIP files say it twice; where this key is, it is the one that counts.
        old = values.get("vision_config_dict")
        values = tower if old is None else old
    return family.defaults | values


def read_fields(family: Family, values: dict) -> dict:
    """Return the `ViTConfig` fields that a config.json says.

    Args:
        family: Whose file it is.
        values: What `tower_values` returns.

    Raises:
        ValueError: If it asks for an activation that we do not have, a width that is none, or
            sides that transformers' class cannot have.
    """
    hidden_act = values["hidden_act"]
    if not isinstance(hidden_act, str) or hidden_act not in ACTIVATION_OF_HIDDEN_ACT:
        raise ValueError(
            f"`hidden_act` of config.json must be one of {sorted(ACTIVATION_OF_HIDDEN_ACT)}. "
            f"Received: hidden_act={hidden_act!r}."
        )
    fields = {"activation": ACTIVATION_OF_HIDDEN_ACT[hidden_act]}
    fields |= {ours: values.get(theirs, 0.0) for ours, theirs in OWN_KEYS.items()}
    fields |= {ours: values[theirs] for ours, theirs in family.keys.items()}
    if fields.get("gated_mlp"):
        fields["activation"] = "silu"  # whatever `hidden_act` says
    if "mlp_ratio" in family.defaults:
        ratio = values["mlp_ratio"]
        if not is_real(ratio) or not 0 < ratio < 1000:
            raise ValueError(
                "`mlp_ratio` of config.json must be a positive integer. "
                f"Received: mlp_ratio={ratio!r}."
            )
        fields["mlp_dim"] = mlp_dim(fields["hidden_dim"], ratio, fields["gated_mlp"])
    for key in ("image_size", "patch_size") if family.is_square else ():
        if len(set(as_pair(values[key], key))) > 1:
            raise ValueError(
                f"`{key}` of config.json must be one number: transformers' {family.model_type} "
                f"resizes its positions as a square. Received: {key}={values[key]!r}."
            )
    return fields


def find_task(
    family: Family, values: dict, config_json: dict | None, has_layer: Callable[[str], bool]
) -> Task:
    """Return what a file is for: by the layers that it holds, then by its class.

    Args:
        family: Whose file it is.
        values: What `tower_values` returns.
        config_json: Contents of `config.json`, or None where there is no such file.
        has_layer: Whether the file holds a layer, by its name without prefix.
    """
    tasks = [
        task
        for task in family.tasks
        if task.sets == "num_classes"
        or all(bool(values[key]) is value for key, value in task.says.items())
    ]
    for task in tasks:
        if task.layer and has_layer(task.layer):
            return task
    class_names = (config_json or {}).get("architectures") or []
    for task in tasks:
        if task.class_name in class_names:
            return task
    return next(task for task in tasks if not task.sets)


def read_width(task: Task, values: dict) -> int:
    """Return the width of a pooler or projection, of a file that lacks its tensors."""
    return values.get(WIDTH_KEYS[task.layer]) or values["hidden_size"]


def read_classes(
    config_json: dict | None, num_classes: int | None
) -> tuple[tuple[str, ...] | None, int]:
    """Return the labels, or None where there are none but invented ones, and their number.

    Args:
        config_json: Contents of `config.json`, or None where there is no such file.
        num_classes: Of the classifier, or None where the file lacks it.

    Raises:
        ValueError: If there is not one label a class.
    """
    names = (config_json or {}).get("id2label")
    num_classes = num_classes or len(names or range(2))
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


def write_config(
    config: ViTConfig,
    family: Family,
    task: Task,
    labels: tuple[str, ...] | None,
    multi_label: bool,
) -> dict:
    """Return the `config.json` of a model.

    Args:
        config: The model's.
        family: What it is in transformers; see `hf_families.express`.
        task: The same.
        labels: One name a class, or None.
        multi_label: Whether a picture may have several of the classes.
    """
    tower = {"model_type": family.model_type}
    tower |= {theirs: _plain(getattr(config, ours)) for ours, theirs in family.keys.items()}
    tower["hidden_act"] = HIDDEN_ACT_OF_ACTIVATION[config.activation]
    if "mlp_ratio" in family.defaults:
        tower["mlp_ratio"] = mlp_ratio(config)
    if task.layer in WIDTH_KEYS:
        tower[WIDTH_KEYS[task.layer]] = config.representation_size
    for ours in OWN_KEYS.keys() - family.keys.keys():
        if getattr(config, ours):
            tower[OWN_KEYS[ours]] = getattr(config, ours)
    values = {"architectures": [task.class_name], **tower, **task.says}
    if config.num_classes and family.nesting_type:
        values = {
            "architectures": [task.class_name],
            "model_type": family.nesting_type,
            "vision_config": tower | task.says,
        }
    if config.num_classes:
        labels = labels or _invented_labels(config.num_classes)
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if multi_label:
        values["problem_type"] = MULTI_LABEL
    return values


def _plain(value: object) -> object:
    """A pair of equal sides as one number, as JSON."""
    if not isinstance(value, tuple):
        return value
    sides: Pair = value
    return sides[0] if sides[0] == sides[1] else list(sides)


def _invented_labels(num_classes: int) -> tuple[str, ...]:
    """What transformers calls classes that nobody named."""
    return tuple(f"LABEL_{i}" for i in range(num_classes))
