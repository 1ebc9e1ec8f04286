"""Layers of Keras or KerasCV, and functions, on batches of training pictures.

Nothing here imports KerasCV: its layers are told by their names.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.checks import check_choice
from keras_vit.preprocessing import check_pixel_range

Augmentation = Callable[[Any], Any]

# Layers that make one picture of several, and one label of theirs; in Keras and in KerasCV.
_MIXERS = {"MixUp", "CutMix", "FourierMix", "Mosaic"}


def rand_augment() -> keras.layers.Layer:
    """Two random operations of eleven (arXiv 1909.13719), as far as Keras has them.

    Pictures turn by up to 30 degrees, shear by up to 0.3 and move by up to 0.45 of their side,
    the greatest magnitudes of AutoAugment (arXiv 1805.09501); colours change by Keras' default
    strength. Keras draws the operations once a batch and the magnitudes once a picture.
    """
    layer = keras.layers.RandAugment(num_ops=2)
    # Keras' one factor of 0.5 would turn by 180 degrees and move by half of the picture.
    layer.random_rotation = keras.layers.RandomRotation(30 / 360)
    layer.random_shear = keras.layers.RandomShear(0.3, 0.3)
    layer.random_translation = keras.layers.RandomTranslation(0.45, 0.45)
    return layer


def mix_up() -> keras.layers.Layer:
    """Sums of two pictures; alpha 0.2, as for ImageNet in arXiv 1710.09412, 3.1."""
    return keras.layers.MixUp(alpha=0.2)


def cut_mix() -> keras.layers.Layer:
    """A part of another picture in each; alpha 1, arXiv 1905.04899, 3.1."""
    # One number would have Keras draw alpha between 0 and it.
    return keras.layers.CutMix(factor=(1.0, 1.0))


def random_erasing() -> keras.layers.Layer:
    """Noise over 2 % to a third of every fourth picture, as DeiT has it (arXiv 2012.12877)."""
    # One number would have Keras draw the probability between 0 and it.
    return keras.layers.RandomErasing(factor=(0.25, 0.25), scale=(0.02, 1 / 3))


def color_jitter() -> keras.layers.Layer:
    """Brightness, contrast and saturation by up to 30 %, as DeiT III has it (arXiv 2204.07118)."""
    return keras.layers.RandomColorJitter(
        # Keras adds a share of 255: 15 % of that are 30 % of medium grey.
        brightness_factor=0.15,
        # One number would have Keras only raise the contrast.
        contrast_factor=(0.3, 0.3),
        # Keras multiplies by f / (1 - f): 0.7 to 1.3.
        saturation_factor=(0.7 / 1.7, 1.3 / 2.3),
    )


# Published settings, by the name that the command line has for them.
AUGMENTATIONS: dict[str, Callable[[], keras.layers.Layer]] = {
    "randaugment": rand_augment,
    "mixup": mix_up,
    "cutmix": cut_mix,
    "erasing": random_erasing,
    "colorjitter": color_jitter,
}


def as_augmentations(value: Any) -> tuple[Augmentation, ...]:
    """Bring what a caller augments with to one form.

    Args:
        value: None, a name in `AUGMENTATIONS`, a Keras or KerasCV layer, a function of a batch
            of images, or a list of these.

    Raises:
        ValueError: If it is none of these, or a layer is made for pixels other than 0..255.
    """
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    augmentations = tuple(_as_augmentation(each) for each in values)
    for layer in _all_layers(augmentations):
        pixel_range = getattr(layer, "value_range", None)
        if pixel_range is not None and tuple(pixel_range) != (0, 255):
            raise ValueError(
                "`augmentation` must work on pixels 0..255. Received: "
                f"{type(layer).__name__} with value_range={tuple(pixel_range)}. Make it with "
                "`value_range=(0, 255)`."
            )
    return augmentations


def name_of(augmentation: Augmentation) -> str:
    """The name of a function, or of a layer's class."""
    return getattr(augmentation, "__name__", type(augmentation).__name__)


def mixes_labels(augmentation: Augmentation) -> bool:
    """Whether this is, or holds, a layer that makes one picture of several."""
    return any(
        kind.__name__ in _MIXERS
        for layer in _all_layers([augmentation])
        for kind in type(layer).__mro__
    )


