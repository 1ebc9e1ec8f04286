"""What Google's Flax files have in common: prefixes, names, sizes, the Transformer's key table.

Readers speak one dialect: Linen's names, without prefix, blocks numbered. A `FlaxLayout` knows
how its file spells them.
"""

import functools
import math
import re

from keras_vit.config import ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo.checkpoint import Checkpoint, MissingWeightsError
from keras_vit.zoo.keymap import Rule, expand, rename_theirs
from keras_vit.zoo.stacked_blocks import STACK, unstack
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.transforms import (
    DROP_BATCH_AXIS,
    heads_out_kernel,
    heads_qkv_bias,
    heads_qkv_kernel,
)

# Where training states and models of images and texts keep the image model's parameters.
PREFIXES = tuple(root + tower for root in ("opt/target/", "params/", "") for tower in ("img/", ""))
# The files of vision_transformer's first releases number a block's layers in order; Linen
# numbers each class by itself.
RELEASED_NAMES = {
    "LayerNorm_1": "LayerNorm_2",
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "MlpBlock_0": "MlpBlock_3",
}
BLOCK = r"Transformer/encoderblock_(\d{1,3})/"
# Where vision_transformer keeps positions, which have a row for the class token there.
POSITIONS = "Transformer/posembed_input/pos_embedding"
IMAGENET21K_CLASSES = 21843
NUMERICS = {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-6}


