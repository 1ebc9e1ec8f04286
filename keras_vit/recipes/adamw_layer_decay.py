"""Fine-tuning by AdamW, with rates that fall from the head to the stem.

Published for ViTs by BEiT (Bao et al., arXiv 2106.08254, appendix H) and MAE (He et al., arXiv
2111.06377, appendix A.1, Table 9): AdamW, weight decay 0.05, betas 0.9 and 0.999, layer-wise
decay 0.75, cosine after a warm-up of 5 of 100 epochs, label smoothing 0.1, base rate 1e-3 of 256
pictures.

Command: `keras-vit finetune FOLDER --recipe adamw_layer_decay`, or
`keras_vit.finetune(model, "FOLDER", recipe="adamw_layer_decay")`.

Expected (MAE's Table 3, ViT-B/16 after its own pre-training, ImageNet): 83.6 % top-1. Its
authors measured that, on TPUs; it was not measured again here.

Departures: a quarter of the base rate, for weights that were pre-trained with labels and sets of
hundreds and thousands of pictures; 500 steps, of which a tenth warms up; no RandAugment, mixup,
CutMix and drop path, which pay over many epochs (`augmentation=["randaugment", "mixup"]` and
`from_pretrained(drop_path_rate=0.1)` bring them back).
"""

import keras

from keras_vit.recipes.definition import Recipe

ADAMW_LAYER_DECAY = Recipe(
    name="adamw_layer_decay",
    optimizer=keras.optimizers.AdamW,
    learning_rate=2.5e-4,
    learning_rate_grid=(1e-4, 2.5e-4, 5e-4, 1e-3),
    total_steps=500,
    warmup_fraction=0.1,
    max_warmup_steps=500,
    clip_norm=1.0,
    batch_size=256,
    image_size=224,
    crop_area=(0.08, 1.0),
    flip=True,
    presets={},
    weight_decay=0.05,
    layer_decay=0.75,
    label_smoothing=0.1,
)
