"""Vision Transformers for Keras: official weights, fine-tuning, export.

Importing this package registers its model, layers and optimizer with Keras, so that
`keras.saving.load_model` reads its `.keras` files. Everything else loads on first use.
"""

import importlib

from keras_vit.startup import silent_import

with silent_import():
    import keras  # noqa: F401 (the first import of TensorFlow)

from keras_vit import assets, layers
from keras_vit.config import VARIANTS, PreprocessingConfig, ViTConfig
from keras_vit.model import ViT
from keras_vit.training.optimizers import MomentumSGD

__version__ = "0.1.0"

_LAZY = {
    "from_pretrained": "keras_vit.pretrained",
    "save_pretrained": "keras_vit.pretrained",
    "list_models": "keras_vit.zoo.catalogue",
    "recipe": "keras_vit.recipes",
    "finetune": "keras_vit.runs",
    "export": "keras_vit.exporters",
}

__all__ = [
    "VARIANTS",
    "MomentumSGD",
    "PreprocessingConfig",
    "ViT",
    "ViTConfig",
    "assets",
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
