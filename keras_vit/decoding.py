"""Encoded pictures into upright pixels, as TensorFlow graph code.

Everything here works eagerly, in `tf.data`, in `tf.map_fn` and in a SavedModel that TensorFlow
alone runs. JPEG is decoded by the accurate integer DCT, which gives the pixels that PIL gives
(TensorFlow's default is up to 5 levels off). EXIF orientation is read from the bytes and applied.
"""

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from PIL import Image

# What a turn does to a raster, by EXIF orientation: transposed first, then reversed.
_TRANSPOSED = (5, 6, 7, 8)
_REVERSED_ROWS = (3, 4, 7, 8)
_REVERSED_COLUMNS = (2, 3, 6, 7)

# A small file can announce a picture that fills the memory; PIL refuses from here on, too.
MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 89_478_485)
_SUPPORTED = "JPEG, PNG, WebP, GIF or BMP"
_JPEG = b"\xff\xd8\xff"
_JPEG_EXIF = r"Exif\x00\x00"
_MAGIC = {
    _JPEG: "JPEG",
    b"\x89PNG\r\n": "PNG",
    b"RIFF": "WebP",
    b"GIF8": "GIF",
    b"BM": "BMP",
}
_FOREIGN_MAGIC = {
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"\0\0\1\0": "ICO",
    b"8BPS": "Photoshop",
    b"%PDF": "PDF",
    b"PK\3\4": "ZIP",
}


def decode_image(encoded: tf.Tensor | bytes, channels: int = 3) -> tf.Tensor:
    """Decode one picture and turn it upright.

    Args:
        encoded: The bytes of a JPEG, PNG, WebP, GIF (first frame) or BMP file, a scalar string.
            An alpha channel is dropped; 16-bit PNGs keep their upper 8 bits.
        channels: 3 for RGB, or 1 for grey, by the weights of PIL's `"L"`.

    Returns:
        uint8 `(height, width, channels)`, EXIF orientation applied. Malformed EXIF counts as
        upright.

    Raises:
        ValueError: If `channels` is neither 1 nor 3.
        tf.errors.InvalidArgumentError: If the bytes are no such picture, or cut short.
    """
    _check_channels(channels)
    encoded = tf.convert_to_tensor(encoded, tf.string)

    def any_file():
        data = _Bytes(encoded)
        return _turn(_decode_raster(data), _orientation(data))

    upright = tf.cond(
        _is_upright_jpeg(encoded), lambda: _decode_jpeg(encoded), lambda: _as_one_node(any_file)
    )
    return _to_channels(upright, channels)


def decode_crop(
    encoded: tf.Tensor | bytes,
    choose_box: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    channels: int = 3,
) -> tf.Tensor:
    """Decode a box out of one picture; of a JPEG, little more than the box is decoded.

    Args:
        encoded: As for `decode_image`.
        choose_box: Takes height and width of the upright picture, int32 scalars, and returns
            int32 `(4,)`: top, left, height and width of the box.
        channels: 3 or 1, as for `decode_image`.

    Returns:
        uint8 `(box height, box width, channels)`: the pixels that `decode_image` and a slice
        would give.

    Raises:
        ValueError, tf.errors.InvalidArgumentError: As `decode_image`.
    """
    _check_channels(channels)
    encoded = tf.convert_to_tensor(encoded, tf.string)

    def upright_jpeg():
        size = tf.io.extract_jpeg_shape(encoded)[:2]
        box = choose_box(size[0], size[1])
        return _decode_jpeg_box(encoded, size, box[:2], box[2:])

    def any_file():
        data = _Bytes(encoded)
        orientation = _orientation(data)

        def turned_jpeg():
            size = tf.io.extract_jpeg_shape(encoded)[:2]
            upright_size = tf.where(_any(orientation, _TRANSPOSED), size[::-1], size)
            box = choose_box(upright_size[0], upright_size[1])
            begin, extent = _raster_box(box, upright_size, orientation)
            return _turn(_decode_jpeg_box(encoded, size, begin, extent), orientation)

        def decoded_first():
            upright = _turn(_decode_other(data), orientation)
            size = tf.shape(upright)
            box = choose_box(size[0], size[1])
            return _slice(upright, box[:2], box[2:])

        return tf.cond(data.is_jpeg, turned_jpeg, decoded_first)

    crop = tf.cond(_is_upright_jpeg(encoded), upright_jpeg, lambda: _as_one_node(any_file))
    return _to_channels(crop, channels)


