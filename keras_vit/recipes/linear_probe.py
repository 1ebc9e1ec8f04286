"""A linear classifier on frozen features: nothing but the head learns.

The quickest way, and the best measure of what features are worth (He et al., arXiv 2111.06377,
appendix A.1, Table 10, has it for ViTs). With tens of pictures it often beats fine-tuning.

Command: `keras-vit finetune FOLDER --recipe linear_probe`, or
`keras_vit.finetune(model, "FOLDER", recipe="linear_probe")`. The model stays frozen afterwards;
`model.trainable_part()` thaws it.

Expected (MAE's Table 10 and section 4.1, ViT-L/16 after its own pre-training, ImageNet): 73.5 %
top-1, measured by its authors with LARS at 16,384 pictures a step.

Departures: Adam at the batches that one device takes, and no weight decay.
"""

import keras

from keras_vit.recipes.definition import Recipe

LINEAR_PROBE = Recipe(
    name="linear_probe",
    optimizer=keras.optimizers.Adam,
    learning_rate=1e-3,
    learning_rate_grid=(3e-4, 1e-3, 3e-3, 1e-2),
    total_steps=500,
    warmup_fraction=0.1,
    max_warmup_steps=500,
    clip_norm=None,
    batch_size=64,
    image_size=224,
    crop_area=(0.08, 1.0),
    flip=True,
    presets={},
    trained_part="head",
)
