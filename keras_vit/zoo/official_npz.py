"""Google's `.npz` files: vision_transformer's releases (imagenet21k, AugReg, SAM), Flax names.

Sizes, heads and layers follow from names and shapes. Numerics are those of the official code:
tanh GELU, epsilon 1e-6.
"""

import math
import re
from collections.abc import Iterable

from keras_vit.config import Pair, PreprocessingConfig, ViTConfig
from keras_vit.zoo.checkpoint import (
    Checkpoint,
    MissingWeightsError,
    source_config,
    square_image_size,
)
from keras_vit.zoo.keymap import Rule, expand, rename_theirs
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.transforms import (
    DROP_BATCH_AXIS,
    heads_out_kernel,
    heads_qkv_bias,
    heads_qkv_kernel,
)

NAME = "official_npz"
# Where training states keep the parameters; the longest that fits counts.
PREFIXES = ("params/img/", "opt/target/", "params/", "")
POSITIONS = "Transformer/posembed_input/pos_embedding"
# The released files number a block's layers in order; Linen numbers each class by itself.
LINEN_NAMES = {
    "LayerNorm_2": "LayerNorm_1",
    "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
    "MlpBlock_3": "MlpBlock_0",
}
IMAGENET21K_CLASSES = 21843
# Names begin so in files of the same projects that hold something else.
OTHER_LAYOUTS = (
    ("MixerBlock_", "an MLP-Mixer"),
    ("conv_root/", "a hybrid, with a ResNet before the Transformer"),
    ("MAPHead_", "a big_vision model with attention pooling"),
    ("Transformer/encoderblock/", "a big_vision model with its blocks stacked in one array"),
    ("img/", "a LiT model of images and text"),
    ("pos_embedding", "a big_vision model, which adds positions before the class token"),
)


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether the names are those of Google's Flax models, readable here or not."""
    return any("Transformer/encoderblock" in n or "MixerBlock_" in n for n in tensors.tensors)


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand one of Google's files.

    Args:
        tensors: The open file.
        config_json: Not used; these files have none.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If it is another model of the same projects, or a size cannot be inferred.
        MissingWeightsError: If a tensor is missing that a size is inferred from.
    """
    layout = _Layout(tensors)
    fields = _infer(layout, overrides)
    ignored = layout.other_names()
    if fields["num_classes"] == IMAGENET21K_CLASSES and layout.has_zero_head():
        # The original ImageNet-21k release zeroed its head on purpose; it predicts nothing.
        fields["num_classes"] = 0
        ignored |= {layout.file_name("head/kernel"), layout.file_name("head/bias")}
    config = source_config(fields, overrides)
    return Checkpoint(
        config=config,
        preprocessing=PreprocessingConfig().for_channels(config.num_channels),
        labels=None,
        rules=rename_theirs(_rules(config), layout.file_name),
        tensors=tensors,
        position_resize="align_corners_bilinear",
        family=NAME,
        ignored=frozenset(ignored),
    )


class _Layout:
    """The shapes of one file under the released names, and the way back to its own names."""

    def __init__(self, tensors: TensorFile):
        self.tensors = tensors
        names = list(tensors.tensors)
        self.prefix = next(
            prefix
            for prefix in PREFIXES
            if prefix == ""
            or any(
                name.startswith((prefix + "Transformer/", prefix + "MixerBlock_")) for name in names
            )
        )
        self.is_linen = any("/MlpBlock_0/" in name for name in names)
        own = [name for name in names if name.startswith(self.prefix)]
        self._refuse_others(own)
        self.shapes = {self._released_name(name): tensors.tensors[name].shape for name in own}

    def _refuse_others(self, names: Iterable[str]) -> None:
        names = [name.removeprefix(self.prefix) for name in names]
        for start, what in OTHER_LAYOUTS:
            if any(name.startswith(start) for name in names):
                raise ValueError(
                    f"{self.tensors.path} is {what}. This version of keras_vit reads plain "
                    "Vision Transformers of Google's vision_transformer only."
                )
        if self.is_linen and POSITIONS not in names:
            raise ValueError(
                f"{self.tensors.path} has no {self.prefix + POSITIONS!r}: it is incomplete, or a "
                "big_vision model with sin-cos positions, which this version does not read."
            )

    def _released_name(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        if self.is_linen:
            for released, linen in LINEN_NAMES.items():
                name = name.replace(linen, released)
        return name

    def file_name(self, name: str) -> str:
        """Return how this file spells a released name."""
        if self.is_linen:
            for released, linen in LINEN_NAMES.items():
                name = name.replace(released, linen)
        return self.prefix + name

    def other_names(self) -> set[str]:
        """Return what is in the file beside the image model: optimizer state, a text model."""
        names = self.tensors.tensors
        others = {n for n in names if n.startswith("opt/") and not n.startswith("opt/target/")}
        if self.prefix == "params/img/":
            others |= {name for name in names if not name.startswith(self.prefix)}
        return others

    def find(self, pattern: str) -> tuple[int, ...] | None:
        """Return the shape of the first tensor whose name matches, or None."""
        return next((s for name, s in self.shapes.items() if re.fullmatch(pattern, name)), None)

    def need(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a tensor that sizes are inferred from."""
        if name not in self.shapes:
            raise MissingWeightsError(self.tensors.path, [self.file_name(name)])
        shape = self.shapes[name]
        if len(shape) != rank:
            line = f"{self.file_name(name)}: expected {rank} axes, found {shape}"
            raise MissingWeightsError(self.tensors.path, [], misshapen=[line])
        return shape

    def has_zero_head(self) -> bool:
        return {"head/kernel", "head/bias"} <= self.shapes.keys() and not self.tensors.read(
            self.file_name("head/kernel")
        ).any()


