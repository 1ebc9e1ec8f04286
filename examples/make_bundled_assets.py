"""Pre-train the small model that the package carries, and cut out the pictures beside it.

    apt-get install dataset-fashion-mnist          (Debian; Fashion-MNIST, MIT licence)
    python examples/make_bundled_assets.py /usr/share/datasets/fashion-mnist

Six classes of Fashion-MNIST's training set teach the model; pictures of the four other classes,
25 a class of the training set and 150 a class of the test set, become the folder on which
`keras-vit finetune` shows what the pre-training is worth. No class and no picture is in both.

Seed 0, 10 epochs; examples/make_bundled_assets.log is the log of the run whose result is in the
package. Expect other last digits on another processor.
"""

import argparse
import gzip
import pathlib
import shutil
import time

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

import keras_vit

CLASS_NAMES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
HELD_OUT = ("pullover", "coat", "sandal", "sneaker")
TRAIN_PICTURES, TEST_PICTURES = 25, 150  # a class
ASSETS = pathlib.Path(keras_vit.__file__).parent / "assets"
LOG = pathlib.Path(__file__).with_suffix(".log")

CONFIG = keras_vit.ViTConfig(
    num_layers=6,
    num_heads=4,
    hidden_dim=128,
    mlp_dim=256,
    patch_size=4,
    image_size=28,
    num_channels=1,
    num_classes=len(CLASS_NAMES) - len(HELD_OUT),
    dropout_rate=0.1,
    drop_path_rate=0.1,
)


def read_idx(folder: pathlib.Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures `(count, 28, 28, 1)` and labels `(count,)`, both uint8."""
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return pixels, np.frombuffer(labels, np.uint8, offset=8)


def write_pictures(images: np.ndarray, labels: np.ndarray, count: int, folder: pathlib.Path):
    """Write the first `count` pictures of each held-out class as PNG."""
    for name in HELD_OUT:
        (folder / name).mkdir(parents=True)
        chosen = images[labels == CLASS_NAMES.index(name)][:count]
        for number, pixels in enumerate(chosen):
            Image.fromarray(pixels[..., 0]).save(folder / name / f"{number:03d}.png", optimize=True)


def pretrain(images: np.ndarray, labels: np.ndarray, epochs: int, seed: int) -> keras_vit.ViT:
    """Train on the classes that are not held out; batches are flipped and shifted."""
    keras.utils.set_random_seed(seed)
    names = [name for name in CLASS_NAMES if name not in HELD_OUT]
    targets = np.array([names.index(name) if name in names else -1 for name in CLASS_NAMES])
    kept = targets[labels] >= 0
    images, targets = images[kept], targets[labels][kept]
    batch_size = 128
    steps = len(images) // batch_size
    augment = keras.Sequential(
        [
            keras.layers.RandomFlip("horizontal", seed=seed),
            keras.layers.RandomTranslation(0.1, 0.1, fill_mode="constant", seed=seed),
        ]
    )
    batches = (
        tf.data.Dataset.from_tensor_slices((images, targets))
        .shuffle(len(images), seed=seed)
        .batch(batch_size, drop_remainder=True)
        .map(lambda x, y: (augment(tf.cast(x, tf.float32), training=True), y))
        .prefetch(2)
    )
    grey = keras_vit.PreprocessingConfig(mean=(0.5,), std=(0.5,), antialias=True)
    model = keras_vit.ViT(CONFIG, grey, labels=names, origin={"source": "Fashion-MNIST, 6 classes"})
    warmup = steps // 2
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, epochs * steps - warmup, warmup_target=1e-3, warmup_steps=warmup
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(rate, weight_decay=0.05, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(batches, epochs=epochs, verbose=2, callbacks=[keras.callbacks.CSVLogger(LOG)])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="Fashion-MNIST's four .gz files")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    train, test = (read_idx(arguments.folder, part) for part in ("train", "t10k"))
    shutil.rmtree(ASSETS / "pictures", ignore_errors=True)
    write_pictures(*train, TRAIN_PICTURES, ASSETS / "pictures" / "train")
    write_pictures(*test, TEST_PICTURES, ASSETS / "pictures" / "test")
    start = time.time()
    model = pretrain(*train, arguments.epochs, arguments.seed)
    keras_vit.save_pretrained(model, ASSETS / "fashion_vit")
    seconds = time.time() - start
    summary = f"# seed {arguments.seed}, {arguments.epochs} epochs, {seconds:.0f} s\n"
    LOG.write_text(LOG.read_text() + summary)
    print(summary, end="")


if __name__ == "__main__":
    main()
