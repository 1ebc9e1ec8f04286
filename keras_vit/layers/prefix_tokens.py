import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class PrefixTokens(keras.layers.Layer):
    """Put learned tokens before the patches: class, distillation, registers, in that order.

    Args:
        class_token: Whether there is one to represent the picture (paper, equation 1).
        distillation_token: Whether a second one follows (DeiT, arXiv 2012.12877).
        num_register_tokens: Tokens that only the patches use (arXiv 2309.16588).

    Call arguments:
        tokens: `(batch, patches, hidden_dim)`.

    Returns:
        `(batch, prefix tokens + patches, hidden_dim)`.
    """

    def __init__(
        self,
        class_token: bool = True,
        distillation_token: bool = False,
        num_register_tokens: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.counts = {
            "class_token": int(class_token),
            "distillation_token": int(distillation_token),
            "register_tokens": num_register_tokens,
        }
        self.class_token_initializer = keras.initializers.Zeros()
        # As in their papers' code; equal registers would stay equal.
        self.distillation_token_initializer = keras.initializers.TruncatedNormal(stddev=0.02)
        self.register_tokens_initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, input_shape: tuple[int | None, ...]):
        self.prefix = [
            self.add_weight(
                name=name,
                shape=(count, input_shape[-1]),
                initializer=getattr(self, f"{name}_initializer"),
            )
            for name, count in self.counts.items()
            if count
        ]

    def call(self, tokens):
        parts = [
            ops.broadcast_to(  # (batch, count, hidden_dim)
                ops.cast(part, tokens.dtype), (ops.shape(tokens)[0], *part.shape)
            )
            for part in self.prefix
        ]
        return ops.concatenate([*parts, tokens], axis=1)

    def compute_output_shape(self, input_shape):
        batch, patches, hidden_dim = input_shape
        tokens = None if patches is None else sum(self.counts.values()) + patches
        return (batch, tokens, hidden_dim)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "class_token": bool(self.counts["class_token"]),
            "distillation_token": bool(self.counts["distillation_token"]),
            "num_register_tokens": self.counts["register_tokens"],
        }
