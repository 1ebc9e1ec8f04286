"""What is done to training pictures: the recipes' crops, and layers of the caller's."""

from keras_vit.augment.crops import AREA_RANGE, random_resized_crop, training_image
from keras_vit.augment.layers import (
    AUGMENTATIONS,
    Augmentation,
    as_augmentations,
    augment_batches,
    check_augmentations,
    mixes_labels,
    name_of,
)

__all__ = [
    "AREA_RANGE",
    "AUGMENTATIONS",
    "Augmentation",
    "as_augmentations",
    "augment_batches",
    "check_augmentations",
    "mixes_labels",
    "name_of",
    "random_resized_crop",
    "training_image",
]
