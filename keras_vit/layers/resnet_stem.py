from typing import NamedTuple

import keras
from keras import ops

from keras_vit.checks import check_choice, check_integer
from keras_vit.layers.dtype_policy import CompositeLayer

GROUPS = 32


class StemNumerics(NamedTuple):
    """Epsilons of a stem: kernels are (w - mean) / (sqrt(variance + first) + second)."""

    variance_epsilon: float
    std_epsilon: float
    norm_epsilon: float


# The official code adds 1e-5 to the standard deviation. Its own variance epsilon is 0: 1e-20
# changes no result, and keeps the gradient of a constant kernel from being NaN.
STEM_NUMERICS = {
    "official": StemNumerics(variance_epsilon=1e-20, std_epsilon=1e-5, norm_epsilon=1e-6),
    "timm": StemNumerics(variance_epsilon=1e-8, std_epsilon=0.0, norm_epsilon=1e-5),
}


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(keras.layers.Layer):
    """A convolution whose kernel has mean 0 and standard deviation 1 in each output channel.

    Padding is TensorFlow's SAME: where an odd number of rows is missing, one more is put below
    than above. There is no bias. Kernels are standardised in float32, whatever the policy.

    Args:
        filters: Output channels.
        kernel_size: Side of the kernel in cells.
        strides: Cells from one output to the next.
        numerics: A key of `STEM_NUMERICS`.

    Call arguments:
        features: `(batch, height, width, channels)`.

    Returns:
        `(batch, height / strides, width / strides, filters)`, sides rounded up.

    Raises:
        ValueError: If `numerics` is unknown.

    Reference:
        Qiao et al., *Weight Standardization*, arXiv 1903.10520.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        strides: int = 1,
        numerics: str = "official",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("numerics", numerics, STEM_NUMERICS)
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.numerics = numerics
        self.kernel_initializer = keras.initializers.LecunNormal()  # flax nn.Conv's default

    def build(self, input_shape: tuple[int | None, ...]):
        self.kernel = self.add_weight(
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=self.kernel_initializer,
            autocast=False,  # else a mixed policy rounds it before it is standardised
            name="kernel",
        )

    def standardized_kernel(self):
        """The kernel that convolves, float32 `(height, width, channels, filters)`."""
        epsilons = STEM_NUMERICS[self.numerics]
        kernel = ops.cast(self.kernel, "float32")
        kernel = kernel - ops.mean(kernel, axis=(0, 1, 2))
        variance = ops.mean(ops.square(kernel), axis=(0, 1, 2))
        std = ops.sqrt(variance + epsilons.variance_epsilon)
        return kernel / (std + epsilons.std_epsilon)

    def call(self, features):
        return ops.conv(
            features,
            ops.cast(self.standardized_kernel(), self.compute_dtype),
            strides=self.strides,
            padding="same",
            data_format="channels_last",
        )

    def compute_output_shape(self, input_shape):
        sides = (side if side is None else -(-side // self.strides) for side in input_shape[1:3])
        return (input_shape[0], *sides, self.filters)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "numerics": self.numerics,
        }


class _StemPart(CompositeLayer):
    """Makes the two kinds of layer that a stem is made of."""

    numerics: str

    def _conv(self, filters: int, kernel_size: int, strides: int, name: str) -> StandardizedConv2D:
        return StandardizedConv2D(
            filters, kernel_size, strides, self.numerics, dtype=self.dtype_policy, name=name
        )

    def _norm(self, name: str, gamma: str = "ones") -> keras.layers.GroupNormalization:
        return keras.layers.GroupNormalization(  # its statistics are float32 in any policy
            GROUPS,
            epsilon=STEM_NUMERICS[self.numerics].norm_epsilon,
            gamma_initializer=gamma,
            dtype=self.dtype_policy,
            name=name,
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class ResidualUnit(_StemPart):
    """A bottleneck of a post-activation ResNet: 1x1, 3x3 and 1x1 convolutions, then added back.

    Args:
        width: Channels inside; four times as many come out. A multiple of 32.
        strides: Of the 3x3 convolution and of the shortcut ("v1.5").
        has_shortcut: Whether what is added back goes through a 1x1 convolution of its own, as
            in the first unit of each stage.
        numerics: A key of `STEM_NUMERICS`.

    Call arguments:
        features: `(batch, height, width, channels)`.

    Returns:
        `(batch, height / strides, width / strides, 4 * width)`.

    Reference:
        He et al., arXiv 1512.03385, figure 5.
    """

    def __init__(
        self,
        width: int,
        strides: int = 1,
        has_shortcut: bool = False,
        numerics: str = "official",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.width = width
        self.strides = strides
        self.has_shortcut = has_shortcut
        self.numerics = numerics
        self.conv1 = self._conv(width, 1, 1, "conv1")
        self.norm1 = self._norm("norm1")
        self.conv2 = self._conv(width, 3, strides, "conv2")
        self.norm2 = self._norm("norm2")
        self.conv3 = self._conv(4 * width, 1, 1, "conv3")
        self.norm3 = self._norm("norm3", gamma="zeros")  # a new unit passes its input on
        if has_shortcut:
            self.shortcut = self._conv(4 * width, 1, strides, "shortcut")
            self.shortcut_norm = self._norm("shortcut_norm")

    def build(self, input_shape: tuple[int | None, ...]):
        shape = input_shape
        for conv, norm in (
            (self.conv1, self.norm1),
            (self.conv2, self.norm2),
            (self.conv3, self.norm3),
        ):
            conv.build(shape)
            shape = conv.compute_output_shape(shape)
            norm.build(shape)
        if self.has_shortcut:
            self.shortcut.build(input_shape)
            self.shortcut_norm.build(shape)

    def call(self, features):
        branch = ops.relu(self.norm1(self.conv1(features)))  # (batch, height, width, width)
        branch = ops.relu(self.norm2(self.conv2(branch)))
        branch = self.norm3(self.conv3(branch))  # (batch, height, width, 4 * width)
        if self.has_shortcut:
            features = self.shortcut_norm(self.shortcut(features))
        return ops.relu(features + branch)

    def compute_output_shape(self, input_shape):
        return (*self.conv2.compute_output_shape(input_shape)[:3], 4 * self.width)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "width": self.width,
            "strides": self.strides,
            "has_shortcut": self.has_shortcut,
            "numerics": self.numerics,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class ResidualStage(CompositeLayer):
    """Residual units of one width, `unit_0` ...; the first has the stride and the shortcut.

    Args:
        num_units: How many.
        width: As in `ResidualUnit`.
        strides: Of the first unit.
        numerics: A key of `STEM_NUMERICS`.

    Call arguments:
        features: `(batch, height, width, channels)`.

    Returns:
        `(batch, height / strides, width / strides, 4 * width)`.
    """

    def __init__(
        self,
        num_units: int,
        width: int,
        strides: int = 1,
        numerics: str = "official",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_units = num_units
        self.width = width
        self.strides = strides
        self.numerics = numerics
        self.units = [
            ResidualUnit(
                width,
                strides=strides if index == 0 else 1,
                has_shortcut=index == 0,
                numerics=numerics,
                dtype=self.dtype_policy,
                name=f"unit_{index}",
            )
            for index in range(num_units)
        ]

    def build(self, input_shape: tuple[int | None, ...]):
        for unit in self.units:
            unit.build(input_shape)
            input_shape = unit.compute_output_shape(input_shape)

    def call(self, features):
        for unit in self.units:
            features = unit(features)
        return features

    def compute_output_shape(self, input_shape):
        return self.units[0].compute_output_shape(input_shape)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "num_units": self.num_units,
            "width": self.width,
            "strides": self.strides,
            "numerics": self.numerics,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetStem(_StemPart):
    """The convolutional part of a hybrid: a ResNet that makes feature maps of pictures.

    A 7x7 convolution, a maximum pool, then stages of residual units. Convolutions have
    standardised kernels, and group normalization takes the place of batch normalization.

    Args:
        layers: Residual units in each stage: `(3, 4, 9)` is R50 at stride 16; `()` is the root
            convolution and the pool alone.
        width: Channels of the root, a multiple of 32. Each stage doubles them.
        numerics: A key of `STEM_NUMERICS`: epsilons as in the `"official"` code or in `"timm"`.

    Call arguments:
        pixels: `(batch, height, width, channels)`.

    Returns:
        `(batch, height / stride, width / stride, channels)`. The stride is 4, and doubles with
        each stage after the first.

    Raises:
        ValueError: If an argument has no meaning, or the picture is no multiple of the stride.

    Reference:
        Dosovitskiy et al., arXiv 2010.11929, sections 3.1 and 4.1. Kolesnikov et al., *Big
        Transfer*, arXiv 1912.11370, has standardised kernels and groups too; its units,
        however, normalise before each convolution.
    """

    def __init__(
        self,
        layers: tuple[int, ...],
        width: int = 64,
        numerics: str = "official",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("numerics", numerics, STEM_NUMERICS)
        if check_integer("width", width, 1) % GROUPS:
            raise ValueError(
                f"`width` must be a multiple of {GROUPS}, its groups. Received: width={width}."
            )
        what = "residual units of each stage, such as (3, 4, 9)"
        # no attribute `layers`: Keras takes it for layers, in `summary(expand_nested=True)`
        self.num_units = tuple(check_integer("layers", units, 1, what) for units in layers)
        self.width = width
        self.numerics = numerics
        self.stride = 2 ** max(2, 1 + len(self.num_units))
        self.root = self._conv(width, 7, 2, "root")
        self.root_norm = self._norm("root_norm")
        self.stages = [
            ResidualStage(
                units,
                width * 2**index,
                strides=1 if index == 0 else 2,
                numerics=numerics,
                dtype=self.dtype_policy,
                name=f"stage_{index}",
            )
            for index, units in enumerate(self.num_units)
        ]

    def build(self, input_shape: tuple[int | None, ...]):
        self._check_sides(input_shape)
        self.root.build(input_shape)
        self.root_norm.build(self.root.compute_output_shape(input_shape))
        shape = (input_shape[0], input_shape[1] // 4, input_shape[2] // 4, self.width)
        for stage in self.stages:
            stage.build(shape)
            shape = stage.compute_output_shape(shape)

    def call(self, pixels):
        self._check_sides(pixels.shape)
        features = ops.relu(self.root_norm(self.root(pixels)))
        features = ops.max_pool(  # (batch, height / 4, width / 4, width)
            features, 3, strides=2, padding="same", data_format="channels_last"
        )
        for stage in self.stages:
            features = stage(features)
        return features

    def compute_output_shape(self, input_shape):
        self._check_sides(input_shape)
        channels = self.width * (2 ** (1 + len(self.num_units)) if self.num_units else 1)
        sides = (side // self.stride for side in input_shape[1:3])
        return (input_shape[0], *sides, channels)

    def _check_sides(self, input_shape):
        if any(side is None or side % self.stride for side in input_shape[1:3]):
            raise ValueError(
                f"The picture's sides must be known multiples of the stem's stride, {self.stride}. "
                f"Received: input_shape={tuple(input_shape)}, layers={self.num_units}. "
                "Resize it (`model.preprocess` does) or choose another `image_size`."
            )

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "layers": list(self.num_units),
            "width": self.width,
            "numerics": self.numerics,
        }
