"""TensorFlow imported without its chatter, for the command line."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def is_command() -> bool:
    """Whether this process is `keras-vit` or `python -m keras_vit`."""
    return Path(sys.argv[0]).name == "keras-vit" or "-m keras_vit" in " ".join(sys.orig_argv)


@contextlib.contextmanager
def silent_import() -> Iterator[None]:
    """Keep what C++ libraries write to stderr while they are imported out of a command's output.

    TensorFlow 2.21 writes six lines before it looks at TF_CPP_MIN_LOG_LEVEL. Python's own errors
    are raised as ever. In any other process nothing is touched.
    """
    if not is_command():
        yield
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
