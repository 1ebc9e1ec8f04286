"""FAULTS E1: prefixes and dialects."""

import pytest

from keras_vit.config import ViTConfig
from keras_vit.zoo.hf_names import Layout, key_table
from keras_vit.zoo.tensor_files import StoredTensor, TensorFile

CONFIG = ViTConfig(
    num_layers=2, num_heads=1, hidden_dim=4, mlp_dim=8, patch_size=4, image_size=8, num_classes=3
)
NEW = {
    "encoder.layer": "layers",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


def old_names():
    return [name for rule in key_table(CONFIG) for name in rule.theirs]


def layout_of(names):
    stored = StoredTensor(None, (1,), "float32")
    return Layout(TensorFile(None, dict.fromkeys(names, stored), {}))


def to_new(name):
    for old, new in NEW.items():
        name = name.replace(old, new)
    return name


@pytest.mark.parametrize("backbone", ["", "vit.", "module.", "module.vit.", "model.backbone.vit."])
@pytest.mark.parametrize("is_new", [False, True])
def test_every_name_is_spelled_as_the_file_does(backbone, is_new):
    head = backbone.removesuffix("vit.")

    def in_file(name):
        prefix = head if name.startswith("classifier.") else backbone
        return prefix + (to_new(name) if is_new else name)

    layout = layout_of(map(in_file, old_names()))
    assert [layout.spell(name) for name in old_names()] == [in_file(name) for name in old_names()]


def test_encoder_alone_may_lack_the_prefix():
    """What transformers 5 writes of a fresh ViTMSNForImageClassification."""

    def in_file(name):
        return name if name.startswith(("encoder.", "classifier.")) else "vit." + name

    layout = layout_of(map(in_file, old_names()))
    assert all(layout.spell(name) == in_file(name) for name in old_names())


def test_training_parts():
    extra = {
        "module.vit.embeddings.mask_token",
        "module.decoder.0.weight",
        "module.vit.pooler.dense.bias",
    }
    backbone = {"module.vit." + name for name in old_names() if "classifier" not in name}
    layout = layout_of(backbone | extra)
    assert layout.training_parts(has_head=True) == extra
    assert layout.training_parts(has_head=False) == extra - {"module.vit.pooler.dense.bias"}
