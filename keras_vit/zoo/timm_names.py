"""How timm names the tensors of a ViT: our key table, and how one file spells it."""

import collections
import re
from collections.abc import Iterable

from keras_vit.config import ViTConfig
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.keymap import Rule, expand
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.transforms import CONV_KERNEL, DROP_BATCH_AXIS, LINEAR_KERNEL

BACKBONE = "patch_embed.backbone."
PATCH_KERNEL = "patch_embed.proj.weight"
POSITIONS = "pos_embed"
_STEM_UNIT = "resnet_stem/stage_{}/unit_{}"


class Layout:
    """The shapes of one file under timm's names.

    A wrapper puts a prefix before all of them: `timm_model.` (transformers), `module.` (torch's
    DataParallel).
    """

    def __init__(self, tensors: TensorFile):
        self.tensors = tensors
        found = (
            re.fullmatch(r"((?:.*\.)?)blocks\.\d+\.attn\..+", name) for name in tensors.tensors
        )
        prefixes = collections.Counter(match[1] for match in found if match)
        self.prefix = prefixes.most_common(1)[0][0] if prefixes else ""
        self.shapes = {
            name.removeprefix(self.prefix): shape
            for name, shape in tensors.shapes.items()
            if name.startswith(self.prefix)
        }

    def spell(self, name: str) -> str:
        """Return this file's name of a tensor."""
        return self.prefix + name

    def find(self, pattern: str) -> tuple[int, ...] | None:
        """Return the shape of the first tensor whose name matches, or None."""
        return next((s for name, s in self.shapes.items() if re.fullmatch(pattern, name)), None)

    def has(self, pattern: str) -> bool:
        return self.find(pattern) is not None

    def count(self, pattern: str) -> int:
        """Return one more than the greatest number that the pattern's group finds, or 0."""
        found = (re.match(pattern, name) for name in self.shapes)
        return max((1 + int(match[1]) for match in found if match), default=0)

    def need(self, name: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a tensor that sizes are inferred from."""
        shape = self.shapes.get(name)
        if shape is None:
            raise MissingWeightsError(self.tensors.path, [self.spell(name)])
        if len(shape) != rank:
            line = f"{self.spell(name)}: expected {rank} axes, found {shape}"
            raise MissingWeightsError(self.tensors.path, [], misshapen=[line])
        return shape


def key_table(config: ViTConfig) -> tuple[Rule, ...]:
    """Return the key table, without prefix."""
    rules = [
        *_stem(config),
        Rule("patch_embedding/projection/kernel", (PATCH_KERNEL,), CONV_KERNEL),
        *_norm("block_{i}/norm1", "blocks.{i}.norm1"),
        *_linear("block_{i}/attention/qkv", "blocks.{i}.attn.qkv", config.qkv_bias),
        *_linear("block_{i}/attention/proj", "blocks.{i}.attn.proj"),
        *_norm("block_{i}/norm2", "blocks.{i}.norm2"),
        *_mlp("block_{i}/mlp", "blocks.{i}.mlp"),
    ]
    if config.patch_bias:
        rules.append(Rule("patch_embedding/projection/bias", ("patch_embed.proj.bias",)))
    for is_there, ours, theirs in (
        (config.class_token, "prefix_tokens/class_token", "cls_token"),
        (config.distillation_token, "prefix_tokens/distillation_token", "dist_token"),
        (config.num_register_tokens, "prefix_tokens/register_tokens", "reg_token"),
        (config.position_embedding == "learned", "position_embedding/embeddings", POSITIONS),
    ):
        if is_there:
            rules.append(Rule(ours, (theirs,), DROP_BATCH_AXIS))
    for is_there, ours, theirs in (
        (config.embedding_norm, "embedding_norm", "norm_pre"),
        (config.qk_norm, "block_{i}/attention/query_norm", "blocks.{i}.attn.q_norm"),
        (config.qk_norm, "block_{i}/attention/key_norm", "blocks.{i}.attn.k_norm"),
        (config.final_norm == "encoder", "encoder_norm", "norm"),
        (config.final_norm == "pool", "pool_norm", "fc_norm"),
    ):
        if is_there:
            rules += _norm(ours, theirs)
    if config.layer_scale_init is not None:
        for i in (1, 2):
            rules.append(Rule(f"block_{{i}}/layer_scale{i}/gamma", (f"blocks.{{i}}.ls{i}.gamma",)))
    if config.pool == "map":
        rules += _attention_pool()
    if config.num_classes and config.distillation_token:
        rules += [*_linear("head/class", "head"), *_linear("head/distillation", "head_dist")]
    elif config.num_classes:
        rules += _linear("head", "head")
    return expand(rules, config.num_layers)


def _stem(config: ViTConfig) -> Iterable[Rule]:
    """The rules of a ResNet; a root alone is a module without the name `stem`."""
    if config.stem_layers is None:
        return
    root = BACKBONE + ("stem." if config.stem_layers else "")
    yield _convolution("resnet_stem/root", f"{root}conv")
    yield from _norm("resnet_stem/root_norm", f"{root}norm")
    for stage, units in enumerate(config.stem_layers):
        for unit in range(units):
            ours = _STEM_UNIT.format(stage, unit)
            theirs = f"{BACKBONE}stages.{stage}.blocks.{unit}"
            for i in (1, 2, 3):
                yield _convolution(f"{ours}/conv{i}", f"{theirs}.conv{i}")
                yield from _norm(f"{ours}/norm{i}", f"{theirs}.norm{i}")
            if unit == 0:
                yield _convolution(f"{ours}/shortcut", f"{theirs}.downsample.conv")
                yield from _norm(f"{ours}/shortcut_norm", f"{theirs}.downsample.norm")


def _attention_pool() -> Iterable[Rule]:
    yield Rule("pool/probe", ("attn_pool.latent",), DROP_BATCH_AXIS)
    yield from _linear("pool/query", "attn_pool.q")
    yield from _linear("pool/key_value", "attn_pool.kv")
    yield from _linear("pool/proj", "attn_pool.proj")
    yield from _norm("pool/norm", "attn_pool.norm")
    yield from _mlp("pool/mlp", "attn_pool.mlp")


def _convolution(ours: str, theirs: str) -> Rule:
    return Rule(f"{ours}/kernel", (f"{theirs}.weight",), CONV_KERNEL)


def _linear(ours: str, theirs: str, bias: bool = True) -> Iterable[Rule]:
    yield Rule(f"{ours}/kernel", (f"{theirs}.weight",), LINEAR_KERNEL)
    if bias:
        yield Rule(f"{ours}/bias", (f"{theirs}.bias",))


def _norm(ours: str, theirs: str) -> Iterable[Rule]:
    yield Rule(f"{ours}/gamma", (f"{theirs}.weight",))
    yield Rule(f"{ours}/beta", (f"{theirs}.bias",))


def _mlp(ours: str, theirs: str) -> Iterable[Rule]:
    yield from _linear(f"{ours}/fc1", f"{theirs}.fc1")
    yield from _linear(f"{ours}/fc2", f"{theirs}.fc2")
