import keras
from keras import ops

from keras_vit.base_config import ACTIVATIONS
from keras_vit.checks import check_choice
from keras_vit.layers.activations import activation_function
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.residual import add_residual


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(CompositeLayer):
    """Two dense layers with a GELU between, the same for every token (paper, equation 3).

    Args:
        hidden_dim: Width of a token.
        mlp_dim: Width of the hidden layer.
        activation: `"gelu"` (exact), `"gelu_tanh"` (approximation; JAX's default),
            `"quick_gelu"` or `"silu"`.
        gated: Whether `fc1` is twice as wide and its first half, activated, multiplies the
            other; with `"silu"` this is SwiGLU (arXiv 2002.05202).
        dropout_rate: After each of the two dense layers (paper, B.1).

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.
        residual: What the result is added to, of the same shape, or None. Here, on flat tokens,
            TensorFlow fuses the addition with the dense layer before.
        training: Whether to drop.

    Returns:
        The shape of `tokens`.

    Raises:
        ValueError: If the activation is unknown.
    """

    def __init__(
        self,
        hidden_dim: int,
        mlp_dim: int,
        activation: str = "gelu_tanh",
        gated: bool = False,
        dropout_rate: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("activation", activation, ACTIVATIONS)
        self.hidden_dim = hidden_dim
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.gated = gated
        self.dropout_rate = dropout_rate
        self.fc1 = self._dense(2 * mlp_dim if gated else mlp_dim, "fc1")
        self.dropout1 = self._dropout("dropout1")
        self.fc2 = self._dense(hidden_dim, "fc2")
        self.dropout2 = self._dropout("dropout2")

    def _dense(self, units: int, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )

    def _dropout(self, name: str) -> keras.layers.Dropout:
        return keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy, name=name)

    def build(self, input_shape: tuple[int | None, ...]):
        self.fc1.build((None, self.hidden_dim))
        self.fc2.build((None, self.mlp_dim))

    def call(self, tokens, residual=None, training: bool = False):
        inputs = ops.reshape(tokens, (-1, self.hidden_dim))  # (batch * tokens, hidden_dim)
        flat = self._activate(self.fc1(inputs), training)  # (batch * tokens, mlp_dim)
        flat = self.dropout1(flat, training=training)
        flat = self.dropout2(self.fc2(flat), training=training)  # (batch * tokens, hidden_dim)
        if residual is not None:
            flat = add_residual(flat, residual, like=inputs)
        return ops.reshape(flat, (-1, *tokens.shape[1:]))  # (batch, tokens, hidden_dim)

    def _activate(self, flat, training: bool):
        activate = activation_function(self.activation, training)
        if not self.gated:
            return activate(flat)
        return activate(flat[:, : self.mlp_dim]) * flat[:, self.mlp_dim :]

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "mlp_dim": self.mlp_dim,
            "activation": self.activation,
            "gated": self.gated,
            "dropout_rate": self.dropout_rate,
        }
