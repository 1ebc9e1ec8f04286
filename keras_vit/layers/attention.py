import keras
from keras import ops

from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.initializers import fused_xavier_uniform


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(CompositeLayer):
    """Multi-head self-attention with one projection for queries, keys and values.

    Paper, appendix A. `qkv` holds the columns of q, then k, then v, each head by head. The query
    is scaled before the product, which keeps float16 finite where the product would overflow;
    softmax runs in float32 whatever the policy.

    Args:
        hidden_dim: Width of a token.
        num_heads: Heads; divides `hidden_dim`.
        qkv_bias: Whether `qkv` has a bias.
        dropout_rate: After the output projection (paper, B.1).
        attention_dropout_rate: On attention weights, while training only.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.
        training: Whether to drop.

    Returns:
        The shape of `tokens`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        qkv_bias: bool = True,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if hidden_dim % num_heads:
            raise ValueError(
                "`hidden_dim` must be a multiple of `num_heads`. "
                f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}."
            )
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.qkv_bias = qkv_bias
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.qkv = keras.layers.Dense(
            3 * hidden_dim,
            use_bias=qkv_bias,
            kernel_initializer=fused_xavier_uniform(),
            dtype=self.dtype_policy,
            name="qkv",
        )
        self.attention_dropout = keras.layers.Dropout(
            attention_dropout_rate, dtype=self.dtype_policy, name="attention_dropout"
        )
        self.proj = keras.layers.Dense(hidden_dim, dtype=self.dtype_policy, name="proj")
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape: tuple[int | None, ...]):
        self.qkv.build((None, self.hidden_dim))
        self.proj.build((None, self.hidden_dim))

    def call(self, tokens, training: bool = False):
        num_tokens = tokens.shape[1]
        head_dim = self.hidden_dim // self.num_heads
        flat = ops.reshape(tokens, (-1, self.hidden_dim))  # (batch * tokens, hidden_dim)
        qkv = ops.reshape(  # (batch, tokens, 3, heads, head_dim)
            self.qkv(flat), (-1, num_tokens, 3, self.num_heads, head_dim)
        )
        query, key, value = ops.unstack(qkv, axis=2)  # (batch, tokens, heads, head_dim)
        query = query * head_dim**-0.5
        if training and self.attention_dropout_rate > 0.0:
            mixed = self._attend_with_dropout(query, key, value)
        else:
            mixed = ops.dot_product_attention(query, key, value, scale=1.0)
        flat = self.proj(ops.reshape(mixed, (-1, self.hidden_dim)))  # (batch * tokens, hidden_dim)
        flat = self.dropout(flat, training=training)
        return ops.reshape(flat, (-1, num_tokens, self.hidden_dim))  # (batch, tokens, hidden_dim)

    def _attend_with_dropout(self, query, key, value):
        """Return `(batch, tokens, heads, head_dim)`; `query` is scaled already."""
        scores = ops.einsum("bqhd,bkhd->bhqk", query, key)  # (batch, heads, tokens, tokens)
        weights = ops.cast(ops.softmax(ops.cast(scores, "float32"), axis=-1), value.dtype)
        weights = self.attention_dropout(weights, training=True)
        return ops.einsum("bhqk,bkhd->bqhd", weights, value)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "num_heads": self.num_heads,
            "qkv_bias": self.qkv_bias,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
        }
