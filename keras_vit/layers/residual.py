from typing import Any

from keras import ops

from keras_vit.layers.backend import is_tensorflow


def add_residual(flat: Any, residual: Any, like: Any) -> Any:
    """Add what flows past a branch to the flat result of the branch's last dense layer.

    TensorFlow fuses the addition with the dense layer if its graph optimizer can see that both have
    one shape, which takes a reshape to the very shape of what comes into the dense layer.

    Args:
        flat: `(batch * tokens, hidden_dim)`, out of the dense layer.
        residual: `(batch, tokens, hidden_dim)`.
        like: A tensor with as many rows as `flat` that is computed before it, and as many columns.

    Returns:
        The shape of `flat`.
    """
    if not is_tensorflow():
        return flat + ops.reshape(residual, (-1, residual.shape[-1]))
    from keras_vit.layers.tensorflow_kernels import reshape_like

    return flat + reshape_like(residual, like)