def decode_error(path: str | os.PathLike) -> str | None:
    """Decode one file fully and say what is wrong with it.

    Args:
        path: A file.

    Returns:
        None if `decode_image` can read it, else the reason, to be put after the path.
    """
    try:
        if Path(path).is_fifo():  # reading would wait for a writer
            return "is a pipe, not a file"
        content = Path(path).read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not content:
        return "is empty (0 bytes)"
    if _is_too_large(content):
        return f"has more than {MOST_PIXELS / 1e6:.0f} million pixels; make it smaller"
    try:
        _decode_raster(_Bytes(content))
    except tf.errors.OpError:
        return _name_fault(content)
    return None


def _is_too_large(content: bytes) -> bool:
    """Whether a picture's header announces more than `MOST_PIXELS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PIL warns of large pictures
        try:
            with Image.open(io.BytesIO(content)) as image:
                return image.width * image.height > MOST_PIXELS
        except Image.DecompressionBombError:
            return True
        except (OSError, ValueError, SyntaxError):
            return False  # not PIL's, or damaged: decoding tells


def _name_fault(content: bytes) -> str:
    for magic, name in _MAGIC.items():
        if content.startswith(magic):
            return f"is a damaged, truncated or unsupported {name} file"
    foreign = [name for magic, name in _FOREIGN_MAGIC.items() if content.startswith(magic)]
    if b"<svg" in content[:2048]:
        foreign = ["SVG"]
    if content[4:8] == b"ftyp":
        foreign = ["HEIC, AVIF or video"]
    if foreign:
        return f"is a {foreign[0]} file, which is not supported; convert it to {_SUPPORTED}"
    return f"is not a picture (it begins with {content[:12]!r})"


def _check_channels(channels: int):
    if channels not in (1, 3):
        raise ValueError(
            "`channels` must be 1 (grey) or 3 (RGB) to decode picture files. "
            f"Received: channels={channels!r}. Pictures of other channels are taken as arrays."
        )


class _Bytes:
    """The bytes of one encoded picture; reading past the end gives 0."""

    def __init__(self, encoded: tf.Tensor | bytes):
        self.encoded = tf.convert_to_tensor(encoded, tf.string)
        self._data = tf.io.decode_raw(tf.strings.join([self.encoded, b"\0"]), tf.uint8)
        self.size = tf.size(self._data, out_type=tf.int64) - 1
        self.is_jpeg = self.equals(0, _JPEG)

    def byte(self, at: Any) -> tf.Tensor:
        at = tf.minimum(tf.cast(at, tf.int64), self.size)
        return tf.cast(tf.gather(self._data, at), tf.int64)

    def number(self, at: Any, width: int, little: Any) -> tf.Tensor:
        """Unsigned integers of `width` bytes, one at each position."""
        weights = [256**place for place in range(width)]
        weights = tf.where(little, tf.constant(weights, tf.int64), weights[::-1])
        places = tf.constant(list(range(width)), tf.int64)
        digits = self.byte(tf.cast(at, tf.int64)[..., None] + places)
        return tf.reduce_sum(digits * weights, axis=-1)

    def equals(self, at: Any, pattern: bytes) -> tf.Tensor:
        places = tf.constant(list(range(len(pattern))), tf.int64)
        return tf.reduce_all(self.byte(at + places) == tf.constant(list(pattern), tf.int64))


def _is_upright_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    """Whether this is a JPEG without EXIF, for which few operations are enough."""
    is_jpeg = tf.strings.substr(encoded, 0, len(_JPEG)) == _JPEG
    return is_jpeg & ~_contains(encoded, _JPEG_EXIF)


def _contains(encoded: tf.Tensor, text: str) -> tf.Tensor:
    # TensorFlow has no search for bytes; taking them out is as fast as one.
    without = tf.strings.regex_replace(encoded, text, "", replace_global=False)
    return tf.strings.length(without) < tf.strings.length(encoded)


def _as_one_node(branch: Callable[[], tf.Tensor]) -> tf.Tensor:
    """A rare branch, not inlined: each operation of a branch costs time even if it is not taken."""
    if tf.executing_eagerly():
        return branch()
    return tf.function(branch, autograph=False, experimental_attributes={"_noinline": True})()


def _decode_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE")


def _decode_jpeg_box(
    encoded: tf.Tensor, size: tf.Tensor, begin: tf.Tensor, extent: tf.Tensor
) -> tf.Tensor:
    """What `_decode_jpeg` and a slice give, of a JPEG of `size`."""
    # Chroma is interpolated between neighbours: one pixel more on each side makes the box's
    # border what it is in the whole picture.
    outer = tf.maximum(begin - 1, 0)
    outer_extent = tf.minimum(begin + extent + 1, size) - outer
    window = tf.concat([outer, outer_extent], axis=0)
    raster = tf.io.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_ACCURATE")
    return _slice(raster, begin - outer, extent)


def _decode_raster(data: _Bytes) -> tf.Tensor:
    """uint8 `(height, width, 3)` as stored, not yet upright."""
    return tf.cond(data.is_jpeg, lambda: _decode_jpeg(data.encoded), lambda: _decode_other(data))


def _decode_other(data: _Bytes) -> tf.Tensor:
    """`_decode_raster` of what is no JPEG."""

    def animated_webp():
        # TensorFlow 2.21 decodes animations as RGBA only, refuses that of files whose header
        # tells of no alpha, and corrupts memory when asked for the file's own channels. So the
        # header's flags are replaced: animation and alpha.
        head, tail = tf.strings.substr(data.encoded, 0, 20), tf.strings.substr(data.encoded, 21, -1)
        encoded = tf.strings.join([head, b"\x12", tail])
        frame = tf.io.decode_image(encoded, channels=4, expand_animations=False)
        return frame[..., :3]

    def other():
        return tf.io.decode_image(data.encoded, channels=3, expand_animations=False)

    has_vp8x = data.equals(0, b"RIFF") & data.equals(8, b"WEBPVP8X")
    return tf.case(
        [
            (has_vp8x & (data.byte(20) & 2 > 0), animated_webp),
            (
                data.equals(0, b"BM") & (data.number(28, 2, True) == 8),
                lambda: _decode_indexed_bmp(data),
            ),
        ],
        default=other,
    )


def _decode_indexed_bmp(data: _Bytes) -> tf.Tensor:
    """A BMP of 8 bits a pixel, whose palette TensorFlow leaves unread."""
    indices = tf.cast(tf.io.decode_bmp(data.encoded, channels=0), tf.int64)[..., :1]
    palette = 14 + data.number(14, 4, True)  # after the file header and the picture header
    blue_first = tf.constant([2, 1, 0], tf.int64)
    return tf.cast(data.byte(palette + 4 * indices + blue_first), tf.uint8)


def _to_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    image = tf.ensure_shape(image, (None, None, 3))
    if channels == 3:
        return image
    weighted = tf.cast(image, tf.int32) * tf.constant([19595, 38470, 7471])
    grey = (tf.reduce_sum(weighted, axis=-1, keepdims=True) + 32768) // 65536
    return tf.cast(grey, tf.uint8)


def _any(orientation: tf.Tensor, among: tuple[int, ...]) -> tf.Tensor:
    return tf.reduce_any(orientation == tf.constant(among, orientation.dtype))


def _turn(raster: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turn a raster upright."""

    def turned():
        transposed = _any(orientation, _TRANSPOSED)
        image = tf.transpose(raster, tf.where(transposed, [1, 0, 2], [0, 1, 2]))
        rows, columns = _any(orientation, _REVERSED_ROWS), _any(orientation, _REVERSED_COLUMNS)
        return tf.raw_ops.Reverse(tensor=image, dims=tf.stack([rows, columns, False]))

    return tf.cond(orientation > 1, turned, lambda: tf.identity(raster))


