import keras
from keras import ops

from keras_vit.layers.take_tokens import take_tokens


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchDropout(keras.layers.Layer):
    """Keep a random part of the patch tokens while training, so that a step costs less.

    Each example keeps patches of its own, all the same number, in their order: the whole part of
    `(1 - rate) * patches`, at least one. Nothing is rescaled.

    Args:
        rate: Part of the patches to drop, from 0 to below 1. 0 does nothing.
        num_prefix_tokens: Tokens before the patches, which are always kept.
        seed: Seed of the draws, or None.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)` with their positions, prefix tokens first.
        training: Whether to drop.

    Returns:
        `(batch, prefix tokens + kept patches, hidden_dim)` while training, else `tokens`.

    Raises:
        ValueError: If `rate` is out of range.

    Reference:
        Liu et al., *PatchDropout*, arXiv 2208.07220; Li et al., FLIP, arXiv 2212.00794.
    """

    def __init__(self, rate: float, num_prefix_tokens: int = 0, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(
                f"`rate` must be at least 0 and below 1. Received: rate={rate!r}. "
                "Half of the patches, 0.5, is a usual value."
            )
        self.rate = rate
        self.num_prefix_tokens = num_prefix_tokens
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if rate > 0.0 else None
        self.built = True

    def call(self, tokens, training: bool = False):
        if not training or self.rate == 0.0:
            return tokens
        prefix = self.num_prefix_tokens
        patches = tokens.shape[1] - prefix
        count = max(1, int(patches * (1.0 - self.rate)))
        shape = (ops.shape(tokens)[0], patches)
        noise = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        kept = ops.sort(ops.argsort(noise, axis=-1)[:, :count], axis=-1)  # (batch, count)
        patches = take_tokens(tokens[:, prefix:], kept)  # (batch, count, hidden_dim)
        return ops.concatenate([tokens[:, :prefix], patches], axis=1) if prefix else patches

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "rate": self.rate,
            "num_prefix_tokens": self.num_prefix_tokens,
            "seed": self.seed,
        }
