"""What transformers computed, of one model of each family, and what it can express.

`tests/parity/test_transformers.py` compares the tables with the installed transformers.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.config import ViTConfig
from keras_vit.zoo.hf_families import FAMILIES, express, mlp_dim, mlp_ratio

TOLERANCE = 2e-5
# Golden directory: what their hidden states are of ours, epsilon, activation.
GOLDEN = {
    "hf_deit_distilled": (None, 1e-12, "gelu"),
    "hf_dinov2": ("encoder_norm", 1e-6, "gelu"),
    "hf_dinov2_registers": ("encoder_norm", 1e-6, "gelu"),
    "hf_siglip_vision": ("encoder_norm", 1e-6, "gelu_tanh"),
    "hf_clip_vision": ("block_2", 1e-5, "quick_gelu"),
    "hf_vit_msn": ("block_2", 1e-6, "gelu"),
}
TINY = dict(
    num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, patch_size=4, image_size=16, num_classes=5
)
HEADLESS = {"num_classes": 0}
CLIP = {"embedding_norm": True, "patch_bias": False}
SCALED = {"layer_scale_init": 0.1}
REGISTERS = {"num_register_tokens": 4, "num_prefix_positions": 1}
# What our fields are called in transformers.
CLASSES = [
    ({}, "ViTForImageClassification"),
    ({"drop_path_rate": 0.1, "patch_drop_rate": 0.5, "remat": True}, "ViTForImageClassification"),
    ({"image_size": (16, 32), "patch_size": (2, 4)}, "ViTForImageClassification"),
    (HEADLESS, "ViTModel"),
    ({**HEADLESS, "representation_size": 3}, "ViTModel"),
    ({"distillation_token": True}, "DeiTForImageClassificationWithTeacher"),
    ({"num_register_tokens": 1}, "DeiTForImageClassification"),
    ({**HEADLESS, "num_register_tokens": 1}, "DeiTModel"),
    ({**HEADLESS, "num_register_tokens": 1, "representation_size": 16}, "DeiTModel"),
    ({**HEADLESS, **SCALED}, "Dinov2Model"),
    ({**SCALED, "pool": "token_mean"}, "Dinov2ForImageClassification"),
    ({**HEADLESS, **SCALED, "gated_mlp": True, "activation": "silu", "mlp_dim": 24}, "Dinov2Model"),
    ({**HEADLESS, **SCALED, **REGISTERS}, "Dinov2WithRegistersModel"),
    (
        {**SCALED, **REGISTERS, "pool": "token_mean"},
        "Dinov2WithRegistersForImageClassification",
    ),
    ({**HEADLESS, "class_token": False, "pool": "map"}, "SiglipVisionModel"),
    ({**HEADLESS, "class_token": False, "pool": "mean"}, "SiglipVisionModel"),
    ({"class_token": False, "pool": "mean"}, "SiglipForImageClassification"),
    ({**HEADLESS, **CLIP, "final_norm": "pool"}, "CLIPVisionModel"),
    (
        {
            **HEADLESS,
            **CLIP,
            "final_norm": "pool",
            "representation_size": 3,
            "representation": "linear",
        },
        "CLIPVisionModelWithProjection",
    ),
    ({**CLIP, "final_norm": "none", "pool": "mean"}, "CLIPForImageClassification"),
]
# Near misses: each would compute something else there, or not load.
NOTHING = [
    {"pool": "mean"},
    {"representation_size": 5},
    {**HEADLESS, "distillation_token": True},  # the mean of two tokens
    {"num_register_tokens": 2},
    {"num_register_tokens": 1, "num_prefix_positions": 1},
    {"pool": "token_mean"},  # without LayerScale
    SCALED,  # its classifiers read the mean too
    {**HEADLESS, **SCALED, "pool": "token_mean"},
    {**HEADLESS, **SCALED, "mlp_dim": 40},  # no whole `mlp_ratio`
    {**HEADLESS, **SCALED, "image_size": (16, 32)},
    {**HEADLESS, **SCALED, "gated_mlp": True, "mlp_dim": 24},  # gated by a GELU
    {**SCALED, **REGISTERS},
    {"class_token": False, "pool": "map"},
    {"class_token": False, "pool": "mean", "image_size": (16, 32)},
    {"class_token": False, "pool": "mean", "qkv_bias": False},
    {**CLIP, "final_norm": "pool"},
    {**HEADLESS, **CLIP, "patch_size": (2, 4), "final_norm": "pool"},
    {"position_embedding": "sincos_2d"},
    {"qk_norm": True},
]


@pytest.mark.parametrize("name", GOLDEN)
def test_outputs_and_hidden_states(golden, name):
    model = keras_vit.from_pretrained(golden / name, include_normalization=False)
    expected = np.load(golden / name / "expected.npz")
    tokens = GOLDEN[name][0]
    if tokens:
        states = model.intermediates([tokens])(expected["images"])[tokens]
        assert np.abs(states - expected["last_hidden_state"]).max() <= TOLERANCE
    output = expected["logits"] if model.config.num_classes else expected["pooler_output"]
    assert np.abs(model(expected["images"]) - output).max() <= TOLERANCE
    names = json.loads((golden / name / "config.json").read_text()).get("id2label")
    assert model.labels == (tuple(names.values()) if names else None)


@pytest.mark.parametrize("name", GOLDEN)
def test_epsilon_and_activation_of_every_layer(golden, name):
    """FAULTS E3, E4: asserted on the layers, since outputs do not pin an epsilon."""
    _, epsilon, activation = GOLDEN[name]
    parts = list(keras_vit.from_pretrained(golden / name)._flatten_layers())
    norms = [part for part in parts if isinstance(part, keras.layers.LayerNormalization)]
    assert {norm.epsilon for norm in norms} == {epsilon} and len(norms) >= 7
    assert {part.activation for part in parts if type(part).__name__ == "MLP"} == {activation}


def test_positions_of_another_size_by_the_familys_rule(golden):
    """FAULTS A1."""
    for name in GOLDEN:
        rule = keras_vit.from_pretrained(golden / name, image_size=48).origin["position_resize"]
        is_antialiased = name == "hf_dinov2_registers"
        assert rule == ("bicubic_antialias" if is_antialiased else "bicubic")


def test_projection_goes_with_the_output_it_makes(random_weights, tmp_path):
    """None: the source's own `image_embeds`; 0: what is projected; k: a head on that."""
    projected = {"final_norm": "pool", "representation_size": 3, "representation": "linear"}
    config = ViTConfig(**TINY | HEADLESS | CLIP | projected)
    model = random_weights(keras_vit.ViT(config))
    keras_vit.save_pretrained(model, tmp_path, layout="hf")
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype("uint8")
    embeds = keras_vit.from_pretrained(tmp_path)(images)
    np.testing.assert_array_equal(embeds, model(images))
    pooled = keras_vit.from_pretrained(tmp_path, num_classes=0)(images)
    kernel = model.get_layer("pre_logits").kernel
    np.testing.assert_allclose(pooled @ kernel, embeds, atol=1e-5)
    assert keras_vit.from_pretrained(tmp_path, num_classes=7).count_params() == (
        model.count_params() - 16 * 3 + 16 * 7 + 7
    )


