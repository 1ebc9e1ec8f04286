"""`keras-vit evaluate`: how often a model is right about pictures whose classes are known."""

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from keras_vit.cli.console import errors, printable, remark, replacing_file
from keras_vit.cli.evaluation_report import MOST_ROWS, print_report, write_answers
from keras_vit.cli.sources import SOURCE_HELP, open_model
from keras_vit.data import ImageIndex, Split, evaluation_dataset, open_training_data
from keras_vit.data.folder import is_ignored
from keras_vit.data.index import Pictures
from keras_vit.data.table import index_table_split, is_table
from keras_vit.evaluation import draw_confusion, read_real_labels, real_labels_of
from keras_vit.evaluation import evaluate as ask
from keras_vit.evaluation.confusion_png import check_drawable
from keras_vit.files import local_path
from keras_vit.image_model import ImageModel
from keras_vit.training.run_directory import RUN_FILE, read_run
from keras_vit.zoo.https import public_name

# Names of subfolders, and of splits in a table, in the order in which they are looked for.
_SPLITS = {"test": ("test",), "validation": ("val", "valid", "validation"), "train": ("train",)}

_DATA = Annotated[
    str,
    typer.Argument(
        help="A folder: one subfolder a class, or test/, val/ or train/ that hold those. Or a "
        ".csv, .tsv or .parquet table, or tfds:NAME, as `keras-vit finetune` takes them; of a "
        "TFDS set that has both, tfds:NAME?validation=test takes the test pictures."
    ),
]
_SPLIT = Annotated[
    Literal[tuple(_SPLITS)] | None,
    typer.Option(
        help="Which pictures. Those to validate on are drawn as `keras-vit finetune` draws "
        "them, where DATA does not say.",
        show_default="test, else validation, else all",
    ),
]
_REAL = Annotated[
    Path | None,
    typer.Option(
        help="Count by ImageNet's reassessed labels, too: real.json of "
        "google-research/reassessed-imagenet. Pictures are found by the number in their names, "
        "ILSVRC2012_val_00000001; those that show none of the classes are left out."
    ),
]


def evaluate(
    source: Annotated[str, typer.Argument(help=f"{SOURCE_HELP}.")],
    data: _DATA,
    split: _SPLIT = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 32,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", dir_okay=False, help="Write one line a picture to this file."),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Draw what is taken for what to this PNG file."),
    ] = None,
    real: _REAL = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help=f"Show all classes, not the {MOST_ROWS} worst.")
    ] = False,
    validation_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share of DATA to draw, if --split draws.")
    ] = 0.2,
    seed: Annotated[
        int | None, typer.Option(help="Of that draw.", show_default="that of the run, else 0")
    ] = None,
):
    """Count how often a model is right: top-1, top-5, class by class, and how sure it is.

    \b
      keras-vit evaluate runs/1 flowers/                      flowers/test, or val, or all of it
      keras-vit evaluate runs/1 flowers/ --split validation   what `finetune` held out
      keras-vit evaluate google/vit-base-patch16-224 imagenet/val --per-class
      keras-vit evaluate google/vit-base-patch16-224 imagenet/val --real real.json
      keras-vit evaluate runs/1 flowers/ --csv answers.csv    every picture, with the best five
      keras-vit evaluate runs/1 flowers/ --confusion taken.png
      keras-vit evaluate runs/1 flowers/ | cut -f 1,3         into a pipe: tab-separated

    Every picture counts once, resized and cropped by the checkpoint's own rule, which
    `keras-vit show` prints. (The official code drops what fills no whole batch, and counts 49,664
    of ImageNet's 50,000.) Classes of DATA are found among the model's by their names; if none of
    those is known and they are as many, as ImageNet's folders n01440764, ..., they are taken in
    order.

    The calibration error is the mean distance between how sure a model is and how often it is
    right (15 bins of the highest probability). Speed is that of reading and model together,
    without the batches for which the backend compiles.
    """
    _check_files(data, csv_file, confusion)
    with (
        replacing_file(csv_file, "--csv") as table,
        replacing_file(confusion, "--confusion") as drawing,
    ):
        model = _open_pixel_model(source)
        if model.multi_label and (confusion or real):
            raise ValueError(
                "`--confusion` and `--real` need a model of one class a picture. "
                f"Received: {public_name(source)!r}, with multi_label=True. Leave them out."
            )
        settings = _settings_of_run(local_path(source)) if split else {}
        seed = settings.get("seed", 0) if seed is None else seed
        examples, index, where = _open_data(data, split, validation_fraction, seed, model, settings)
        _tell_data(examples, index, where)
        files = examples.paths if isinstance(examples, Split) else examples.names()
        config, real_labels = model.config, None
        if confusion:
            check_drawable(len(index.class_names))
        if real:
            real_labels = real_labels_of(files, read_real_labels(real), config.num_classes)
        batches = evaluation_dataset(
            examples, batch_size, config.image_size, model.preprocessing, config.num_channels
        )
        result = ask(model, batches, index.class_names)
        if table:
            write_answers(table, files, result)
        if drawing:
            draw_confusion(result).save(drawing, "PNG")
    print_report(result, None if per_class else MOST_ROWS, real_labels)


