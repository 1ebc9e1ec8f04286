"""The directory that one run writes to."""

import errno
import json
import os
import pathlib
import shutil
from typing import Any

from keras_vit.checks import is_real
from keras_vit.files import replacing

RUN_FILE = "run.json"
LAST_FILE = "last.keras"
BEST_FILE = "best.keras"
HISTORY_FILE = "history.csv"
UNREADABLE_FILE = "unreadable.txt"
TENSORBOARD_FOLDER = "tensorboard"
_FILES = (RUN_FILE, LAST_FILE, BEST_FILE, HISTORY_FILE, UNREADABLE_FILE)
# Settings that are numbers in every run, and those that may be null.
_NUMBERS = ("total_steps", "steps_per_epoch", "learning_rate", "warmup_steps", "seed")
_OPTIONAL_NUMBERS = ("batch_size", "early_stopping")
# Settings that say nothing to people when they differ.
_IN_WORDS = {
    "data": "other pictures, labels or split",
    "augmentation_settings": "other settings of `augmentation`",
}


def check_run_directory(path: pathlib.Path, resume: bool, overwrite: bool) -> None:
    """Refuse a directory that the caller cannot have meant; nothing is written.

    Args:
        path: The directory.
        resume: Whether a run is to go on there.
        overwrite: Whether one may be deleted there.

    Raises:
        FileExistsError: If it holds a run that is neither resumed nor overwritten.
        FileNotFoundError: If there is no run to resume.
        NotADirectoryError: If it is a file.
        ValueError: If both are asked for.
    """
    if resume and overwrite:
        raise ValueError("`resume` and `overwrite` exclude each other. Received: both True.")
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            f"`directory` must be a folder. Received: directory={str(path)!r}, which is a file."
        )
    present = [name for name in _FILES if (path / name).exists()]
    if resume and RUN_FILE not in present:
        raise FileNotFoundError(
            f"`resume=True` needs the directory of a run, with its {RUN_FILE}. "
            f"Received: directory={str(path)!r}. Leave `resume` out to start there."
        )
    if present and not resume and not overwrite:
        raise FileExistsError(
            f"`directory` must not hold another run. Received: directory={str(path)!r} with "
            f"{', '.join(present)}. Use another, `resume=True` to go on with that run, or "
            "`overwrite=True` to delete it."
        )


def prepare_run_directory(path: pathlib.Path, bytes_needed: int, resume: bool) -> None:
    """Make the directory, empty of runs, and make sure that it can take the files to come.

    Args:
        path: The directory.
        bytes_needed: Room for the files of a whole run.
        resume: Whether the files of a run stay.

    Raises:
        OSError: If it cannot be written to, or the disk is too full.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with replacing(path / ".probe") as temporary:
            temporary.write_bytes(b"probe")
        (path / ".probe").unlink()
    except OSError as error:
        raise OSError(
            error.errno,
            f"`directory` must be a folder that can be written to ({error.strerror})",
            str(path),
        ) from error
    # A run's own files are deleted or replaced.
    reused = sum((path / name).stat().st_size for name in _FILES if (path / name).exists())
    free = shutil.disk_usage(path).free + reused
    if free < bytes_needed:
        raise OSError(
            errno.ENOSPC,
            f"`directory` needs room for {bytes_needed / 1e9:.2f} GB of checkpoints; "
            f"{free / 1e9:.2f} GB are free",
            str(path),
        )
    if not resume:
        for name in _FILES:
            (path / name).unlink(missing_ok=True)
        if (path / TENSORBOARD_FOLDER).exists():
            shutil.rmtree(path / TENSORBOARD_FOLDER)


def check_settings(path: pathlib.Path, settings: dict[str, Any]) -> None:
    """Refuse to resume the run in `path` with other settings than it was started with.

    Raises:
        ValueError: If any differs, naming all that do.
    """
    stored = read_run(path)["settings"]
    settings = json.loads(json.dumps(settings))
    different = [
        _IN_WORDS.get(name, f"{name}={settings.get(name)!r} (the run has {stored.get(name)!r})")
        for name in sorted(stored.keys() | settings.keys())
        if stored.get(name) != settings.get(name)
    ]
    if different:
        raise ValueError(
            "A run resumes with the arguments it was started with. Received: "
            f"{'; '.join(different)}. Use those, or another `directory`."
        )


def read_run(path: pathlib.Path) -> dict[str, Any]:
    """The contents of the directory's `run.json`."""
    try:
        run = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
    except ValueError:
        run = None
    if not _is_whole(run):
        raise ValueError(
            f"{path / RUN_FILE} is damaged: it does not say how the run was started. "
            f"Start again with `overwrite=True`. The run's {BEST_FILE} can be used by itself."
        )
    return run


def _is_whole(run: Any) -> bool:
    """Whether the contents of a `run.json` have what is taken from them, in its form."""
    settings = run.get("settings") if isinstance(run, dict) else None
    return (
        isinstance(settings, dict)
        and all(is_real(settings.get(name)) for name in _NUMBERS)
        and all(name in settings for name in _OPTIONAL_NUMBERS)
        and all(settings[name] is None or is_real(settings[name]) for name in _OPTIONAL_NUMBERS)
        and isinstance(settings.get("class_weights"), list | None)
        and isinstance(settings.get("data"), dict)
        and all(isinstance(run.get(name, {}), dict) for name in ("metrics", "versions"))
    )


def write_run(path: pathlib.Path, description: dict[str, Any]) -> None:
    """Write the directory's `run.json`."""
    with replacing(path / RUN_FILE) as temporary:
        temporary.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def write_unreadable(path: pathlib.Path, unreadable: tuple[tuple[str, str], ...]) -> None:
    """Write one line for each file that was left out, if any was."""
    if unreadable:
        lines = "".join(f"{file} {reason}\n" for file, reason in unreadable)
        with replacing(path / UNREADABLE_FILE) as temporary:
            temporary.write_bytes(os.fsencode(lines))
