import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPool(keras.layers.Layer):
    """Represent a picture by its class token (paper, equation 4).

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, the class token first.

    Returns:
        `(batch, hidden_dim)`.
    """

    def __init__(self, num_prefix_tokens: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens

    def call(self, tokens):
        return tokens[:, 0]

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def get_config(self) -> dict:
        return {**super().get_config(), "num_prefix_tokens": self.num_prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class MeanPool(TokenPool):
    """Represent a picture by the mean of its patch tokens (paper, D.3).

    Args:
        num_prefix_tokens: Tokens before the patches, which do not count.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, prefix tokens first.

    Returns:
        `(batch, hidden_dim)`.
    """

    def call(self, tokens):
        return ops.mean(tokens[:, self.num_prefix_tokens :], axis=1)


HEADS = {"token": TokenPool, "mean": MeanPool}