def _infer(layout: _Layout, overrides: dict) -> dict:
    """Return the `ViTConfig` fields that names and shapes tell.

    A kernel and its bias tell the same size, so that one missing is reported as such later.
    """
    block = r"Transformer/encoderblock_(\d+)/"
    attention, mlp = "MultiHeadDotProductAttention_1", "MlpBlock_3/Dense_0"
    *patch_size, num_channels, hidden_dim = layout.need("embedding/kernel", rank=4)
    heads = layout.find(rf"{block}{attention}/(query|key|value)/(kernel|bias)")
    heads = heads or layout.need(f"Transformer/encoderblock_0/{attention}/query/kernel", rank=3)
    hidden = layout.find(rf"{block}{mlp}/(kernel|bias)")
    hidden = hidden or layout.need(f"Transformer/encoderblock_0/{mlp}/kernel", rank=2)
    head = layout.find("head/(kernel|bias)")
    pre_logits = layout.find("pre_logits/(kernel|bias)")
    blocks = [re.match(block, name) for name in layout.shapes]
    class_token, image_size = _infer_positions(layout, patch_size, overrides)
    return {
        "num_layers": 1 + max(int(match[1]) for match in blocks if match),
        "num_heads": heads[-2],
        "hidden_dim": hidden_dim,
        "mlp_dim": hidden[-1],
        "patch_size": tuple(patch_size),
        "image_size": image_size,
        "num_channels": num_channels,
        "num_classes": head[-1] if head else 0,
        "class_token": class_token,
        "pool": "token" if class_token else "mean",
        "representation_size": pre_logits[-1] if pre_logits else None,
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-6,
    }


def _infer_positions(
    layout: _Layout, patch_size: list[int], overrides: dict
) -> tuple[bool, int | Pair]:
    """Return whether there is a class token, and the image size."""
    class_token = "cls" in layout.shapes
    if "source_image_size" in overrides:
        return class_token, overrides["source_image_size"]
    rows = layout.need(POSITIONS, rank=3)[1]
    # A square and one more: the class token is missing from the file, not from the model.
    class_token |= math.isqrt(rows) ** 2 != rows and math.isqrt(rows - 1) ** 2 == rows - 1
    return class_token, square_image_size(layout.tensors.path, rows - class_token, patch_size)


def _dense(ours: str, theirs: str) -> list[Rule]:
    return [Rule(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in ("kernel", "bias")]


def _norm(ours: str, theirs: str) -> list[Rule]:
    return [Rule(f"{ours}/gamma", (f"{theirs}/scale",)), Rule(f"{ours}/beta", (f"{theirs}/bias",))]


def _rules(config: ViTConfig) -> tuple[Rule, ...]:
    """Return the key table, in the released names."""
    block, heads = "Transformer/encoderblock_{i}", config.num_heads
    attention = f"{block}/MultiHeadDotProductAttention_1"
    qkv = ("query", "key", "value")
    rules = [
        *_dense("patch_embedding/projection", "embedding"),
        Rule("position_embedding/embeddings", (POSITIONS,), DROP_BATCH_AXIS),
        *_norm("block_{i}/norm1", f"{block}/LayerNorm_0"),
        Rule(
            "block_{i}/attention/qkv/kernel",
            tuple(f"{attention}/{name}/kernel" for name in qkv),
            heads_qkv_kernel(heads),
        ),
        Rule(
            "block_{i}/attention/qkv/bias",
            tuple(f"{attention}/{name}/bias" for name in qkv),
            heads_qkv_bias(heads),
        ),
        Rule(
            "block_{i}/attention/proj/kernel",
            (f"{attention}/out/kernel",),
            heads_out_kernel(heads),
        ),
        Rule("block_{i}/attention/proj/bias", (f"{attention}/out/bias",)),
        *_norm("block_{i}/norm2", f"{block}/LayerNorm_2"),
        *_dense("block_{i}/mlp/fc1", f"{block}/MlpBlock_3/Dense_0"),
        *_dense("block_{i}/mlp/fc2", f"{block}/MlpBlock_3/Dense_1"),
        *_norm("encoder_norm", "Transformer/encoder_norm"),
    ]
    if config.class_token:
        rules.append(Rule("prefix_tokens/class_token", ("cls",), DROP_BATCH_AXIS))
    if config.representation_size:
        rules += _dense("pre_logits", "pre_logits")
    if config.num_classes:
        rules += _dense("head", "head")
    return expand(rules, config.num_layers)
