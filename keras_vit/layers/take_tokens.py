"""Other tokens of each example of a batch."""

from typing import Any

from keras import ops


def take_tokens(tokens: Any, indices: Any) -> Any:
    """Return the tokens of each example at its own indices.

    Whole rows are copied; `ops.take_along_axis` would copy number by number.

    Args:
        tokens: `(batch, tokens, ...)`.
        indices: Integers `(batch, count)`.

    Returns:
        `(batch, count, ...)`.
    """
    examples = ops.arange(ops.shape(tokens)[0], dtype="int32")[:, None]  # (batch, 1)
    rows = ops.cast(indices, "int32") + examples * tokens.shape[1]
    return ops.take(ops.reshape(tokens, (-1, *tokens.shape[2:])), rows, axis=0)
