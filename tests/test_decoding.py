"""TRAPS 11: JPEG's accurate DCT, EXIF orientation, WebP; and what is no picture."""

import io
import os
import re
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.decoding import decode_crop, decode_error, decode_image

HEIGHT, WIDTH = 37, 52  # odd: chroma blocks end beyond the picture


def picture(size=(WIDTH, HEIGHT), seed=0):
    """A smooth picture without symmetry."""
    noise = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def encode(image, form="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def levels_off(pixels, image):
    expected = np.asarray(image, np.int32).reshape(*np.shape(pixels))
    return np.abs(np.asarray(pixels, np.int32) - expected).max()


def exif_bytes(orientation, order="<", count=1, kind=3, offset=8):
    """A TIFF header with one directory, orientation after another tag."""
    header = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", offset)
    other = struct.pack(order + "HHIHH", 0x0100, 3, 1, 999, 0)
    entry = struct.pack(order + "HHIHH", 0x0112, kind, count, orientation, 0)
    return header + struct.pack(order + "H", 2) + other + entry + bytes(4)


def jpeg_with_exif(payload):
    jpeg = encode(picture(), "JPEG", quality=95)
    body = b"Exif\0\0" + payload
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


FORMATS = {
    "jpeg": lambda image: encode(image, "JPEG"),
    "jpeg_444": lambda image: encode(image, "JPEG", subsampling=0),
    "progressive": lambda image: encode(image, "JPEG", progressive=True),
    "grey_jpeg": lambda image: encode(image.convert("L"), "JPEG"),
    "cmyk_jpeg": lambda image: encode(image.convert("CMYK"), "JPEG"),
    "png": encode,
    "grey_png": lambda image: encode(image.convert("L")),
    "palette_png": lambda image: encode(image.quantize(32)),
    "bilevel_png": lambda image: encode(image.convert("1")),
    "alpha_png": lambda image: encode(image.convert("RGBA")),
    "webp": lambda image: encode(image, "WEBP"),
    "alpha_webp": lambda image: encode(image.convert("RGBA"), "WEBP", lossless=True),
    "animated_webp": lambda image: encode(
        image, "WEBP", save_all=True, append_images=[image.rotate(180)], lossless=True
    ),
    "gif": lambda image: encode(image, "GIF"),
    "animated_gif": lambda image: encode(
        image, "GIF", save_all=True, append_images=[image.rotate(180)]
    ),
    "bmp": lambda image: encode(image, "BMP"),
    "grey_bmp": lambda image: encode(image.convert("L"), "BMP"),
    "palette_bmp": lambda image: encode(image.quantize(32), "BMP"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_pixels_are_pils(name):
    encoded = FORMATS[name](picture())
    opened = Image.open(io.BytesIO(encoded))
    rgb = decode_image(encoded, 3)
    assert rgb.dtype == tf.uint8 and rgb.shape == (HEIGHT, WIDTH, 3)
    assert levels_off(rgb, opened.convert("RGB")) == 0
    grey = decode_image(encoded, 1)
    assert grey.shape == (HEIGHT, WIDTH, 1)
    assert levels_off(grey, opened.convert("RGB").convert("L")) == 0


def test_sixteen_bit_png_keeps_the_upper_bits():
    values = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 30
    pixels = decode_image(encode(Image.fromarray(values)), 1)
    assert levels_off(pixels, values >> 8) == 0


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_exif_orientation(orientation, form):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(picture(), form, exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGB")
    assert levels_off(decode_image(encoded), upright) == 0
    assert upright.size == ((WIDTH, HEIGHT) if orientation < 5 else (HEIGHT, WIDTH))


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(order):
    encoded = jpeg_with_exif(exif_bytes(6, order))
    assert decode_image(encoded).shape == (WIDTH, HEIGHT, 3)


MALFORMED = {
    "empty": b"",
    "no TIFF header": b"XX*\0" + exif_bytes(6)[4:],
    "wrong magic": b"II+\0" + exif_bytes(6)[4:],
    "zero": exif_bytes(0),
    "nine": exif_bytes(9),
    "wrong type": exif_bytes(6, kind=7),
    "directory beyond the file": exif_bytes(6, offset=0xFFFFFFFF),
    "directory cut short": exif_bytes(6)[:14],
    "no directory": exif_bytes(6)[:8],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_exif_is_upright(name):
    encoded = jpeg_with_exif(MALFORMED[name])
    assert levels_off(decode_image(encoded), decode_image(jpeg_with_exif(exif_bytes(1)))) == 0


def test_webp_exif_with_jpegs_prefix():
    for prefix in (b"", b"Exif\0\0"):
        encoded = encode(picture(), "WEBP", exif=prefix + exif_bytes(6, ">"))
        assert decode_image(encoded).shape == (WIDTH, HEIGHT, 3)


def test_exif_after_other_segments_and_fill_bytes():
    encoded = jpeg_with_exif(exif_bytes(8))
    segment = b"\xff\xe2" + struct.pack(">H", 3000) + b"\xff\xe1Exif\0\0" + bytes(2990)
    encoded = encoded[:2] + segment + b"\xff\xff\xff" + encoded[2:]
    assert decode_image(encoded).shape == (WIDTH, HEIGHT, 3)


def test_walk_ends_at_a_broken_segment():
    jpeg = jpeg_with_exif(exif_bytes(6))
    cut = jpeg[:2] + b"\xff\xe2\x00\x00" + jpeg[2:]
    upright = decode_crop(cut, lambda height, width: tf.stack([0, 0, height, width]))
    assert upright.shape == (HEIGHT, WIDTH, 3)


def test_in_graphs():
    """`tf.data`, `tf.map_fn` and a traced function give the eager pixels."""
    encoded = [jpeg_with_exif(exif_bytes(3)), encode(picture()), encode(picture(), "WEBP")]
    expected = [decode_image(one, 3).numpy() for one in encoded]
    dataset = tf.data.Dataset.from_tensor_slices(encoded).map(decode_image)
    assert dataset.element_spec.shape.as_list() == [None, None, 3]
    np.testing.assert_array_equal(list(dataset.as_numpy_iterator()), expected)
    mapped = tf.function(
        lambda batch: tf.map_fn(decode_image, batch, fn_output_signature=tf.uint8)
    )(tf.constant(encoded))
    np.testing.assert_array_equal(mapped, expected)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_crop_is_decode_then_slice(form, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(picture(), form, exif=exif)
    whole = decode_image(encoded)
    height, width = whole.shape[:2]
    for top, left, rows, columns in ((0, 0, height, width), (5, 9, 17, 12), (30, 20, 7, 17)):
        box = tf.constant([top, left, rows, columns])
        crop = decode_crop(encoded, lambda height, width, box=box: box)
        np.testing.assert_array_equal(crop, whole[top : top + rows, left : left + columns])


def test_crop_is_told_the_upright_size():
    seen = []

    def choose(height, width):
        seen.append((int(height), int(width)))
        return tf.stack([0, 0, height, width])

    for encoded in (jpeg_with_exif(exif_bytes(6)), encode(picture())):
        decode_crop(encoded, choose, channels=1)
    assert seen == [(WIDTH, HEIGHT), (HEIGHT, WIDTH)]


ENCODED = {
    "jpeg": lambda: encode(picture(), "JPEG"),
    "exif": lambda: jpeg_with_exif(exif_bytes(6)),
    "no exif, though it reads so": lambda: encode(picture(), "JPEG", comment=b"Exif\0\0"),
    "png": lambda: encode(picture()),
}


@pytest.mark.parametrize("name", ENCODED)
def test_crop_in_a_graph(name):
    """JPEG without EXIF has a branch of its own; all give what PIL gives."""
    encoded = ENCODED[name]()
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))))
    for box in ((0, 0, *upright.shape[:2]), (5, 9, 17, 12), (20, 16, 16, 16)):
        crop = tf.function(lambda one, box=box: decode_crop(one, lambda *_: tf.constant(box)))
        top, left, rows, columns = box
        expected = upright[top : top + rows, left : left + columns]
        np.testing.assert_array_equal(crop(tf.constant(encoded)), expected)


def test_what_few_files_need_is_one_node():
    """Inlined, its hundreds of operations would cost every other file a tenth of decoding."""
    encoded = tf.TensorSpec((), tf.string)
    for function in (
        decode_image,
        lambda one: decode_crop(one, lambda height, width: tf.stack([0, 0, height, width])),
    ):
        graph = tf.function(function).get_concrete_function(encoded).graph
        (branch,) = (node for node in graph.as_graph_def().node if node.op.endswith("If"))
        library = {each.signature.name: each for each in graph.as_graph_def().library.function}
        rare = library[branch.attr["else_branch"].func.name]
        called = [node.attr["f"].func.name for node in rare.node_def if "f" in node.attr]
        assert [library[name].attr["_noinline"].b for name in called] == [True]
        assert len(rare.node_def) < 10


@pytest.mark.parametrize("channels", [0, 2, 4])
def test_channels_error(channels):
    with pytest.raises(ValueError, match=f"`channels` must be .*channels={channels}"):
        decode_image(encode(picture()), channels)


def test_decode_error_of_good_files(tmp_path):
    for name, form in FORMATS.items():
        (tmp_path / name).write_bytes(form(picture()))
        assert decode_error(tmp_path / name) is None, name


BAD_FILES = {
    "empty": (b"", "is empty"),
    "text": (b"not at all a picture", r"is not a picture \(it begins with b'not at all"),
    "cut_jpeg": (FORMATS["jpeg"](picture())[:-100], "damaged, truncated .* JPEG"),
    "cut_progressive": (FORMATS["progressive"](picture())[:-100], "damaged, truncated .* JPEG"),
    "cut_png": (encode(picture())[:-50], "damaged, truncated .* PNG"),
    "cut_webp": (FORMATS["webp"](picture())[:-50], "damaged, truncated .* WebP"),
    "cut_gif": (FORMATS["gif"](picture())[:-50], "damaged, truncated .* GIF"),
    "cut_bmp": (FORMATS["bmp"](picture())[:-50], "damaged, truncated .* BMP"),
    "bilevel_bmp": (encode(picture().convert("1"), "BMP"), "unsupported BMP"),
    "header": (FORMATS["jpeg"](picture())[:3], "JPEG"),
    "tiff": (encode(picture(), "TIFF"), "is a TIFF file, .* convert it to JPEG, PNG"),
    "svg": (b"<?xml version='1.0'?>\n<svg width='3'></svg>", "is a SVG file"),
    "heic": (b"\0\0\0\x18ftypheic" + bytes(40), "is a HEIC, AVIF or video file"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_decode_error_of_bad_files(name, tmp_path):
    content, reason = BAD_FILES[name]
    (tmp_path / "picture.jpg").write_bytes(content)
    error = decode_error(tmp_path / "picture.jpg")
    assert error is not None and re.search(reason, error)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_image(content)


def test_decode_error_of_no_file(tmp_path):
    assert "cannot be read" in decode_error(tmp_path / "absent.jpg")
    assert "cannot be read" in decode_error(tmp_path)


def test_a_picture_that_fills_the_memory(tmp_path):
    """A small file of one colour may announce more pixels than memory holds."""
    raw = zlib.compress(b"\0" * 1000)
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", raw)
    (tmp_path / "bomb.png").write_bytes(bomb + chunk(b"IEND", b""))
    assert "more than 179 million pixels" in decode_error(tmp_path / "bomb.png")


def test_a_pipe_is_no_picture(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    assert decode_error(tmp_path / "pipe.jpg") == "is a pipe, not a file"
