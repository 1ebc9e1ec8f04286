"""Fewer tokens: what merging and patch dropout gain in speed, and what they cost in accuracy.

    python examples/token_reduction.py                      (bundled pictures; some minutes)
    apt-get install dataset-fashion-mnist                   (Debian; Fashion-MNIST, MIT licence)
    python examples/token_reduction.py --fashion-mnist /usr/share/datasets/fashion-mnist

Three tables, in `token_reduction.json` and drawn in `token_reduction.svg`:

- merging, bundled pictures: the bundled model, fine-tuned on 100 pictures of four classes that it
  never saw, on 600 others; then the same weights with r tokens merged in each block;
- patch dropout, bundled pictures: fine-tuned so while part of the patches is left out; what a
  training step costs then, and the accuracy on all patches;
- merging, Fashion-MNIST: the bundled model as it is, on the test pictures of its six classes.

Speed is of batches in memory: medians of rounds that take each model in turn. The bundled model
is small (50 tokens of 28 x 28 pixels). `--image-size 56` makes it 197, as many as ViT-B/16 has.
"""

import argparse
import dataclasses
import gzip
import json
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit import assets, bundled
from keras_vit.data import index_folder

MERGED = (0, 2, 4, 8, 12, 16)
DROPPED = (0.0, 0.25, 0.5, 0.75)
BATCH_SIZE = 64
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57")  # of the curves, in order
# The order of Fashion-MNIST's labels (its README).
CLASS_NAMES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One point of a curve.

    Args:
        setting: Tokens merged a block, or part of the patches dropped.
        accuracy: Part of the pictures that are right, 0..1.
        speed: Pictures a second.
    """

    setting: float
    accuracy: float
    speed: float


def read_fashion_mnist(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the test pictures `(count, 28, 28, 1)` and their labels, both uint8."""
    images = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return pixels, np.frombuffer(labels, np.uint8, offset=8)


def speeds(steps: Iterable[Callable[[], object]], rounds: int) -> list[float]:
    """Return how many pictures a second each step does; a step does one batch."""
    steps = list(steps)
    seconds = [[] for _ in steps]
    for number in range(rounds + 1):
        for step, own in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            step()
            if number:  # the first compiles
                own.append(time.perf_counter() - start)
    return [BATCH_SIZE / statistics.median(own) for own in seconds]


def merging(model: keras_vit.ViT, images: np.ndarray, labels: np.ndarray, rounds: int) -> list[Row]:
    """Evaluate one model's weights with more and more tokens merged."""
    weights = {variable.path: variable.numpy() for variable in model.weights}
    models = [
        keras_vit.ViT(
            dataclasses.replace(model.config, merged_tokens_per_block=merged),
            model.preprocessing,
            labels=model.labels,
            read_weights=lambda path, shape: weights[path],
        )
        for merged in MERGED
    ]
    batch = keras.ops.convert_to_numpy(model.preprocess(images[:BATCH_SIZE]))
    accuracies = [keras_vit.evaluate(each, (images, labels)).top1 for each in models]
    steps = [lambda each=each: each.predict_on_batch(batch) for each in models]
    return list(map(Row, MERGED, accuracies, speeds(steps, rounds)))


def patch_dropout(
    train: tuple, test: tuple, names: tuple[str, ...], image_size: int, steps: int, rounds: int
) -> tuple[list[Row], keras_vit.ViT]:
    """Fine-tune with more and more patches left out; also return the model without that."""
    models = []
    for rate in DROPPED:
        keras.utils.set_random_seed(0)
        model = keras_vit.from_pretrained(
            "bundled",
            num_classes=len(names),
            reset_head=True,
            image_size=image_size,
            patch_drop_rate=rate,
        )
        run = keras_vit.finetune(model, train, recipe=bundled.RECIPE, steps=steps, verbose=0)
        models.append(run.model)
        print(f"  fine-tuned with {rate:.0%} of the patches left out", flush=True)
    images, labels = test
    accuracies = [keras_vit.evaluate(model, test).top1 for model in models]
    batch = keras.ops.convert_to_numpy(models[0].preprocess(images[:BATCH_SIZE]))
    updates = [lambda m=m: m.train_on_batch(batch, labels[:BATCH_SIZE]) for m in models]
    kept = [variable.numpy() for variable in models[0].weights]
    rows = list(map(Row, DROPPED, accuracies, speeds(updates, rounds)))
    models[0].set_weights(kept)  # as fine-tuned: the updates above were for the clock
    return rows, models[0]


