from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_vit.config import ViTConfig
from keras_vit.layers.attention import size_bias
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.initializers import fused_xavier_uniform
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPool(keras.layers.Layer):
    """Represent a picture by its class token (paper, equation 4).

    Args:
        num_tokens: 1, or 2 to keep the distillation token beside it.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, the class token first.

    Returns:
        `(batch, hidden_dim)`; with two tokens `(batch, 2, hidden_dim)`.
    """

    def __init__(self, num_tokens: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens

    @classmethod
    def of(cls, config: ViTConfig, **kwargs) -> "TokenPool":
        """The pool of a model."""
        return cls(1 + config.distillation_token, **kwargs)

    def call(self, tokens):
        return tokens[:, 0] if self.num_tokens == 1 else tokens[:, : self.num_tokens]

    def compute_output_shape(self, input_shape):
        batch, _, hidden_dim = input_shape
        return (batch, hidden_dim) if self.num_tokens == 1 else (batch, self.num_tokens, hidden_dim)

    def get_config(self) -> dict:
        return {**super().get_config(), "num_tokens": self.num_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class MeanPool(keras.layers.Layer):
    """Represent a picture by the mean of its patch tokens (paper, D.3).

    Args:
        num_prefix_tokens: Tokens before the patches, which do not count.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, prefix tokens first.
        sizes: How many tokens each one stands for, `(batch, tokens)`; None: one.

    Returns:
        `(batch, hidden_dim)`.
    """

    def __init__(self, num_prefix_tokens: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens

    @classmethod
    def of(cls, config: ViTConfig, **kwargs) -> "MeanPool":
        """The pool of a model."""
        return cls(config.num_prefix_tokens, **kwargs)

    def call(self, tokens, sizes=None):
        patches = tokens[:, self.num_prefix_tokens :]  # (batch, patches, hidden_dim)
        if sizes is None:
            return ops.mean(patches, axis=1)
        weights = ops.cast(sizes[:, self.num_prefix_tokens :], "float32")[..., None]
        sums = ops.sum(ops.cast(patches, "float32") * weights, axis=1)  # (batch, hidden_dim)
        return ops.cast(sums / ops.sum(weights, axis=1), tokens.dtype)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def get_config(self) -> dict:
        return {**super().get_config(), "num_prefix_tokens": self.num_prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenMeanPool(MeanPool):
    """Represent a picture by its class token and the mean of its patch tokens, side by side.

    Args:
        num_prefix_tokens: Tokens before the patches, the class token first.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, prefix tokens first.
        sizes: As in `MeanPool`.

    Returns:
        `(batch, 2 * hidden_dim)`.

    Reference:
        Oquab et al., DINOv2, arXiv 2304.07193; transformers' `Dinov2ForImageClassification`.
    """

    def call(self, tokens, sizes=None):
        return ops.concatenate([tokens[:, 0], super().call(tokens, sizes)], axis=-1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 2 * input_shape[-1])


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPool(CompositeLayer):
    """Represent a picture by what one learned query attends to, and an MLP ("MAP head").

    Args:
        hidden_dim: Width of a token.
        num_heads: Heads; divides `hidden_dim`.
        mlp_dim: Width of the MLP's hidden layer.
        num_prefix_tokens: Tokens before the patches, which are not attended to.
        activation: Of the MLP.
        gated_mlp: As `MLP`'s `gated`.
        layer_norm_epsilon: Epsilon of the normalization before the MLP.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, prefix tokens first.
        sizes: As in `MeanPool`; each token is attended to as often as those it stands for.

    Returns:
        `(batch, hidden_dim)`.

    Reference:
        Zhai et al., *Scaling Vision Transformers*, arXiv 2106.04560, section 3.2; big_vision's
        `MAPHead`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        mlp_dim: int,
        num_prefix_tokens: int = 0,
        activation: str = "gelu_tanh",
        gated_mlp: bool = False,
        layer_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "hidden_dim": hidden_dim,
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "num_prefix_tokens": num_prefix_tokens,
            "activation": activation,
            "gated_mlp": gated_mlp,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.num_prefix_tokens = num_prefix_tokens
        policy = self.dtype_policy
        self.probe_initializer = keras.initializers.GlorotUniform()
        self.query = keras.layers.Dense(hidden_dim, dtype=policy, name="query")
        self.key_value = keras.layers.Dense(
            2 * hidden_dim,
            kernel_initializer=fused_xavier_uniform(parts=2),
            dtype=policy,
            name="key_value",
        )
        self.proj = keras.layers.Dense(hidden_dim, dtype=policy, name="proj")
        self.norm = LayerNorm(epsilon=layer_norm_epsilon, dtype=policy, name="norm")
        self.mlp = MLP(
            hidden_dim, mlp_dim, activation=activation, gated=gated_mlp, dtype=policy, name="mlp"
        )

    @classmethod
    def of(cls, config: ViTConfig, **kwargs) -> "AttentionPool":
        """The pool of a model."""
        return cls(
            config.hidden_dim,
            config.num_heads,
            config.mlp_dim,
            config.num_prefix_tokens,
            config.activation,
            config.gated_mlp,
            config.layer_norm_epsilon,
            **kwargs,
        )

    def build(self, input_shape: tuple[int | None, ...]):
        self.probe = self.add_weight(
            name="probe", shape=(1, self.hidden_dim), initializer=self.probe_initializer
        )
        for layer in (self.query, self.key_value, self.proj):
            layer.build((None, self.hidden_dim))
        self.norm.build((None, self.hidden_dim))
        self.mlp.build((None, self.hidden_dim))

    def call(self, tokens, sizes=None):
        head_dim = self.hidden_dim // self.num_heads
        patches = tokens[:, self.num_prefix_tokens :]  # (batch, patches, hidden_dim)
        count = patches.shape[1]
        query = self.query(ops.cast(self.probe, patches.dtype)) * head_dim**-0.5
        query = ops.broadcast_to(  # (batch, 1, heads, head_dim)
            ops.reshape(query, (1, 1, self.num_heads, head_dim)),
            (ops.shape(patches)[0], 1, self.num_heads, head_dim),
        )
        key_value = self.key_value(ops.reshape(patches, (-1, self.hidden_dim)))
        key_value = ops.reshape(  # (batch, patches, 2, heads, head_dim)
            key_value, (-1, count, 2, self.num_heads, head_dim)
        )
        key, value = ops.unstack(key_value, axis=2)  # (batch, patches, heads, head_dim)
        bias = None if sizes is None else size_bias(sizes[:, self.num_prefix_tokens :])
        mixed = ops.dot_product_attention(query, key, value, bias=bias, scale=1.0)
        pooled = self.proj(ops.reshape(mixed, (-1, self.hidden_dim)))  # (batch, hidden_dim)
        return pooled + self.mlp(self.norm(pooled))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def get_config(self) -> dict:
        return {**super().get_config(), **self.arguments}


# Each represents a picture by one vector; `of` makes it from a configuration.
HEADS = {
    "token": TokenPool,
    "mean": MeanPool,
    "map": AttentionPool,
    "token_mean": TokenMeanPool,
}


@keras.saving.register_keras_serializable(package="keras_vit")
class DistillationHead(CompositeLayer):
    """The mean of two linear heads, of the class token and of the distillation token.

    Args:
        num_classes: Logits.

    Call arguments:
        pooled: `(batch, 2, hidden_dim)`.

    Returns:
        `(batch, num_classes)`.

    Reference:
        Touvron et al., DeiT, arXiv 2012.12877, section 4.
    """

    def __init__(self, num_classes: int, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.heads = [
            keras.layers.Dense(
                num_classes, kernel_initializer="zeros", dtype=self.dtype_policy, name=name
            )
            for name in ("class", "distillation")
        ]

    def build(self, input_shape: tuple[int | None, ...]):
        for head in self.heads:
            head.build((None, input_shape[-1]))

    def call(self, pooled):
        class_logits, distillation_logits = (
            head(token) for head, token in zip(self.heads, ops.unstack(pooled, axis=1), strict=True)
        )
        return (class_logits + distillation_logits) / 2.0

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_classes)

    def get_config(self) -> dict:
        return {**super().get_config(), "num_classes": self.num_classes}


def linear_head(num_classes: int, policy: keras.DTypePolicy) -> Iterator[keras.layers.Layer]:
    """Logits of pooled features, or the features; float32 whatever the policy."""
    if num_classes:
        # zeros, as the paper starts fine-tuning (D.3)
        yield keras.layers.Dense(
            num_classes, kernel_initializer="zeros", dtype=head_policy(policy), name="head"
        )
    elif policy.compute_dtype != "float32":
        yield keras.layers.Identity(dtype="float32", name="features")


def head_policy(policy: keras.DTypePolicy) -> Any:
    """What a map of policies says of the head, else float32."""
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap) and "head" in policy:
        return policy["head"]
    return "float32"
