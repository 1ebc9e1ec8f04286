import numpy as np
import pytest
from keras.ops import convert_to_numpy as to_numpy

from keras_vit.training.patch_targets import TARGETS, color_classes, split_patches

# Ends of the levels, and the classes by hand: r * 64 + g * 8 + b of 0..7 each.
COLORS = {
    (0, 0, 0): 0,
    (31.9, 31.9, 31.9): 0,
    (0, 0, 32): 1,
    (0, 32, 0): 8,
    (32, 0, 0): 64,
    (100, 150, 200): 3 * 64 + 4 * 8 + 6,
    (255, 0, 128): 7 * 64 + 4,
    (255, 255, 255): 511,
}


def _patches(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.0, 255.0, shape).astype("float32")


def test_colors_are_numbered_by_three_bits_a_channel():
    classes = to_numpy(color_classes(np.array(list(COLORS), "float32")))
    np.testing.assert_array_equal(classes, list(COLORS.values()))
    assert "int" in str(classes.dtype)
    grey = np.arange(0, 256, dtype="float32")[:, None]
    np.testing.assert_array_equal(to_numpy(color_classes(grey)), np.arange(256) // 32)


def test_patches_are_cut_row_by_row():
    pixels = _patches(2, 4, 9, 3)
    patches = to_numpy(split_patches(pixels, (2, 3)))
    assert patches.shape == (2, 6, 2, 3, 3)
    for number in range(6):
        row, column = 2 * (number // 3), 3 * (number % 3)
        expected = pixels[:, row : row + 2, column : column + 3]
        np.testing.assert_array_equal(patches[:, number], expected)


def test_mean_color_is_of_all_pixels_of_a_patch():
    colors = np.array(list(COLORS), "float32")
    patches = np.broadcast_to(colors[None, :, None, None, :], (1, len(colors), 4, 2, 3)).copy()
    patches[0, 0, :2] = 255.0  # half black, half white: 127.5, level 3
    classes = to_numpy(TARGETS["mean_color"].of(patches))
    np.testing.assert_array_equal(classes, [[3 * 73, *list(COLORS.values())[1:]]])
    assert TARGETS["mean_color"].shape(4, 2, 3) == (512,)
    assert TARGETS["mean_color"].shape(4, 2, 1) == (8,)


def test_downsized_is_sixteen_mean_colors_row_by_row():
    patches = _patches(2, 3, 8, 4, 3)
    classes = to_numpy(TARGETS["downsized"].of(patches))
    assert classes.shape == (2, 3, 16)
    for cell in range(16):
        row, column = 2 * (cell // 4), cell % 4
        mean = patches[:, :, row : row + 2, column : column + 1].mean(axis=(2, 3))
        expected = (mean // 32).astype(int) @ [64, 8, 1]
        np.testing.assert_array_equal(classes[..., cell], expected)
    assert TARGETS["downsized"].shape(8, 4, 3) == (16, 512)


def test_patch_is_its_pixels_from_minus_one_to_one():
    patches = np.array([0.0, 127.5, 255.0, 51.0], "float32").reshape(1, 1, 2, 1, 2)
    values = to_numpy(TARGETS["patch"].of(patches))
    np.testing.assert_allclose(values, [[[-1.0, 0.0, 1.0, -0.6]]], atol=1e-6)
    assert TARGETS["patch"].shape(2, 1, 2) == (4,)


def test_losses_are_means_over_all_that_is_predicted():
    patches = _patches(2, 3, 4, 4, 3)
    for name, expected in (("mean_color", np.log(512)), ("downsized", np.log(512))):
        of, shape, loss = TARGETS[name]
        zeros = np.zeros((2, 3, *shape(4, 4, 3)), "float32")
        np.testing.assert_allclose(float(loss(of(patches), zeros)), expected, rtol=1e-5)
    of, shape, loss = TARGETS["patch"]
    zeros = np.zeros((2, 3, *shape(4, 4, 3)), "float32")
    expected = np.mean((patches / 127.5 - 1.0) ** 2)
    np.testing.assert_allclose(float(loss(of(patches), zeros)), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["mean_color", "downsized"])
@pytest.mark.parametrize("channels", [2, 4, 13])
def test_colors_of_other_pictures_are_an_error(name, channels):
    with pytest.raises(ValueError, match=f"neither grey nor RGB.* Received: {channels} channels"):
        TARGETS[name].shape(4, 4, channels)
    assert TARGETS["patch"].shape(4, 4, channels) == (16 * channels,)


@pytest.mark.parametrize("patch_size", [(6, 4), (4, 6), (2, 2)])
def test_cells_that_are_no_whole_pixels_are_an_error(patch_size):
    height, width = patch_size
    with pytest.raises(ValueError, match=f"Received: patches of {height} x {width} pixels"):
        TARGETS["downsized"].shape(height, width, 3)
