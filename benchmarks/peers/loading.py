"""B/16 from local files to a model, in a new process with everything imported."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import forget_peak, resident
from benchmarks.peers import Call
from benchmarks.rows import Case

OURS, KERAS_HUB = Path("checkpoint"), Path("preset")


def write(case: Case) -> None:
    """Write random weights as a Hugging Face checkpoint and as a preset of keras-hub."""
    from benchmarks.peers.inputs import randomize_keras

    if not OURS.exists():
        import keras_vit

        keras_vit.save_pretrained(
            randomize_keras(keras_vit.ViT.from_variant(case.model)), OURS, layout="hf"
        )
    if not KERAS_HUB.exists():
        from benchmarks.peers.keras_hub import make_classifier

        randomize_keras(make_classifier(case)).save_to_preset(str(KERAS_HUB))


def ours(case: Case) -> Call:
    """`keras_vit.from_pretrained`."""
    import keras_vit

    importlib.import_module("keras_vit.pretrained")
    return _load(keras_vit.from_pretrained, OURS)


def keras_hub(case: Case) -> Call:
    """`ViTImageClassifier.from_preset`."""
    from keras_hub.models import ViTImageClassifier

    return _load(ViTImageClassifier.from_preset, KERAS_HUB)


def _load(function: Callable[[str], Any], directory: Path) -> Call:
    """Load once, with files in the page cache, and say how far the memory's peak rose."""
    importlib.import_module("tensorflow")
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass

    def run():
        before = forget_peak()
        model = function(str(directory))
        growth = resident("VmHWM") - before
        return {"growth": growth / (4.0 * model.count_params())}

    return Call(run)