def read_pictures(part: str, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bundled pictures `(count, 28, 28, 1)` and labels of `train` or `test`."""
    files = sorted((assets.pictures() / part).glob("*/*.png"))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])[..., None]
    return pixels, np.array([names.index(file.parent.name) for file in files])


def show(title: str, setting: str, rows: list[Row]):
    """Print one table."""
    print(f"\n{title}\n  {setting:>12}  accuracy  pictures/s   speed")
    for row in rows:
        label, ratio = name(title, row.setting), row.speed / rows[0].speed
        print(f"  {label:>12}  {row.accuracy:8.1%}  {row.speed:10.0f}  {ratio:5.2f}x")


def name(title: str, setting: float) -> str:
    """Return a setting as a label of its point."""
    return f"{setting:.0%}" if "dropout" in title else f"{setting}"


def ticks(values: list[float], step: float) -> list[float]:
    """Return multiples of `step`; all values are well between the first and the last."""
    first, last = math.floor(min(values) / step - 0.3), math.ceil(max(values) / step + 0.3)
    return [step * number for number in range(first, last + 1)]


def draw(tables: dict[str, list[Row]], path: pathlib.Path):
    """Write the curves as an SVG: accuracy over speed, that with all tokens being 1."""
    curves = {
        title: [(row.speed / rows[0].speed, row.accuracy) for row in rows]
        for title, rows in tables.items()
    }
    every = [point for curve in curves.values() for point in curve]
    speeds = ticks([speed for speed, _ in every], 0.5)
    accuracies = ticks([accuracy for _, accuracy in every], 0.05)
    left, right, top, bottom = 56, 596, 40, 360

    def place(speed: float, accuracy: float) -> tuple[float, float]:
        x = (speed - speeds[0]) / (speeds[-1] - speeds[0])
        y = (accuracy - accuracies[0]) / (accuracies[-1] - accuracies[0])
        return round(left + x * (right - left), 1), round(bottom - y * (bottom - top), 1)

    parts = [
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="{top - 16}">accuracy</text>',
        f'<text x="{(left + right) / 2}" y="{bottom + 40}" text-anchor="middle">'
        "speed (1: all tokens)</text>",
    ]
    for speed in speeds:
        x, colour = place(speed, 0.0)[0], "#888" if speed == 1.0 else "#ddd"
        parts.append(f'<path d="M{x},{top} V{bottom}" stroke="{colour}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{speed:g}</text>')
    for accuracy in accuracies:
        y = place(0.0, accuracy)[1]
        parts.append(f'<path d="M{left},{y} H{right}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{accuracy:.0%}</text>')
    for number, (title, curve) in enumerate(curves.items()):
        labels = [name(title, row.setting) for row in tables[title]]
        places = [place(*point) for point in curve]
        parts += draw_curve(title, labels, places, COLOURS[number], left, bottom + 66 + 20 * number)
    size = f'width="{right + 24}" height="{bottom + 60 + 20 * len(curves)}"'
    style = 'font-family="sans-serif" font-size="12"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    path.write_text("\n".join([svg, *parts, "</svg>"]) + "\n", encoding="utf-8")


def draw_curve(
    title: str, labels: list[str], places: list[tuple[float, float]], colour: str, x: int, y: int
) -> list[str]:
    """Return a curve, and its line of the legend at `x`, `y`.

    The first point, all tokens, has no label: two curves may share it. Labels of dropout stand
    below the curve, others above, so that they keep apart near it.
    """
    line = " ".join(f"{across},{up}" for across, up in places)
    parts = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    parts += [f'<circle cx="{across}" cy="{up}" r="3" fill="{colour}"/>' for across, up in places]
    side = 16 if "dropout" in title else -8
    for (across, up), label in zip(places[1:], labels[1:], strict=True):
        parts.append(
            f'<text x="{across}" y="{up + side}" text-anchor="middle" fill="{colour}">'
            f"{label}</text>"
        )
    meaning = "patches left out" if "dropout" in title else "tokens merged in each block"
    parts.append(f'<path d="M{x},{y - 4} h24" stroke="{colour}" stroke-width="1.5"/>')
    parts.append(f'<text x="{x + 32}" y="{y}" fill="{colour}">{title} (numbers: {meaning})</text>')
    return parts


def main(arguments: list[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", default="runs/token_reduction", type=pathlib.Path)
    parser.add_argument("--fashion-mnist", type=pathlib.Path, help="its .gz files")
    parser.add_argument("--image-size", default=28, type=int)
    parser.add_argument("--steps", default=bundled.STEPS, type=int)
    parser.add_argument("--rounds", default=15, type=int)
    options = parser.parse_args(arguments)

    names = index_folder(assets.pictures()).class_names
    train, test = (read_pictures(part, names) for part in ("train", "test"))
    dropped, model = patch_dropout(
        train, test, names, options.image_size, options.steps, options.rounds
    )
    tables = {
        "merging, bundled pictures": merging(model, *test, options.rounds),
        "patch dropout in training, bundled pictures": dropped,
    }
    if options.fashion_mnist:
        images, labels = read_fashion_mnist(options.fashion_mnist)
        model = keras_vit.from_pretrained("bundled", image_size=options.image_size)
        own = np.array([model.labels.index(n) if n in model.labels else -1 for n in CLASS_NAMES])
        known = own[labels] >= 0
        rows = merging(model, images[known], own[labels][known], options.rounds)
        tables["merging, Fashion-MNIST"] = rows
    else:
        print("Fashion-MNIST is left out: give its folder by --fashion-mnist.")
    for title, rows in tables.items():
        show(title, "left out" if "dropout" in title else "r a block", rows)
    options.directory.mkdir(parents=True, exist_ok=True)
    values = {title: [dataclasses.asdict(row) for row in rows] for title, rows in tables.items()}
    text = json.dumps(values, indent=2) + "\n"
    (options.directory / "token_reduction.json").write_text(text, encoding="utf-8")
    draw(tables, options.directory / "token_reduction.svg")
    print(f"\nDrawn in {options.directory / 'token_reduction.svg'}")


if __name__ == "__main__":
    main()
