"""Batches out of JPEG files, beside nothing but the decoding of the same files."""

import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.peers import Call
from benchmarks.rows import IMAGE_SIZE, Case

FOLDER = Path("pictures")
NUM_PICTURES = 400
WIDTH, HEIGHT = 500, 375  # what most pictures of ImageNet have
PASSES = 10  # to start an iterator takes a tenth of a second, once
BATCH = 40  # a whole number of batches


def write(case: Case) -> None:
    """Write pictures of some 75 kB each: smooth shapes and a little noise."""
    from PIL import Image

    if FOLDER.exists():
        return
    FOLDER.mkdir()
    rng = np.random.default_rng(0)
    for number in range(NUM_PICTURES):
        shapes = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype="uint8"))
        pixels = np.asarray(shapes.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), "float32")
        pixels = np.clip(pixels + rng.normal(0.0, 11.5, pixels.shape), 0, 255).astype("uint8")
        Image.fromarray(pixels).save(FOLDER / f"{number:03}.jpg", quality=90)


def _paths() -> tuple[str, ...]:
    return tuple(map(str, sorted(FOLDER.glob("*.jpg"))))


def _split(passes: int = 1):
    from keras_vit.data import Split

    paths = _paths() * passes
    return Split(paths, np.zeros(len(paths), "int32"))


def _training(cache_bytes: int) -> Call:
    from keras_vit.data import training_dataset

    size = (IMAGE_SIZE, IMAGE_SIZE)
    batches = training_dataset(_split(), BATCH, size, cache_bytes=cache_bytes)
    return _one_pass(batches.take(PASSES * NUM_PICTURES // BATCH))


def _one_pass(dataset: tf.data.Dataset) -> Call:
    """Draw every file `PASSES` times: no batches are left over from an earlier call."""
    drawn = PASSES * NUM_PICTURES

    def run():
        start = time.perf_counter()
        for _ in dataset:
            pass
        return {"images_per_second": drawn / (time.perf_counter() - start)}

    return Call(run, {"pictures": drawn})


def training(case: Case) -> Call:
    """Random crops, mirrored, in a random order."""
    return _training(cache_bytes=0)


def cached_training(case: Case) -> Call:
    """The same, of pictures that were kept decoded in the passes before, as `finetune` has it."""
    return _training(cache_bytes=3 * WIDTH * HEIGHT * NUM_PICTURES)


def evaluation(case: Case) -> Call:
    """Resized by the checkpoint's rule, in order."""
    from keras_vit import PreprocessingConfig
    from keras_vit.data import evaluation_dataset

    size = (IMAGE_SIZE, IMAGE_SIZE)
    return _one_pass(evaluation_dataset(_split(PASSES), BATCH, size, PreprocessingConfig()))


def decode(case: Case) -> Call:
    """`tf.io.decode_jpeg` in parallel, with the exact transform that this package uses."""

    def picture(path: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")

    paths = tf.data.Dataset.from_tensor_slices(list(_paths()) * PASSES)
    pictures = paths.map(picture, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return _one_pass(pictures.prefetch(tf.data.AUTOTUNE))
