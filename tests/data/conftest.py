"""A TFDS set on disk, written without TFDS' own preparation, which reaches for the network."""

import io
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def encoded_picture(value: int) -> bytes:
    """A PNG of one colour, whose size changes with it."""
    buffer = io.BytesIO()
    Image.fromarray(np.full((9 + value, 7, 3), 10 * value, "uint8")).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def write_tfds(tmp_path):
    """Return a function that writes a set and returns its folder.

    Args:
        splits: Of each split, of each of its files, the examples.
        features: TFDS' features; None for `image` and the `label` cat or dog.
    """
    import tensorflow_datasets as tfds

    def write(splits: dict[str, list[list[dict[str, Any]]]], features: Any = None) -> pathlib.Path:
        features = features or {
            "id": tfds.features.Scalar(np.int64),
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["cat", "dog"]),
        }
        features = tfds.features.FeaturesDict(features)
        folder = tmp_path / "sets" / "tiny_set" / "1.0.0"
        folder.mkdir(parents=True)
        for split, files in splits.items():
            for shard, examples in enumerate(files):
                name = f"tiny_set-{split}.tfrecord-{shard:05}-of-{len(files):05}"
                with tf.io.TFRecordWriter(str(folder / name)) as file:
                    for example in examples:
                        file.write(features.serialize_example(example))
        template = tfds.core.ShardedFileTemplate(
            data_dir=folder, template=_TEMPLATE, dataset_name="tiny_set", filetype_suffix="tfrecord"
        )
        tfds.folder_dataset.write_metadata(
            data_dir=folder,
            features=features,
            split_infos=[
                tfds.core.SplitInfo(
                    name=split,
                    shard_lengths=[len(examples) for examples in files],
                    num_bytes=0,
                    filename_template=template.replace(split=split),
                )
                for split, files in splits.items()
            ],
            filename_template=_TEMPLATE,
        )
        return folder

    return write


@pytest.fixture
def pets():
    """Return a function that makes the examples of one file: even values are cats."""

    def make(values: range) -> list[dict[str, Any]]:
        return [
            {"id": value, "image": encoded_picture(value), "label": value % 2} for value in values
        ]

    return make
