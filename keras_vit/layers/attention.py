import contextlib
import math
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_vit.layers.backend import is_tensorflow
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.initializers import fused_xavier_uniform
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.residual import add_residual
from keras_vit.layers.spelling import spelling


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(CompositeLayer):
    """Multi-head self-attention with one projection for queries, keys and values.

    Paper, appendix A. `qkv` holds the columns of q, then k, then v, each head by head. The query
    is scaled before the product, which keeps float16 finite where the product would overflow;
    the arithmetic of softmax is float32 whatever the policy.

    Args:
        hidden_dim: Width of a token.
        num_heads: Heads; divides `hidden_dim`.
        qkv_bias: Whether `qkv` has a bias.
        qk_norm: Whether queries and keys are normalised head by head (arXiv 2302.05442).
        relative: Whether a learned vector for each offset between two tokens, `p_q - p_k`, is a
            second key: its product with the query is added to the scores (paper, D.4).
        layer_norm_epsilon: Epsilon of the normalizations of queries and keys.
        dropout_rate: After the output projection (paper, B.1).
        attention_dropout_rate: On attention weights, while training only.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.
        residual: What the result is added to, of the same shape, or None. Here, on flat tokens,
            TensorFlow fuses the addition with the projection before.
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
        qk_norm: bool = False,
        relative: bool = False,
        layer_norm_epsilon: float = 1e-6,
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
        self.arguments = {
            "hidden_dim": hidden_dim,
            "num_heads": num_heads,
            "qkv_bias": qkv_bias,
            "qk_norm": qk_norm,
            "relative": relative,
            "layer_norm_epsilon": layer_norm_epsilon,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
        }
        self._folded_qkv = None
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.head_dim = hidden_dim // num_heads
        self.relative = relative
        policy = self.dtype_policy
        self.qkv = keras.layers.Dense(
            3 * hidden_dim,
            use_bias=qkv_bias,
            kernel_initializer=fused_xavier_uniform(),
            dtype=policy,
            name="qkv",
        )
        self.query_norm = self.key_norm = None
        if qk_norm:
            self.query_norm, self.key_norm = (
                LayerNorm(epsilon=layer_norm_epsilon, dtype=policy, name=name)
                for name in ("query_norm", "key_norm")
            )
        self.relative_keys_initializer = keras.initializers.RandomNormal(stddev=0.02)
        self.attention_dropout = keras.layers.Dropout(
            attention_dropout_rate, dtype=policy, name="attention_dropout"
        )
        self.proj = keras.layers.Dense(hidden_dim, dtype=policy, name="proj")
        self.dropout = keras.layers.Dropout(dropout_rate, dtype=policy, name="dropout")

    def build(self, input_shape: tuple[int | None, ...]):
        self.qkv.build((None, self.hidden_dim))
        if self.query_norm is not None:
            self.query_norm.build((None, self.num_heads, None, self.head_dim))
            self.key_norm.build((None, self.num_heads, None, self.head_dim))
        if self.relative:
            self.relative_keys = self.add_weight(
                name="relative_keys",
                shape=(2 * input_shape[1] - 1, self.head_dim),
                initializer=self.relative_keys_initializer,
            )
        self.proj.build((None, self.hidden_dim))

    def call(self, tokens, residual=None, training: bool = False):
        return self.attend(tokens, residual=residual, training=training)[0]

    def attend(self, tokens, sizes=None, residual=None, training: bool = False):
        """As `call`, of tokens that may stand for several (arXiv 2210.09461, equation 1).

        Args:
            tokens: As in `call`.
            sizes: How many tokens each one stands for, `(batch, tokens)`; None: one.
            residual: As in `call`.
            training: As in `call`.

        Returns:
            A tuple of what `call` returns and the keys, `(batch, heads, tokens, head_dim)`.
        """
        query, key, value = self._project(tokens)  # (batch, heads, tokens, head_dim)
        bias = None if sizes is None else size_bias(sizes)
        drops = training and self.attention_dropout.rate > 0.0
        # TensorFlow has no fused attention, and its einsum copies what is transposed here once.
        if drops or self.relative or is_tensorflow():
            weights = ops.cast(self._weights(query, key, bias), value.dtype)
            weights = self.attention_dropout(weights, training=training)
            mixed = _swap(ops.matmul(weights, value))
        else:
            vectors = map(_swap, (query, key, value))
            mixed = ops.dot_product_attention(*vectors, bias=bias, scale=1.0)
        mixed = ops.reshape(mixed, (-1, self.hidden_dim))  # (batch * tokens, hidden_dim)
        flat = self.dropout(self.proj(mixed), training=training)
        if residual is not None:
            flat = add_residual(flat, residual, like=mixed)
        return ops.reshape(flat, (-1, *tokens.shape[1:])), key  # (batch, tokens, hidden_dim)

    def scores(self, tokens):
        """How much each token attends to each other one; a slower path, for who wants to look.

        Args:
            tokens: As in `call`.

        Returns:
            float32 `(batch, heads, tokens, tokens)`, query then key; each row sums to 1.
        """
        query, key, _ = self._project(tokens)
        return ops.cast(self._weights(query, key), "float32")

    def _project(self, tokens):
        """Return query, scaled, key and value, `(batch, heads, tokens, head_dim)` each."""
        flat = ops.reshape(tokens, (-1, self.hidden_dim))  # (batch * tokens, hidden_dim)
        num_tokens, heads = tokens.shape[1], (self.num_heads, self.head_dim)
        qkv = self.qkv(flat) if self._folded_qkv is None else self._folded_qkv(flat)
        qkv = ops.reshape(qkv, (-1, num_tokens, 3, *heads))
        # One copy makes all three contiguous for the products: (3, batch, heads, tokens, head_dim).
        qkv = ops.transpose(qkv, (2, 0, 3, 1, 4))
        # Split as one axis: OpenVINO would move the copy behind an unstack, and copy twice.
        flat = ops.reshape(qkv, (-1, self.num_heads, num_tokens, self.head_dim))
        query, key, value = ops.split(flat, 3, axis=0)
        if self.query_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self._folded_qkv is None:
            query = query * self.head_dim**-0.5
        return query, key, value

    def _weights(self, query, key, bias=None):
        """Return `(batch, heads, tokens, tokens)`; `query` is scaled already."""
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        if self.relative:
            positions = np.arange(query.shape[2])
            offsets = positions[:, None] - positions + len(positions) - 1  # (tokens, tokens)
            keys = ops.take(self.relative_keys, offsets, axis=0)  # (tokens, tokens, head_dim)
            keys = ops.cast(keys, query.dtype)
            scores = scores + ops.einsum("bhqd,qkd->bhqk", query, keys)
        if bias is None and spelling() == "onednn":
            return ops.softmax(scores, axis=-1)  # oneDNN's is of float32 arithmetic in any case
        scores = ops.cast(scores, "float32")
        return ops.softmax(scores if bias is None else scores + bias, axis=-1)

    @contextlib.contextmanager
    def folded_scale(self) -> Iterator[None]:
        """Compute with copies of the weights of `qkv` that hold the query's scale, meanwhile.

        An export saves an operation by it. On TensorFlow, and where the scale is a power of 2,
        which rounds nothing; elsewhere nothing changes. The layer's own weights stay as they are.
        """
        is_exact = math.frexp(self.head_dim**-0.5)[0] == 0.5
        is_plain = not self.qkv.lora_enabled and self.qkv.quantization_mode is None
        if is_tensorflow() and is_exact and is_plain and self.query_norm is None:
            from keras_vit.layers.tensorflow_kernels import scaled_dense

            scale = np.ones(3 * self.hidden_dim, "float32")
            scale[: self.hidden_dim] = self.head_dim**-0.5
            self._folded_qkv = scaled_dense(self.qkv, scale)
        try:
            yield
        finally:
            self._folded_qkv = None

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), **self.arguments}


def _swap(vectors):
    """`(batch, heads, tokens, head_dim)` to `(batch, tokens, heads, head_dim)`, or back."""
    return ops.transpose(vectors, (0, 2, 1, 3))


def size_bias(sizes):
    """Return what a score gains by the size of its key's token, `(batch, 1, 1, tokens)`."""
    return ops.log(ops.cast(sizes, "float32"))[:, None, None, :]
