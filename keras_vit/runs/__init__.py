"""Runs, from pictures to a trained model and its files."""

from keras_vit.runs.fine_tuning import Run, finetune

__all__ = ["Run", "finetune"]
