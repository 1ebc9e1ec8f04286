"""How often bfloat16 names the same class as float32, on pictures that a trained model knows."""

import numpy as np
import tensorflow as tf

import keras_vit
from benchmarks.peers import Call
from benchmarks.rows import Case


def bfloat16(case: Case) -> Call:
    """The bundled checkpoint in either type, exported as in the rows of speed.

    Its classes are not those of the bundled pictures, whose labels are not asked for.
    """
    paths = sorted(keras_vit.assets.pictures().rglob("*.png"))

    def run():
        best = {}
        for dtype in ("float32", case.dtype):
            model = keras_vit.from_pretrained("bundled", dtype=dtype)
            channels = model.config.num_channels
            read = [tf.io.decode_png(path.read_bytes(), channels) for path in paths]
            keras_vit.export(model, dtype, target="cpu", overwrite=True)
            serve = tf.saved_model.load(dtype).signatures["serving_default"]
            best[dtype] = np.argmax(serve(images=tf.stack(read))["logits"], axis=-1)
        return {"top1_agreement": float(np.mean(best["float32"] == best[case.dtype]))}

    return Call(run, {"pictures": len(paths)})
