"""Vision Transformers for Keras: official weights, fine-tuning, export.

Importing this package registers its model, layers, losses and optimizers with Keras, so that
`keras.saving.load_model` reads its `.keras` files. Everything else loads on first use.
"""

import importlib

from keras_vit.startup import silent_import

with silent_import():
    import keras  # noqa: F401 (the first import of TensorFlow)

from keras_vit import assets, layers
from keras_vit.config import MixerConfig, PreprocessingConfig, ViTConfig
from keras_vit.mixer import Mixer
from keras_vit.model import ViT
from keras_vit.training.layer_decay import layer_decay
from keras_vit.training.losses import SigmoidCrossentropy, SmoothedCrossentropy
from keras_vit.training.masked_patch import MaskedPatchModel
from keras_vit.training.optimizers import MomentumSGD
from keras_vit.variants import MIXER_VARIANTS, VARIANTS

__version__ = "0.1.0"

_LAZY = {
    "from_pretrained": "keras_vit.pretrained",
    "save_pretrained": "keras_vit.saving",
    "push_to_hub": "keras_vit.saving",
    "list_models": "keras_vit.zoo.catalogue",
    "recipe": "keras_vit.recipes",
    "finetune": "keras_vit.runs",
    "evaluate": "keras_vit.evaluation",
    "few_shot_accuracy": "keras_vit.training.few_shot",
    "few_shot_model": "keras_vit.training.few_shot",
    "export": "keras_vit.exporters",
}

__all__ = [
    "MIXER_VARIANTS",
    "VARIANTS",
    "MaskedPatchModel",
    "Mixer",
    "MixerConfig",
    "MomentumSGD",
    "PreprocessingConfig",
    "SigmoidCrossentropy",
    "SmoothedCrossentropy",
    "ViT",
    "ViTConfig",
    "assets",
    "layer_decay",
    "layers",
    *_LAZY,
]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'keras_vit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