class FlaxLayout:
    """The shapes of one file under Linen's names, and the way back to its own names.

    Args:
        tensors: The open file.
    """

    def __init__(self, tensors: TensorFile):
        names = tensors.tensors
        self.prefix = next(
            prefix
            for prefix in PREFIXES
            if prefix == ""
            or any(
                name.startswith((f"{prefix}Transformer/", f"{prefix}MixerBlock_")) for name in names
            )
        )
        self.is_stacked = any(name.startswith(self.prefix + STACK) for name in names)
        self.is_released = any(
            name.startswith(f"{self.prefix}Transformer/") and "/MlpBlock_3/" in name
            for name in names
        )
        self.tensors = unstack(tensors)
        self.shapes = {
            self._linen_name(name.removeprefix(self.prefix)): stored.shape
            for name, stored in self.tensors.tensors.items()
            if name.startswith(self.prefix)
        }

    def _linen_name(self, name: str) -> str:
        if self.is_stacked:
            name = re.sub(rf"^{STACK}(.+)\[(\d+)\]$", r"Transformer/encoderblock_\2/\1", name)
        if self.is_released and re.match(BLOCK, name):
            for linen, released in RELEASED_NAMES.items():
                name = name.replace(f"/{released}/", f"/{linen}/")
        return name

    def file_name(self, name: str) -> str:
        """Return how this file spells one of Linen's names."""
        if self.is_released and re.match(BLOCK, name):
            for linen, released in RELEASED_NAMES.items():
                name = name.replace(f"/{linen}/", f"/{released}/")
        if self.is_stacked:
            name = re.sub(rf"^{BLOCK}(.+)$", rf"{STACK}\2[\1]", name)
        return self.prefix + name

    def has(self, start: str) -> bool:
        """Whether a name begins so."""
        return any(name.startswith(start) for name in self.shapes)

    def find(self, pattern: str) -> tuple[int, ...] | None:
        """Return the shape of the first tensor whose whole name matches, or None."""
        return next((s for name, s in self.shapes.items() if re.fullmatch(pattern, name)), None)

    def need(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a tensor that sizes are inferred from.

        Raises:
            MissingWeightsError: If it is missing, or of another rank.
        """
        if name not in self.shapes:
            raise MissingWeightsError(self.tensors.path, [self.file_name(name)])
        shape = self.shapes[name]
        if len(shape) != rank:
            line = f"{self.file_name(name)}: expected {rank} axes, found {shape}"
            raise MissingWeightsError(self.tensors.path, [], misshapen=[line])
        return shape

    def find_or_need(self, pattern: str, name: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a tensor that matches, or the error that names `name`."""
        return self.find(pattern) or self.need(name, rank)

    def count(self, pattern: str) -> int:
        """Return one more than the highest number that names begin with, such as a block's."""
        matches = (re.match(pattern, name) for name in self.shapes)
        return 1 + max((int(match[1]) for match in matches if match), default=0)

    @functools.cached_property
    def has_zeroed_head(self) -> bool:
        """Whether the head is the one that the ImageNet-21k release zeroed on purpose."""
        kernel = self.shapes.get("head/kernel", (0,))
        return (
            kernel[-1] == IMAGENET21K_CLASSES
            and "head/bias" in self.shapes
            and not self.tensors.read(self.file_name("head/kernel")).any()
        )

    def num_classes(self) -> int:
        """Return the rows of the head, 0 where there is none or it predicts nothing.

        A kernel and its bias tell the same size, so that one missing is reported as such later.
        """
        head = self.find("head/(kernel|bias)")
        return 0 if head is None or self.has_zeroed_head else head[-1]

    def ignored(self) -> frozenset[str]:
        """Return what the file holds beside the image model: optimizer state, a text model."""
        root = self.prefix.removesuffix("img/")
        ignored = {
            name
            for name in self.tensors.tensors
            if name.startswith("opt/")
            and not (self.prefix.startswith("opt/") and name.startswith(self.prefix))
        }
        if self.prefix.endswith("img/"):  # beside it: txt, the temperature and the bias
            ignored |= {
                name
                for name in self.tensors.tensors
                if name.startswith(f"{root}txt/") or name in (f"{root}t", f"{root}b")
            }
        if self.has_zeroed_head:
            ignored |= {self.file_name(name) for name in ("head/kernel", "head/bias")}
        return frozenset(ignored)

    def checkpoint(self, family: str, config: ModelConfig, rules: list[Rule]) -> Checkpoint:
        """Return the file, understood.

        Args:
            family: The reader's name.
            config: What it understood.
            rules: The key table in Linen's names, with `{i}` for the block.
        """
        return Checkpoint(
            config=config,
            preprocessing=PreprocessingConfig().for_channels(config.num_channels),
            labels=None,
            rules=rename_theirs(expand(rules, config.num_layers), self.file_name),
            tensors=self.tensors,
            position_resize="align_corners_bilinear",
            family=family,
            ignored=self.ignored(),
        )


def infer_transformer(layout: FlaxLayout) -> dict:
    """Return the `ViTConfig` fields that the names and shapes of a Transformer tell."""
    attention, mlp = "MultiHeadDotProductAttention_0", "MlpBlock_0/Dense_0"
    first = "Transformer/encoderblock_0"
    *patch_size, num_channels, hidden_dim = layout.need("embedding/kernel", rank=4)
    heads = layout.find_or_need(
        rf"{BLOCK}{attention}/(query|key|value)/(kernel|bias)",
        f"{first}/{attention}/query/kernel",
        rank=3,
    )
    hidden = layout.find_or_need(rf"{BLOCK}{mlp}/(kernel|bias)", f"{first}/{mlp}/kernel", rank=2)
    pre_logits = layout.find("pre_logits/(kernel|bias)")
    return {
        "num_layers": layout.count(BLOCK),
        "num_heads": heads[-2],
        "hidden_dim": hidden_dim,
        "mlp_dim": hidden[-1],
        "patch_size": tuple(patch_size),
        "num_channels": num_channels,
        "num_classes": layout.num_classes(),
        "representation_size": pre_logits[-1] if pre_logits else None,
        **NUMERICS,
    }


def has_extra_row(rows: int) -> bool:
    """Whether a position table has one row more than a square grid: the class token's."""
    return math.isqrt(rows) ** 2 != rows and math.isqrt(rows - 1) ** 2 == rows - 1


def dense(ours: str, theirs: str) -> list[Rule]:
    return [Rule(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in ("kernel", "bias")]


def norm(ours: str, theirs: str) -> list[Rule]:
    return [Rule(f"{ours}/gamma", (f"{theirs}/scale",)), Rule(f"{ours}/beta", (f"{theirs}/bias",))]


def heads_dense(ours: str, theirs: str, names: tuple[str, ...], num_heads: int) -> list[Rule]:
    """Return the rules of a Dense of ours made of projections with an axis of heads."""
    count = len(names)
    return [
        Rule(
            f"{ours}/{part}",
            tuple(f"{theirs}/{name}/{part}" for name in names),
            transform(num_heads, count),
        )
        for part, transform in (("kernel", heads_qkv_kernel), ("bias", heads_qkv_bias))
    ]


def heads_output(ours: str, theirs: str, num_heads: int) -> list[Rule]:
    """Return the rules of the Dense that joins the heads."""
    return [
        Rule(f"{ours}/kernel", (f"{theirs}/out/kernel",), heads_out_kernel(num_heads)),
        Rule(f"{ours}/bias", (f"{theirs}/out/bias",)),
    ]


def transformer_rules(config: ViTConfig) -> list[Rule]:
    """Return the key table of all but positions, a stem and an attention pool."""
    block, num_heads = "Transformer/encoderblock_{i}", config.num_heads
    attention = f"{block}/MultiHeadDotProductAttention_0"
    rules = [
        *dense("patch_embedding/projection", "embedding"),
        *norm("block_{i}/norm1", f"{block}/LayerNorm_0"),
        *heads_dense("block_{i}/attention/qkv", attention, ("query", "key", "value"), num_heads),
        *heads_output("block_{i}/attention/proj", attention, num_heads),
        *norm("block_{i}/norm2", f"{block}/LayerNorm_1"),
        *dense("block_{i}/mlp/fc1", f"{block}/MlpBlock_0/Dense_0"),
        *dense("block_{i}/mlp/fc2", f"{block}/MlpBlock_0/Dense_1"),
        *norm("encoder_norm", "Transformer/encoder_norm"),
    ]
    if config.class_token:
        rules.append(Rule("prefix_tokens/class_token", ("cls",), DROP_BATCH_AXIS))
    if config.representation_size:
        rules += dense("pre_logits", "pre_logits")
    if config.num_classes:
        rules += dense("head", "head")
    return rules
