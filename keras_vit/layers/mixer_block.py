import keras
from keras import ops

from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class MixerBlock(CompositeLayer):
    """One MLP over tokens and one over channels, each added back (Mixer paper, equation 1).

    Each follows a LayerNormalization. The first MLP sees a channel at a time, as a vector of all
    tokens: it holds weights for each token, so their number is fixed.

    Args:
        num_tokens: Tokens of the sequence.
        hidden_dim: Width of a token.
        tokens_mlp_dim: Hidden width of the MLP over tokens.
        channels_mlp_dim: Hidden width of the MLP over channels.
        activation: As in `MLP`.
        layer_norm_epsilon: Epsilon of both normalizations.
        dropout_rate: After the dense layers of both MLPs.
        drop_path_rate: Chance to drop each of the two branches, example by example.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.
        training: Whether to drop.

    Returns:
        The shape of `tokens`.

    Raises:
        ValueError: If there are other than `num_tokens` tokens of `hidden_dim` numbers.

    Reference:
        Tolstikhin et al., *MLP-Mixer*, arXiv 2105.01601.
    """

    def __init__(
        self,
        num_tokens: int,
        hidden_dim: int,
        tokens_mlp_dim: int,
        channels_mlp_dim: int,
        activation: str = "gelu_tanh",
        layer_norm_epsilon: float = 1e-6,
        dropout_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "num_tokens": num_tokens,
            "hidden_dim": hidden_dim,
            "tokens_mlp_dim": tokens_mlp_dim,
            "channels_mlp_dim": channels_mlp_dim,
            "activation": activation,
            "layer_norm_epsilon": layer_norm_epsilon,
            "dropout_rate": dropout_rate,
            "drop_path_rate": drop_path_rate,
        }
        self.norm1 = self._norm("norm1")
        self.token_mixing = self._mlp(num_tokens, tokens_mlp_dim, "token_mixing")
        self.drop_path1 = DropPath(drop_path_rate, dtype=self.dtype_policy, name="drop_path1")
        self.norm2 = self._norm("norm2")
        self.channel_mixing = self._mlp(hidden_dim, channels_mlp_dim, "channel_mixing")
        self.drop_path2 = DropPath(drop_path_rate, dtype=self.dtype_policy, name="drop_path2")

    def _norm(self, name: str) -> LayerNorm:
        epsilon = self.arguments["layer_norm_epsilon"]
        return LayerNorm(epsilon=epsilon, dtype=self.dtype_policy, name=name)

    def _mlp(self, width: int, mlp_dim: int, name: str) -> MLP:
        mlp = MLP(
            width,
            mlp_dim,
            self.arguments["activation"],
            dropout_rate=self.arguments["dropout_rate"],
            dtype=self.dtype_policy,
            name=name,
        )
        for dense in (mlp.fc1, mlp.fc2):  # flax nn.Dense's defaults, as in the official code
            dense.kernel_initializer = keras.initializers.LecunNormal()
            dense.bias_initializer = keras.initializers.Zeros()
        return mlp

    def build(self, input_shape: tuple[int | None, ...]):
        self._check_tokens(input_shape)
        batch, num_tokens, hidden_dim = input_shape
        self.norm1.build(input_shape)
        self.token_mixing.build((batch, hidden_dim, num_tokens))
        self.norm2.build(input_shape)
        self.channel_mixing.build(input_shape)

    def call(self, tokens, training: bool = False):
        self._check_tokens(tokens.shape)
        branch = ops.transpose(self.norm1(tokens), (0, 2, 1))  # (batch, hidden_dim, tokens)
        branch = self.token_mixing(branch, training=training)
        branch = ops.transpose(branch, (0, 2, 1))  # (batch, tokens, hidden_dim)
        tokens = tokens + self.drop_path1(branch, training=training)
        branch = self.channel_mixing(self.norm2(tokens), training=training)
        return tokens + self.drop_path2(branch, training=training)

    def _check_tokens(self, input_shape):
        num_tokens, hidden_dim = self.arguments["num_tokens"], self.arguments["hidden_dim"]
        if tuple(input_shape[1:]) != (num_tokens, hidden_dim):
            raise ValueError(
                f"The input must be (batch, {num_tokens}, {hidden_dim}): the token MLP knows each "
                f"token. Received: input_shape={tuple(input_shape)}, num_tokens={num_tokens}, "
                f"hidden_dim={hidden_dim}. Resize the picture, or build another block."
            )

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), **self.arguments}
