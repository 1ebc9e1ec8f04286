"""FAULTS B1, D1, D2, D3; TRAPS 3, 15."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.model import ViT
from keras_vit.preprocessing import check_pixel_range, preprocess, resize_image

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
PLAIN = PreprocessingConfig()
ANTIALIASED = PreprocessingConfig(antialias=True)


def checkerboard(height, width, side=1):
    rows, columns = np.mgrid[0:height, 0:width] // side
    return np.repeat(((rows + columns) % 2 * 255)[..., None], 3, axis=-1).astype(np.uint8)


def photo(height, width, seed=0):
    noise = np.random.default_rng(seed).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def tiny(num_channels=3, **fields):
    config = ViTConfig(
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
        patch_size=4,
        image_size=16,
        num_classes=5,
        num_channels=num_channels,
        **fields,
    )
    return ViT(config)


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize(
    ("picture", "size"),
    [
        (checkerboard(48, 64), (16, 16)),
        (checkerboard(50, 70, side=3), (24, 40)),
        (photo(48, 64), (16, 16)),
        (photo(50, 70), (24, 40)),
        (photo(13, 9), (16, 16)),
    ],
    ids=["checkerboard", "coarse", "photo", "odd ratio", "enlarged"],
)
def test_antialiased_is_pil(picture, size, interpolation):
    """FAULTS D2: within one level, bicubic too."""
    rule = PreprocessingConfig(interpolation=interpolation, antialias=True)
    expected = Image.fromarray(picture).resize(size[::-1], FILTERS[interpolation])
    resized = resize_image(picture, rule, size)
    assert resized.dtype == tf.float32
    assert np.abs(resized - np.asarray(expected, np.float32)).max() <= 1.0
    assert np.array_equal(resized, np.round(resized))


def test_without_antialias_is_the_official_rule():
    """FAULTS D2: sampling and PIL's filter differ by far, so a rule cannot be swapped unseen."""
    picture = checkerboard(48, 64, side=3)
    resized = resize_image(picture, PLAIN, (16, 16))
    np.testing.assert_array_equal(resized, tf.image.resize(picture, (16, 16)))
    assert np.abs(resized - resize_image(picture, ANTIALIASED, (16, 16))).max() > 50
    # Half-pixel centres: halving averages pairs.
    ramp = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    np.testing.assert_allclose(resize_image(ramp, PLAIN, (1, 4))[0, :, 0], [0.5, 2.5, 4.5, 6.5])


def test_bicubic_stays_in_range():
    rule = PreprocessingConfig(interpolation="bicubic")
    resized = resize_image(checkerboard(8, 8, side=4), rule, (16, 16))
    assert resized.numpy().min() == 0.0 and resized.numpy().max() == 255.0


def pil_crop(picture, size, fraction):
    """torchvision's Resize of the shorter side and CenterCrop, by PIL."""
    height, width = picture.shape[:2]
    target = int(size / fraction)
    short, long = min(height, width), max(height, width)
    other = int(target * long / short)
    resized = (target, other) if height <= width else (other, target)  # height, width
    left = round((resized[1] - size) / 2.0)
    top = round((resized[0] - size) / 2.0)
    image = Image.fromarray(picture).resize(resized[::-1], Image.Resampling.BICUBIC)
    return np.asarray(image.crop((left, top, left + size, top + size)), np.float32)


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (50, 71), (17, 19), (16, 16), (101, 33)])
@pytest.mark.parametrize("fraction", [1.0, 0.875, 0.9])
def test_crop_is_torchvisions(shape, fraction):
    rule = PreprocessingConfig(
        interpolation="bicubic", antialias=True, resize="crop", crop_fraction=fraction
    )
    picture = photo(*shape)
    resized = resize_image(picture, rule, (16, 16))
    assert resized.shape == (16, 16, 3)
    assert np.abs(resized - pil_crop(picture, 16, fraction)).max() <= 1.0


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (50, 71)])
def test_squash_with_a_fraction_is_cut_from_a_square(shape):
    """timm's `crop_mode` "squash" and transformers' DeiT resize to 256 x 256, then crop."""
    rule = dataclasses.replace(ANTIALIASED, resize="squash", crop_fraction=0.8)
    picture = photo(*shape)
    squashed = resize_image(picture, dataclasses.replace(rule, crop_fraction=1.0), (20, 20))
    np.testing.assert_array_equal(resize_image(picture, rule, (16, 16)), squashed[2:18, 2:18])


