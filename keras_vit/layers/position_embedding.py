import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedPositionEmbedding(keras.layers.Layer):
    """Add one learned vector a token (paper, equation 1 and D.4 "1-D").

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`; the number of tokens is fixed when built.

    Returns:
        The shape of `tokens`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embeddings_initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, input_shape: tuple[int | None, ...]):
        if input_shape[1] is None:
            raise ValueError(
                "Positions need a fixed number of tokens. Received: "
                f"input_shape={tuple(input_shape)}. Give the model a fixed `image_size`."
            )
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=tuple(input_shape[1:]),
            initializer=self.embeddings_initializer,
        )

    def call(self, tokens):
        return tokens + ops.cast(self.embeddings, tokens.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


POSITION_EMBEDDINGS = {"learned": LearnedPositionEmbedding}
