"""The parts of a model in order of depth, and which of them learn."""

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
    if isinstance(blocks, bool):
        blocks = range(depth) if blocks else ()
    elif isinstance(blocks, slice):
        blocks = range(depth)[blocks]
    chosen = set(blocks) if isinstance(blocks, Iterable) else {blocks}
    if not chosen <= set(range(-depth, depth)):
        raise ValueError(
            f"`blocks` must be numbers from 0 to {depth - 1}, a slice, True or False. "
            f"Received: blocks={list(chosen)}."
        )
    learns = {"stem": stem, "head": head, **{f"block_{index % depth}": True for index in chosen}}
    for name, layers in layers_by_part(model).items():
        for layer in layers:
            # Each part by itself: on TensorFlow `trainable = True` passes over the parts of a
            # layer whose own flag is True already.
            for part in layer._flatten_layers():
                part.trainable = learns.get(name, False)
    if lora.lora_settings(model):  # what adapters stand beside stays frozen
        lora.freeze_base(model)
