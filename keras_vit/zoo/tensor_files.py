"""Open `.npz`, safetensors and Keras' HDF5 files, one tensor at a time; the bytes say which.

Nothing here unpickles: `.npz` is read with `allow_pickle=False`, and everything else that may
hold a pickle is answered with an error that says what to do instead. What a header promises is
compared with what the file holds before anything of that size is made.
"""

import dataclasses
import io
import itertools
import json
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from keras_vit.zoo.file_formats import (
    CONVERT,
    CONVERT_PICKLE,
    DOWNLOAD_AGAIN,
    INDEX_NAME,
    KERAS_WEIGHTS_NAME,
    WEIGHTS_NAME,
    WeightFileError,
    file_format,
    no_weights_error,
)

DTYPE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# What zipfile, numpy, safetensors and h5py raise at bytes that make no sense.
DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, SafetensorError),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError),
    *(RuntimeError, MemoryError, tokenize.TokenError),
)
# More than numpy takes for a header; what follows is not read to learn a shape.
NPY_HEADER_LIMIT = 1 << 14


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
        readers = {"npz": _read_npz, "safetensors": _read_safetensors, "h5": _read_h5}
        read = readers[file_format(stored.file)]
        try:
            array = read(stored.file, name)
        except (*DAMAGES, OSError) as error:
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
    Keras' `model.weights.h5`, then an `.npz` if it is the only one.

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
    openers = {
        "npz": _open_npz,
        "safetensors": _open_safetensors,
        "index": _open_shards,
        "h5": _open_h5,
    }
    tensors, metadata = openers[file_format(file)](file)
    return TensorFile(path, tensors, metadata)


def read_json(path: Path) -> dict:
    """Return the JSON object of a file.

    Raises:
        WeightFileError: If it holds none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise WeightFileError(path, f"is not JSON ({error})", DOWNLOAD_AGAIN) from error
    if not isinstance(value, dict):
        raise WeightFileError(path, "holds no JSON object", DOWNLOAD_AGAIN)
    return value


def _file_of_directory(directory: Path) -> Path:
    for name in (WEIGHTS_NAME, INDEX_NAME, KERAS_WEIGHTS_NAME):
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
                member.filename.removesuffix(".npy"): _npy_header(archive, member)
                for member in archive.infolist()
                if member.filename.endswith(".npy")
            }
    except (*DAMAGES, OSError) as error:
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
    if len(set(members)) < len(members):
        raise WeightFileError(path, "holds two arrays of one name", DOWNLOAD_AGAIN)
    tensors = {
        name: StoredTensor(path, shape, _dtype_name(dtype))
        for name, (shape, dtype) in headers.items()
    }
    return tensors, {}


def _dtype_name(dtype: np.dtype) -> str:
    # numpy does not know bfloat16 and stores it as two nameless bytes.
    return "bfloat16" if dtype == np.dtype("V2") else dtype.name


def _npy_header(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(member) as file:
        start = io.BytesIO(file.read(NPY_HEADER_LIMIT))
    version = np.lib.format.read_magic(start)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"{member.filename} has the unknown .npy version {version}")
    shape, _, dtype = read(start)
    size = start.tell() + math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and (size != member.file_size or min(shape, default=0) < 0):
        raise ValueError(
            f"{member.filename} has {member.file_size} bytes, and no {dtype} array of shape "
            f"{shape} has that many"
        )
    return shape, dtype


def _read_npz(path: Path, name: str) -> np.ndarray:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # nothing may follow; at its end the checksum is compared
            raise ValueError("it goes on after its numbers")
    return array


def _read_safetensors(path: Path, name: str) -> np.ndarray:
    with safe_open(path, framework="numpy") as file:
        return file.get_tensor(name)


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
    except DAMAGES as error:
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
        twice = sorted(tensors.keys() & stored.keys())
        if twice:
            raise WeightFileError(file, f"repeats tensors: {', '.join(twice[:20])}", DOWNLOAD_AGAIN)
        tensors |= stored
    absent = sorted(
        name
        for name, shard in shard_of.items()
        if name not in tensors or tensors[name].file.name != shard
    )
    if absent:
        raise WeightFileError(
            index,
            f"names tensors that its shards do not hold: {', '.join(absent[:20])}",
            DOWNLOAD_AGAIN,
        )
    return tensors, metadata


def _open_h5(path: Path) -> Opened:
    """Open a Keras 3 `.weights.h5`.

    HDF5 has no checksums. So each array must be of a common dtype, lie in one piece, and share no
    byte with another or with the header of anything: most damage to lengths and places shows.
    """
    try:
        with h5py.File(path, "r") as file:
            names: list[str] = []
            file.visit(names.append)  # follows no link out of the file
            if not any(name.split("/")[-2:-1] == ["vars"] for name in names):
                raise WeightFileError(path, "is an HDF5 file, but none of Keras 3's", CONVERT)
            items = {name: file[name] for name in names}
            arrays = {name: item for name, item in items.items() if isinstance(item, h5py.Dataset)}
            _check_apart(
                [_header_extent(item) for item in items.values()]
                + [_data_extent(array) for array in arrays.values()]
            )
            tensors = {
                name: StoredTensor(path, array.shape, _dtype_name(array.dtype))
                for name, array in arrays.items()
            }
    except WeightFileError:
        raise
    except (*DAMAGES, OSError) as error:
        raise WeightFileError(
            path,
            f"begins as an HDF5 file but is truncated or damaged ({error})",
            DOWNLOAD_AGAIN,
        ) from error
    return tensors, {}


def _data_extent(array: h5py.Dataset) -> tuple[int, int]:
    """Return where the numbers of an array begin and end in its file."""
    size, start = math.prod(array.shape) * array.dtype.itemsize, array.id.get_offset()
    is_plain = (
        not array.dtype.hasobject
        and array.dtype.isnative
        and array.id.get_type().equal(h5py.h5t.py_create(array.dtype))
        and array.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
        and array.id.get_storage_size() == size
        and start is not None
    )
    if not is_plain:
        raise ValueError(f"{array.name} is no plain array of numbers, as Keras writes them")
    return start, start + size


def _header_extent(item: h5py.HLObject) -> tuple[int, int]:
    """Return where the 16 bytes that begin every header lie."""
    start = h5py.h5o.get_info(item.id).addr
    return start, start + 16


def _check_apart(extents: list[tuple[int, int]]) -> None:
    for (_, end), (start, _) in itertools.pairwise(sorted(extents)):
        if start < end:
            raise ValueError(f"the bytes from {start} to {end} belong to two things")


def _read_h5(path: Path, name: str) -> np.ndarray:
    with h5py.File(path, "r") as file:
        return file[name][()]
