"""How the loss falls in mixed_bfloat16 beside float32, of the small model that the package has."""

import dataclasses

import keras
import numpy as np

import keras_vit
from benchmarks.loss import gaps, smooth
from benchmarks.peers import Call
from benchmarks.rows import Case
from keras_vit import assets, bundled

PASSES = 120  # over the bundled training pictures, two steps each
WINDOW = 20  # passes whose losses a point of the curve is the mean of


def from_random(case: Case) -> Call:
    """The bundled architecture from random weights, by the recipe of `keras_vit.bundled`.

    Weights, order and crops are those of one seed; nothing is dropped out. What another order and
    other crops do to the loss in float32 tells how much of a gap is chance.
    """
    source = keras_vit.from_pretrained("bundled")
    folder = assets.pictures() / "train"
    notes = {"pictures": len(list(folder.rglob("*.png")))}

    def curve(dtype: str, seed: int = 0) -> np.ndarray:
        keras.utils.set_random_seed(0)
        config = dataclasses.replace(source.config, num_classes=len(list(folder.iterdir())))
        model = keras_vit.ViT(config, source.preprocessing, dtype=dtype)
        run = keras_vit.finetune(
            model,
            folder,
            recipe=bundled.RECIPE,
            epochs=PASSES,
            validation_fraction=0.0,
            seed=seed,
            verbose=0,
        )
        return smooth(run.history["loss"], WINDOW)

    def run():
        curves = {
            "float32, other order": curve("float32", seed=1),
            "float32": curve("float32"),
            case.dtype: curve(case.dtype),
        }
        steps_a_pass = -(-notes["pictures"] // bundled.RECIPE.batch_size)
        notes["curves"] = {name: losses.tolist() for name, losses in curves.items()}
        notes["steps"] = [steps_a_pass * last for last in range(WINDOW, PASSES + 1)]
        other, float32, half = curves.values()
        names = ("final_gap", "largest_gap", "other_order_final_gap", "other_order_largest_gap")
        return dict(zip(names, (*gaps(half, float32), *gaps(other, float32)), strict=True))

    return Call(run, notes)
