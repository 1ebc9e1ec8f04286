"""What a weight file is, told from its first bytes, and the errors for what it is not."""

import struct
from collections.abc import Iterable
from pathlib import Path

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
KERAS_WEIGHTS_NAME = "model.weights.h5"
NEVER_READ_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")

CONVERT = (
    "Convert it once: transformers' `AutoModelForImageClassification.from_pretrained(source)"
    ".save_pretrained(directory)` (`AutoModel` for one without a head) writes safetensors."
)
CONVERT_PICKLE = "Pickles are never loaded, since they can run code. " + CONVERT
DOWNLOAD_AGAIN = "Download it again, or make it anew if it is yours."
# How files begin that are taken for weights: (first bytes, what it is, remedy).
LOOKALIKES = (
    (b"version https://git-lfs", "a Git LFS pointer, not the weights", "Run `git lfs pull`."),
    (b"<!doctype", "a web page, not weights", "Download the file itself, not its page."),
    (b"<html", "a web page, not weights", "Download the file itself, not its page."),
    (b"<?xml", "a server's answer in XML, not weights", "Check the address."),
    (b"\x93numpy", "one bare .npy array, not an .npz of named ones", "Save with np.savez."),
    *(
        (bytes([0x80, protocol]), "a Python pickle, whatever its name says", CONVERT_PICKLE)
        for protocol in (2, 3, 4, 5)
    ),
)


class WeightFileError(ValueError):
    """A file that is not a readable weight file: names it, says what it is and what to do."""

    def __init__(self, path: Path, problem: str, remedy: str):
        super().__init__(f"{path} {problem}. {remedy}")


def file_format(path: Path) -> str:
    """Return `"npz"`, `"safetensors"`, `"index"` or `"h5"`, or raise the error that fits the file.

    Args:
        path: Its name tells nothing: the first bytes do.

    Raises:
        WeightFileError: If it is none of them.
    """
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        raise WeightFileError(path, "is empty", DOWNLOAD_AGAIN)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "npz"
    # Eight bytes of header length, then the header: a JSON object.
    if start[8:9] == b"{" and struct.unpack("<Q", start[:8])[0] < 2**32:
        return "safetensors"
    if start.lstrip()[:1] == b"{":
        return "index"
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return "h5"
    for first_bytes, what, remedy in LOOKALIKES:
        if start.lstrip().lower().startswith(first_bytes):
            raise WeightFileError(path, f"is {what}", remedy)
    raise WeightFileError(
        path,
        f"is neither an .npz nor a safetensors file (it begins with {start[:16]!r})",
        DOWNLOAD_AGAIN,
    )


def no_weights_error(path: Path, names: Iterable[str]) -> WeightFileError:
    """Return the error for a directory or repository without a readable weight file.

    Args:
        path: The directory, or a repository id.
        names: The files that it does hold.
    """
    names = sorted(names)
    listed = ", ".join(names[:20]) or "nothing"
    pickles = [name for name in names if name.endswith(NEVER_READ_SUFFIXES)]
    if not pickles:
        return WeightFileError(
            path, f"holds no {WEIGHTS_NAME} and no .npz; it holds: {listed}", "Check the path."
        )
    remedy = "If its repository has a pull request with safetensors, load that: `@refs/pr/N`. "
    return WeightFileError(
        path,
        f"has no {WEIGHTS_NAME}, only {', '.join(pickles)} (it holds: {listed})",
        remedy + CONVERT_PICKLE,
    )
