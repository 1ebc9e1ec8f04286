"""FAULTS E3, E4: what config.json says, and what it means where it says nothing."""

import pytest

from keras_vit.config import ViTConfig
from keras_vit.zoo.hf_config import (
    ACTIVATION_OF_HIDDEN_ACT,
    HIDDEN_ACT_OF_ACTIVATION,
    find_task,
    read_classes,
    read_fields,
    read_width,
    tower_values,
    write_config,
)
from keras_vit.zoo.hf_families import (
    CLIP,
    DEIT,
    DINOV2,
    DINOV2_WITH_REGISTERS,
    FAMILIES,
    SIGLIP,
    VIT,
    VIT_MSN,
)

TINY = dict(num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, patch_size=4, image_size=16)


def fields_of(family, config_json=None):
    return read_fields(family, tower_values(config_json, family))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
def test_nothing_said_is_a_base_model(family):
    fields = fields_of(family, {"model_type": family.model_type})
    assert fields == fields_of(family)
    assert (fields["num_layers"], fields["num_heads"]) == (12, 12)
    assert (fields["hidden_dim"], fields["mlp_dim"]) == (768, 3072)
    assert (fields["image_size"], fields["num_channels"]) == (224, 3)
    assert (fields["dropout_rate"], fields["drop_path_rate"]) == (0.0, 0.0)


def test_defaults_that_differ_from_family_to_family():
    def patch_epsilon_activation(family):
        fields = fields_of(family)
        return fields["patch_size"], fields["layer_norm_epsilon"], fields["activation"]

    assert patch_epsilon_activation(VIT) == (16, 1e-12, "gelu")
    assert patch_epsilon_activation(VIT_MSN) == (16, 1e-6, "gelu")
    assert patch_epsilon_activation(DEIT) == (16, 1e-12, "gelu")
    assert patch_epsilon_activation(DINOV2) == (14, 1e-6, "gelu")
    assert patch_epsilon_activation(DINOV2_WITH_REGISTERS) == (16, 1e-6, "gelu")
    assert patch_epsilon_activation(SIGLIP) == (16, 1e-6, "gelu_tanh")
    assert patch_epsilon_activation(CLIP) == (32, 1e-5, "quick_gelu")


def test_every_activation_can_be_said():
    for ours, theirs in HIDDEN_ACT_OF_ACTIVATION.items():
        assert ACTIVATION_OF_HIDDEN_ACT[theirs] == ours
    for unknown in ("relu", ["gelu"]):
        with pytest.raises(ValueError, match="`hidden_act`.*Received: hidden_act=.*elu"):
            fields_of(VIT, {"hidden_act": unknown})


def test_tower_inside_of_a_larger_model():
    """google/siglip-base-patch16-224 says `model_type` alone; laion's files say CLIP's twice."""
    nested = {"model_type": "siglip", "vision_config": {"model_type": "siglip_vision_model"}}
    assert fields_of(SIGLIP, nested) == fields_of(SIGLIP)
    assert fields_of(SIGLIP, {"model_type": "siglip"}) == fields_of(SIGLIP)
    wide = {"model_type": "clip", "vision_config": {"hidden_size": 32}, "hidden_size": 5}
    assert fields_of(CLIP, wide)["hidden_dim"] == 32
    assert fields_of(CLIP, wide | {"vision_config_dict": None})["hidden_dim"] == 32
    assert fields_of(CLIP, wide | {"vision_config_dict": {"patch_size": 14}})["hidden_dim"] == 768


def test_gate_and_width_of_dinov2():
    giant = {"hidden_size": 1536, "mlp_ratio": 4, "use_swiglu_ffn": True, "hidden_act": "gelu"}
    fields = fields_of(DINOV2, giant)
    assert (fields["mlp_dim"], fields["gated_mlp"], fields["activation"]) == (4096, True, "silu")
    assert fields_of(DINOV2, {"hidden_size": 384})["mlp_dim"] == 1536
    for ratio in ("4", float("nan"), 0):
        with pytest.raises(ValueError, match="`mlp_ratio` of config.json must be a positive"):
            fields_of(DINOV2, {"mlp_ratio": ratio})
        assert fields_of(VIT, {"mlp_ratio": ratio}) == fields_of(VIT)  # a stray key


