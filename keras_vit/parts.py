"""The parts of a model in order of depth, and which of them learn."""

import numbers as number_types
from collections.abc import Iterable

import keras

from keras_vit import lora

# Layers after the blocks; what they hold is new with a new head.
HEAD_LAYERS = ("pool", "pool_norm", "pre_logits", "head", "features")


def layers_by_part(model: keras.Model) -> dict[str, list[keras.layers.Layer]]:
    """Return the layers of a model by part, in order of depth.

    Args:
        model: A model with a `config` and blocks `block_0` ...

    Returns:
        `"stem"` (all before the first block), `"block_0"` ... (the last one with the encoder's
        final normalization) and `"head"` (pooling and what follows), to lists of layers.
    """
    depth = model.config.num_layers
    parts = {name: [] for name in ("stem", *(f"block_{i}" for i in range(depth)), "head")}
    for layer in model.layers:
        own = layer.name.replace("position_embedding_", "block_")
        if layer.name == "encoder_norm":
            own = f"block_{depth - 1}"
        if layer.name in HEAD_LAYERS:
            own = "head"
        parts[own if own in parts else "stem"].append(layer)
    return parts


def block_numbers(blocks: int | slice | Iterable[int], depth: int) -> list[int]:
    """Return the blocks that are meant, by their numbers from 0.

    Args:
        blocks: Numbers, negative ones from the end, or a slice that chooses some.
        depth: How many blocks there are.

    Raises:
        ValueError: If there is no such block.
    """
    if isinstance(blocks, slice):
        numbers = list(range(depth)[blocks])
        if not numbers:
            raise ValueError(
                f"`blocks` must choose some of the {depth} blocks. Received: blocks={blocks}, "
                "which chooses none."
            )
        return numbers
    numbers = list(blocks) if isinstance(blocks, Iterable) else [blocks]
    whole = [isinstance(n, number_types.Integral) and not isinstance(n, bool) for n in numbers]
    if not all(whole) or not all(-depth <= number < depth for number in numbers):
        raise ValueError(
            f"`blocks` must be numbers from 0 to {depth - 1}, or a slice. "
            f"Received: blocks={blocks!r}."
        )
    return [int(number) % depth for number in numbers]


def freeze_other_parts(
    model: keras.Model, blocks: bool | slice | Iterable[int], head: bool, stem: bool
) -> None:
    """Let some parts of a model learn and no others.

    Args:
        model: As for `layers_by_part`.
        blocks: True or False for all or none, numbers, or a slice.
        head: Whether the head learns.
        stem: Whether the stem learns.

    Raises:
        ValueError: If there is no such block.
    """
    depth = model.config.num_layers
    for name, value in (("head", head), ("stem", stem)):
        if not isinstance(value, bool):
            raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}.")
    if isinstance(blocks, bool):
        chosen = range(depth) if blocks else ()
    else:
        chosen = block_numbers(blocks, depth)
    learns = {"stem": stem, "head": head, **{f"block_{index}": True for index in chosen}}
    for name, layers in layers_by_part(model).items():
        for layer in layers:
            # Each part by itself: on TensorFlow `trainable = True` passes over the parts of a
            # layer whose own flag is True already.
            for part in layer._flatten_layers():
                part.trainable = learns.get(name, False)
    if lora.lora_settings(model):  # what adapters stand beside stays frozen
        lora.freeze_base(model)


def frozen_paths(model: keras.Model) -> list[str]:
    """The paths of all layers that are not to learn, for `freeze_paths`."""
    parts = model._flatten_layers(include_self=False)
    return sorted({part.path for part in parts if part.path and not part.trainable})


def freeze_paths(model: keras.Model, paths: Iterable[str]) -> None:
    """Freeze the layers that another model, or this one before it was saved, had frozen.

    Keras keeps `trainable` in the config of each layer, and a model here makes its layers anew.
    """
    paths = set(paths)
    for part in model._flatten_layers(include_self=False):
        if part.path in paths:
            part.trainable = False
