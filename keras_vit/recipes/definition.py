"""What a recipe is: the numbers and choices of one published way to train."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_vit.checks import check_choice
from keras_vit.training.losses import SigmoidCrossentropy
from keras_vit.training.schedules import warmup_cosine


def _for_integers() -> dict[str, Any]:
    return {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    }


def _for_one_hot() -> dict[str, Any]:
    return {
        "loss": keras.losses.CategoricalCrossentropy(from_logits=True),
        "metrics": [keras.metrics.CategoricalAccuracy(name="accuracy")],
    }


def _for_multi_hot() -> dict[str, Any]:
    return {
        "loss": SigmoidCrossentropy(),
        "metrics": [
            keras.metrics.AUC(name="pr_auc", curve="PR", multi_label=True, from_logits=True)
        ],
    }


# Loss and metrics, by what labels are.
LABELS: dict[str, Callable[[], dict[str, Any]]] = {
    "integer": _for_integers,
    "one_hot": _for_one_hot,
    "multi_hot": _for_multi_hot,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """How a recipe was used on one dataset.

    Args:
        total_steps: Updates of the weights.
        warmup_steps: Those of them with a rising learning rate.
        learning_rate_grid: Highest learning rates that were tried.
    """

    total_steps: int
    warmup_steps: int
    learning_rate_grid: tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train, as values. See the files beside this one.

    Args:
        name: Its key in `RECIPES`.
        optimizer: Called with `learning_rate` (a schedule) and `global_clipnorm`.
        learning_rate: The highest rate, where none is given.
        learning_rate_grid: Rates worth a try.
        total_steps: Updates of the weights, where neither steps nor epochs are given.
        warmup_fraction: Share of the steps that warm up, where no number is given.
        max_warmup_steps: Most steps of such a warm-up.
        clip_norm: Most that the global norm of a step's gradients may be.
        batch_size: Pictures a step.
        image_size: Side of the pictures in the publication, in pixels.
        crop_area: Least and greatest share of a picture's area that a training crop shows.
        flip: Whether training pictures are mirrored at random, left to right.
        presets: The published uses, by name of the dataset.
    """

    name: str
    optimizer: Callable[..., keras.optimizers.Optimizer]
    learning_rate: float
    learning_rate_grid: tuple[float, ...]
    total_steps: int
    warmup_fraction: float
    max_warmup_steps: int
    clip_norm: float
    batch_size: int
    image_size: int
    crop_area: tuple[float, float]
    flip: bool
    presets: Mapping[str, Preset]

    def warmup_steps(self, total_steps: int) -> int:
        """Steps of the warm-up of a run of `total_steps`."""
        return min(int(total_steps * self.warmup_fraction), self.max_warmup_steps)

    def compile_arguments(
        self,
        learning_rate: float | None = None,
        total_steps: int | None = None,
        warmup_steps: int | None = None,
        labels: str = "integer",
    ) -> dict[str, Any]:
        """Return what `model.compile` needs for this recipe.

        Args:
            learning_rate: The highest rate; None for the recipe's.
            total_steps: Steps of the whole run; None for the recipe's.
            warmup_steps: Steps of the warm-up; None for the recipe's share of `total_steps`.
            labels: What the labels are. `"integer"`: class indices. `"one_hot"`: rows of one
                number a class that sum to 1, as mixing pictures makes them. `"multi_hot"`: rows
                of one 0 or 1 a class, any number of 1s; the loss is then that of a sigmoid a
                class, summed over classes.

        Returns:
            `optimizer`, `loss` (from logits) and `metrics`: `accuracy`; of multi-hot labels
            `pr_auc`, the mean over classes of the area under precision over recall, by 200
            thresholds. A class without a picture counts 0 there; the exact mean average
            precision is that of `keras_vit.evaluate`.

        Raises:
            ValueError: If the steps do not fit each other, the rate is not above 0, or there are
                no such labels.

        Example:

        ```python
        recipe = keras_vit.recipe("paper_sgd")
        model.compile(**recipe.compile_arguments(learning_rate=0.01, total_steps=500))
        ```
        """
        if learning_rate is None:
            learning_rate = self.learning_rate
        if total_steps is None:
            total_steps = self.total_steps
        if warmup_steps is None:
            warmup_steps = self.warmup_steps(total_steps)
        check_choice("labels", labels, LABELS)
        schedule = warmup_cosine(learning_rate, total_steps, warmup_steps)
        optimizer = self.optimizer(learning_rate=schedule, global_clipnorm=self.clip_norm)
        return {"optimizer": optimizer, **LABELS[labels]()}
