"""Pictures inside the TFRecord files of a TFDS set.

Pictures stay encoded and where they are: of each, file and offset are kept (16 bytes), and the
pipeline reads the one record that it wants, as it reads a picture's file. Measured: 0.25 ms a
record of 40 kB, against 0.15 ms for a file; decoding takes longer than either. So a set may be
larger than memory, and its order is as random and as repeatable as that of a folder. The price:
other formats of TFDS, such as `array_record`, which TensorFlow cannot read in any order, are
refused.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.data.index import check_each, multi_hot
from keras_vit.decoding import decode_image

# Around the data of a record: its length (8) and checksum (4); the data's checksum (4).
_FRAME_BYTES = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """Encoded pictures in TFRecord files and what they show; a `Pictures`.

    Args:
        files: The files.
        pictures: int64 `(pictures, 2)`: index of the file, offset of the record in bytes.
        labels: Class indices `(pictures,)`, or `(pictures, classes)` of 0 and 1.
        features: TFDS' description of a record.
        image: Name of the picture in it.
    """

    files: tuple[str, ...]
    pictures: np.ndarray
    labels: np.ndarray
    features: Any
    image: str

    def __len__(self) -> int:
        return len(self.pictures)

    def read(self, picture: tf.Tensor) -> tf.Tensor:
        file = tf.gather(tf.constant(self.files), picture[0])
        records = tf.raw_ops.TFRecordDatasetV2(  # tf.data.TFRecordDataset begins at 0 only
            filenames=file[tf.newaxis],
            compression_type="",
            buffer_size=tf.constant(0, tf.int64),
            byte_offsets=picture[1:],
        )
        kind = {"output_types": [tf.string], "output_shapes": [()]}
        first = tf.raw_ops.TakeDataset(
            input_dataset=records, count=tf.constant(1, tf.int64), **kind
        )
        (record,) = tf.raw_ops.DatasetToSingleElement(dataset=first, **kind)
        return _parse(self.features, self.image, record)[self.image]

    def where(self, keep: Sequence[bool]) -> "Records":
        keep = np.asarray(keep, bool)
        return dataclasses.replace(self, pictures=self.pictures[keep], labels=self.labels[keep])

    def names(self) -> list[str]:
        files = [pathlib.PurePath(file).name for file in self.files]
        return [f"{files[file]} at byte {offset}" for file, offset in self.pictures.tolist()]


def class_label(feature: Any) -> Any:
    """The `ClassLabel` of a feature that is one, or a sequence of them; else None."""
    import tensorflow_datasets as tfds

    feature = feature.feature if isinstance(feature, tfds.features.Sequence) else feature
    is_label = isinstance(feature, tfds.features.ClassLabel) and feature.num_classes
    return feature if is_label else None


def read_split(
    builder: Any, split: str, image: str, label: str
) -> tuple[Records, list[tuple[str, str]]]:
    """The readable pictures of a split; path and reason of the others."""
    import tensorflow_datasets as tfds

    try:
        shards = builder.info.splits[split].file_instructions
    except (ValueError, KeyError) as error:
        splits = ", ".join(builder.info.splits)
        raise ValueError(
            f"A split must be one of the set's, or a part of it as in `train[:80%]`. Received: "
            f"{split!r} of {builder.info.full_name}, which has {splits or 'none'}."
        ) from error
    features = builder.info.features
    parsed = tfds.features.FeaturesDict({name: features[name] for name in (image, label)})
    pictures, labels = [], []

    def contents() -> Iterator[bytes]:
        for file, shard in enumerate(shards):
            for offset, example in _read_shard(shard, parsed, image):
                pictures.append((file, offset))
                labels.append(example[label])
                yield example[image]

    faults = list(check_each(_decode_fault, contents(), sum(shard.take for shard in shards)))
    if any(np.min(each, initial=0) < 0 for each in labels):
        raise ValueError(
            f"Every picture must have a label. Received: the split {split!r} of "
            f"{builder.info.full_name} with labels of -1, unknown. Choose another by "
            "`?validation=SPLIT`."
        )
    if isinstance(features[label], tfds.features.Sequence):
        labels = multi_hot(labels, class_label(features[label]).num_classes)
    records = Records(
        tuple(str(shard.filename) for shard in shards),
        np.array(pictures, "int64").reshape(-1, 2),
        np.asarray(labels, "float32" if np.ndim(labels) == 2 else "int32"),
        tfds.features.FeaturesDict({image: features[image]}),
        image,
    )
    unreadable = [
        (name, fault) for name, fault in zip(records.names(), faults, strict=True) if fault
    ]
    return records.where([not fault for fault in faults]), unreadable


def _read_shard(shard: Any, features: Any, image: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Offset and contents of each record that a split takes of a file."""
    records = tf.data.TFRecordDataset(str(shard.filename)).take(shard.skip + shard.take)
    records = records.map(
        lambda record: (tf.strings.length(record), _parse(features, image, record)),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    offset = count = 0
    try:
        for count, (length, example) in enumerate(records.as_numpy_iterator(), 1):
            if count > shard.skip:
                yield offset, example
            offset += int(length) + _FRAME_BYTES
    except tf.errors.OpError as error:
        raise _not_whole(shard, error.message) from error
    if count < shard.skip + shard.take:  # cut between two records, which TensorFlow cannot tell
        raise _not_whole(shard, f"{count} records of {shard.examples_in_shard}")


def _not_whole(shard: Any, reason: str) -> OSError:
    return OSError(
        f"A file of a TFDS set must be whole. Received: {str(shard.filename)!r} "
        f"({reason}). Delete the set's folder and prepare it again."
    )


@tf.autograph.experimental.do_not_convert
def _parse(features: Any, image: str, record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Graph code: a record's features; of the picture its encoded bytes."""
    import tensorflow_datasets as tfds

    return features.deserialize_example(record, decoders={image: tfds.decode.SkipDecoding()})


@functools.cache
def _decoder() -> Callable[[bytes], tf.Tensor]:
    return tf.function(decode_image, input_signature=[tf.TensorSpec((), tf.string)])


def _decode_fault(encoded: bytes) -> str | None:
    try:
        _decoder()(encoded)
    except tf.errors.OpError:
        return "is no whole picture of a kind that is read"
    return None
