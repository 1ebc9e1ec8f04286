"""The stem against a forward pass in numpy, and what outputs do not show: its epsilons."""

import keras
import numpy as np
import pytest

from keras_vit import config
from keras_vit.layers import resnet_stem
from keras_vit.layers.resnet_stem import (
    STEM_NUMERICS,
    ResidualStage,
    ResidualUnit,
    ResNetStem,
    StandardizedConv2D,
)

NUMERICS = ("official", "timm")


def _norm_shapes(path: str, width: int) -> dict:
    return {f"{path}/gamma": (width,), f"{path}/beta": (width,)}


def _unit_shapes(inputs: int, width: int, has_shortcut: bool) -> dict:
    shapes = {
        "conv1/kernel": (1, 1, inputs, width),
        **_norm_shapes("norm1", width),
        "conv2/kernel": (3, 3, width, width),
        **_norm_shapes("norm2", width),
        "conv3/kernel": (1, 1, width, 4 * width),
        **_norm_shapes("norm3", 4 * width),
    }
    if has_shortcut:
        shapes["shortcut/kernel"] = (1, 1, inputs, 4 * width)
        shapes |= _norm_shapes("shortcut_norm", 4 * width)
    return shapes


def _under(path: str, shapes: dict) -> dict:
    return {f"{path}/{name}": shape for name, shape in shapes.items()}


