import keras
import pytest

from keras_vit import ViT
from keras_vit.lora import lora_settings
from keras_vit.recipes.lora import LORA


def _tiny():
    return ViT.from_variant("Ti/16", num_layers=1, image_size=16, num_classes=2)


def test_puts_adapters_in():
    model = _tiny()
    LORA.prepare(model)
    assert lora_settings(model) == {"rank": 8, "targets": ["proj", "qkv"], "alpha": 8}


def test_keeps_adapters_of_the_caller():
    model = _tiny()
    model.add_lora(rank=2, targets=("fc1",))
    LORA.prepare(model)
    assert lora_settings(model) == {"rank": 2, "targets": ["fc1"], "alpha": 2}


def test_equals_the_publication():
    model = _tiny()
    LORA.prepare(model)
    optimizer = LORA.compile_arguments(model=model)["optimizer"]
    assert isinstance(optimizer, keras.optimizers.AdamW)
    assert optimizer.weight_decay == pytest.approx(0.01)
