"""How much each class counts in the loss."""

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

from keras_vit.checks import is_real, unknown_name
from keras_vit.data.inputs import TrainingData

ClassWeights = str | Mapping[int | str, float] | Iterable[float]


def as_class_weights(
    value: ClassWeights | None, data: TrainingData, num_classes: int
) -> list[float] | None:
    """One weight a class, or None for None.

    Args:
        value: `"balanced"`, for weights inversely proportional to the pictures of each class
            (`pictures / (classes * pictures of the class)`); weights by class index or name,
            1 for classes that are not named; or one weight a class, in order.
        data: For counts and names of the classes.
        num_classes: The model's classes.

    Raises:
        ValueError: If it is none of these, or a class is unknown.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if value != "balanced":
            raise unknown_name("`class_weights`", value, ["balanced"])
        counts = data.class_counts(num_classes)
        # A class without pictures has a weight that is never used.
        return [float(counts.sum() / (num_classes * max(count, 1))) for count in counts]
    if isinstance(value, Mapping):
        weights = [1.0] * num_classes
        indices = [_index_of(key, data.class_names or (), num_classes) for key in value]
        if len(set(indices)) < len(indices):
            raise ValueError(
                "`class_weights` must name each class once. "
                f"Received: class_weights={value!r}, in which two keys are one class."
            )
        for index, weight in zip(indices, value.values(), strict=True):
            weights[index] = weight
    else:
        weights = list(value) if isinstance(value, Iterable) else [value]
    if len(weights) != num_classes or not all(map(_is_weight, weights)) or not any(weights):
        raise ValueError(
            "`class_weights` must be 'balanced', or finite numbers of at least 0, not all 0, one "
            f"a class or by class. Received: class_weights={value!r} for {num_classes} classes."
        )
    return [float(weight) for weight in weights]


def _is_weight(weight: Any) -> bool:
    return is_real(weight) and math.isfinite(weight) and weight >= 0


def _index_of(key: int | str, names: tuple[str, ...], num_classes: int) -> int:
    if key in names:
        return names.index(key)
    is_index = isinstance(key, numbers.Integral) and not isinstance(key, bool)
    if is_index and any(name.isdecimal() for name in names):
        raise ValueError(
            "`class_weights` must name classes by their names, since some are numbers. "
            f"Received: {key!r}. Write {str(key)!r} for the class of that name."
        )
    if not is_index or key not in range(num_classes):
        raise unknown_name("class in `class_weights`", key, names or map(str, range(num_classes)))
    return int(key)
