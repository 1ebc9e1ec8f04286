import keras

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(CompositeLayer):
    """Attention and MLP, each after a LayerNormalization and added back (paper, equations 2, 3).

    Args:
        hidden_dim: Width of a token.
        num_heads: Attention heads; divides `hidden_dim`.
        mlp_dim: Width of the MLP's hidden layer.
        activation: `"gelu"` (exact) or `"gelu_tanh"`.
        layer_norm_epsilon: Epsilon of both normalizations.
        qkv_bias: Whether queries, keys and values have a bias.
        dropout_rate: After the attention's output and both dense layers of the MLP.
        attention_dropout_rate: On attention weights.
        drop_path_rate: Chance to drop each of the two branches, example by example.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.
        training: Whether to drop.

    Returns:
        The shape of `tokens`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        mlp_dim: int,
        activation: str = "gelu_tanh",
        layer_norm_epsilon: float = 1e-6,
        qkv_bias: bool = True,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "hidden_dim": hidden_dim,
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "activation": activation,
            "layer_norm_epsilon": layer_norm_epsilon,
            "qkv_bias": qkv_bias,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "drop_path_rate": drop_path_rate,
        }
        policy = self.dtype_policy
        self.norm1 = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=policy, name="norm1"
        )
        self.attention = SelfAttention(
            hidden_dim,
            num_heads,
            qkv_bias=qkv_bias,
            dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate,
            dtype=policy,
            name="attention",
        )
        self.drop_path1 = DropPath(drop_path_rate, dtype=policy, name="drop_path1")
        self.norm2 = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=policy, name="norm2"
        )
        self.mlp = MLP(
            hidden_dim, mlp_dim, activation, dropout_rate=dropout_rate, dtype=policy, name="mlp"
        )
        self.drop_path2 = DropPath(drop_path_rate, dtype=policy, name="drop_path2")

    def build(self, input_shape: tuple[int | None, ...]):
        for layer in (self.norm1, self.attention, self.norm2, self.mlp):
            layer.build(input_shape)

    def call(self, tokens, training: bool = False):
        branch = self.attention(self.norm1(tokens), training=training)
        tokens = tokens + self.drop_path1(branch, training=training)
        branch = self.mlp(self.norm2(tokens), training=training)
        return tokens + self.drop_path2(branch, training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), **self.arguments}
