"""What a recipe is: the numbers and choices of one published way to train."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_vit.checks import check_choice
from keras_vit.image_model import ImageModel
from keras_vit.lora import lora_settings
from keras_vit.training.layer_decay import layer_decay
from keras_vit.training.losses import SigmoidCrossentropy, SmoothedCrossentropy
from keras_vit.training.schedules import warmup_cosine


def _for_integers(label_smoothing: float = 0.0) -> dict[str, Any]:
    # Keras' own as long as it will do: any Keras reads a compiled model with it.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return {
        "loss": SmoothedCrossentropy(label_smoothing) if label_smoothing else loss,
        "metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    }


def _for_one_hot(label_smoothing: float = 0.0) -> dict[str, Any]:
    return {
        "loss": keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=label_smoothing
        ),
        "metrics": [keras.metrics.CategoricalAccuracy(name="accuracy")],
    }


def _for_multi_hot(label_smoothing: float = 0.0) -> dict[str, Any]:
    del label_smoothing  # a sigmoid a class has no other classes to give to
    return {
        "loss": SigmoidCrossentropy(),
        "metrics": [
            keras.metrics.AUC(name="pr_auc", curve="PR", multi_label=True, from_logits=True)
        ],
    }


# Loss and metrics, by what labels are, with label smoothing.
LABELS: dict[str, Callable[..., dict[str, Any]]] = {
    "integer": _for_integers,
    "one_hot": _for_one_hot,
    "multi_hot": _for_multi_hot,
}


def _train_all(model: ImageModel) -> None:
    """What is frozen stays so: the caller froze it."""


def _train_head(model: ImageModel) -> None:
    model.trainable_part(blocks=False, stem=False)


def _train_adapters(model: ImageModel) -> None:
    if lora_settings(model) is None:
        model.add_lora(rank=8, targets=("qkv", "proj"))


# What of the model learns.
TRAINED_PARTS: dict[str, Callable[[ImageModel], None]] = {
    "all": _train_all,
    "head": _train_head,
    "lora": _train_adapters,
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
        optimizer: Called with `learning_rate` (a schedule), `global_clipnorm` and, if there is
            one, `weight_decay`.
        learning_rate: The highest rate, where none is given.
        learning_rate_grid: Rates worth a try.
        total_steps: Updates of the weights, where neither steps nor epochs are given.
        warmup_fraction: Share of the steps that warm up, where no number is given.
        max_warmup_steps: Most steps of such a warm-up.
        clip_norm: Most that the global norm of a step's gradients may be; None for no limit.
        weight_decay: Of kernels alone, decoupled: times the learning rate of the step.
        layer_decay: Learning rate of a block over that of the block after it; see
            `keras_vit.layer_decay`.
        label_smoothing: Share of each picture's weight that goes to all classes alike.
        trained_part: What of the model learns, a key of `TRAINED_PARTS`.
        augmentation: Names in `keras_vit.augment.AUGMENTATIONS`, after crop and flip.
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
    clip_norm: float | None
    batch_size: int
    image_size: int
    crop_area: tuple[float, float]
    flip: bool
    presets: Mapping[str, Preset]
    weight_decay: float | None = None
    layer_decay: float | None = None
    label_smoothing: float = 0.0
    trained_part: str = "all"
    augmentation: tuple[str, ...] = ()

    def prepare(self, model: ImageModel) -> None:
        """Freeze what the recipe does not train, or put adapters in; before `compile_arguments`.

        Args:
            model: Changed in place. Adapters that it has already stay as they are.
        """
        TRAINED_PARTS[self.trained_part](model)

    def warmup_steps(self, total_steps: int) -> int:
        """Steps of the warm-up of a run of `total_steps`."""
        return min(int(total_steps * self.warmup_fraction), self.max_warmup_steps)

    def compile_arguments(
        self,
        learning_rate: float | None = None,
        total_steps: int | None = None,
        warmup_steps: int | None = None,
        labels: str = "integer",
        model: ImageModel | None = None,
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
            model: The model to compile, which recipes with weight decay or layer-wise rates have
                to know.

        Returns:
            `optimizer`, `loss` (from logits) and `metrics`: `accuracy`; of multi-hot labels
            `pr_auc`, the mean over classes of the area under precision over recall, by 200
            thresholds. A class without a picture counts 0 there; the exact mean average
            precision is that of `keras_vit.evaluate`.

        Raises:
            ValueError: If the steps do not fit each other, the rate is not above 0, there are no
                such labels, or the model is missing.

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
        return {
            "optimizer": self._optimizer(schedule, model),
            **LABELS[labels](self.label_smoothing),
        }

    def _optimizer(self, schedule: Any, model: ImageModel | None) -> keras.optimizers.Optimizer:
        arguments = {"learning_rate": schedule, "global_clipnorm": self.clip_norm}
        if self.weight_decay is None and self.layer_decay is None:
            return self.optimizer(**arguments)
        if model is None:
            raise ValueError(
                f"The recipe {self.name!r} has rates or weight decay for parts of the model. "
                "Received: model=None. Give `compile_arguments(model=model)`."
            )
        optimizer = self.optimizer(**arguments, weight_decay=self.weight_decay)
        kernels = {"kernel", "lora_kernel_a", "lora_kernel_b"}
        optimizer.exclude_from_weight_decay(
            var_list=[each for each in model.trainable_variables if each.name not in kernels]
        )
        # With a decay of 1 as well: it remembers what is excluded when a run resumes.
        return layer_decay(optimizer, model, self.layer_decay or 1.0)
