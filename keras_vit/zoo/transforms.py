"""How the arrays of other frameworks become ours, and back. Pure numpy, each with its inverse.

A transform takes the arrays of one `Rule` in their order and gives our one array; its inverse
gives theirs back as a tuple. Inverses move and split axes only, so they are exact.
"""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Transform:
    """One array of ours out of one or more of theirs.

    Args:
        forward: `(*their arrays) -> our array`.
        inverse: `(our array) -> tuple of their arrays`.
    """

    forward: Callable[..., np.ndarray]
    inverse: Callable[[np.ndarray], tuple[np.ndarray, ...]]


IDENTITY = Transform(lambda array: array, lambda array: (array,))

# torch's Linear (out, in) <-> our Dense (in, out).
LINEAR_KERNEL = Transform(lambda kernel: kernel.T, lambda kernel: (kernel.T,))

# torch's Conv2d (hidden_dim, channels, height, width) <-> (height, width, channels, hidden_dim).
CONV_KERNEL = Transform(
    lambda kernel: kernel.transpose(2, 3, 1, 0),
    lambda kernel: (kernel.transpose(3, 2, 0, 1),),
)

# (1, ...) <-> (...): tables that others store with a batch axis.
DROP_BATCH_AXIS = Transform(lambda array: array[0], lambda array: (array[None],))

# torch's query, key and value Linear (hidden_dim, hidden_dim) <-> (hidden_dim, 3 * hidden_dim).
LINEAR_QKV_KERNEL = Transform(
    lambda *kernels: np.concatenate([kernel.T for kernel in kernels], axis=1),
    lambda kernel: tuple(part.T for part in np.split(kernel, 3, axis=1)),
)

# Three biases (hidden_dim,) <-> (3 * hidden_dim,).
QKV_BIAS = Transform(lambda *biases: np.concatenate(biases), lambda bias: tuple(np.split(bias, 3)))


def heads_qkv_kernel(num_heads: int, count: int = 3) -> Transform:
    """Flax's `count` kernels (hidden_dim, heads, head_dim) <-> (hidden_dim, count * hidden_dim)."""
    return Transform(
        lambda *kernels: np.concatenate([k.reshape(k.shape[0], -1) for k in kernels], axis=1),
        lambda kernel: tuple(
            part.reshape(part.shape[0], num_heads, -1) for part in np.split(kernel, count, axis=1)
        ),
    )


def heads_qkv_bias(num_heads: int, count: int = 3) -> Transform:
    """Flax's `count` biases (heads, head_dim) <-> (count * hidden_dim,)."""
    return Transform(
        lambda *biases: np.concatenate([bias.reshape(-1) for bias in biases]),
        lambda bias: tuple(part.reshape(num_heads, -1) for part in np.split(bias, count)),
    )


def heads_out_kernel(num_heads: int) -> Transform:
    """Flax's attention output (heads, head_dim, hidden_dim) <-> (hidden_dim, hidden_dim)."""
    return Transform(
        lambda kernel: kernel.reshape(-1, kernel.shape[-1]),
        lambda kernel: (kernel.reshape(num_heads, -1, kernel.shape[-1]),),
    )


def drop_unit_axes(count: int) -> Transform:
    """(1, ..., 1, *shape), with `count` of ones, <-> shape: vectors stored for broadcasting."""
    return Transform(
        lambda array: array.reshape(array.shape[count:]),
        lambda array: (array.reshape((1,) * count + array.shape),),
    )
