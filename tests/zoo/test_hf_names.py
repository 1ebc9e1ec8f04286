"""FAULTS E1: the names of both dialects."""

import numpy as np
import pytest

from keras_vit.config import ViTConfig
from keras_vit.zoo import hf_names, keymap
from keras_vit.zoo.variables import variable_shapes

FIELDS = dict(num_layers=2, num_heads=1, hidden_dim=4, mlp_dim=8, patch_size=4, image_size=8)
PLAIN = ViTConfig(**FIELDS, num_classes=3)
SCALED = {"layer_scale_init": 1.0, "num_classes": 3}
KINDS = {
    "vit": (hf_names.VIT, {}),
    "pooler": (hf_names.VIT, {"num_classes": 0, "representation_size": 5}),
    "no_qkv_bias": (hf_names.VIT, {"qkv_bias": False}),
    "distilled": (hf_names.DEIT, {"distillation_token": True}),
    "undistilled": (hf_names.DEIT, {"num_register_tokens": 1}),
    "dinov2": (hf_names.DINOV2, SCALED),
    "swiglu": (hf_names.DINOV2, {**SCALED, "gated_mlp": True, "activation": "silu"}),
    "registers": (hf_names.DINOV2_WITH_REGISTERS, {**SCALED, "num_register_tokens": 4}),
    "siglip": (hf_names.SIGLIP, {"class_token": False, "pool": "map", "num_classes": 0}),
    "clip": (
        hf_names.CLIP,
        {
            "embedding_norm": True,
            "patch_bias": False,
            "final_norm": "pool",
            "representation_size": 5,
            "representation": "linear",
            "num_classes": 0,
        },
    ),
}
TO_NEW = {
    "encoder.layer": "layers",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_dialect_names_every_variable_once_and_is_exact_both_ways(kind):
    dialects, fields = KINDS[kind]
    config = ViTConfig(**FIELDS | fields)
    shapes = variable_shapes(config)
    random = np.random.default_rng(0)
    for dialect in dialects:
        rules = dialect.key_table(config)
        assert sorted(rule.ours for rule in rules) == sorted(shapes)
        theirs = [name for rule in rules for name in rule.theirs]
        assert len(theirs) == len(set(theirs))
        for rule in rules:
            value = random.normal(size=shapes[rule.ours])
            stored = keymap.invert(rule, value)
            np.testing.assert_array_equal(keymap.apply(rule, stored.__getitem__), value)


def test_a_variable_that_the_family_has_not_has_no_rule():
    config = ViTConfig(**FIELDS, num_classes=3, qk_norm=True, layer_scale_init=1.0)
    rules = hf_names.VIT[0].key_table(config)
    assert variable_shapes(config).keys() - {rule.ours for rule in rules} == {
        f"block_{i}/{part}"
        for i in range(2)
        for part in (
            *("attention/query_norm/gamma", "attention/query_norm/beta"),
            *("attention/key_norm/gamma", "attention/key_norm/beta"),
            *("layer_scale1/gamma", "layer_scale2/gamma"),
        )
    }


def test_new_names_of_vit():
    old, new = (dialect.key_table(PLAIN) for dialect in hf_names.VIT)
    assert [rule.ours for rule in old] == [rule.ours for rule in new]
    for before, after in zip(old, new, strict=True):
        for name, expected in zip(before.theirs, after.theirs, strict=True):
            for ours, theirs in TO_NEW.items():
                name = name.replace(ours, theirs)
            assert name == expected


def test_the_first_half_of_a_gated_mlp_is_the_gate():
    """As `weights_in` has it, and `gate_proj` beside `up_proj`."""
    gate, up = np.arange(8.0).reshape(2, 4), 10 + np.arange(8.0).reshape(2, 4)
    config = ViTConfig(**FIELDS | {**SCALED, "gated_mlp": True, "mlp_dim": 2})
    tensors = {
        "mlp.weights_in.weight": np.concatenate([gate, up]),
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
    }
    for dialect in hf_names.DINOV2:
        (rule,) = (r for r in dialect.key_table(config) if r.ours == "block_0/mlp/fc1/kernel")
        kernel = keymap.apply(rule, lambda name: tensors[name.removeprefix("encoder.layer.0.")])
        np.testing.assert_array_equal(kernel, np.concatenate([gate, up]).T)
