"""Low-rank adapters (LoRA) on the dense layers of the blocks, with Keras' own `Dense.enable_lora`.

Reference: Hu et al., arXiv 2106.09685.
"""

from keras_vit.lora.adapter_file import load_lora, save_lora
from keras_vit.lora.adapters import (
    add_lora,
    freeze_base,
    is_head,
    lora_settings,
    merged_reader,
    original_reader,
)

__all__ = [
    "add_lora",
    "freeze_base",
    "is_head",
    "load_lora",
    "lora_settings",
    "merged_reader",
    "original_reader",
    "save_lora",
]
