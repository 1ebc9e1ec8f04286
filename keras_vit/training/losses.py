"""What Keras' losses do not say."""

from typing import Any

import keras
from keras import ops


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


@keras.saving.register_keras_serializable(package="keras_vit")
class SmoothedCrossentropy(keras.losses.CategoricalCrossentropy):
    """Softmax cross-entropy of integer labels with label smoothing.

    `keras.losses.SparseCategoricalCrossentropy` of Keras 3.15 has none, and
    `keras.losses.CategoricalCrossentropy` takes no integers.

    Args:
        label_smoothing: Share of each picture's weight that goes to all classes alike, 0 to 1.
        from_logits: Whether predictions are logits rather than probabilities.
        name: Name of the loss.
        **kwargs: Those of `keras.losses.CategoricalCrossentropy`.

    Call arguments:
        y_true: Class indices, `(batch,)` or `(batch, 1)`.
        y_pred: Logits `(batch, num_classes)`.

    Reference:
        Szegedy et al., arXiv 1512.00567, section 7.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        from_logits: bool = True,
        name: str = "smoothed_crossentropy",
        **kwargs,
    ):
        super().__init__(
            label_smoothing=label_smoothing, from_logits=from_logits, name=name, **kwargs
        )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        indices = ops.cast(ops.reshape(y_true, (-1,)), "int32")  # Keras made them floats
        one_hot = ops.one_hot(indices, y_pred.shape[-1], dtype=y_pred.dtype)
        return super().call(one_hot, y_pred)  # (batch,)