def test_one_family_a_model_type():
    types = [kind for f in FAMILIES for kind in (f.model_type, f.nesting_type) if kind]
    assert len(types) == len(set(types)) == 10
    classes = {task.class_name for family in FAMILIES for task in family.tasks}
    assert len(classes) == 17
    for family in FAMILIES:
        assert any(not task.sets for task in family.tasks)  # what a file is without a head
        assert set(family.keys.values()) <= family.defaults.keys()


@pytest.mark.parametrize(("fields", "class_name"), CLASSES, ids=str)
def test_classes_of_our_models(fields, class_name):
    family, task = express(ViTConfig(**TINY | fields))
    assert task.class_name == class_name and task in family.tasks
    assert family.is_written


@pytest.mark.parametrize("fields", NOTHING, ids=str)
def test_near_misses_are_no_model_of_transformers(fields):
    assert express(ViTConfig(**TINY | fields)) is None


def test_mlp_ratio_of_dinov2():
    assert mlp_dim(1536, 4, is_gated=True) == 4096  # facebook/dinov2-giant
    assert mlp_dim(48, 4, is_gated=True) == 128
    assert mlp_dim(16, 2, is_gated=True) == 24  # 21, rounded up
    assert mlp_dim(384, 4, is_gated=False) == 1536
    config = ViTConfig(**TINY)
    assert mlp_ratio(config) == 2
    assert mlp_ratio(dataclasses.replace(config, mlp_dim=33)) is None
    assert mlp_ratio(dataclasses.replace(config, mlp_dim=24, gated_mlp=True)) == 2
