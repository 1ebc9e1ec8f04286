import contextlib
import contextvars
from collections.abc import Iterator

import keras

from keras_vit.layers.backend import is_tensorflow, is_tensorflow_on_cpu

_FUSED = contextvars.ContextVar("keras_vit_fused_inference", default=False)


@contextlib.contextmanager
def fused_inference(wanted: bool | None = None) -> Iterator[None]:
    """Trace graphs inside this context in spellings that TensorFlow fuses on a CPU.

    They are no default: other formats have no such operations, and on a GPU nothing fuses them.
    Backends other than TensorFlow pass over it.

    Args:
        wanted: None for where TensorFlow has no GPU.
    """
    wanted = is_tensorflow_on_cpu() if wanted is None else wanted and is_tensorflow()
    token = _FUSED.set(wanted)
    try:
        yield
    finally:
        _FUSED.reset(token)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, one kernel inside `fused_inference`.

    Args:
        epsilon: Added to the variance.
        **kwargs: As in Keras.

    Call arguments:
        inputs: `(batch, ..., hidden_dim)`.

    Returns:
        The shape of `inputs`.

    Reference:
        Ba et al., arXiv 1607.06450.
    """

    def call(self, inputs):
        fits = len(inputs.shape) in (2, 3) and self.compute_dtype in ("float32", "bfloat16")
        if not _FUSED.get() or not fits:
            return super().call(inputs)
        from keras_vit.layers import tensorflow_kernels

        if not tensorflow_kernels.in_graph():
            return super().call(inputs)
        return tensorflow_kernels.layer_norm(inputs, self.gamma, self.beta, self.epsilon)
