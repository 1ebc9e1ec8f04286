"""A linear classifier by regularised least squares, in closed form.

What the paper leaves open is as in big_vision's `evaluators/fewshot_lsr.py`: whitening, the large
constant for a bias, and l2.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from keras_vit.checks import check_integer, is_real

L2 = 2.0**10
BIAS_CONSTANT = 100.0
_STD_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class FewShotHead:
    """A linear classifier of whitened features; all in float64.

    Args:
        mean: What is subtracted from the features, `(features,)`.
        std: What they are divided by then, `(features,)`.
        weights: `(features, num_classes)`.
        bias: `(num_classes,)`.
    """

    mean: np.ndarray
    std: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    def scores(self, features: Any) -> np.ndarray:
        """What was fitted to 1 for the class that a picture shows and to -1 for the others.

        Args:
            features: `(pictures, features)`, not whitened.

        Returns:
            `(pictures, num_classes)`; the greatest is the answer.

        Raises:
            ValueError: If the features are not as many as those of training, or not finite.
        """
        features = _as_features(features, len(self.mean))
        return (features - self.mean) / self.std @ self.weights + self.bias

    def as_dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Kernel `(features, num_classes)` and bias `(num_classes,)` of one dense layer.

        Whitening is part of them, so that the layer takes features as the model gives them.
        """
        kernel = self.weights / self.std[:, None]
        return kernel, self.bias - self.mean @ kernel


def least_squares_head(
    features: Any,
    labels: Any,
    num_classes: int,
    l2: float = L2,
    bias_constant: float = BIAS_CONSTANT,
) -> FewShotHead:
    """The exact minimum of squared errors plus `l2` times the squared weights.

    Features are whitened one by one, by their own mean and standard deviation. The smaller of
    two systems is solved: as many unknowns as features, or as many as pictures.

    Args:
        features: `(pictures, features)`.
        labels: Integers 0..`num_classes` - 1, `(pictures,)`. A class may be without pictures.
        num_classes: Scores of the head.
        l2: Weight of the regularisation, above 0; errors are summed over pictures.
        bias_constant: A feature of this value is added, whose weight is the bias: the larger,
            the less of the regularisation falls on the bias. 0: no bias.

    Raises:
        ValueError: If there is no picture, a feature is not finite, a label out of range, all
            pictures show one class, or a number has no meaning.

    Reference:
        Dosovitskiy et al., arXiv 2010.11929, section 4.1; the values, google-research/big_vision.
    """
    num_classes = check_integer("num_classes", num_classes, 1)
    check_l2(l2)
    if not is_real(bias_constant) or not math.isfinite(bias_constant):
        raise ValueError(
            f"`bias_constant` must be a finite number. Received: bias_constant={bias_constant!r}."
        )
    features = _as_features(features)
    labels = as_classes(labels, num_classes)
    if len(labels) != len(features):
        raise ValueError(
            "`labels` must be as many as `features`. "
            f"Received: {len(labels)} labels, features for {len(features)} pictures."
        )
    if (labels == labels[0]).all():
        raise ValueError(
            "`labels` must be of two classes or more. "
            f"Received: class {labels[0]} alone. Add pictures of another class."
        )
    mean, std = features.mean(axis=0), features.std(axis=0) + _STD_EPSILON
    inputs = np.pad(  # (pictures, features + 1)
        (features - mean) / std, ((0, 0), (0, 1)), constant_values=bias_constant
    )
    targets = np.where(labels[:, None] == np.arange(num_classes), 1.0, -1.0)
    pictures, width = inputs.shape
    if pictures < width:
        gram = inputs @ inputs.T + l2 * np.eye(pictures)
        weights = inputs.T @ np.linalg.solve(gram, targets)  # (features + 1, num_classes)
    else:
        gram = inputs.T @ inputs + l2 * np.eye(width)
        weights = np.linalg.solve(gram, inputs.T @ targets)
    return FewShotHead(mean, std, weights[:-1], bias_constant * weights[-1])


def check_l2(l2: float) -> None:
    """Raise unless `l2` is a weight of the regularisation."""
    if not is_real(l2) or not 0.0 < l2 < math.inf:
        raise ValueError(
            f"`l2` must be above 0 and finite. Received: l2={l2!r}. The official one is {L2:g}."
        )


def as_classes(
    labels: Any, num_classes: int | None, subject: str = "`labels`", start: int = 0
) -> np.ndarray:
    """Return class indices, int64 `(pictures,)`.

    Args:
        labels: What was given.
        num_classes: What they must be below, or None.
        subject: How errors call them.
        start: The number of pictures before these.

    Raises:
        ValueError: If they are not integers, one a picture, or out of range.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{subject} must be one integer a picture. Received: labels of shape {labels.shape} "
            f"and dtype {labels.dtype}. One-hot labels become integers by "
            "`argmax(-1)`."
        )
    is_class = (labels >= 0) & (labels < (math.inf if num_classes is None else num_classes))
    if not is_class.all():
        first = int(np.argmin(is_class))
        to = "upwards" if num_classes is None else f"to {num_classes - 1}"
        raise ValueError(
            f"{subject} must be from 0 {to}. "
            f"Received: {labels[first]} for picture {start + first}, counted from 0."
        )
    return labels.astype(np.int64)


def _as_features(features: Any, width: int | None = None) -> np.ndarray:
    """float64 `(pictures, features)`."""
    features = np.asarray(features, np.float64)
    if features.ndim != 2 or not features.size or width not in (None, features.shape[1]):
        wanted = "one or more of each" if width is None else f"{width} features as in training"
        raise ValueError(
            f"`features` must be (pictures, features), {wanted}. "
            f"Received: features of shape {features.shape}."
        )
    is_wrong = ~np.isfinite(features).all(axis=1)
    if is_wrong.any():
        raise ValueError(
            "`features` must be finite. Received: NaN or infinite ones for picture "
            f"{int(np.argmax(is_wrong))}, counted from 0."
        )
    return features
