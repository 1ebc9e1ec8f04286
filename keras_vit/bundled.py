"""What the package can show with what it carries: is the pre-training worth anything?

The bundled model saw six classes of Fashion-MNIST. Here it is fine-tuned on 100 pictures of the
four others and tested on 600 more, beside the same architecture from random initialisation, by
the same recipe, several seeds each.
"""

import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import keras

from keras_vit import assets
from keras_vit.data import index_folder
from keras_vit.files import replacing
from keras_vit.model import ViT
from keras_vit.pretrained import from_pretrained
from keras_vit.recipes import recipe
from keras_vit.runs import Run, finetune

SEEDS = (0, 1, 2, 3, 4)
STARTS = ("pre-trained", "random")
STEPS = 100
# The paper's recipe, but for two values: 28 x 28 pixels leave nothing of a twentieth of a
# picture, and 100 pictures fill no batch of 512.
RECIPE = dataclasses.replace(
    recipe("paper_sgd"), name="paper_sgd_small", crop_area=(0.5, 1.0), batch_size=64
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Test accuracies, 0..1, in the order of the seeds.

    Args:
        pretrained: Of the fine-tuned bundled model.
        random: Of the same architecture from random initialisation.
        run: The pre-trained run of the first seed.
    """

    pretrained: tuple[float, ...]
    random: tuple[float, ...]
    run: Run

    @property
    def transfers(self) -> bool:
        """Whether the worst pre-trained run beats the best random one."""
        return min(self.pretrained) > max(self.random)


def compare_with_random(
    directory: str | os.PathLike,
    seeds: Iterable[int] = SEEDS,
    report: Callable[[str, int, float], None] = lambda start, seed, accuracy: None,
) -> Comparison:
    """Fine-tune the bundled model, and a random one, on the bundled pictures.

    Args:
        directory: Gets `pretrained` (the run of the first seed) and `comparison.json`.
        seeds: One run of each start a seed.
        report: Called after each run with its start, its seed and its test accuracy.

    Raises:
        FileExistsError: If `directory` holds another comparison.
        OSError: If `directory` cannot be written.
    """
    directory = Path(directory)
    if (directory / "pretrained").exists():
        raise FileExistsError(
            f"`directory` must not hold another run. Received: directory={str(directory)!r}. "
            "Give another, or delete it."
        )
    seeds = tuple(seeds)
    pictures = index_folder(assets.pictures())
    source = from_pretrained(
        assets.checkpoint(), num_classes=len(pictures.class_names), reset_head=True
    )
    accuracies = {start: [] for start in STARTS}
    kept = None
    for seed in seeds:
        for start in STARTS:
            keep = kept is None
            run = finetune(
                _copy(source, start, seed),
                pictures,
                recipe=RECIPE,
                directory=directory / "pretrained" if keep else None,
                steps=STEPS,
                seed=seed,
                verbose=0,
            )
            kept = kept or run
            accuracies[start].append(run.metrics["val_accuracy"])
            report(start, seed, run.metrics["val_accuracy"])
    comparison = Comparison(*(tuple(accuracies[start]) for start in STARTS), kept)
    _write(comparison, seeds, directory / "comparison.json")
    return comparison


def _copy(source: ViT, start: str, seed: int) -> ViT:
    """A new model like `source`, with its weights or with random ones."""
    keras.utils.set_random_seed(seed)
    weights = {variable.path: variable.numpy() for variable in source.weights}
    return ViT(
        source.config,
        source.preprocessing,
        origin=source.origin if start == "pre-trained" else None,
        read_weights=(lambda path, shape: weights[path]) if start == "pre-trained" else None,
    )


def _write(comparison: Comparison, seeds: tuple[int, ...], path: Path) -> None:
    values = {
        "seeds": list(seeds),
        "pretrained": list(comparison.pretrained),
        "random": list(comparison.random),
        "median_pretrained": statistics.median(comparison.pretrained),
        "median_random": statistics.median(comparison.random),
        "transfers": comparison.transfers,
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
