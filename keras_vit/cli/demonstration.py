"""What `keras-vit finetune` shows without pictures of the user's: the whole job, bundled."""

import shlex
import shutil
import statistics
from pathlib import Path

import tensorflow as tf
import typer

from keras_vit import assets, bundled
from keras_vit.cli.console import complain, percent, say, show_table
from keras_vit.cli.sources import open_model
from keras_vit.exporters import export
from keras_vit.training.run_directory import RUN_FILE


def demonstrate(directory: Path, overwrite: bool) -> None:
    """Compare pre-trained with random starts, export the first run, and use the export.

    Args:
        directory: Gets what `keras_vit.bundled.compare_with_random` keeps, and `saved_model`.
        overwrite: Whether an earlier demonstration in it is replaced.

    Raises:
        FileExistsError: If `directory` holds one and may not be overwritten.
        typer.Exit: With code 1, if pre-training does not show.
    """
    exported = directory / "saved_model"
    _make_room(directory / "pretrained", exported, overwrite)
    say(
        f"The bundled model on {len(bundled.SEEDS)} seeds, beside the same model from random "
        "initialisation: pictures of four classes that it never saw. Each run is of "
        f"{bundled.STEPS} steps, about a minute on two cores."
    )
    comparison = bundled.compare_with_random(directory, bundled.SEEDS, _tell_run)
    _show(comparison)
    export(open_model(str(comparison.run.directory)), exported, overwrite=overwrite)
    say(
        f"Exported, the first run's best checkpoint by these test pictures: {exported}. One of "
        "each class through its `serve_bytes`:"
    )
    _classify(exported)
    say("Next:")
    for path in (comparison.run.directory, exported):
        say(f"  keras-vit predict {shlex.quote(str(path))} PICTURE...")
    if not comparison.transfers:
        complain("error: pre-training does not show: not every pre-trained run beats all random.")
        raise typer.Exit(1)


def _make_room(run: Path, exported: Path, overwrite: bool) -> None:
    if overwrite and (run / RUN_FILE).exists():
        shutil.rmtree(run)
    for path in (run, exported):
        if path.exists() and not (overwrite and path is exported):
            raise FileExistsError(
                f"`--directory` must not hold another run. Received: {str(path)!r} exists. "
                "Give another, or --overwrite to replace an earlier demonstration."
            )


def _tell_run(start: str, seed: int, accuracy: float) -> None:
    say(f"  seed {seed}, {start + ':':<12} {percent(accuracy)} of the test pictures right")


def _show(comparison: bundled.Comparison) -> None:
    starts = zip(bundled.STARTS, (comparison.pretrained, comparison.random), strict=True)
    rows = [
        (start, *map(percent, (min(values), statistics.median(values), max(values))))
        for start, values in starts
    ]
    show_table(("test accuracy", "lowest", "median", "highest"), rows)


def _classify(exported: Path) -> None:
    """Name one test picture of each class, with TensorFlow alone."""
    classes = sorted((assets.pictures() / "test").iterdir())
    files = [min(folder.iterdir()) for folder in classes]
    serve = tf.saved_model.load(str(exported)).signatures["serve_bytes"]
    outputs = serve(encoded=tf.constant([file.read_bytes() for file in files]))
    labels, scores = outputs["labels"].numpy()[:, 0], outputs["scores"].numpy()[:, 0]
    show_table(
        ("file", "true class", "predicted label", "score"),
        [
            (f"{file.parent.name}/{file.name}", file.parent.name, label.decode(), percent(score))
            for file, label, score in zip(files, labels, scores, strict=True)
        ],
    )