def _raster_box(
    box: tf.Tensor, upright_size: tf.Tensor, orientation: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Begin and extent, each (row, column), of an upright picture's box in its raster."""
    begin, extent = box[:2], box[2:]
    rows, columns = _any(orientation, _REVERSED_ROWS), _any(orientation, _REVERSED_COLUMNS)
    begin = tf.where(tf.stack([rows, columns]), upright_size - begin - extent, begin)
    transposed = _any(orientation, _TRANSPOSED)
    return (
        tf.where(transposed, begin[::-1], begin),
        tf.where(transposed, extent[::-1], extent),
    )


def _slice(image: tf.Tensor, begin: tf.Tensor, extent: tf.Tensor) -> tf.Tensor:
    return tf.slice(image, tf.concat([begin, [0]], 0), tf.concat([extent, [-1]], 0))


def _orientation(data: _Bytes) -> tf.Tensor:
    """EXIF orientation 1..8, an int64 scalar; 1 where there is none or it is malformed."""

    nowhere = tf.constant(0, tf.int64)

    def find(name, start, step):
        def walk():
            _, tiff = tf.while_loop(
                lambda at, tiff: (tiff == 0) & (at < data.size),
                lambda at, _: step(data, at),
                (tf.constant(start, tf.int64), nowhere),
                maximum_iterations=1000,
            )
            return tiff

        return tf.cond(_contains(data.encoded, name), walk, lambda: nowhere)

    tiff = tf.cond(
        data.is_jpeg,
        lambda: find(_JPEG_EXIF, 2, _jpeg_segment),
        lambda: tf.case(
            [
                (data.equals(0, b"\x89PNG"), lambda: find("eXIf", 8, _png_chunk)),
                (data.equals(0, b"RIFF"), lambda: find("EXIF", 12, _webp_chunk)),
            ],
            default=lambda: nowhere,
        ),
    )
    return tf.cond(
        tiff > 0, lambda: _tiff_orientation(data, tiff), lambda: tf.constant(1, tf.int64)
    )


# A step from one part of a file to the next: where the next begins (the file's end: look no
# further), and where this part's TIFF header, which EXIF is, begins, or 0.
def _jpeg_segment(data: _Bytes, at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    marker, length = data.byte(at + 1), data.number(at + 2, 2, False)
    exif = (marker == 0xE1) & data.equals(at + 4, b"Exif\0\0")
    last = (data.byte(at) != 0xFF) | (marker == 0xDA) | (length < 2)
    following = tf.where(last, data.size, at + 2 + length)
    following = tf.where(marker == 0xFF, at + 1, following)  # a fill byte
    return following, tf.where(exif, at + 10, 0)


def _png_chunk(data: _Bytes, at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # Chunks after the pixels are not looked at: files may hold thousands of them.
    last = data.equals(at + 4, b"IDAT")
    following = tf.where(last, data.size, at + 12 + data.number(at, 4, False))
    return following, tf.where(data.equals(at + 4, b"eXIf"), at + 8, 0)


def _webp_chunk(data: _Bytes, at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    length = data.number(at + 4, 4, True)
    # Some writers repeat JPEG's prefix.
    header = tf.where(data.equals(at + 8, b"Exif\0\0"), at + 14, at + 8)
    return at + 8 + length + length % 2, tf.where(data.equals(at, b"EXIF"), header, 0)


def _tiff_orientation(data: _Bytes, tiff: tf.Tensor) -> tf.Tensor:
    """Tag 0x0112 (SHORT) of the first directory of a TIFF header at byte `tiff`."""
    little, big = data.equals(tiff, b"II*\0"), data.equals(tiff, b"MM\0*")
    directory = tiff + data.number(tiff + 4, 4, little)
    entries = directory + 2 + 12 * tf.range(data.number(directory, 2, little))
    found = (data.number(entries, 2, little) == 0x0112) & (data.number(entries + 2, 2, little) == 3)
    values = tf.boolean_mask(data.number(entries + 8, 2, little), found)
    orientation = tf.concat([values, [1]], axis=0)[0]
    valid = (little | big) & (orientation >= 1) & (orientation <= 8)
    return tf.where(valid, orientation, 1)