def test_crop_and_squash_differ():
    picture = photo(48, 96)
    crop = dataclasses.replace(ANTIALIASED, resize="crop")
    squashed, cropped = (resize_image(picture, rule, (16, 16)) for rule in (ANTIALIASED, crop))
    assert np.abs(squashed - cropped).max() > 10
    np.testing.assert_array_equal(cropped, resize_image(picture, crop, (16, 32))[:, 8:24])


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (20, 20)])
def test_crop_to_an_oblong_model_covers_both_axes(shape):
    """FAULTS A2: the least resize of the same aspect that covers (16, 32) / 0.8."""
    rule = PreprocessingConfig(antialias=True, resize="crop", crop_fraction=0.8)
    height, width = shape
    scale = max(20 / height, 40 / width)
    resized = (int(width * scale + 1e-9), int(height * scale + 1e-9))
    left, top = round((resized[0] - 32) / 2), round((resized[1] - 16) / 2)
    picture = photo(*shape)
    image = Image.fromarray(picture).resize(resized, Image.Resampling.BILINEAR)
    expected = np.asarray(image.crop((left, top, left + 32, top + 16)), np.float32)
    assert np.abs(resize_image(picture, rule, (16, 32)) - expected).max() <= 1.0


def test_pixels_are_normalised_by_the_checkpoints_values():
    """FAULTS D1: 0, 127.5, 255 become -1, 0, 1, and ImageNet's values where those belong."""
    pixels = np.array([0.0, 127.5, 255.0], np.float32).repeat(16 * 16 * 3).reshape(3, 16, 16, 3)
    for mean, std in (((0.5,) * 3, (0.5,) * 3), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))):
        model = ViT(tiny().config, PreprocessingConfig(mean=mean, std=std))
        normalised = model.get_layer("normalization")(pixels)
        for value, one in zip((0.0, 0.5, 1.0), normalised, strict=True):
            expected = (value - np.array(mean)) / np.array(std)
            np.testing.assert_allclose(one, np.broadcast_to(expected, one.shape), atol=1e-6)
    assert tiny().get_layer("normalization")(pixels)[:, 0, 0, 0].numpy().tolist() == [-1, 0, 1]


@pytest.mark.parametrize("rule", [PLAIN, ANTIALIASED])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "float32", "float64"])
def test_dtype_matrix(dtype, rule):
    """FAULTS D3: numpy, list, tensor and tf.data agree in every dtype."""
    pictures = np.stack([photo(20, 28, seed) for seed in range(2)])
    expected = preprocess(pictures, rule, (16, 16), 3)
    cast = pictures.astype(dtype)
    tensor = preprocess(tf.constant(cast), rule, (16, 16), 3)
    dataset = tf.data.Dataset.from_tensors(cast).map(lambda x: preprocess(x, rule, (16, 16), 3))
    assert isinstance(expected, np.ndarray) and tf.is_tensor(tensor)
    assert dataset.element_spec.shape.as_list() == [2, 16, 16, 3]
    for result in (
        preprocess(cast, rule, (16, 16), 3),
        preprocess(list(cast), rule, (16, 16), 3),
        tensor.numpy(),
        next(dataset.as_numpy_iterator()),
    ):
        assert result.dtype == np.float32 and result.shape == (2, 16, 16, 3)
        np.testing.assert_array_equal(result, expected)


def test_bfloat16():
    tensor = tf.cast(photo(20, 28), tf.bfloat16)
    from_array = preprocess(np.asarray(tensor), PLAIN, (16, 16), 3)
    np.testing.assert_array_equal(from_array, preprocess(tensor, PLAIN, (16, 16), 3))


def test_list_of_unequal_pictures():
    pictures = [
        photo(20, 28),
        Image.fromarray(photo(33, 12)),
        photo(16, 16).astype("float32"),
        tf.constant(photo(9, 9)),
        photo(30, 20)[..., 0],
    ]
    together = preprocess(pictures, ANTIALIASED, (16, 16), 3)
    assert together.shape == (5, 16, 16, 3)
    for one, alone in zip(pictures, together, strict=True):
        np.testing.assert_array_equal(preprocess(one, ANTIALIASED, (16, 16), 3), alone[None])


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_channels_come_from_the_model(channels):
    """FAULTS B1: the model's own preprocessing and its prediction agree on channels."""
    model = tiny(channels)
    pictures = np.random.default_rng(0).integers(0, 256, (2, 20, 28, channels), dtype=np.uint8)
    pixels = model.preprocess(pictures)
    assert pixels.shape == (2, 16, 16, channels)
    assert model.predict(pixels, verbose=0).shape == (2, 5)


