"""Files that are whole or absent, never half-written, and paths as a shell reads them."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


def local_path(text: str | os.PathLike) -> pathlib.Path:
    """Return a path as a shell reads it: `~` of nobody stays as it is."""
    path = pathlib.Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Give a temporary path in the same folder, which becomes `path` when the block ends well.

    Args:
        path: The final name. A file that has it stays as it is until the last moment.

    Returns:
        A path with the same suffix, to write to.
    """
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
