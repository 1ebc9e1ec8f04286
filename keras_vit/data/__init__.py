"""Pictures and their labels, from where they lie into batches of pixels."""

from keras_vit.data.arrays import Arrays
from keras_vit.data.folder import index_folder
from keras_vit.data.index import ImageIndex, Split
from keras_vit.data.inputs import SOURCES, TrainingData, open_training_data
from keras_vit.data.pipeline import evaluation_dataset, training_dataset
from keras_vit.data.table import index_table
from keras_vit.data.tfds import index_tfds

__all__ = [
    "SOURCES",
    "Arrays",
    "ImageIndex",
    "Split",
    "TrainingData",
    "evaluation_dataset",
    "index_folder",
    "index_table",
    "index_tfds",
    "open_training_data",
    "training_dataset",
]
