"""Pictures and their labels, from where they lie into batches of pixels."""

from keras_vit.data.folder import ImageFolder, Split, index_folder
from keras_vit.data.inputs import Arrays, TrainingData, open_training_data
from keras_vit.data.pipeline import evaluation_dataset, training_dataset

__all__ = [
    "Arrays",
    "ImageFolder",
    "Split",
    "TrainingData",
    "evaluation_dataset",
    "index_folder",
    "open_training_data",
    "training_dataset",
]
