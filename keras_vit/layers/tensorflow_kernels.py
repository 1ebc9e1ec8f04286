"""Spellings that TensorFlow runs faster than what Keras gives it; nothing else here imports it.

What they compute is the same to rounding. Tests hold them against the plain spellings, and look
for the fused operations in the graphs that come out.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def in_graph() -> bool:
    """Whether operations go into a graph; eager ones are not fused."""
    return not tf.executing_eagerly()


def layer_norm(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer normalization over the last axis, as oneDNN's fusion knows it.

    TensorFlow puts one oneDNN kernel in the place of these operations, whose statistics are
    float32 in any case. Of the spellings that its graph optimizer lists, this alone, that of Keras
    2, is found in TensorFlow 2.21: a batch normalization in which tokens are the channels.

    Args:
        inputs: float32 or bfloat16 `(batch, hidden_dim)` or `(batch, tokens, hidden_dim)`.
        gamma: `(hidden_dim,)`.
        beta: `(hidden_dim,)`.
        epsilon: Added to the variance.

    Returns:
        The shape and dtype of `inputs`.
    """
    shape = tf.shape(inputs)
    # Where the graph knows the size of the batch, the two `fill`s would become constants, which
    # are not found.
    count = tf.compat.v1.placeholder_with_default(tf.reduce_prod(shape[:-1]), ())
    columns = tf.reshape(inputs, tf.stack([1, count, inputs.shape[-1], 1]))
    nothing = tf.constant([], tf.float32)
    normalized = tf.raw_ops.FusedBatchNormV3(
        x=columns,
        scale=tf.fill([count], 1.0),
        offset=tf.fill([count], 0.0),
        mean=nothing,
        variance=nothing,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    )[0]
    gamma, beta = tf.cast(gamma, inputs.dtype), tf.cast(beta, inputs.dtype)
    return tf.reshape(normalized, shape) * gamma + beta


def reshape_like(inputs: Any, like: Any) -> Any:
    """`inputs` in the shape of `like`, in a way that the graph optimizer sees through."""
    return tf.reshape(inputs, tf.shape(like))


def scaled_dense(layer: Any, scale: Any) -> Callable:
    """A dense layer whose outputs are scaled, by weights of its own.

    Args:
        layer: A `keras.layers.Dense` without activation.
        scale: `(units,)`.

    Returns:
        A function of `(rows, inputs)`, which holds the new variables.
    """
    kernel, *bias = (
        tf.Variable(value * tf.cast(scale, value.dtype), trainable=False)
        for value in map(tf.convert_to_tensor, layer.variables)
    )

    def call(inputs):
        outputs = tf.matmul(inputs, tf.cast(kernel, inputs.dtype))
        return tf.nn.bias_add(outputs, tf.cast(bias[0], inputs.dtype)) if bias else outputs

    return call


def compiled(function: Callable) -> Callable:
    """Let XLA make one kernel of an elementwise function, and one of its gradient.

    TensorFlow runs a GELU and its gradient as some fifteen operations, each of which goes through
    memory, and of which the backward pass keeps several results. Here it keeps the input alone.
    In bfloat16 the arithmetic is float32, and so is cheaper: a processor has no other.

    Args:
        function: Takes and returns one tensor.

    Returns:
        A function of the same values and gradients.
    """

    @tf.function(jit_compile=True, autograph=False)
    def forward(inputs):
        return tf.cast(function(tf.cast(inputs, tf.float32)), inputs.dtype)

    @tf.function(jit_compile=True, autograph=False)
    def backward(inputs, upstream):
        exact = tf.cast(inputs, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(exact)
            outputs = function(exact)
        gradient = tape.gradient(outputs, exact, output_gradients=tf.cast(upstream, tf.float32))
        return tf.cast(gradient, inputs.dtype)

    @tf.custom_gradient
    def call(inputs):
        return forward(inputs), lambda upstream: backward(inputs, upstream)

    return call
