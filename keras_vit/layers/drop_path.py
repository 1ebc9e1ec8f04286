import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class DropPath(keras.layers.Layer):
    """Drop a residual branch for whole examples while training (stochastic depth).

    Branches that stay are divided by the chance to stay, so that their mean is unchanged.

    Args:
        rate: Chance to drop, from 0 to below 1. 0 does nothing.
        repeats: Rows of the batch, one after the other, that are one example's.
        seed: Seed of the draws, or None.

    Call arguments:
        branch: `(batch, ...)`.
        training: Whether to drop.

    Returns:
        The shape of `branch`.

    Reference:
        Huang et al., arXiv 1603.09382.
    """

    def __init__(self, rate: float, repeats: int = 1, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"`rate` must be at least 0 and below 1. Received: rate={rate!r}.")
        self.rate = rate
        self.repeats = repeats
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if rate > 0.0 else None
        self.built = True

    def call(self, branch, training: bool = False):
        if not training or self.rate == 0.0:
            return branch
        examples = ops.shape(branch)[0] // self.repeats
        ones = ops.ones((examples,) + (1,) * (len(branch.shape) - 1), dtype=branch.dtype)
        mask = keras.random.dropout(ones, self.rate, seed=self.seed_generator)
        if self.repeats > 1:
            mask = ops.repeat(mask, self.repeats, axis=0)
        return branch * mask  # the mask is (batch, 1, ...)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "rate": self.rate,
            "repeats": self.repeats,
            "seed": self.seed,
        }
