"""How transformers names the tensors of its vision models: one key table a dialect.

Names come in two dialects: the old one, which `save_pretrained` still writes, and the one of
the modules of transformers 5. Tables hold the rules of all models of a kind; a model takes those
of the variables that it has. What stands before the names is `hf_layout`'s matter.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.zoo.hf_fused import KEY_VALUE, QUERY
from keras_vit.zoo.keymap import Rule, expand
from keras_vit.zoo.transforms import (
    CONV_KERNEL,
    DROP_BATCH_AXIS,
    IDENTITY,
    LINEAR_KERNEL,
    LINEAR_QKV_KERNEL,
    QKV_BIAS,
    Transform,
)
from keras_vit.zoo.variables import variable_shapes

# (hidden_dim,) <-> (1, hidden_dim).
_ADD_AXIS = Transform(lambda token: token[None], lambda token: (token[0],))
# Two Linear layers, of which the first gates the second, <-> our one.
_GATE_KERNEL = Transform(
    lambda gate, up: np.concatenate([gate.T, up.T], axis=1),
    lambda kernel: tuple(part.T for part in np.split(kernel, 2, axis=1)),
)
_GATE_BIAS = Transform(
    lambda gate, up: np.concatenate([gate, up]), lambda bias: tuple(np.split(bias, 2))
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dialect:
    """The names of one kind of model, in one spelling, without prefix.

    Args:
        rules: The key table but for the MLPs of the blocks.
        mlp: The rules of those.
        gated_mlp: The same with a gate; empty where the kind has no such model.
    """

    rules: tuple[Rule, ...]
    mlp: tuple[Rule, ...]
    gated_mlp: tuple[Rule, ...] = ()

    def key_table(self, config: ViTConfig) -> tuple[Rule, ...]:
        """Return the rules of the variables that a model has."""
        rules = self.rules + (self.gated_mlp if config.gated_mlp else self.mlp)
        variables = variable_shapes(config)
        return tuple(rule for rule in expand(rules, config.num_layers) if rule.ours in variables)


def _linear(ours: str, theirs: str) -> Iterable[Rule]:
    yield Rule(f"{ours}/kernel", (f"{theirs}.weight",), LINEAR_KERNEL)
    yield Rule(f"{ours}/bias", (f"{theirs}.bias",))


def _norm(ours: str, theirs: str) -> Iterable[Rule]:
    yield Rule(f"{ours}/gamma", (f"{theirs}.weight",))
    yield Rule(f"{ours}/beta", (f"{theirs}.bias",))


def _patches(theirs: str) -> Iterable[Rule]:
    yield Rule("patch_embedding/projection/kernel", (f"{theirs}.weight",), CONV_KERNEL)
    yield Rule("patch_embedding/projection/bias", (f"{theirs}.bias",))


def _attention(query: str, key: str, value: str, proj: str) -> Iterable[Rule]:
    kernels, biases = zip(*((f"{x}.weight", f"{x}.bias") for x in (query, key, value)), strict=True)
    yield Rule("block_{i}/attention/qkv/kernel", kernels, LINEAR_QKV_KERNEL)
    yield Rule("block_{i}/attention/qkv/bias", biases, QKV_BIAS)
    yield from _linear("block_{i}/attention/proj", proj)


def _mlp(fc1: str, fc2: str) -> tuple[Rule, ...]:
    return (*_linear("block_{i}/mlp/fc1", fc1), *_linear("block_{i}/mlp/fc2", fc2))


def _split_gated_mlp(gate: str, up: str, down: str) -> tuple[Rule, ...]:
    return (
        Rule("block_{i}/mlp/fc1/kernel", (f"{gate}.weight", f"{up}.weight"), _GATE_KERNEL),
        Rule("block_{i}/mlp/fc1/bias", (f"{gate}.bias", f"{up}.bias"), _GATE_BIAS),
        *_linear("block_{i}/mlp/fc2", down),
    )


# ViT, ViT-MSN, ViT-MAE, DeiT, DINOv2.
_VIT = (
    Rule("prefix_tokens/class_token", ("embeddings.cls_token",), DROP_BATCH_AXIS),
    Rule("position_embedding/embeddings", ("embeddings.position_embeddings",), DROP_BATCH_AXIS),
    *_patches("embeddings.patch_embeddings.projection"),
    *_norm("encoder_norm", "layernorm"),
    *_linear("pre_logits", "pooler.dense"),
    *_linear("head", "classifier"),
)
_DEIT = (
    # One token is ours twice: a head reads it, or none does.
    Rule("prefix_tokens/distillation_token", ("embeddings.distillation_token",), DROP_BATCH_AXIS),
    Rule("prefix_tokens/register_tokens", ("embeddings.distillation_token",), DROP_BATCH_AXIS),
    *_linear("head/class", "cls_classifier"),
    *_linear("head/distillation", "distillation_classifier"),
)
_REGISTERS = (
    Rule("prefix_tokens/register_tokens", ("embeddings.register_tokens",), DROP_BATCH_AXIS),
)


def _old_attention(block: str) -> Iterable[Rule]:
    parts = (f"attention.{name}" for name in ("query", "key", "value"))
    return _attention(
        *(f"{block}.attention.{part}" for part in parts), f"{block}.attention.output.dense"
    )


def _new_attention(block: str, name: str = "attention", proj: str = "o_proj") -> Iterable[Rule]:
    return _attention(*(f"{block}.{name}.{part}" for part in ("q_proj", "k_proj", "v_proj", proj)))


def _vit_dialects(more: tuple[Rule, ...] = ()) -> tuple[Dialect, Dialect]:
    """The old names, then the new."""

    def norms(block: str) -> Iterable[Rule]:
        yield from _norm("block_{i}/norm1", f"{block}.layernorm_before")
        yield from _norm("block_{i}/norm2", f"{block}.layernorm_after")

    old, new = "encoder.layer.{i}", "layers.{i}"
    return (
        Dialect(
            rules=(*_VIT, *more, *_old_attention(old), *norms(old)),
            mlp=_mlp(f"{old}.intermediate.dense", f"{old}.output.dense"),
        ),
        Dialect(
            rules=(*_VIT, *more, *_new_attention(new), *norms(new)),
            mlp=_mlp(f"{new}.mlp.fc1", f"{new}.mlp.fc2"),
        ),
    )


def _dinov2_dialects(more: tuple[Rule, ...] = ()) -> tuple[Dialect, Dialect]:
    """The old names, then the new: here a block differs in its attention and its gated MLP."""
    block = "encoder.layer.{i}"
    rules = (*_VIT, *more)
    for i in (1, 2):
        rules += tuple(_norm(f"block_{{i}}/norm{i}", f"{block}.norm{i}"))
        gamma = f"block_{{i}}/layer_scale{i}/gamma"
        rules += (Rule(gamma, (f"{block}.layer_scale{i}.lambda1",)),)
    mlp = _mlp(f"{block}.mlp.fc1", f"{block}.mlp.fc2")
    return (
        Dialect(
            rules=(*rules, *_old_attention(block)),
            mlp=mlp,
            gated_mlp=_mlp(f"{block}.mlp.weights_in", f"{block}.mlp.weights_out"),
        ),
        Dialect(
            rules=(*rules, *_new_attention(block)),
            mlp=mlp,
            gated_mlp=_split_gated_mlp(
                *(f"{block}.mlp.{part}" for part in ("gate_proj", "up_proj", "down_proj"))
            ),
        ),
    )


def _clip_dialect(more: Iterable[Rule]) -> tuple[Dialect]:
    """What the towers of CLIP and SigLIP share; both have one spelling."""
    block = "encoder.layers.{i}"
    rules = (
        Rule("position_embedding/embeddings", ("embeddings.position_embedding.weight",), IDENTITY),
        *_patches("embeddings.patch_embedding"),
        *_new_attention(block, "self_attn", "out_proj"),
        *_norm("block_{i}/norm1", f"{block}.layer_norm1"),
        *_norm("block_{i}/norm2", f"{block}.layer_norm2"),
        *_linear("head", "classifier"),
        *more,
    )
    return (Dialect(rules=rules, mlp=_mlp(f"{block}.mlp.fc1", f"{block}.mlp.fc2")),)


_SIGLIP = (
    *_norm("encoder_norm", "post_layernorm"),
    Rule("pool/probe", ("head.probe",), DROP_BATCH_AXIS),
    # The rows of one tensor come one after the other: so they are written.
    Rule("pool/query/kernel", (f"head.attention.in_proj_weight{QUERY}",), LINEAR_KERNEL),
    Rule("pool/key_value/kernel", (f"head.attention.in_proj_weight{KEY_VALUE}",), LINEAR_KERNEL),
    Rule("pool/query/bias", (f"head.attention.in_proj_bias{QUERY}",)),
    Rule("pool/key_value/bias", (f"head.attention.in_proj_bias{KEY_VALUE}",)),
    *_linear("pool/proj", "head.attention.out_proj"),
    *_norm("pool/norm", "head.layernorm"),
    *_linear("pool/mlp/fc1", "head.mlp.fc1"),
    *_linear("pool/mlp/fc2", "head.mlp.fc2"),
)
_CLIP = (
    Rule("prefix_tokens/class_token", ("embeddings.class_embedding",), _ADD_AXIS),
    *_norm("embedding_norm", "pre_layrnorm"),  # so misspelt there
    *_norm("pool_norm", "post_layernorm"),
    *_linear("pre_logits", "visual_projection"),
)

# The dialects of a kind; the first is the one that is written.
VIT = _vit_dialects()
DEIT = _vit_dialects(_DEIT)
DINOV2 = _dinov2_dialects()
DINOV2_WITH_REGISTERS = _dinov2_dialects(_REGISTERS)
SIGLIP = _clip_dialect(_SIGLIP)
CLIP = _clip_dialect(_CLIP)
