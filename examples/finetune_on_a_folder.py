"""Fine-tune a pre-trained ViT on a folder of pictures, export it, and ask it about one.

    python examples/finetune_on_a_folder.py flowers/ --model google/vit-base-patch16-224-in21k

The folder has one subfolder a class, or `train` and `val` with one each. Without arguments the
bundled model learns the bundled pictures, without a network.
"""

import argparse
import pathlib

import tensorflow as tf

import keras_vit
from keras_vit import assets


def main(arguments: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=assets.pictures(), type=pathlib.Path)
    parser.add_argument("--model", default=str(assets.checkpoint()))
    parser.add_argument("--directory", default="runs/example", type=pathlib.Path)
    parser.add_argument("--steps", default=100, type=int)
    options = parser.parse_args(arguments)

    # Weights in. `labels`, sizes and preprocessing come along; the head is made for the classes.
    run = keras_vit.finetune(
        options.model, options.folder, directory=options.directory, steps=options.steps
    )
    print(f"accuracy {run.metrics['val_accuracy']:.3f}; classes: {', '.join(run.model.labels)}")

    # Out as a SavedModel that takes the bytes of image files.
    saved = keras_vit.export(run.model, options.directory / "saved_model", top_k=2)

    # Whoever serves it needs TensorFlow alone.
    served = tf.saved_model.load(str(saved))
    picture = next(path for path in sorted(options.folder.rglob("*")) if path.is_file())
    answer = served.signatures["serve_bytes"](encoded=tf.constant([picture.read_bytes()]))
    label, score = answer["labels"].numpy()[0, 0].decode(), float(answer["scores"][0, 0])
    print(f"{picture.name} of {picture.parent.name}: {label} ({score:.2f})")


if __name__ == "__main__":
    main()
