"""What Keras' losses do not say."""

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="keras_vit")
class SigmoidCrossentropy(keras.losses.BinaryCrossentropy):
    """Binary cross-entropy of logits, summed over classes, for any number of classes a picture.

    `keras.losses.BinaryCrossentropy` takes the mean over classes. The sum has, logit by logit,
    gradients of the size that softmax cross-entropy has, so that the learning rates of recipes
    hold for it; the authors' code sums too.

    Args:
        from_logits: Whether predictions are logits rather than probabilities.
        name: Name of the loss.
        **kwargs: Those of `keras.losses.BinaryCrossentropy`: `label_smoothing`, ...

    Call arguments:
        y_true: `(batch, num_classes)`, 1 for each class of a picture, else 0.
        y_pred: Logits `(batch, num_classes)`.

    Reference:
        google-research/big_vision, `utils.py`, `sigmoid_xent`.
    """

    def __init__(self, from_logits: bool = True, name: str = "sigmoid_crossentropy", **kwargs):
        super().__init__(from_logits=from_logits, name=name, **kwargs)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return super().call(y_true, y_pred) * y_pred.shape[-1]  # (batch,)
