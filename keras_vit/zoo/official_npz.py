"""Google's `.npz` files: vision_transformer's releases (imagenet21k, AugReg, SAM, LiT's images).

Plain models, and hybrids with a ResNet before the Transformer. Sizes, heads and layers follow from
names and shapes. Numerics are those of the official code: tanh GELU, epsilon 1e-6.
"""

from keras_vit.checks import Pair
from keras_vit.config import ViTConfig
from keras_vit.zoo import big_vision_npz
from keras_vit.zoo.checkpoint import Checkpoint, source_config, square_image_size
from keras_vit.zoo.flax_layout import (
    POSITIONS,
    FlaxLayout,
    has_extra_row,
    infer_transformer,
    transformer_rules,
)
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.transforms import DROP_BATCH_AXIS, drop_unit_axes
from keras_vit.zoo.variables import Shapes

NAME = "official_npz"
STEM = r"(conv_root|gn_root|block\d/unit\d{1,3})/.+"


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether the names are those of a Transformer of Google's, but not big_vision's."""
    is_transformer = FlaxLayout(tensors).has("Transformer/encoderblock")
    return is_transformer and not big_vision_npz.recognises(tensors, config_json)


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand one of vision_transformer's files.

    Arguments and errors are those of `big_vision_npz.read`.
    """
    layout = FlaxLayout(tensors)
    fields = infer_transformer(layout)
    stride = 1
    if layout.find(STEM):
        fields |= _infer_stem(layout)
        # The root has 4; each stage after the first doubles them.
        stride = 2 ** max(2, 1 + len(fields["stem_layers"]))
    step = [side * stride for side in fields["patch_size"]]
    class_token, image_size = _infer_positions(layout, step, overrides)
    fields |= {
        "class_token": class_token,
        "pool": "token" if class_token else "mean",
        "image_size": image_size,
    }
    config = source_config(fields, overrides)
    return layout.checkpoint(NAME, config, key_table(config, layout.shapes))


def _infer_stem(layout: FlaxLayout) -> dict:
    """Return the `ViTConfig` fields that a hybrid's ResNet tells."""
    *_, num_channels, stem_width = layout.need("conv_root/kernel", rank=4)
    stages = layout.count(r"block([1-9])/unit") - 1
    units = [layout.count(rf"block{stage}/unit(\d{{1,3}})/") - 1 for stage in range(1, stages + 1)]
    return {
        "num_channels": num_channels,
        "stem_width": stem_width,
        "stem_layers": tuple(max(1, count) for count in units),
        "stem_numerics": "official",
    }


def _infer_positions(
    layout: FlaxLayout, step: list[int], overrides: dict
) -> tuple[bool, int | Pair]:
    """Return whether there is a class token, and the image size."""
    class_token = "cls" in layout.shapes
    if "source_image_size" in overrides:
        return class_token, overrides["source_image_size"]
    rows = layout.need(POSITIONS, rank=3)[1]
    # With the extra row, the class token may be missing from the file, not from the model.
    class_token |= has_extra_row(rows)
    return class_token, square_image_size(layout.tensors.path, rows - class_token, step)


def key_table(config: ViTConfig, shapes: Shapes) -> list[Rule]:
    """Return the key table, in Linen's names.

    Args:
        config: The architecture.
        shapes: Of the file's arrays, by name: a stem's norms are `(C,)`, or `(1, 1, 1, C)` there.
    """
    rules = [
        *transformer_rules(config),
        Rule("position_embedding/embeddings", (POSITIONS,), DROP_BATCH_AXIS),
    ]
    if config.stem_layers is not None:
        rules += _stem_rules(config.stem_layers, shapes)
    return rules


def _stem_rules(stem_layers: tuple[int, ...], shapes: Shapes) -> list[Rule]:
    """Return the key table of a hybrid's ResNet."""

    def conv_and_norm(ours: str, our_norm: str, conv: str, norm: str) -> list[Rule]:
        rules = [Rule(f"{ours}/kernel", (f"{conv}/kernel",))]
        for our_part, part in (("gamma", "scale"), ("beta", "bias")):
            rank = len(shapes.get(f"{norm}/{part}", ())) or 1
            rules.append(
                Rule(f"{our_norm}/{our_part}", (f"{norm}/{part}",), drop_unit_axes(rank - 1))
            )
        return rules

    stem = "resnet_stem"
    rules = conv_and_norm(f"{stem}/root", f"{stem}/root_norm", "conv_root", "gn_root")
    for stage, units in enumerate(stem_layers):
        for unit in range(units):
            ours, theirs = f"{stem}/stage_{stage}/unit_{unit}", f"block{stage + 1}/unit{unit + 1}"
            for i in (1, 2, 3):
                rules += conv_and_norm(
                    f"{ours}/conv{i}", f"{ours}/norm{i}", f"{theirs}/conv{i}", f"{theirs}/gn{i}"
                )
            if unit == 0:
                rules += conv_and_norm(
                    *(f"{ours}/shortcut", f"{ours}/shortcut_norm"),
                    *(f"{theirs}/conv_proj", f"{theirs}/gn_proj"),
                )
    return rules
