import keras
import numpy as np
from keras import ops

from keras_vit.checks import Pair, as_pair


class _GridPositions(keras.layers.Layer):
    """What adds one vector a patch to tokens, and maybe one a prefix token.

    Args:
        grid: Patches as `(grid_height, grid_width)`.
        num_prefix_tokens: Tokens before the patches.
    """

    def __init__(self, grid: int | Pair, num_prefix_tokens: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.grid = as_pair(grid, "grid")
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, input_shape: tuple[int | None, ...]):
        expected = self.num_prefix_tokens + self.grid[0] * self.grid[1]
        if input_shape[1] != expected:
            raise ValueError(
                f"Positions are for {expected} tokens, {self.num_prefix_tokens} before a grid of "
                f"{self.grid} patches. Received: input_shape={tuple(input_shape)}."
            )

    def _with_prefix(self, patches, prefix=None):
        """`(tokens, hidden_dim)`: rows of `prefix`, zeros for other prefix tokens, `patches`."""
        count = self.num_prefix_tokens - (0 if prefix is None else prefix.shape[0])
        zeros = ops.zeros((count, patches.shape[-1]), dtype=patches.dtype)
        parts = [part for part in (prefix, zeros, patches) if part is not None and part.shape[0]]
        return ops.concatenate(parts, axis=0) if len(parts) > 1 else patches

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "grid": list(self.grid),
            "num_prefix_tokens": self.num_prefix_tokens,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class LearnedPositionEmbedding(_GridPositions):
    """Add one learned vector a token (paper, equation 1 and D.4 "1-D").

    Args:
        grid: Patches as `(grid_height, grid_width)`.
        num_prefix_tokens: Tokens before the patches.
        num_prefix_positions: The first of them that have a vector of their own; None: all.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.

    Returns:
        The shape of `tokens`.

    Raises:
        ValueError: If the tokens are not as many as prefix and grid say.
    """

    def __init__(
        self,
        grid: int | Pair,
        num_prefix_tokens: int = 0,
        num_prefix_positions: int | None = None,
        **kwargs,
    ):
        super().__init__(grid, num_prefix_tokens, **kwargs)
        self.num_prefix_positions = (
            num_prefix_tokens if num_prefix_positions is None else num_prefix_positions
        )
        self.embeddings_initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, input_shape: tuple[int | None, ...]):
        super().build(input_shape)
        rows = self.num_prefix_positions + self.grid[0] * self.grid[1]
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(rows, input_shape[-1]),
            initializer=self.embeddings_initializer,
        )

    def call(self, tokens):
        table = ops.cast(self.embeddings, tokens.dtype)
        if self.num_prefix_positions < self.num_prefix_tokens:
            count = self.num_prefix_positions
            table = self._with_prefix(table[count:], table[:count] if count else None)
        return tokens + table

    def get_config(self) -> dict:
        return {**super().get_config(), "num_prefix_positions": self.num_prefix_positions}


@keras.saving.register_keras_serializable(package="keras_vit")
class Learned2DPositionEmbedding(_GridPositions):
    """Add a learned vector a row and one a column, half the width each (paper, D.4 "2-D").

    Prefix tokens have none: they are learned themselves.

    Args:
        grid: Patches as `(grid_height, grid_width)`.
        num_prefix_tokens: Tokens before the patches.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`.

    Returns:
        The shape of `tokens`.

    Raises:
        ValueError: If the tokens are not as many as prefix and grid say.
    """

    def __init__(self, grid: int | Pair, num_prefix_tokens: int = 0, **kwargs):
        super().__init__(grid, num_prefix_tokens, **kwargs)
        self.row_embeddings_initializer = keras.initializers.RandomNormal(stddev=0.02)
        self.column_embeddings_initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, input_shape: tuple[int | None, ...]):
        super().build(input_shape)
        (height, width), half = self.grid, input_shape[-1] // 2
        self.row_embeddings = self.add_weight(
            name="row_embeddings", shape=(height, half), initializer=self.row_embeddings_initializer
        )
        self.column_embeddings = self.add_weight(
            name="column_embeddings",
            shape=(width, half),
            initializer=self.column_embeddings_initializer,
        )

    def call(self, tokens):
        (height, width), half = self.grid, tokens.shape[-1] // 2
        shape = (height, width, half)
        columns = ops.broadcast_to(ops.expand_dims(self.column_embeddings, 0), shape)
        rows = ops.broadcast_to(ops.expand_dims(self.row_embeddings, 1), shape)
        table = ops.concatenate([columns, rows], axis=-1)  # (grid_height, grid_width, hidden_dim)
        table = ops.cast(ops.reshape(table, (height * width, 2 * half)), tokens.dtype)
        return tokens + self._with_prefix(table)


@keras.saving.register_keras_serializable(package="keras_vit")
class SinCos2DPositionEmbedding(_GridPositions):
    """Add fixed sines and cosines of column and row, as big_vision's `posemb_sincos_2d`.

    A quarter of the width each: sin x, cos x, sin y, cos y, of the frequencies
    1 / 10000 ** (k / (quarter - 1)). Prefix tokens have none.

    Args:
        grid: Patches as `(grid_height, grid_width)`.
        num_prefix_tokens: Tokens before the patches.

    Call arguments:
        tokens: `(batch, tokens, hidden_dim)`, `hidden_dim` a multiple of 4.

    Returns:
        The shape of `tokens`.

    Raises:
        ValueError: If the tokens are not as many as prefix and grid say.

    Reference:
        Beyer et al., *Better plain ViT baselines for ImageNet-1k*, arXiv 2205.01580.
    """

    def call(self, tokens):
        table = ops.convert_to_tensor(_sincos_table(self.grid, tokens.shape[-1]), tokens.dtype)
        return tokens + self._with_prefix(table)


def _sincos_table(grid: Pair, hidden_dim: int) -> np.ndarray:
    """float32 `(grid_height * grid_width, hidden_dim)`."""
    rows, columns = np.indices(grid).reshape(2, -1, 1)
    frequencies = 10_000.0 ** -np.linspace(0.0, 1.0, hidden_dim // 4)
    x, y = columns * frequencies, rows * frequencies  # (patches, hidden_dim / 4)
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1).astype("float32")


# Those that add to tokens. "relative" is part of attention; "none" is nothing.
POSITION_EMBEDDINGS = {
    "learned": LearnedPositionEmbedding,
    "learned_2d": Learned2DPositionEmbedding,
    "sincos_2d": SinCos2DPositionEmbedding,
}