def augment_batches(
    batches: tf.data.Dataset,
    augmentations: Iterable[Augmentation],
    num_classes: int,
    seed: int = 0,
    start_step: int = 0,
) -> tf.data.Dataset:
    """Change every batch by each augmentation in turn.

    Layers of Keras draw from states of their own. Those are set here before every batch, from
    seed and step, so that a run that resumes draws what it would have drawn; therefore one batch
    is made after the other. What KerasCV and functions draw is theirs.

    Args:
        batches: Images `(batch, height, width, channels)`, 0..255, of any integer or float
            dtype, and labels `(batch,)` or `(batch, num_classes)`.
        augmentations: Functions of float32 images. Where `mixes_labels`, functions of
            `{"images": ..., "labels": ...}` with float32 labels `(batch, num_classes)`.
        num_classes: Classes of the labels.
        seed: Of what Keras' layers draw.
        start_step: Number of the first batch.

    Returns:
        Batches of float32 images of the same shape, clipped to 0..255, and of the labels. Mixed
        ones are float32 `(batch, num_classes)`; if they were class indices, rows sum to 1.
    """
    augmentations = tuple(augmentations)
    calls = [(each, mixes_labels(each), _training_argument(each)) for each in augmentations]
    is_mixed = any(mixes for _, mixes, _ in calls)
    states = _seed_states(augmentations)

    # Autograph stays on: KerasCV's Equalization and RandomApply need it.
    def augment(step: tf.Tensor, batch: tuple) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = batch
        shape, images = images.shape, tf.cast(images, tf.float32)
        if is_mixed:
            one_hot = labels if labels.shape.rank == 2 else tf.one_hot(labels, num_classes)
            labels = tf.cast(one_hot, tf.float32)
        if states:
            step_seed = tf.stack([tf.constant(seed, tf.int64), step])
            draws = tf.random.stateless_uniform((len(states), 2), step_seed, None, None, tf.int64)
            for number, state in enumerate(states):
                state.assign(draws[number])
        for augmentation, mixes, arguments in calls:
            if mixes:
                mixed = augmentation({"images": images, "labels": labels}, **arguments)
                images, labels = mixed["images"], tf.cast(mixed["labels"], tf.float32)
            else:
                images = augmentation(images, **arguments)
            # Saturation of Keras 3.15 leaves 0..255.
            images = tf.clip_by_value(tf.cast(images, tf.float32), 0.0, 255.0)
        return tf.ensure_shape(images, shape), labels

    return batches.enumerate(start_step).map(augment).prefetch(tf.data.AUTOTUNE)


def check_augmentations(
    augmentations: Iterable[Augmentation], image_shape: tuple[int, int, int], num_classes: int
) -> None:
    """Try augmentations on two pictures of noise.

    Args:
        augmentations: As for `augment_batches`.
        image_shape: Height, width and channels of the pictures.
        num_classes: Classes of the labels.

    Raises:
        ValueError: If one fails, changes the shape, or gives pixels that are not 0..255.
    """
    augmentations = tuple(augmentations)
    try:
        images = _augmented_noise(augmentations, image_shape, num_classes)
    except Exception as error:  # whatever a caller's function may raise
        names = ", ".join(map(name_of, augmentations))
        if image_shape[-1] != 3 and _works_on_colours(augmentations, image_shape, num_classes):
            raise ValueError(
                "`augmentation` must work on pictures of the model's channels. Received: "
                f"num_channels={image_shape[-1]} with {names}, which work on 3 channels only. "
                "Leave out what changes colours, or load the model with `num_channels=3`."
            ) from error
        raise ValueError(
            "`augmentation` must take batches of images "
            f"(batch, {', '.join(map(str, image_shape))}) in a TensorFlow graph and give the "
            f"same shape. Received: {names}, which ended in {type(error).__name__}: {error}"
        ) from error
    check_pixel_range(images, "augmentation")


def _augmented_noise(
    augmentations: tuple[Augmentation, ...], image_shape: tuple[int, int, int], num_classes: int
) -> tf.Tensor:
    noise = np.random.default_rng(0).uniform(0, 255, (2, *image_shape)).astype("float32")
    batches = tf.data.Dataset.from_tensors((noise, np.zeros(2, "int32")))
    return next(iter(augment_batches(batches, augmentations, num_classes)))[0]


def _works_on_colours(
    augmentations: tuple[Augmentation, ...], image_shape: tuple[int, int, int], num_classes: int
) -> bool:
    try:
        _augmented_noise(augmentations, (*image_shape[:2], 3), num_classes)
    except Exception:  # as above
        return False
    return True


def _as_augmentation(value: Any) -> Augmentation:
    if isinstance(value, str):
        check_choice("augmentation", value, AUGMENTATIONS)
        return AUGMENTATIONS[value]()
    if not callable(value) or isinstance(value, type):
        raise ValueError(
            "`augmentation` must be a Keras layer, a function of images, one of "
            f"{', '.join(map(repr, AUGMENTATIONS))}, or a list of these. Received: {value!r}."
        )
    return value


def _all_layers(augmentations: Iterable[Augmentation]) -> Iterator[keras.layers.Layer]:
    for augmentation in augmentations:
        if isinstance(augmentation, keras.layers.Layer):
            yield from augmentation._flatten_layers()


def _training_argument(augmentation: Augmentation) -> dict[str, bool]:
    """`training=True` for a layer that has it: in Dropout and its like it is False by default."""
    call = getattr(augmentation, "call", None)
    return {"training": True} if call and "training" in inspect.signature(call).parameters else {}


def _seed_states(augmentations: Iterable[Augmentation]) -> list[keras.Variable]:
    """What layers of Keras draw from, where Keras runs on TensorFlow as the pipeline does."""
    if keras.config.backend() != "tensorflow":
        return []
    return [
        variable
        for augmentation in augmentations
        if isinstance(augmentation, keras.layers.Layer)
        for variable in augmentation.variables
        if variable.path.endswith("seed_generator_state")
    ]
