"""FAULTS E1: prefixes and dialects of one file."""

import dataclasses

import pytest

from keras_vit.config import ViTConfig
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.hf_families import CLIP, DEIT, DINOV2, FAMILIES, SIGLIP, VIT, VIT_MAE
from keras_vit.zoo.hf_layout import Layout
from keras_vit.zoo.tensor_files import StoredTensor, TensorFile

CONFIG = ViTConfig(
    num_layers=2, num_heads=1, hidden_dim=4, mlp_dim=8, patch_size=4, image_size=8, num_classes=3
)
HEADLESS = dataclasses.replace(CONFIG, num_classes=0)


def names_of(family=VIT, is_new=False, config=CONFIG):
    rules = family.dialects[is_new].key_table(config)
    return [name for rule in rules for name in rule.theirs]


def layout_of(names, family=VIT):
    stored = StoredTensor(None, (1,), "float32")
    return Layout(TensorFile(None, dict.fromkeys(names, stored), {}), family)


def check_spelling(in_file, is_new=False):
    names = names_of(is_new=is_new)
    layout = layout_of(map(in_file, names))
    assert layout.dialect is VIT.dialects[is_new]
    assert [layout.spell(name) for name in names] == [in_file(name) for name in names]
    assert layout.known == set(map(in_file, names)) and layout.is_whole()


@pytest.mark.parametrize("backbone", ["", "vit.", "module.", "module.vit.", "model.backbone.vit."])
@pytest.mark.parametrize("is_new", [False, True])
def test_every_name_is_spelled_as_the_file_does(backbone, is_new):
    head = backbone.removesuffix("vit.")

    def in_file(name):
        return (head if name.startswith("classifier.") else backbone) + name

    check_spelling(in_file, is_new)


def test_encoder_alone_may_lack_the_prefix():
    """What transformers 5 writes of a fresh ViTMSNForImageClassification."""
    check_spelling(
        lambda name: name if name.startswith(("encoder.", "classifier.")) else "vit." + name
    )


def test_parts_for_other_tasks():
    extra = {
        "module.vit.embeddings.mask_token",
        "module.decoder.0.weight",
        "module.vit.pooler.dense.bias",
    }
    backbone = {"module.vit." + name for name in names_of() if "classifier" not in name}
    layout = layout_of(backbone | extra)
    rules = VIT.dialects[0].key_table(CONFIG)
    assert layout.unused(rules) == extra
    pooler = [rule for rule in VIT.dialects[0].rules if rule.ours == "pre_logits/bias"]
    spelled = [type(rule)(rule.ours, tuple(map(layout.spell, rule.theirs))) for rule in pooler]
    assert layout.unused(spelled) == extra - {"module.vit.pooler.dense.bias"}


def test_a_text_tower_of_more_blocks_is_passed_over():
    image = {f"clip.vision_model.{name}" for name in names_of(CLIP, config=HEADLESS)}
    text = {f"clip.text_model.encoder.layers.{i}.layer_norm1.weight" for i in range(100)}
    text |= {"clip.logit_scale", "clip.text_projection.weight"}
    text |= {"clip.vision_model.embeddings.position_ids"}
    layout = layout_of(image | text, CLIP)
    assert layout.spell("encoder.layers.{i}.x") == "clip.vision_model.encoder.layers.{i}.x"
    assert layout.spell("visual_projection") == "clip.visual_projection"
    assert layout.ignored == text and layout.is_whole()


def test_a_decoder_of_more_blocks_is_passed_over():
    """Both spellings of ViTMAEForPreTraining."""
    encoder = {f"vit.{name}" for name in names_of(VIT_MAE, config=HEADLESS)}
    for part in ("decoder_layers.{}.layernorm_before", "decoder_encoder.layer.{}.layernorm_after"):
        decoder = {f"decoder.{part.format(i)}.weight" for i in range(50)}
        layout = layout_of(encoder | decoder, VIT_MAE)
        assert layout.spell("encoder.layer.0") == "vit.encoder.layer.0"
        assert layout.ignored == decoder


def test_blocks_with_more_than_the_family_has_are_of_another_model():
    """BEiT without a config.json is no ViT."""
    names = names_of()
    assert layout_of(names).is_whole()
    assert not layout_of([*names, "encoder.layer.0.lambda_1"]).is_whole()
    assert not layout_of(names, SIGLIP).is_whole() and not layout_of(names, DINOV2).is_whole()
    assert not layout_of(["classifier.weight"]).is_whole()


def test_what_a_group_lacks_follows_the_others():
    layout = layout_of(["module.deit.encoder.layer.0.layernorm_before.weight"], DEIT)
    assert layout.spell("embeddings.cls_token") == "module.deit.embeddings.cls_token"
    assert layout.spell("cls_classifier.bias") == "module.cls_classifier.bias"
    assert not layout.has("cls_classifier") and layout.width("cls_classifier") is None
    assert all(layout_of([], family).spell("x") == "x" for family in FAMILIES)


def test_tensors_that_sizes_follow_from():
    layout = layout_of(names_of())
    with pytest.raises(MissingWeightsError, match=r"! .*projection.weight: expected 4 axes, found"):
        layout.infer_fields(1, None)
    with pytest.raises(
        MissingWeightsError, match="- embeddings.patch_embeddings.projection.weight"
    ):
        layout_of([]).infer_fields(1, None)
