"""How often a model is right, how sure it is, and what it takes for what."""

from keras_vit.evaluation.calibration import ReliabilityBin
from keras_vit.evaluation.confusion_png import draw_confusion
from keras_vit.evaluation.measure import evaluate
from keras_vit.evaluation.real_labels import read_real_labels, real_accuracy, real_labels_of
from keras_vit.evaluation.scores import ClassScore, Evaluation, LabelScore, MultiLabelEvaluation
from keras_vit.evaluation.throughput import Throughput

__all__ = [
    "ClassScore",
    "Evaluation",
    "LabelScore",
    "MultiLabelEvaluation",
    "ReliabilityBin",
    "Throughput",
    "draw_confusion",
    "evaluate",
    "read_real_labels",
    "real_accuracy",
    "real_labels_of",
]
