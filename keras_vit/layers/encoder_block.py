import keras

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP
from keras_vit.layers.remat import rematerialise


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(CompositeLayer):
    """Attention and MLP, each after a LayerNormalization and added back (paper, equations 2, 3).

    Args:
        hidden_dim: Width of a token.
        num_heads: Attention heads; divides `hidden_dim`.
        mlp_dim: Width of the MLP's hidden layer.
        activation: Of the MLP, as in `MLP`.
        gated_mlp: As `MLP`'s `gated`.
        layer_norm_epsilon: Epsilon of every normalization.
        qkv_bias: Whether queries, keys and values have a bias.
        qk_norm: Whether queries and keys are normalised head by head.
        relative: Whether attention knows offsets between tokens, as in `SelfAttention`.
        layer_scale_init: First value of a scale on each branch, or None for no scale.
        dropout_rate: After the attention's output and both dense layers of the MLP.
        attention_dropout_rate: On attention weights.
        drop_path_rate: Chance to drop each of the two branches, example by example.
        sequences: Sequences, one after the other in the batch, that are one example's.
        remat: Whether training computes the block again in the backward pass and keeps only
            what comes into it. Results are the same.

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
        gated_mlp: bool = False,
        layer_norm_epsilon: float = 1e-6,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        relative: bool = False,
        layer_scale_init: float | None = None,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        sequences: int = 1,
        remat: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "hidden_dim": hidden_dim,
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "activation": activation,
            "gated_mlp": gated_mlp,
            "layer_norm_epsilon": layer_norm_epsilon,
            "qkv_bias": qkv_bias,
            "qk_norm": qk_norm,
            "relative": relative,
            "layer_scale_init": layer_scale_init,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "drop_path_rate": drop_path_rate,
            "sequences": sequences,
            "remat": remat,
        }
        self.remat = remat
        policy = self.dtype_policy
        self.norm1 = self._norm("norm1")
        self.attention = SelfAttention(
            hidden_dim,
            num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            relative=relative,
            layer_norm_epsilon=layer_norm_epsilon,
            dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate,
            dtype=policy,
            name="attention",
        )
        self.layer_scale1 = self._layer_scale("layer_scale1")
        self.drop_path1 = self._drop_path("drop_path1")
        self.norm2 = self._norm("norm2")
        self.mlp = MLP(
            hidden_dim, mlp_dim, activation, gated_mlp, dropout_rate, dtype=policy, name="mlp"
        )
        self.layer_scale2 = self._layer_scale("layer_scale2")
        self.drop_path2 = self._drop_path("drop_path2")

    def _norm(self, name: str) -> LayerNorm:
        epsilon = self.arguments["layer_norm_epsilon"]
        return LayerNorm(epsilon=epsilon, dtype=self.dtype_policy, name=name)

    def _drop_path(self, name: str) -> DropPath:
        rate, sequences = self.arguments["drop_path_rate"], self.arguments["sequences"]
        return DropPath(rate, sequences, dtype=self.dtype_policy, name=name)

    def _layer_scale(self, name: str) -> keras.layers.Layer:
        init = self.arguments["layer_scale_init"]
        if init is None:
            return keras.layers.Identity(dtype=self.dtype_policy, name=name)
        return LayerScale(init, dtype=self.dtype_policy, name=name)

    def build(self, input_shape: tuple[int | None, ...]):
        for layer in (self.norm1, self.attention, self.layer_scale1):
            layer.build(input_shape)
        for layer in (self.norm2, self.mlp, self.layer_scale2):
            layer.build(input_shape)

    def call(self, tokens, training: bool = False):
        if self.remat and training:
            return rematerialise(self, lambda tokens: self._run(tokens, True), tokens)
        return self._run(tokens, training)

    def _run(self, tokens, training: bool):
        drops = training and self.arguments["drop_path_rate"] > 0.0
        if self.arguments["layer_scale_init"] is None and not drops:
            tokens = self.attention(self.norm1(tokens), residual=tokens, training=training)
            return self.mlp(self.norm2(tokens), residual=tokens, training=training)
        branch = self.attention(self.norm1(tokens), training=training)
        tokens = tokens + self.drop_path1(self.layer_scale1(branch), training=training)
        branch = self.mlp(self.norm2(tokens), training=training)
        return tokens + self.drop_path2(self.layer_scale2(branch), training=training)

    def attention_scores(self, tokens):
        """How much each token attends to each other one.

        Args:
            tokens: What comes into the block, `(batch, tokens, hidden_dim)`.

        Returns:
            float32 `(batch, heads, tokens, tokens)`, query then key; each row sums to 1.
        """
        return self.attention.scores(self.norm1(tokens))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), **self.arguments}