@pytest.mark.parametrize("family", [DINOV2, DINOV2_WITH_REGISTERS, SIGLIP, CLIP])
@pytest.mark.parametrize("key", ["image_size", "patch_size"])
def test_oblongs_that_transformers_would_resize_as_squares(family, key):
    message = rf"`{key}` of config.json must be one number.*Received: {key}=\[28, 56\]"
    with pytest.raises(ValueError, match=message):
        fields_of(family, {key: [28, 56]})
    assert fields_of(family, {key: [28, 28]})[key] == [28, 28]
    assert fields_of(VIT, {key: [28, 56]})[key] == [28, 56]


def test_task_by_layers_then_by_class():
    def task(family, layers=(), class_name=None, **values):
        config_json = {"architectures": [class_name], **values}
        values = tower_values(config_json, family)
        return find_task(family, values, config_json, lambda layer: layer in layers)

    distilled, head, tower, pooler = DEIT.tasks
    assert task(DEIT, ["cls_classifier"]) is distilled
    assert task(DEIT, ["classifier"], distilled.class_name) is head
    assert task(DEIT, [], distilled.class_name) is distilled  # its heads are missing
    assert task(DEIT, ["pooler.dense"], "DeiTModel") is pooler
    assert task(DEIT, [], "DeiTModel") is tower
    assert task(DEIT, [], "DeiTForMaskedImageModeling") is tower
    assert find_task(DEIT, DEIT.defaults, None, lambda layer: False) is tower

    head, with_pool, without_pool = SIGLIP.tasks
    assert task(SIGLIP, ["head"], "SiglipModel") is with_pool
    assert task(SIGLIP, ["head", "classifier"]) is head
    assert task(SIGLIP, [], "SiglipModel") is with_pool  # its head is missing
    assert task(SIGLIP, [], vision_use_head=False) is without_pool
    assert task(SIGLIP, ["classifier"], vision_use_head=False) is head

    head, projected, tower = CLIP.tasks
    assert task(CLIP, ["visual_projection"], "CLIPModel") is projected
    assert task(CLIP, [], "CLIPVisionModelWithProjection") is projected
    assert task(CLIP, [], "CLIPVisionModel") is tower


def test_widths_of_layers_that_are_missing():
    pooler, projection = VIT.tasks[2], CLIP.tasks[1]
    assert read_width(pooler, tower_values({"hidden_size": 32}, VIT)) == 32
    assert read_width(pooler, tower_values({"pooler_output_size": 8}, VIT)) == 8
    assert read_width(projection, tower_values({}, CLIP)) == 512


def test_classes():
    names = {"1": "b", "0": "a", "2": 5}
    assert read_classes({"id2label": names}, 3) == (("a", "b", "5"), 3)
    assert read_classes({"id2label": names}, None) == (("a", "b", "5"), 3)
    assert read_classes({"id2label": {"0": "LABEL_0"}}, 1) == (None, 1)
    assert read_classes(None, None) == (None, 2)
    assert read_classes({}, 7) == (None, 7)
    with pytest.raises(ValueError, match="must name the classes 0 to 3.*Received 3 keys: 1, 0, 2"):
        read_classes({"id2label": names}, 4)


def test_written_tower_of_a_classifier_is_nested():
    config = ViTConfig(**TINY, num_classes=2, class_token=False, pool="mean", dropout_rate=0.1)
    values = write_config(config, SIGLIP, SIGLIP.tasks[0], ("a", "b"), multi_label=True)
    tower = values["vision_config"]
    assert values["model_type"] == "siglip" and tower["model_type"] == "siglip_vision_model"
    assert tower["vision_use_head"] is False and tower["patch_size"] == 4
    assert tower["hidden_dropout_prob"] == 0.1  # ours
    assert values["id2label"] == {"0": "a", "1": "b"} and values["label2id"]["b"] == 1
    assert values["problem_type"] == "multi_label_classification"
    assert fields_of(SIGLIP, values) == {
        **TINY,
        "patch_size": 4,
        "image_size": 16,
        "num_channels": 3,
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.0,
        "drop_path_rate": 0.0,
    }


def test_written_tower_without_a_head_is_flat():
    config = ViTConfig(
        **TINY | {"image_size": (16, 24)}, num_classes=0, representation_size=7, activation="gelu"
    )
    values = write_config(config, VIT, VIT.tasks[2], None, multi_label=False)
    assert values["architectures"] == ["ViTModel"] and values["pooler_output_size"] == 7
    assert values["image_size"] == [16, 24] and values["patch_size"] == 4
    assert not values.keys() & {"id2label", "problem_type", "drop_path_rate", "vision_config"}
