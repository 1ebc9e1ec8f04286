import keras
from keras import ops

from keras_vit.checks import Pair, as_pair
from keras_vit.layers.dtype_policy import CompositeLayer
from keras_vit.layers.encoder_block import EncoderBlock


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialBlock(CompositeLayer):
    """An encoder block along each row of the grid, then one along each column (paper, D.6).

    Args:
        grid: Patches as `(grid_height, grid_width)`.
        **kwargs: Arguments of the two `EncoderBlock`s, and of `keras.layers.Layer`.

    Call arguments:
        tokens: `(batch, grid_height * grid_width, hidden_dim)`, no prefix tokens.
        training: Whether to drop.

    Returns:
        The shape of `tokens`.
    """

    def __init__(self, grid: int | Pair, **kwargs):
        own = {key: kwargs.pop(key) for key in ("name", "dtype", "trainable") if key in kwargs}
        super().__init__(**own)
        self.grid = as_pair(grid, "grid")
        self.arguments = kwargs
        self.row, self.column = (
            EncoderBlock(**kwargs, sequences=sequences, dtype=self.dtype_policy, name=name)
            for name, sequences in zip(("row", "column"), self.grid, strict=True)
        )

    def build(self, input_shape: tuple[int | None, ...]):
        batch, tokens, hidden_dim = input_shape
        height, width = self.grid
        if tokens != height * width:
            raise ValueError(
                f"Tokens must be the patches of a grid of {self.grid}, {height * width}. "
                f"Received: input_shape={tuple(input_shape)}."
            )
        self.row.build((batch, width, hidden_dim))
        self.column.build((batch, height, hidden_dim))

    def call(self, tokens, training: bool = False):
        (height, width), dim = self.grid, tokens.shape[-1]
        rows = ops.reshape(tokens, (-1, width, dim))  # (batch * grid_height, grid_width, dim)
        rows = self.row(rows, training=training)
        columns = _swap(rows, (-1, height, width, dim))
        columns = self.column(columns, training=training)  # (batch * grid_width, grid_height, dim)
        rows = _swap(columns, (-1, width, height, dim))
        return ops.reshape(rows, (-1, height * width, dim))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), "grid": list(self.grid), **self.arguments}


def _swap(tokens, shape: tuple[int, int, int, int]):
    """Sequences `(batch * outer, inner, dim)` of `shape` to `(batch * inner, outer, dim)`."""
    grid = ops.transpose(ops.reshape(tokens, shape), (0, 2, 1, 3))
    return ops.reshape(grid, (-1, shape[1], shape[3]))
