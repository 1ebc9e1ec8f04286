import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class PrefixTokens(keras.layers.Layer):
    """Put the learned class token before the patches (paper, equation 1).

    Call arguments:
        tokens: `(batch, patches, hidden_dim)`.

    Returns:
        `(batch, 1 + patches, hidden_dim)`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.class_token_initializer = keras.initializers.Zeros()

    def build(self, input_shape: tuple[int | None, ...]):
        self.class_token = self.add_weight(
            name="class_token",
            shape=(1, input_shape[-1]),
            initializer=self.class_token_initializer,
        )

    def call(self, tokens):
        shape = (ops.shape(tokens)[0], 1, tokens.shape[-1])
        class_token = ops.broadcast_to(
            ops.cast(self.class_token, tokens.dtype), shape
        )  # (batch, 1, hidden_dim)
        return ops.concatenate([class_token, tokens], axis=1)  # (batch, 1 + patches, hidden_dim)

    def compute_output_shape(self, input_shape):
        batch, patches, hidden_dim = input_shape
        return (batch, None if patches is None else 1 + patches, hidden_dim)
