"""Decoded pictures kept in memory, where a set is small enough."""

import pathlib
import re

import numpy as np
import tensorflow as tf

from keras_vit.data.index import Pictures
from keras_vit.decoding import decode_image

_MOST_BYTES = 4 * 2**30
_SAMPLE = 16
_MEMINFO = pathlib.Path("/proc/meminfo")
# What a container may use, by the second and the first version of control groups.
_LIMITS = (
    pathlib.Path("/sys/fs/cgroup/memory.max"),
    pathlib.Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def spare_memory() -> int:
    """Bytes that pictures may take: a quarter of what is available, at most 4 GiB.

    0 on systems other than Linux, which do not tell in a file.
    """
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        return 0
    sizes = [1024 * int(available[1]) if available else 0]
    for path in _LIMITS:
        try:
            sizes.append(int(path.read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(_MOST_BYTES, min(sizes) // 4)


def decoded_size(pictures: Pictures, num_channels: int) -> int:
    """Bytes of all pictures when decoded, by the mean of 16 of them."""
    rows = pictures.pictures
    chosen = np.unique(np.linspace(0, len(rows) - 1, _SAMPLE).astype(int))
    with tf.device("CPU"):
        sizes = [
            int(tf.size(decode_image(pictures.read(tf.convert_to_tensor(row)), num_channels)))
            for row in rows[chosen]
        ]
    return round(np.mean(sizes) * len(rows))


class DecodedPictures:
    """Pictures that are decoded when first asked for, and kept.

    All of it is TensorFlow's graph code: no thread waits for Python's lock, and several may ask
    at a time.

    Args:
        pictures: The set.
        num_channels: 3 or 1.
        room: Most bytes to keep, about; what exceeds them is decoded every time.
    """

    def __init__(self, pictures: Pictures, num_channels: int, room: int):
        self._pictures = pictures
        self._num_channels = num_channels
        with tf.device("CPU"):
            self._room = tf.Variable(room, dtype=tf.int64, trainable=False)
            self._kept = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, b"")

    def __call__(self, index: tf.Tensor, picture: tf.Tensor) -> tf.Tensor:
        """Decode or recall one picture.

        Args:
            index: Its number in the set, an int64 scalar.
            picture: Its row of `pictures.pictures`.

        Returns:
            uint8 `(height, width, channels)`, what `decode_image` gives.
        """
        kept = self._kept.lookup(index)
        pixels = tf.cond(
            tf.strings.length(kept) > 0,
            lambda: tf.io.parse_tensor(kept, tf.uint8),
            lambda: self._decode(index, picture),
        )
        return tf.ensure_shape(pixels, (None, None, self._num_channels))

    def size(self) -> tf.Tensor:
        """How many are kept, an int64 scalar."""
        return self._kept.size()

    def _decode(self, index: tf.Tensor, picture: tf.Tensor) -> tf.Tensor:
        pixels = decode_image(self._pictures.read(picture), self._num_channels)
        size = tf.size(pixels, tf.int64)

        def keep():
            self._room.assign_sub(size)
            self._kept.insert(index, tf.io.serialize_tensor(pixels))
            return tf.identity(pixels)

        return tf.cond(size <= self._room, keep, lambda: tf.identity(pixels))
