"""Open `.npz` and safetensors files, one tensor at a time; what a file is, its bytes say.

Nothing here unpickles: `.npz` is read with `allow_pickle=False`, and everything else that may
hold a pickle is answered with an error that says what to do instead.
"""

import dataclasses
import json
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from keras_vit.zoo.file_formats import (
    CONVERT_PICKLE,
    DOWNLOAD_AGAIN,
    INDEX_NAME,
    WEIGHTS_NAME,
    WeightFileError,
    file_format,
    no_weights_error,
)

DTYPE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, SafetensorError)


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies and what it is."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


Opened = tuple[dict[str, StoredTensor], dict[str, str]]  # tensors, metadata


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """Named tensors on disk; nothing is read before `read`, and nothing stays open after it.

    Args:
        path: What was opened: a file, an index, or a directory.
        tensors: Where each tensor lies, by name.
        metadata: The safetensors header's metadata; empty for `.npz`.
    """

    path: Path
    tensors: dict[str, StoredTensor]
    metadata: dict[str, str]

    @property
    def directory(self) -> Path:
        """Where the files that go with the weights lie (`config.json`)."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, by name."""
        return {name: stored.shape for name, stored in self.tensors.items()}

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each tensor, by name, as numpy spells it."""
        return {name: stored.dtype for name, stored in self.tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """Return one tensor, as a fresh array.

        Raises:
            KeyError: If no tensor has this name.
            WeightFileError: If its bytes are damaged.
        """
        stored = self.tensors[name]
        try:
            if file_format(stored.file) == "npz":
                with np.load(stored.file, allow_pickle=False) as archive:
                    array = archive[name]
            else:
                with safe_open(stored.file, framework="numpy") as file:
                    array = file.get_tensor(name)
        except (*DAMAGES, ValueError) as error:
            raise WeightFileError(
                stored.file, f"is damaged at tensor {name!r} ({error})", DOWNLOAD_AGAIN
            ) from error
        # numpy does not know bfloat16 and stores it as two nameless bytes.
        return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array

    def json(self, name: str) -> dict | None:
        """Return the JSON object of a file in `directory`, or None where there is no such file."""
        path = self.directory / name
        return read_json(path) if path.is_file() else None


def open_tensors(path: str | Path) -> TensorFile:
    """Open a weight file, the index of a sharded one, or a directory that holds one.

    In a directory `model.safetensors` comes first, then `model.safetensors.index.json`, then
    an `.npz` if it is the only one.

    Args:
        path: A file of any name, or a directory.

    Raises:
        FileNotFoundError: If nothing is there, or a shard is missing.
        WeightFileError: If it is no weight file, or an incomplete one.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"No weight file there. Received: path={str(path)!r}. Check the spelling."
        )
    file = _file_of_directory(path) if path.is_dir() else path
    openers = {"npz": _open_npz, "safetensors": _open_safetensors, "index": _open_shards}
    tensors, metadata = openers[file_format(file)](file)
    return TensorFile(path, tensors, metadata)


def read_json(path: Path) -> dict:
    """Return the JSON object of a file.

    Raises:
        WeightFileError: If it holds none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightFileError(path, f"is not JSON ({error})", DOWNLOAD_AGAIN) from error
    if not isinstance(value, dict):
        raise WeightFileError(path, "holds no JSON object", DOWNLOAD_AGAIN)
    return value


def _file_of_directory(directory: Path) -> Path:
    for name in (WEIGHTS_NAME, INDEX_NAME):
        if (directory / name).exists():
            return directory / name
    archives = sorted(directory.glob("*.npz"))
    if len(archives) == 1:
        return archives[0]
    if archives:
        names = ", ".join(archive.name for archive in archives[:20])
        raise WeightFileError(directory, f"holds several .npz files: {names}", "Name one of them.")
    raise no_weights_error(directory, (entry.name for entry in directory.iterdir()))


def _open_npz(path: Path) -> Opened:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            headers = {
                member.removesuffix(".npy"): _npy_header(archive, member)
                for member in members
                if member.endswith(".npy")
            }
    except (*DAMAGES, ValueError) as error:
        raise WeightFileError(
            path, f"begins as an .npz but is truncated or damaged ({error})", DOWNLOAD_AGAIN
        ) from error
    if any(member.endswith("data.pkl") for member in members):
        raise WeightFileError(
            path, "is a torch pickle in a zip, whatever its name says", CONVERT_PICKLE
        )
    if "metadata.json" in members and "config.json" in members:
        raise WeightFileError(
            path, "is a model saved by Keras", "Load it with `keras.saving.load_model`."
        )
    if not headers:
        raise WeightFileError(
            path, "is a zip without .npy arrays", "Check that it is the right file."
        )
    for name, (_, dtype) in headers.items():
        if dtype.hasobject:
            raise WeightFileError(
                path,
                f"holds pickled Python objects in {name!r}, which are never loaded",
                "Save it again with arrays of numbers alone.",
            )
    tensors = {
        name: StoredTensor(path, shape, "bfloat16" if dtype == np.dtype("V2") else dtype.name)
        for name, (shape, dtype) in headers.items()
    }
    return tensors, {}


def _npy_header(archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"{member} has the unknown .npy version {version}")
        shape, _, dtype = read(file)
    return shape, dtype


def _open_safetensors(path: Path) -> Opened:
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {}
            for name in file.keys():  # noqa: SIM118 (not a dict)
                part = file.get_slice(name)
                dtype = part.get_dtype()
                tensors[name] = StoredTensor(
                    path, tuple(part.get_shape()), DTYPE_NAMES.get(dtype, dtype)
                )
            return tensors, file.metadata() or {}
    except SafetensorError as error:
        raise WeightFileError(
            path,
            f"begins as a safetensors file but is truncated or damaged ({error})",
            DOWNLOAD_AGAIN,
        ) from error


def _open_shards(index: Path) -> Opened:
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise WeightFileError(index, "has no `weight_map` of tensors to shards", DOWNLOAD_AGAIN)
    tensors, metadata = {}, {}
    if not all(isinstance(shard, str) for shard in shard_of.values()):
        raise WeightFileError(index, "has shards that are no file names", DOWNLOAD_AGAIN)
    for shard in sorted(set(shard_of.values())):
        file = index.parent / shard
        if Path(shard).name != shard:
            raise WeightFileError(
                index, f"names a shard outside its directory: {shard!r}", "Do not trust this file."
            )
        if not file.is_file():
            raise FileNotFoundError(
                f"{index} names the shard {shard}, which is not there. Download it as well."
            )
        if file_format(file) != "safetensors":
            raise WeightFileError(file, "is no safetensors file", DOWNLOAD_AGAIN)
        stored, metadata = _open_safetensors(file)
        tensors |= stored
    absent = sorted(set(shard_of) - set(tensors))
    if absent:
        raise WeightFileError(
            index, f"names tensors that no shard holds: {', '.join(absent[:20])}", DOWNLOAD_AGAIN
        )
    return tensors, metadata
