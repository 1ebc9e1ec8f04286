"""Low-rank adapters: two small matrices learn beside each frozen one.

Hu et al., arXiv 2106.09685: the adapted layer is W + B A, with A of few rows. The checkpoint of
what was learned is small, several of them share one model, and a step needs less memory.

Command: `keras-vit finetune FOLDER --recipe lora`, or
`keras_vit.finetune(model, "FOLDER", recipe="lora")`; then `model.save_lora("flowers.safetensors")`,
or `model.merge_lora()` for a model without adapters. A model that has adapters already keeps its
own; others get rank 8 in `qkv` and `proj` of each block.

Expected: the paper has no ViT; on GPT-2 and RoBERTa (its Tables 2 and 3) its adapters equal
fine-tuning of all weights. Rank and optimizer are the paper's (Tables 9 to 12: AdamW, rank 4 to 8,
rates of 2e-4 to 5e-4 in language). The rate here is ours, the same as for a linear probe, since the
head learns beside the adapters.
"""

import keras

from keras_vit.recipes.definition import Recipe

LORA = Recipe(
    name="lora",
    optimizer=keras.optimizers.AdamW,
    learning_rate=1e-3,
    learning_rate_grid=(3e-4, 1e-3, 3e-3),
    total_steps=500,
    warmup_fraction=0.1,
    max_warmup_steps=500,
    clip_norm=1.0,
    batch_size=64,
    image_size=224,
    crop_area=(0.08, 1.0),
    flip=True,
    presets={},
    weight_decay=0.01,
    trained_part="lora",
)
