"""Which operations the layers are spelled with, where several compute the same to rounding."""

import contextlib
import contextvars
from collections.abc import Iterator

from keras_vit.checks import check_choice
from keras_vit.layers.backend import is_tensorflow

# `"onednn"`: what TensorFlow fuses on a CPU, and nothing else has.
# `"textbook"`: as the papers write it, where other runtimes look for what they fuse.
SPELLINGS = ("onednn", "textbook")

_SPELLING = contextvars.ContextVar("keras_vit_spelling", default=None)


@contextlib.contextmanager
def spelled(name: str | None) -> Iterator[None]:
    """Trace graphs for inference inside this context in a spelling of `SPELLINGS`.

    None is a default: the first is slow, or unknown, elsewhere than in TensorFlow on a CPU; the
    second is slow in Keras' own backends.

    Args:
        name: The spelling, or None for that of Keras.

    Raises:
        ValueError: If there is no such spelling.
    """
    if name is not None:
        check_choice("name", name, SPELLINGS)
    token = _SPELLING.set(name)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def spelling() -> str | None:
    """The spelling to use here; oneDNN's is None where there is no graph to fuse."""
    name = _SPELLING.get()
    if name != "onednn":
        return name
    if not is_tensorflow():
        return None
    from keras_vit.layers import tensorflow_kernels

    return name if tensorflow_kernels.in_graph() else None
