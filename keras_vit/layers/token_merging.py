"""Token merging (ToMe): fewer tokens from block to block, each with the number it stands for.

Reference: Bolya et al., *Token Merging: Your ViT But Faster*, arXiv 2210.09461, section 3.
"""

import inspect
from typing import Any

import keras
from keras import ops

from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.remat import rematerialise
from keras_vit.layers.take_tokens import take_tokens


@keras.saving.register_keras_serializable(package="keras_vit")
class MergingBlock(EncoderBlock):
    """An encoder block that merges similar tokens between its attention and its MLP.

    A token that stands for many is attended to as often as they would be together: the logarithm
    of its size is added to its scores (paper, equation 1). Sizes are integers, exact and never
    rounded to a policy's type. Weights are those of `EncoderBlock`.

    Args:
        merged_tokens: Tokens that go, the paper's r; at most half of the patches go in one block.
        num_prefix_tokens: Tokens before the patches, which are never merged.
        **kwargs: Arguments of `EncoderBlock`.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, prefix tokens first.
        sizes: How many tokens each one stands for, int32 `(batch, tokens)`; None: one.
        training: Whether to drop.

    Returns:
        A tuple of `(batch, fewer tokens, hidden_dim)` and their sizes, int32
        `(batch, fewer tokens)`.
    """

    def __init__(self, merged_tokens: int, num_prefix_tokens: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.merged_tokens = merged_tokens
        self.num_prefix_tokens = num_prefix_tokens
        own = {"merged_tokens": merged_tokens, "num_prefix_tokens": num_prefix_tokens}
        self.arguments = {**self.arguments, **own}

    def call(self, tokens, sizes=None, training: bool = False):
        def run(tokens, sizes=None):
            return self._run_merging(tokens, sizes, training)

        inputs = (tokens,) if sizes is None else (tokens, sizes)
        return rematerialise(self, run, *inputs) if self.remat and training else run(*inputs)

    def _run_merging(self, tokens, sizes, training: bool):
        branch, keys = self.attention.attend(self.norm1(tokens), sizes, training=training)
        tokens = tokens + self.drop_path1(self.layer_scale1(branch), training=training)
        if sizes is None:
            sizes = ops.ones(ops.shape(tokens)[:2], dtype="int32")
        keys = ops.mean(keys, axis=1)  # (batch, tokens, head_dim)
        tokens, sizes = merge_tokens(
            tokens, sizes, keys, self.merged_tokens, self.num_prefix_tokens
        )
        branch = self.mlp(self.norm2(tokens), training=training)
        return tokens + self.drop_path2(self.layer_scale2(branch), training=training), sizes

    def compute_output_shape(self, input_shape):
        batch, tokens, hidden_dim = input_shape
        tokens -= min(self.merged_tokens, (tokens - self.num_prefix_tokens) // 2)
        return (batch, tokens, hidden_dim), (batch, tokens)

    def compute_output_spec(self, tokens, sizes=None, training=False):
        # Keras would say that the sizes are of the policy's type, too.
        shape, sizes_shape = self.compute_output_shape(tokens.shape)
        return (
            keras.KerasTensor(shape, dtype=self.compute_dtype),
            keras.KerasTensor(sizes_shape, dtype="int32"),
        )


def merge_tokens(
    tokens: Any, sizes: Any, keys: Any, count: int, num_prefix_tokens: int = 0
) -> tuple[Any, Any]:
    """Merge the most similar patch tokens, by bipartite soft matching (paper, section 3).

    Tokens go by turns into two sets. Each of the first finds its most similar one of the second;
    the `count` most similar pairs are merged, by the mean of what they stand for.

    Args:
        tokens: `(batch, tokens, hidden_dim)`, prefix tokens first.
        sizes: How many tokens each one stands for, int32 `(batch, tokens)`.
        keys: What similarity is measured on, by its cosine, `(batch, tokens, head_dim)`.
        count: Tokens that go; at most half of the patches do.
        num_prefix_tokens: Tokens that are never merged.

    Returns:
        Tokens and sizes of `tokens - count`: prefix tokens, then what is left of the first set,
        in its order, then the second. (The official code leaves the first set in the order of
        similarity where there is no class token.)
    """
    count = min(count, (tokens.shape[1] - num_prefix_tokens) // 2)
    if count == 0:
        return tokens, sizes
    kept, merged, into = _match(keys, count, num_prefix_tokens)
    prefix, first, second = _sets(tokens, num_prefix_tokens)
    prefix_sizes, first_sizes, second_sizes = _sets(sizes, num_prefix_tokens)
    weights = ops.one_hot(into, second.shape[1], dtype="int32")  # (batch, count, second)
    weights = weights * take_tokens(first_sizes, merged)[..., None]
    sums = ops.einsum(  # (batch, second, hidden_dim)
        "bcs,bcd->bsd",
        ops.cast(weights, "float32"),
        ops.cast(take_tokens(first, merged), "float32"),
    )
    sums = sums + ops.cast(second, "float32") * ops.cast(second_sizes, "float32")[..., None]
    second_sizes = second_sizes + ops.sum(weights, axis=1)  # (batch, second)
    second = ops.cast(sums / ops.cast(second_sizes, "float32")[..., None], tokens.dtype)
    return (
        ops.concatenate([prefix, take_tokens(first, kept), second], axis=1),
        ops.concatenate([prefix_sizes, take_tokens(first_sizes, kept), second_sizes], axis=1),
    )


def _match(keys: Any, count: int, num_prefix_tokens: int) -> tuple[Any, Any, Any]:
    """Return which of the first set stay, which are merged, and into which of the second."""
    keys = ops.cast(ops.stop_gradient(keys), "float32")
    _, first, second = _sets(ops.normalize(keys, axis=-1), num_prefix_tokens)
    similarity = ops.einsum("bfd,bsd->bfs", first, second)  # (batch, first, second)
    order = ops.argsort(-ops.max(similarity, axis=-1), axis=-1)  # (batch, first)
    merged, kept = order[:, :count], ops.sort(order[:, count:], axis=-1)
    return kept, merged, take_tokens(ops.argmax(similarity, axis=-1), merged)


def _sets(tensor: Any, num_prefix_tokens: int) -> tuple[Any, Any, Any]:
    """Return the prefix, the patches at even places of the sequence, and those at odd ones."""
    is_odd = num_prefix_tokens % 2
    even, odd = num_prefix_tokens + is_odd, num_prefix_tokens + 1 - is_odd
    return tensor[:, :num_prefix_tokens], tensor[:, even::2], tensor[:, odd::2]


def call_with_sizes(layer: keras.layers.Layer, tokens: Any, sizes: Any) -> tuple[Any, Any]:
    """Return what a layer makes of tokens, and the sizes of what it returns.

    Args:
        layer: Gets the sizes if it takes them.
        tokens: Its input.
        sizes: Of merged tokens, or None before the first `MergingBlock`.
    """
    takes_sizes = sizes is not None and "sizes" in inspect.signature(layer.call).parameters
    outputs = layer(tokens, sizes=sizes) if takes_sizes else layer(tokens)
    return outputs if isinstance(layer, MergingBlock) else (outputs, sizes)