STAGE_SHAPES = {
    **_under("unit_0", _unit_shapes(32, 32, has_shortcut=True)),
    **_under("unit_1", _unit_shapes(128, 32, has_shortcut=False)),
}
CASES = {
    "conv": dict(
        layer_class=StandardizedConv2D,
        arguments={"filters": 6, "kernel_size": 3, "strides": 2, "numerics": "timm"},
        input_shape=(5, 8, 4),
        output_shape=(3, 4, 6),
        weights={"kernel": (3, 3, 4, 6)},
    ),
    "unit": dict(
        layer_class=ResidualUnit,
        arguments={"width": 32, "numerics": "timm"},
        input_shape=(4, 6, 128),
        output_shape=(4, 6, 128),
        weights=_unit_shapes(128, 32, has_shortcut=False),
    ),
    "stage": dict(
        layer_class=ResidualStage,
        arguments={"num_units": 2, "width": 32, "strides": 2},
        input_shape=(4, 6, 32),
        output_shape=(2, 3, 128),
        weights=STAGE_SHAPES,
    ),
    "stem": dict(
        layer_class=ResNetStem,
        arguments={"layers": (2, 1), "width": 32, "numerics": "timm"},
        input_shape=(32, 16, 3),
        output_shape=(4, 2, 256),
        weights={
            "root/kernel": (7, 7, 3, 32),
            **_norm_shapes("root_norm", 32),
            **_under("stage_0", STAGE_SHAPES),
            **_under("stage_1/unit_0", _unit_shapes(128, 64, has_shortcut=True)),
        },
    ),
    "root_only": dict(
        layer_class=ResNetStem,
        arguments={"layers": (), "width": 32},
        input_shape=(16, 16, 1),
        output_shape=(4, 4, 32),
        weights={"root/kernel": (7, 7, 1, 32), **_norm_shapes("root_norm", 32)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layer_keeps_the_contract(check_layer, case):
    check_layer(**CASES[case])


def _windows(features: np.ndarray, size: int, strides: int, fill: float) -> list[np.ndarray]:
    """What each cell of a kernel sees, row by row, under TensorFlow's SAME padding."""
    pads = []
    for side in features.shape[1:3]:
        missing = max((-(-side // strides) - 1) * strides + size - side, 0)
        pads.append((missing // 2, missing - missing // 2))  # the odd one comes last
    padded = np.pad(features, ((0, 0), *pads, (0, 0)), constant_values=fill)
    high, wide = (-(-side // strides) for side in features.shape[1:3])
    return [
        padded[:, row::strides, column::strides][:, :high, :wide]
        for row in range(size)
        for column in range(size)
    ]


def _standardized(kernel: np.ndarray, numerics: str) -> np.ndarray:
    mean, variance = kernel.mean((0, 1, 2)), kernel.var((0, 1, 2))
    if numerics == "official":
        return (kernel - mean) / (np.sqrt(variance) + 1e-5)
    return (kernel - mean) / np.sqrt(variance + 1e-8)


class _Reference:
    """A forward pass in float64, from weights by path."""

    def __init__(self, weights: dict, numerics: str = "official"):
        self.weights = {path: value.astype("float64") for path, value in weights.items()}
        self.numerics = numerics

    def conv(self, features, path, strides=1):
        kernel = _standardized(self.weights[f"{path}/kernel"], self.numerics)
        cells = kernel.reshape(-1, *kernel.shape[2:])
        windows = _windows(features, kernel.shape[0], strides, 0.0)
        return sum(window @ cell for window, cell in zip(windows, cells, strict=True))

    def norm(self, features, path):
        epsilon = 1e-6 if self.numerics == "official" else 1e-5
        groups = features.reshape(*features.shape[:3], 32, -1)
        mean = groups.mean((1, 2, 4), keepdims=True)
        variance = groups.var((1, 2, 4), keepdims=True)
        result = ((groups - mean) / np.sqrt(variance + epsilon)).reshape(features.shape)
        return result * self.weights[f"{path}/gamma"] + self.weights[f"{path}/beta"]

    def unit(self, features, path, strides):
        branch = np.maximum(self.norm(self.conv(features, f"{path}/conv1"), f"{path}/norm1"), 0)
        branch = self.conv(branch, f"{path}/conv2", strides)
        branch = np.maximum(self.norm(branch, f"{path}/norm2"), 0)
        branch = self.norm(self.conv(branch, f"{path}/conv3"), f"{path}/norm3")
        if f"{path}/shortcut/kernel" in self.weights:
            features = self.conv(features, f"{path}/shortcut", strides)
            features = self.norm(features, f"{path}/shortcut_norm")
        return np.maximum(features + branch, 0)

    def stem(self, pixels, layers):
        features = self.conv(pixels.astype("float64"), "root", strides=2)
        features = np.maximum(self.norm(features, "root_norm"), 0)
        features = np.max(_windows(features, 3, 2, -np.inf), axis=0)
        for stage, units in enumerate(layers):
            for unit in range(units):
                strides = 2 if stage and not unit else 1
                features = self.unit(features, f"stage_{stage}/unit_{unit}", strides)
        return features


def _weights(layer: keras.layers.Layer) -> dict:
    return {w.path.split("/", 1)[1]: keras.ops.convert_to_numpy(w) for w in layer.weights}


def _numpy(tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("layers", [(), (1,), (2, 1, 1)])
def test_stem_by_hand(random_weights, numerics, layers):
    stem = ResNetStem(layers, width=32, numerics=numerics, name="stem")
    stem.build((None, 32, 48, 3))
    random_weights(stem)
    pixels = np.random.default_rng(0).normal(size=(2, 32, 48, 3)).astype("float32")
    expected = _Reference(_weights(stem), numerics).stem(pixels, layers)
    np.testing.assert_allclose(_numpy(stem(pixels)), expected, atol=2e-5)


@pytest.mark.parametrize("side", [4, 5])
@pytest.mark.parametrize("strides", [1, 2])
def test_padding_is_tensorflows_same(side, strides):
    """At a stride of 2 an even side lacks one row: it is put below, none above."""
    kernel = np.arange(9.0).reshape(3, 3, 1, 1)
    conv = StandardizedConv2D(1, 3, strides, name="conv")
    conv.build((None, side, side, 1))
    conv.kernel.assign(kernel)
    features = np.random.default_rng(0).normal(size=(1, side, side, 1)).astype("float32")
    expected = _Reference({"conv/kernel": kernel}).conv(features, "conv", strides)
    result = _numpy(conv(features))
    np.testing.assert_allclose(result, expected, atol=1e-5)
    inside = (features[0, :3, :3] * _standardized(kernel, "official")[..., 0]).sum()
    is_inside = abs(result[0, 0, 0, 0] - inside) < 1e-5
    assert is_inside == (side == 4 and strides == 2)


def _golden_path(key: str) -> str | None:
    """Our path of a tensor of an official file, if the stem has it."""
    *parts, leaf = key.split("/")
    leaf = {"scale": "gamma", "bias": "beta"}.get(leaf, leaf)
    if parts in (["conv_root"], ["gn_root"]):
        return f"{'root' if parts == ['conv_root'] else 'root_norm'}/{leaf}"
    if not key.startswith("block"):
        return None
    stage, unit, part = parts
    part = part.replace("conv_proj", "shortcut").replace("gn_proj", "shortcut_norm")
    stage, unit = int(stage.removeprefix("block")) - 1, int(unit.removeprefix("unit")) - 1
    return f"stage_{stage}/unit_{unit}/{part.replace('gn', 'norm')}/{leaf}"


@pytest.mark.parametrize(
    ("name", "layers"), [("hybrid_root_only", ()), ("hybrid_two_stages", (2, 1))]
)
def test_stem_with_the_weights_and_pictures_of_a_golden_file(golden, name, layers):
    with np.load(golden / f"{name}.npz") as file:
        weights = {_golden_path(key): value for key, value in file.items()}
    del weights[None]
    images = np.load(golden / f"{name}.expected.npz")["images"]
    stem = ResNetStem(layers, width=32, name="stem")
    stem.build(images.shape)
    for variable in stem.weights:
        value = weights.pop(variable.path.removeprefix("stem/"))
        variable.assign(value.reshape(variable.shape))  # the file may have (1, 1, 1, channels)
    assert not weights
    expected = _Reference(_weights(stem)).stem(images, layers)
    np.testing.assert_allclose(_numpy(stem(images)), expected, atol=2e-5)


def test_both_numerics_have_their_epsilons():
    """FAULTS E3: outputs hardly show an epsilon, so the layers are asked."""
    assert tuple(STEM_NUMERICS) == config.STEM_NUMERICS == NUMERICS
    for numerics, epsilon in (("official", 1e-6), ("timm", 1e-5)):
        stem = ResNetStem((2, 1), width=32, numerics=numerics)
        parts = stem._flatten_layers()
        norms = [p for p in parts if isinstance(p, keras.layers.GroupNormalization)]
        convs = [p for p in parts if isinstance(p, StandardizedConv2D)]
        assert len(norms) == len(convs) == 1 + 3 * 3 + 2
        assert {(norm.groups, norm.epsilon) for norm in norms} == {(32, epsilon)}
        assert {conv.numerics for conv in convs} == {numerics}


@pytest.mark.parametrize("numerics", NUMERICS)
def test_kernels_are_standardized_by_the_formula(numerics):
    """FAULTS E3: deviations near the epsilons, where the two formulas differ by 10 % and more."""
    conv = StandardizedConv2D(3, 3, numerics=numerics)
    conv.build((None, 4, 4, 5))
    kernel = np.random.default_rng(0).normal(3e-5, [1e-4, 1e-5, 1e-6], (3, 3, 5, 3))
    conv.kernel.assign(kernel)
    kernel = keras.ops.convert_to_numpy(conv.kernel).astype("float64")
    result = _numpy(conv.standardized_kernel())
    np.testing.assert_allclose(result, _standardized(kernel, numerics), rtol=1e-4, atol=1e-5)
    other = _standardized(kernel, NUMERICS[1 - NUMERICS.index(numerics)])
    assert np.abs(result / other - 1.0).min() > 0.05


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_kernels_are_standardized_in_float32_under_a_mixed_policy(policy):
    """Rounded to bfloat16 first, these kernels would be one number each."""
    conv = StandardizedConv2D(4, 1, dtype=policy)
    conv.build((None, 1, 64, 64))
    kernel = np.random.default_rng(0).normal(100.0, 0.01, (1, 1, 64, 4)).astype("float32")
    conv.kernel.assign(kernel)
    result = _numpy(conv(np.eye(64, dtype="float32")[None, None]))[0, 0]
    expected = _standardized(kernel.astype("float64"), "official")[0, 0]
    np.testing.assert_allclose(result, expected, atol=2e-2)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_group_statistics_are_float32_under_a_mixed_policy(policy):
    """FAULTS H1: squares of these would overflow float16, and bfloat16 would lose the mean."""
    norm = ResidualUnit(32, dtype=policy).norm1
    norm.build((None, 4, 4, 64))
    features = np.random.default_rng(0).normal(500.0, 100.0, (2, 4, 4, 64))
    features = keras.ops.cast(features, norm.compute_dtype)
    ones = {"norm/gamma": np.ones(64), "norm/beta": np.zeros(64)}
    expected = _Reference(ones).norm(_numpy(features).astype("float64"), "norm")
    np.testing.assert_allclose(_numpy(norm(features)), expected, atol=1e-2)


def test_initial_values_are_the_official_ones():
    stem = ResNetStem((2,), width=32, name="stem")
    stem.build((None, 32, 32, 3))
    weights = _weights(stem)
    for path, value in weights.items():
        if path.endswith("kernel"):
            fan_in = np.prod(value.shape[:3])
            assert value.std() * fan_in**0.5 == pytest.approx(1.0, abs=0.1), path
        else:
            is_one = path.endswith("gamma") and "norm3" not in path
            np.testing.assert_array_equal(value, float(is_one), err_msg=path)


def test_gradient_of_a_constant_kernel_is_finite():
    """The derivative of a square root at 0 is infinite."""
    inputs = keras.Input((16, 16, 3))
    model = keras.Model(inputs, ResNetStem((), width=32)(inputs))
    model.weights[0].assign(np.zeros((7, 7, 3, 32)))
    model.compile("sgd", "mse")
    pixels = np.random.default_rng(0).normal(size=(2, 16, 16, 3))
    model.train_on_batch(pixels, np.ones((2, 4, 4, 32)))
    assert np.isfinite(_numpy(model.weights[0])).all()


def test_nested_summary(capsys):
    """Keras takes an attribute `layers` of any layer for a list of layers."""
    inputs = keras.Input((16, 16, 3))
    keras.Model(inputs, ResNetStem((1,), width=32, name="stem")(inputs)).summary(expand_nested=True)
    assert "stem" in capsys.readouterr().out


@pytest.mark.parametrize("sides", [(16, 24), (24, 16), (4, 16), (None, 16)])
def test_sides_must_be_multiples_of_the_stride(sides):
    """FAULTS A7: no border is padded or dropped in silence."""
    stem = ResNetStem((1, 1, 1), width=32)
    for ask in (stem.build, stem.compute_output_shape):
        with pytest.raises(ValueError, match=r"multiples of the stem's stride, 16.*layers=\(1, 1"):
            ask((None, *sides, 3))
    stem.build((None, 16, 16, 3))
    if None not in sides:
        with pytest.raises(ValueError, match="multiples of the stem's stride, 16.*Resize it"):
            stem(np.zeros((1, *sides, 3), "float32"))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="Unknown `numerics`.*'tim'.*Did you mean: timm"):
        ResNetStem((1,), numerics="tim")
    with pytest.raises(ValueError, match="Unknown `numerics`.*'tim'.*Did you mean: timm"):
        StandardizedConv2D(8, 3, numerics="tim")
    with pytest.raises(ValueError, match="`width` must be a multiple of 32.*width=48"):
        ResNetStem((1,), width=48)
    with pytest.raises(ValueError, match="`layers` must be residual units of each stage.*layers=0"):
        ResNetStem((3, 0))


def test_no_layer_of_the_module_is_left_out():
    public = {
        value
        for name, value in vars(resnet_stem).items()
        if isinstance(value, type)
        and issubclass(value, keras.layers.Layer)
        and value.__module__ == resnet_stem.__name__
        and not name.startswith("_")
    }
    assert public == {case["layer_class"] for case in CASES.values()}
