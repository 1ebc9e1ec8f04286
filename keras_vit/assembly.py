"""Layers, one after the other, into the graph of a model and what can be looked at inside it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import keras

from keras_vit.layers.initializers import ReadWeights, weights_from
from keras_vit.layers.token_merging import call_with_sizes

_VIEW_NAMES = {
    "embedding_dropout": "embeddings",
    "pool": "pooled",
    "pool_norm": "pooled",
    "head": "logits",
}


class MadeLayer(NamedTuple):
    """A layer of a model, and its config when it was made: building changes that of some."""

    layer: keras.layers.Layer
    config: dict


class Assembly(NamedTuple):
    """Layers that were called in order.

    Attributes:
        outputs: What the last one returns.
        views: What flows inside, by the names of `ImageModel.intermediates`.
        entering: What comes into each layer, by its name.
        made: The layers by name.
    """

    outputs: Any
    views: dict[str, Any]
    entering: dict[str, Any]
    made: dict[str, MadeLayer]


def assemble(
    layers: Iterable[keras.layers.Layer],
    inputs: Any,
    share: dict[str, MadeLayer] | None = None,
    read_weights: ReadWeights | None = None,
) -> Assembly:
    """Call layers on a symbolic tensor, each on what the one before returns.

    Args:
        layers: In order, under the fixed names of the models here.
        inputs: What comes into the first one.
        share: Layers of another model by name, to use where those of this one would be equal.
        read_weights: As in `ImageModel`.
    """
    outputs, sizes, views, entering, made = inputs, None, {}, {}, {}
    for layer in layers:
        made[layer.name] = _shared(MadeLayer(layer, layer.get_config()), share or {})
        layer = made[layer.name].layer
        entering[layer.name] = outputs
        with weights_from(layer, read_weights):
            outputs, sizes = call_with_sizes(layer, outputs, sizes)
        views[_VIEW_NAMES.get(layer.name, layer.name)] = outputs
        if layer.name == "encoder_norm" and "pool" in entering:
            # Of the tokens that nobody else reads, for who looks at them.
            views |= {"pooled": outputs, "encoder_norm": layer(entering["pool"])}
    if len(views["pooled"].shape) == 3:  # class and distillation token
        views["pooled"] = keras.ops.mean(views["pooled"], axis=1)
    return Assembly(outputs, views, entering, made)


def _shared(made: MadeLayer, share: dict[str, MadeLayer]) -> MadeLayer:
    """The layer of that name in `share` if it is the same in everything but its weights."""
    other = share.get(made.layer.name)
    same = other and type(other.layer) is type(made.layer) and other.config == made.config
    return other if same else made
