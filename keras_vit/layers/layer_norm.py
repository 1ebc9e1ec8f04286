import keras
from keras import ops

from keras_vit.layers.spelling import spelling


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, in a spelling that runtimes fuse.

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
        name = spelling()
        if name == "textbook":
            return self._textbook(inputs)
        if name == "onednn" and self._fits_onednn(inputs):
            from keras_vit.layers import tensorflow_kernels

            return tensorflow_kernels.layer_norm(inputs, self.gamma, self.beta, self.epsilon)
        return super().call(inputs)

    def _fits_onednn(self, inputs) -> bool:
        return len(inputs.shape) in (2, 3) and self.compute_dtype in ("float32", "bfloat16")

    def _textbook(self, inputs):
        # Axes in a tuple: OpenVINO fails to fuse a mean whose axis is a number.
        exact = ops.cast(inputs, "float32")
        centered = exact - ops.mean(exact, axis=(-1,), keepdims=True)
        variance = ops.mean(ops.square(centered), axis=(-1,), keepdims=True)
        normalized = centered / ops.sqrt(variance + self.epsilon)
        scaled = normalized * ops.cast(self.gamma, "float32") + ops.cast(self.beta, "float32")
        return ops.cast(scaled, inputs.dtype)