def _check_files(data: str, csv_file: Path | None, confusion: Path | None) -> None:
    """Refuse files to write that cannot be meant."""
    if csv_file and local_path(csv_file).resolve() == local_path(data).resolve():
        raise ValueError(f"`--csv` must not be DATA itself. Received: {data!r}. Give another name.")
    if confusion and confusion.suffix.lower() != ".png":
        raise ValueError(
            f"`--confusion` must be the name of a .png file. Received: {str(confusion)!r}."
        )


def _open_pixel_model(source: str) -> ImageModel:
    model = open_model(source)
    if not model.include_normalization:
        raise ValueError(
            "`SOURCE` must normalise its pixels itself. Received: "
            f"{public_name(source)!r}, a model with include_normalization=False."
        )
    return model


def _settings_of_run(path: Path) -> dict[str, Any]:
    """How the run at `path` was started; nothing where there is no run."""
    return read_run(path)["settings"] if (path / RUN_FILE).is_file() else {}


def _open_data(
    data: str,
    split: str | None,
    validation_fraction: float,
    seed: int,
    model: ImageModel,
    settings: dict[str, Any],
) -> tuple[Pictures, ImageIndex, str]:
    """The pictures, the index that they are of, and which they are in words."""
    is_file = is_table(data) and local_path(data).is_file()
    rows = index_table_split(data, _names(split)) if is_file else None
    if rows is not None:
        rows = rows.as_multi_label() if model.multi_label else rows
        _check_labels(data, rows.is_multi_label, model)
        return rows.train, rows, rows.split_rule
    folder = _find_folder(local_path(data), split)
    is_drawn = folder is None and split is not None
    opened = open_training_data(
        data if folder is None else folder,
        validation_fraction=validation_fraction if is_drawn else 0.0,
        seed=seed,
        multi_label=model.multi_label,
    )
    _check_labels(data, opened.is_multi_label, model)
    rule = opened.index.split_rule
    if folder is not None:
        return opened.train, opened.index, f"the folder {printable(folder)}"
    if split == "test" and "'test'" not in rule:
        raise ValueError(
            "`--split test` needs pictures that DATA calls so. "
            f"Received: {data!r}, validation from {rule}. Leave the option out, use another, or "
            "write `?validation=test` behind the name of a TFDS set."
        )
    if split == "train":
        return opened.train, opened.index, f"those to train on; validation from {rule}"
    held_out = settings.get("data", {}).get("validation")
    if f"seed {seed}" in rule and held_out not in (None, opened.fingerprint()["validation"]):
        raise ValueError(
            "`--split validation` must draw the pictures that the run held out, or some that it "
            "trained on would count. Received: other pictures. Give DATA, --seed and "
            "--validation-fraction of that run, or a folder of other pictures without `--split`."
        )
    if opened.validation is not None:
        return opened.validation, opened.index, f"those to validate on, from {rule}"
    return opened.train, opened.index, f"all of {printable(data)}"


def _names(split: str | None) -> tuple[str, ...]:
    """What pictures of a split may be called; without `split` all names, in order."""
    return _SPLITS[split] if split else tuple(itertools.chain(*_SPLITS.values()))


def _find_folder(root: Path, split: str | None) -> Path | None:
    """The subfolder of the split, if there is one; without `split` that of the first."""
    if not root.is_dir():
        return None
    folders = {
        path.name.lower(): path
        for path in root.iterdir()
        if path.is_dir() and not is_ignored(path.name)
    }
    if split is None and "train" not in folders and not folders.keys() <= {*_names(None)}:
        return None  # they are classes
    return next((folders[name] for name in _names(split) if name in folders), None)


def _check_labels(data: str, several: bool, model: ImageModel) -> None:
    if several and not model.multi_label:
        raise ValueError(
            "`DATA` must show one class a picture, as `SOURCE` was trained. "
            f"Received: {data!r}, whose pictures show any number of classes. Give one label a "
            "picture, or a model of `keras-vit finetune --multi-label`."
        )


def _tell_data(examples: Pictures, index: ImageIndex, where: str) -> None:
    for file, reason in index.unreadable[:MOST_ROWS]:
        errors.print(f"left out: {printable(file)} {reason}", soft_wrap=True, style="yellow")
    left_out = f"; {len(index.unreadable)} unreadable files left out" if index.unreadable else ""
    remark(f"{len(examples)} pictures of {len(index.class_names)} classes, {where}{left_out}.")
