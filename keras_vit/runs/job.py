"""What one run is to do: its parts, whether they fit, and what it makes of them."""

import dataclasses
import platform
from typing import Any

import keras
import tensorflow as tf

from keras_vit import __version__
from keras_vit.augment import (
    Augmentation,
    augment_batches,
    check_augmentations,
    mixes_labels,
    name_of,
)
from keras_vit.data.inputs import TrainingData
from keras_vit.data.memory import spare_memory
from keras_vit.data.pipeline import evaluation_dataset, training_dataset
from keras_vit.image_model import ImageModel
from keras_vit.recipes import Recipe
from keras_vit.recipes.plan import Plan

# What a layer's config says beside its settings: equal layers differ in these.
_NO_SETTINGS = {"name", "seed", "dtype", "trainable", "build_config"}


@dataclasses.dataclass(frozen=True)
class Job:
    """What one run is to do.

    Args:
        model: To train.
        data: To train and to validate on; fits the model.
        recipe: How to train.
        plan: Its numbers.
        augmentations: What to do to training pictures after the recipe's crop and flip.
        class_weights: One number a class, or None.
        early_stopping: Epochs without a better one after which the run ends, or None.
        seed: Of order, augmentation and dropout.
    """

    model: ImageModel
    data: TrainingData
    recipe: Recipe
    plan: Plan
    augmentations: tuple[Augmentation, ...] = ()
    class_weights: list[float] | None = None
    early_stopping: int | None = None
    seed: int = 0

    @property
    def labels(self) -> str:
        """What the loss gets, as for `Recipe.compile_arguments`."""
        if self.data.is_multi_label:
            return "multi_hot"
        return "one_hot" if any(map(mixes_labels, self.augmentations)) else "integer"

    def check(self) -> None:
        """Refuse what the parts do not allow each other.

        Raises:
            ValueError: If class weights meet labels of several classes, or augmentations fail
                or meet a model that does not take pixels.
        """
        if self.class_weights is not None and self.labels != "integer":
            several = "`augmentation` that mixes" if self.labels == "one_hot" else "multi-label"
            raise ValueError(
                "`class_weights` need pictures of one class each. Received: class_weights and "
                f"{several} pictures. Leave one of them out."
            )
        if not self.augmentations:
            return
        if not self.model.include_normalization:
            raise ValueError(
                "`augmentation` is of pixels 0..255, which `model` must normalise itself. "
                "Received: a model with include_normalization=False. Leave that argument out, "
                "or augment in the `tf.data.Dataset`."
            )
        config = self.model.config
        image_shape = (*config.image_size, config.num_channels)
        check_augmentations(self.augmentations, image_shape, config.num_classes)

    def compile(self) -> None:
        """Make the model ready to train, and have it say what its outputs mean."""
        model, plan = self.model, self.plan
        self.recipe.prepare(model)
        arguments = (plan.learning_rate, plan.total_steps, plan.warmup_steps, self.labels)
        model.compile(**self.recipe.compile_arguments(*arguments, model=model))
        # Built within the first step it would be traced twice.
        model.optimizer.build(model.trainable_variables)
        model.labels = self.data.class_names or model.labels
        model.multi_label = self.data.is_multi_label

    def describe(self) -> dict[str, Any]:
        """What `run.json` says, as JSON values; a run resumes with the same `settings` only."""
        recipe = dataclasses.asdict(self.recipe)
        del recipe["optimizer"], recipe["presets"]
        return {
            "settings": {
                "model": self.model.config.to_dict(),
                "data": self.data.fingerprint(),
                "recipe": recipe,
                **dataclasses.asdict(self.plan),
                "augmentation": [name_of(each) for each in self.augmentations] or None,
                "augmentation_settings": [_settings_of(each) for each in self.augmentations]
                or None,
                "class_weights": self.class_weights,
                "early_stopping": self.early_stopping,
                "seed": self.seed,
            },
            "data": self.data.summary,
            "origin": self.model.origin,
            "versions": {
                "keras_vit": __version__,
                "keras": keras.__version__,
                "tensorflow": tf.__version__,
                "python": platform.python_version(),
            },
        }

    def training_batches(self, start_step: int = 0) -> tf.data.Dataset:
        """Endless batches from that step on."""
        config, train = self.model.config, self.data.train
        if isinstance(train, tf.data.Dataset):
            batches = train.repeat().skip(start_step)
        else:
            batches = training_dataset(
                train, self.plan.batch_size, config.image_size, config.num_channels,
                self.recipe.crop_area, self.recipe.flip, seed=self.seed, start_step=start_step,
                cache_bytes=spare_memory(),
            )  # fmt: skip
        if not self.augmentations:
            return batches
        return augment_batches(
            batches, self.augmentations, config.num_classes, self.seed, start_step
        )

    def validation_batches(self) -> tf.data.Dataset | None:
        """All to validate on, once, with labels as the loss gets them."""
        config, batches = self.model.config, self.data.validation
        if batches is None:
            return None
        if not isinstance(batches, tf.data.Dataset):
            batches = evaluation_dataset(
                batches, self.plan.batch_size or self.recipe.batch_size, config.image_size,
                self.model.preprocessing, config.num_channels, cache_bytes=spare_memory(),
            )  # fmt: skip
        if self.labels != "one_hot":
            return batches
        return batches.map(lambda images, labels: (images, tf.one_hot(labels, config.num_classes)))


def _settings_of(value: Any) -> Any:
    """The settings of an augmentation, or a part of them, as JSON values."""
    if hasattr(value, "get_config"):
        try:
            value = value.get_config()
        except NotImplementedError:  # a caller's class need not have one
            value = {}
    if isinstance(value, dict):
        return {
            str(name): _settings_of(each)
            for name, each in value.items()
            if name not in _NO_SETTINGS
        }
    if isinstance(value, list | tuple):
        return [_settings_of(each) for each in value]
    return value if isinstance(value, str | int | float | None) else name_of(value)
