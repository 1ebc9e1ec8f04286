import keras
from keras import ops

from keras_vit.checks import as_pair
from keras_vit.layers.dtype_policy import CompositeLayer


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(CompositeLayer):
    """Cut pictures into patches and project each one linearly (paper, equation 1).

    A convolution whose stride is its kernel size does both.

    Args:
        hidden_dim: Width of a token.
        patch_size: Patch side in pixels, an integer or `(height, width)`.
        use_bias: Whether the projection has a bias.

    Call arguments:
        pixels: `(batch, height, width, channels)`.

    Returns:
        `(batch, grid_height * grid_width, hidden_dim)`, patches row by row.

    Raises:
        ValueError: If the picture is no whole number of patches: a border is never dropped.
    """

    def __init__(
        self, hidden_dim: int, patch_size: int | tuple[int, int], use_bias: bool = True, **kwargs
    ):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.patch_size = as_pair(patch_size, "patch_size")
        self.projection = keras.layers.Conv2D(
            hidden_dim,
            kernel_size=self.patch_size,
            strides=self.patch_size,
            use_bias=use_bias,
            data_format="channels_last",
            kernel_initializer="lecun_normal",  # flax nn.Conv's default, as in the official code
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape: tuple[int | None, ...]):
        self._grid(input_shape)
        self.projection.build(input_shape)

    def call(self, pixels):
        patches = self.projection(pixels)  # (batch, grid_height, grid_width, hidden_dim)
        grid_height, grid_width = self._grid(pixels.shape)
        return ops.reshape(  # (batch, grid_height * grid_width, hidden_dim)
            patches, (-1, grid_height * grid_width, self.hidden_dim)
        )

    def compute_output_shape(self, input_shape):
        grid_height, grid_width = self._grid(input_shape)
        return (input_shape[0], grid_height * grid_width, self.hidden_dim)

    def _grid(self, input_shape) -> tuple[int, int]:
        height, width = input_shape[1:3]
        if (
            height is None
            or width is None
            or height % self.patch_size[0]
            or width % self.patch_size[1]
        ):
            raise ValueError(
                "The picture must be a known, whole number of patches high and wide. Received: "
                f"input_shape={tuple(input_shape)}, patch_size={self.patch_size}. "
                "Resize it (`model.preprocess` does) or choose another `image_size`."
            )
        return height // self.patch_size[0], width // self.patch_size[1]

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "patch_size": list(self.patch_size),
            "use_bias": self.projection.use_bias,
        }
