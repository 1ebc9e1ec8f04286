"""What masked patch prediction predicts of a patch: its colours in 3 bits a channel, or its pixels.

Patches are `(batch, patches, height, width, channels)` here, pixels 0..255.

Reference: Dosovitskiy et al., arXiv 2010.11929, B.1.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_vit.checks import Pair

LEVELS = 8  # 3 bits a channel
CELLS = 4  # rows and columns of the downsized patch


class Target(NamedTuple):
    """One thing to predict of each patch.

    Attributes:
        of: From patches to what is to be predicted, `(batch, patches, ...)`.
        shape: From height, width and channels of a patch to the shape of its prediction; raises
            a ValueError for patches without such a target.
        loss: Of targets and predictions, the mean over all.
    """

    of: Callable[[Any], Any]
    shape: Callable[[int, int, int], tuple[int, ...]]
    loss: keras.losses.Loss


def split_patches(pixels: Any, patch_size: Pair) -> Any:
    """Cut pictures into patches, row by row, as `PatchEmbedding` does.

    Args:
        pixels: `(batch, height, width, channels)`.
        patch_size: In pixels, `(height, width)`.

    Returns:
        `(batch, patches, height, width, channels)`.
    """
    (height, width), channels = patch_size, pixels.shape[-1]
    rows, columns = pixels.shape[1] // height, pixels.shape[2] // width
    patches = ops.reshape(pixels, (-1, rows, height, columns, width, channels))
    patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
    return ops.reshape(patches, (-1, rows * columns, height, width, channels))


def color_classes(colors: Any) -> Any:
    """Number colours by the three highest bits of each channel.

    The first channel counts most: the class of red, green, blue is `r * 64 + g * 8 + b`, where
    r, g, b are 0..7, each level 32 wide.

    Args:
        colors: `(..., channels)`, 0..255.

    Returns:
        int32 `(...)`, from 0 to below `8 ** channels`.
    """
    levels = ops.cast(ops.clip(ops.floor(colors / 32.0), 0, LEVELS - 1), "int32")
    weights = [LEVELS**power for power in reversed(range(levels.shape[-1]))]
    return ops.sum(levels * ops.convert_to_tensor(weights, dtype="int32"), axis=-1)


def mean_color(patches: Any) -> Any:
    """The class of the mean colour of each patch, int32 `(batch, patches)`."""
    return color_classes(ops.mean(patches, axis=(2, 3)))


def downsized(patches: Any) -> Any:
    """The classes of 4 x 4 mean colours of each patch, row by row, int32 `(batch, patches, 16)`."""
    _, count, height, width, channels = patches.shape
    shape = (-1, count, CELLS, height // CELLS, CELLS, width // CELLS, channels)
    colors = ops.mean(ops.reshape(patches, shape), axis=(3, 5))  # (batch, patches, 4, 4, channels)
    return ops.reshape(color_classes(colors), (-1, count, CELLS * CELLS))


def pixel_values(patches: Any) -> Any:
    """All pixels of each patch as -1..1, `(batch, patches, height * width * channels)`."""
    _, count, height, width, channels = patches.shape
    return ops.reshape(patches / 127.5 - 1.0, (-1, count, height * width * channels))


def _num_colors(channels: int) -> int:
    if channels not in (1, 3):
        raise ValueError(
            "`target` must be 'patch' for pictures that are neither grey nor RGB: colours are "
            f"classes of 3 bits a channel. Received: {channels} channels."
        )
    return LEVELS**channels


def _downsized_shape(height: int, width: int, channels: int) -> tuple[int, ...]:
    if height % CELLS or width % CELLS:
        raise ValueError(
            f"`target='downsized'` needs patches of a multiple of {CELLS} pixels a side. "
            f"Received: patches of {height} x {width} pixels. Try 'mean_color' or 'patch'."
        )
    return CELLS * CELLS, _num_colors(channels)


_OF_CLASSES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# The paper's three, its own choice first.
TARGETS = {
    "mean_color": Target(
        mean_color, lambda height, width, channels: (_num_colors(channels),), _OF_CLASSES
    ),
    "downsized": Target(downsized, _downsized_shape, _OF_CLASSES),
    "patch": Target(
        pixel_values,
        lambda height, width, channels: (height * width * channels,),
        keras.losses.MeanSquaredError(),
    ),
}
