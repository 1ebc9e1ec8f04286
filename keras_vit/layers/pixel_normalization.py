import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class PixelNormalization(keras.layers.Layer):
    """Pixels 0..255 to the range that the weights were trained on: (x / 255 - mean) / std.

    Always float32: in bfloat16 the result errs by 0.013, more than most layers do.

    Args:
        mean: Mean a channel, in units of 0..1.
        std: Standard deviation a channel, in units of 0..1.

    Call arguments:
        pixels: `(batch, height, width, channels)`, 0..255.

    Returns:
        float32, the shape of `pixels`.

    Raises:
        ValueError: If the pixels have another number of channels than `mean`.
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.mean = tuple(mean)
        self.std = tuple(std)

    def build(self, input_shape: tuple[int | None, ...]):
        if input_shape[-1] != len(self.mean) or len(self.mean) != len(self.std):
            raise ValueError(
                "`mean` and `std` must have one number a channel. Received: "
                f"mean={self.mean}, std={self.std}, input_shape={tuple(input_shape)}."
            )

    def call(self, pixels):
        if pixels.shape[-1] != len(self.mean):  # one channel would broadcast to three
            raise ValueError(
                f"Pictures must have {len(self.mean)} channels, on the last axis. Received: "
                f"shape={tuple(pixels.shape)}. `model.preprocess` converts grey and RGB, or load "
                "the model with `num_channels=`."
            )
        mean = ops.convert_to_tensor([255.0 * value for value in self.mean], dtype="float32")
        std = ops.convert_to_tensor([255.0 * value for value in self.std], dtype="float32")
        return (pixels - mean) / std

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict:
        return {**super().get_config(), "mean": list(self.mean), "std": list(self.std)}
