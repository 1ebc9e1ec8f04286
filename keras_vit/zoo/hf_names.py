"""How transformers names the tensors of a ViT: our key table, and how one file spells it.

Names come in two dialects: the old one, which `save_pretrained` still writes, and the one of
the modules of transformers 5. A prefix (`vit.`, `module.vit.`, none) goes before either.
"""

import collections
import re
from collections.abc import Iterable

from keras_vit.config import ViTConfig
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.keymap import Rule, expand
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.transforms import (
    CONV_KERNEL,
    DROP_BATCH_AXIS,
    LINEAR_KERNEL,
    LINEAR_QKV_KERNEL,
    QKV_BIAS,
)

# Parts of a block in the old dialect and the new; those not named are alike.
NEW_NAMES = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
PATCH_KERNEL = "embeddings.patch_embeddings.projection.weight"
POSITIONS = "embeddings.position_embeddings"


class Layout:
    """How one file spells the names of the old dialect."""

    def __init__(self, tensors: TensorFile):
        self.tensors = tensors
        self.names = tensors.tensors.keys()
        self.backbone = self._prefix(rf"{PATCH_KERNEL}|{POSITIONS}|embeddings\.cls_token", "")
        self.encoder = self._prefix(r"(?:encoder\.layer|layers)\.\d+\..+", self.backbone)
        self.head = self._prefix(r"classifier\.\w+", self.backbone.removesuffix("vit."))
        self.is_new = any(name.startswith(f"{self.encoder}layers.") for name in self.names)

    def _prefix(self, pattern: str, default: str) -> str:
        """Return what most names that match have before the match."""
        matches = (re.fullmatch(rf"((?:.*?\.)?)(?:{pattern})", name) for name in self.names)
        counts = collections.Counter(match[1] for match in matches if match)
        return counts.most_common(1)[0][0] if counts else default

    def spell(self, name: str) -> str:
        """Return this file's name of a tensor, from the old dialect's without prefix."""
        if name.startswith("classifier."):
            return self.head + name
        if not name.startswith("encoder.layer."):
            return self.backbone + name
        if self.is_new:
            _, _, block, *part, kind = name.split(".")
            part = ".".join(part)
            name = f"layers.{block}.{NEW_NAMES.get(part, part)}.{kind}"
        return self.encoder + name

    def shape(self, name: str) -> tuple[int, ...] | None:
        stored = self.tensors.tensors.get(self.spell(name))
        return stored and stored.shape

    def need(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that sizes are inferred from."""
        if self.shape(name) is None:
            raise MissingWeightsError(self.tensors.path, [self.spell(name)])
        return self.shape(name)

    def has(self, layer: str) -> bool:
        return self.outputs(layer) is not None

    def outputs(self, layer: str) -> int | None:
        """Return the width of a Linear, from its kernel or its bias, or None."""
        shape = self.shape(f"{layer}.weight") or self.shape(f"{layer}.bias")
        return shape[0] if shape else None

    def training_parts(self, has_head: bool) -> frozenset[str]:
        """Return what the file holds for other tasks: masked pixels, a classifier's pooler."""
        starts = [
            self.backbone + "embeddings.mask_token",
            self.backbone.removesuffix("vit.") + "decoder.",
        ]
        if has_head:
            starts.append(self.backbone + "pooler.")
        return frozenset(name for name in self.names if name.startswith(tuple(starts)))


def _linear(ours: str, theirs: str) -> Iterable[Rule]:
    yield Rule(f"{ours}/kernel", (f"{theirs}.weight",), LINEAR_KERNEL)
    yield Rule(f"{ours}/bias", (f"{theirs}.bias",))


def _norm(ours: str, theirs: str) -> Iterable[Rule]:
    yield Rule(f"{ours}/gamma", (f"{theirs}.weight",))
    yield Rule(f"{ours}/beta", (f"{theirs}.bias",))


def key_table(config: ViTConfig) -> tuple[Rule, ...]:
    """Return the key table, in the old dialect without prefix."""
    block = "encoder.layer.{i}"
    queries = [f"{block}.attention.attention.{name}" for name in ("query", "key", "value")]
    qkv = "block_{i}/attention/qkv"
    rules = [
        Rule("prefix_tokens/class_token", ("embeddings.cls_token",), DROP_BATCH_AXIS),
        Rule("position_embedding/embeddings", (POSITIONS,), DROP_BATCH_AXIS),
        Rule("patch_embedding/projection/kernel", (PATCH_KERNEL,), CONV_KERNEL),
        Rule("patch_embedding/projection/bias", ("embeddings.patch_embeddings.projection.bias",)),
        Rule(f"{qkv}/kernel", tuple(f"{name}.weight" for name in queries), LINEAR_QKV_KERNEL),
        *_linear("block_{i}/attention/proj", f"{block}.attention.output.dense"),
        *_norm("block_{i}/norm1", f"{block}.layernorm_before"),
        *_norm("block_{i}/norm2", f"{block}.layernorm_after"),
        *_linear("block_{i}/mlp/fc1", f"{block}.intermediate.dense"),
        *_linear("block_{i}/mlp/fc2", f"{block}.output.dense"),
        *_norm("encoder_norm", "layernorm"),
    ]
    if config.qkv_bias:
        rules.append(Rule(f"{qkv}/bias", tuple(f"{name}.bias" for name in queries), QKV_BIAS))
    if config.representation_size:
        rules += _linear("pre_logits", "pooler.dense")
    if config.num_classes:
        rules += _linear("head", "classifier")
    return expand(rules, config.num_layers)
