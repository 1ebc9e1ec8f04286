import contextlib
import contextvars
from collections.abc import Iterator

import keras

_FUSED = contextvars.ContextVar("keras_vit_fused_inference", default=False)


@contextlib.contextmanager
def fused_inference(wanted: bool | None = None) -> Iterator[None]:
    """Trace graphs inside this context in spellings that TensorFlow fuses on a CPU.

    They are no default: other formats have no such operations, and on a GPU nothing fuses them.
    Backends other than TensorFlow pass over it.

    Args:
        wanted: None for where TensorFlow has no GPU.
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if wanted is None:
        wanted = on_tensorflow and not keras.distribution.list_devices("gpu")
    token = _FUSED.set(wanted and on_tensorflow)
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
        # What the fusion is for. Eager operations are not optimized.
        fits = len(inputs.shape) in (2, 3) and self.compute_dtype in ("float32", "bfloat16")
        if not _FUSED.get() or not fits:
            return super().call(inputs)
        from keras_vit.layers.tensorflow_kernels import layer_norm

        return layer_norm(inputs, self.gamma, self.beta, self.epsilon)
