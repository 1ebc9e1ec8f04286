import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiply a residual branch by one learned number a channel.

    Args:
        init: First value of every number; small, so that a deep model begins near the identity.

    Call arguments:
        branch: `(batch, tokens, hidden_dim)`.

    Returns:
        The shape of `branch`.

    Reference:
        Touvron et al., arXiv 2103.17239, equation 4.
    """

    def __init__(self, init: float = 1e-6, **kwargs):
        super().__init__(**kwargs)
        self.init = init
        self.gamma_initializer = keras.initializers.Constant(init)

    def build(self, input_shape: tuple[int | None, ...]):
        self.gamma = self.add_weight(
            name="gamma", shape=(input_shape[-1],), initializer=self.gamma_initializer
        )

    def call(self, branch):
        return branch * ops.cast(self.gamma, branch.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), "init": self.init}
