"""How often a model is right."""

from keras_vit.evaluation.measure import evaluate
from keras_vit.evaluation.scores import ClassScore, Evaluation, LabelScore, MultiLabelEvaluation

__all__ = ["ClassScore", "Evaluation", "LabelScore", "MultiLabelEvaluation", "evaluate"]
