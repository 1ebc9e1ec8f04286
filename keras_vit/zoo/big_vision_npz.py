"""big_vision's `.npz` files: plain ViTs, SigLIP's image model, older dialects of both.

Positions are added before the class token, so that it has none; blocks may be stacked. The
remedies for older files are those of big_vision's own loader.
"""

from keras_vit.checks import as_pair
from keras_vit.config import ViTConfig
from keras_vit.zoo.checkpoint import (
    Checkpoint,
    MissingWeightsError,
    source_config,
    square_image_size,
)
from keras_vit.zoo.flax_layout import (
    POSITIONS,
    FlaxLayout,
    dense,
    has_extra_row,
    heads_dense,
    heads_output,
    infer_transformer,
    norm,
    transformer_rules,
)
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.transforms import DROP_BATCH_AXIS

NAME = "big_vision_npz"
# Where positions are now, where they were before 2022, and where the paper's code has them.
POSITION_NAMES = ("pos_embedding", "Transformer/pos_embedding", POSITIONS)
# The attention pool is a module of its own; while ViT-G was made it lay at the top.
MAP_STARTS = ("MAPHead_0/", "probe", "MultiHeadDotProductAttention_0/")
# Names of vision_transformer alone: a hybrid's ResNet.
HYBRID_START = "conv_root/"


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether the names are those of a Transformer of big_vision's.

    Without its positions a file with Linen's names counts as big_vision's, which has models
    with fixed ones.
    """
    layout = FlaxLayout(tensors)
    if not layout.has("Transformer/encoderblock"):
        return False
    is_official = POSITIONS in layout.shapes or layout.is_released or layout.has(HYBRID_START)
    has_own_positions = any(name in layout.shapes for name in POSITION_NAMES[:2])
    has_own_parts = layout.is_stacked or any(map(layout.has, MAP_STARTS))
    return has_own_positions or has_own_parts or not is_official


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand one of big_vision's files.

    Args:
        tensors: The open file.
        config_json: Not used; these files have none.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If a size cannot be inferred.
        MissingWeightsError: If a tensor is missing that a size is inferred from.
    """
    layout = FlaxLayout(tensors)
    fields = infer_transformer(layout)
    fields |= _infer_positions(layout, fields["patch_size"], overrides)
    fields["pool"] = "token" if fields["class_token"] else "mean"
    if any(map(layout.has, MAP_STARTS)):
        fields["pool"] = "map"
    if fields["class_token"] and fields["pool"] == "map":
        raise ValueError(
            f"{tensors.path} must have a class token or an attention pool, as big_vision's models "
            "do. Received: both. Remove what was added to it."
        )
    config = source_config(fields, overrides)
    return layout.checkpoint(NAME, config, _rules(config, layout))


def _position_name(layout: FlaxLayout) -> str | None:
    return next((name for name in POSITION_NAMES if name in layout.shapes), None)


def _infer_positions(layout: FlaxLayout, patch_size: tuple[int, int], overrides: dict) -> dict:
    """Return the `ViTConfig` fields that the position table and the class token tell."""
    class_token = "cls" in layout.shapes
    image_size = overrides.get("source_image_size")
    name = _position_name(layout)
    if name is None:
        if image_size is None or "position_embedding" not in overrides:
            raise MissingWeightsError(
                layout.tensors.path,
                [layout.file_name(POSITION_NAMES[0])],
                remedy="The table may also be called "
                + " or ".join(repr(layout.file_name(name)) for name in POSITION_NAMES[1:])
                + ". A model with fixed sin-cos positions has none: then "
                "`position_embedding='sincos_2d'` and `source_image_size` must be given, since no "
                "tensor tells them.",
            )
        return {"class_token": class_token, "image_size": image_size}
    rows = layout.need(name, rank=3)[1]
    if image_size is None:
        has_class_row = has_extra_row(rows)
        image_size = square_image_size(layout.tensors.path, rows - has_class_row, patch_size)
    else:
        height, width = as_pair(image_size, "source_image_size")
        has_class_row = rows == (height // patch_size[0]) * (width // patch_size[1]) + 1
    # Older code added positions after the class token. Its loader now sums the two; a table
    # with a row for the class token does the same. Then `cls` may be missing from the file
    # only, not from the model.
    class_token |= has_class_row
    return {
        "class_token": class_token,
        "num_prefix_positions": 0 if class_token and not has_class_row else None,
        "image_size": image_size,
    }


def _rules(config: ViTConfig, layout: FlaxLayout) -> list[Rule]:
    """Return the key table, in Linen's names."""
    rules = transformer_rules(config)
    if config.position_embedding == "learned":
        name = _position_name(layout) or POSITION_NAMES[0]
        rules.append(Rule("position_embedding/embeddings", (name,), DROP_BATCH_AXIS))
    if config.pool == "map":
        rules += _attention_pool_rules(config, layout)
    return rules


def _attention_pool_rules(config: ViTConfig, layout: FlaxLayout) -> list[Rule]:
    pool = "MAPHead_0/" if layout.has("MAPHead_0/") else ""
    attention, heads = f"{pool}MultiHeadDotProductAttention_0", config.num_heads
    return [
        Rule("pool/probe", (f"{pool}probe",), DROP_BATCH_AXIS),
        *heads_dense("pool/query", attention, ("query",), heads),
        *heads_dense("pool/key_value", attention, ("key", "value"), heads),
        *heads_output("pool/proj", attention, heads),
        *norm("pool/norm", f"{pool}LayerNorm_0"),
        *dense("pool/mlp/fc1", f"{pool}MlpBlock_0/Dense_0"),
        *dense("pool/mlp/fc2", f"{pool}MlpBlock_0/Dense_1"),
    ]