def test_grey_and_colour():
    """FAULTS B1: grey is repeated for RGB, RGB is weighed as PIL weighs it."""
    colour = photo(16, 16)
    grey = Image.fromarray(colour).convert("L")
    expected = np.asarray(grey, np.float32)[None, ..., None]
    np.testing.assert_array_equal(preprocess(colour, PLAIN, (16, 16), 1), expected)
    np.testing.assert_array_equal(preprocess(np.asarray(grey), PLAIN, (16, 16), 1), expected)
    repeated = preprocess(np.asarray(grey), PLAIN, (16, 16), 3)
    np.testing.assert_array_equal(repeated, np.repeat(expected, 3, axis=-1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pil_modes(mode, channels):
    image = Image.fromarray(photo(16, 16)).convert(mode)
    expected = np.asarray(image.convert({1: "L", 3: "RGB"}[channels]), np.float32)
    result = preprocess(image, PLAIN, (16, 16), channels)
    np.testing.assert_array_equal(result, expected.reshape(1, 16, 16, channels))


def test_pil_images_are_turned_upright():
    image = Image.fromarray(photo(16, 16))
    turned = image.transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[0x0112] = 6
    np.testing.assert_array_equal(
        preprocess(turned, PLAIN, (16, 16), 3), preprocess(image, PLAIN, (16, 16), 3)
    )


BAD_IMAGES = {
    "bool": (np.zeros((16, 16, 3), bool), "dtype bool"),
    "text": ("cat.jpg", "Open files with `PIL.Image.open`"),
    "nothing": ([], "at least one picture"),
    "vector": (np.zeros(5, np.uint8), "must be \\(height, width\\)"),
    "empty": (np.zeros((0, 16, 3), np.uint8), "none of them 0"),
    "alpha": (np.zeros((16, 16, 4), np.uint8), "images\\[..., :3\\]"),
    "channels first": (np.zeros((1, 3, 16, 16), np.uint8), "last axis"),
    "two": (np.zeros((16, 16, 2), np.uint8), "the model's 3 channels"),
    "unit range": (photo(16, 16) / 255.0, "`images` must be pixels 0..255.*x \\* 255"),
    "normalised": (photo(16, 16) / 127.5 - 1.0, "\\(x \\+ 1\\) \\* 127.5"),
    "nan": (np.full((16, 16, 3), np.nan), "NaN"),
    "infinite": (np.full((16, 16, 3), np.inf), "NaN or infinite"),
    "16 bit": (np.full((16, 16), 4000, np.uint16), "integers from 4000 to 4000"),
    "negative": (np.full((16, 16), -1), "integers from -1"),
    "16 bit PIL": (Image.fromarray(np.full((16, 16), 4000, np.uint16)), "8 bits"),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_images(name):
    """TRAPS 15 and its kin: an error that says what to do."""
    images, message = BAD_IMAGES[name]
    with pytest.raises(ValueError, match=message):
        preprocess(images, PLAIN, (16, 16), 3)


def test_bad_tensors():
    for images, message in (
        (tf.zeros((16, 16, 3), tf.bool), "dtype=bool"),
        (tf.fill((16, 16, 3), 0.5), "0..255"),
        (tf.zeros((2, 16, 16, 4)), "Drop an alpha channel"),
    ):
        with pytest.raises(ValueError, match=message):
            preprocess(images, PLAIN, (16, 16), 3)


def test_pixel_range_of_a_batch():
    """TRAPS 15: the whole batch counts, black passes, integers 0..1 pass, symbols pass."""
    dark, bright = np.full((4, 4, 3), 0.5), np.full((4, 4, 3), 200.0)
    passing = (
        [dark, bright],
        np.zeros((2, 4, 4, 3), np.float32),
        np.ones((4, 4, 3), np.uint8),
        np.zeros((0, 4, 4, 3), np.float32),
        keras.KerasTensor((None, 4, 4, 3)),
        None,
    )
    for images in passing:
        check_pixel_range(images, "x")
    tf.function(lambda images: check_pixel_range(images, "x"))(tf.constant(dark))
    for images in (
        dark,
        [dark, dark],
        tf.constant(dark),
        np.float16(dark),
        [dark, np.uint8(bright)],
    ):
        with pytest.raises(ValueError, match="`x` must be pixels 0..255"):
            check_pixel_range(images, "x")


def test_uint8_and_float_predict_the_same():
    """TRAPS 3: a float32 input takes uint8 rightly, and does not truncate floats."""
    model = tiny()
    head = model.get_layer("head")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    pixels = photo(16, 16)[None]
    logits = model.predict(pixels, verbose=0)
    np.testing.assert_allclose(logits, model.predict(pixels.astype("float32"), verbose=0))
    assert np.abs(logits - model.predict(pixels + np.float32(0.5), verbose=0)).max() > 1e-5


def test_each_picture_of_a_list_is_looked_at():
    """TRAPS 15: one scaled picture among whole ones."""
    whole = np.full((8, 8, 3), 200.0, "float32")
    with pytest.raises(ValueError, match="pixels 0..255"):
        preprocess([whole, whole / 255.0], PreprocessingConfig(), (4, 4), 3)


def test_sixteen_bit_arrays_of_small_values():
    result = preprocess(np.full((9, 9), 7, "uint16"), PreprocessingConfig(), (4, 4), 3)
    np.testing.assert_array_equal(result, np.full((1, 4, 4, 3), 7.0, "float32"))
