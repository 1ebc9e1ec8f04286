"""Encoder blocks that big_vision's `scan` stacked in one array a tensor, seen one by one.

A stack `Transformer/encoderblock/x` becomes rows `Transformer/encoderblock/x[0]`, `...x[1]`:
so one key table, exact both ways, serves stacked files and plain ones.
"""

import dataclasses
import math
import re
import struct
import zipfile

import ml_dtypes
import numpy as np

from keras_vit.zoo.file_formats import DOWNLOAD_AGAIN, WeightFileError, file_format
from keras_vit.zoo.tensor_files import DAMAGES, StoredTensor, TensorFile

STACK = "Transformer/encoderblock/"
ROW = re.compile(rf"(.*{STACK}.+)\[(\d+)\]")


@dataclasses.dataclass(frozen=True)
class UnstackedFile(TensorFile):
    """A file whose `tensors` has the rows of each stack in the stack's place."""

    def read(self, name: str) -> np.ndarray:
        """Return one tensor, or one row of a stack without the rest of it, as a fresh array.

        Raises:
            KeyError: If no tensor has this name.
            WeightFileError: If its bytes are damaged.
        """
        match = ROW.fullmatch(name)
        if match is None:
            return super().read(name)
        stored = self.tensors[name]
        stack, row = match[1], int(match[2])
        if file_format(stored.file) == "npz":
            try:
                array = _read_npz_row(stored, stack, row)
            except (*DAMAGES, ValueError, KeyError, struct.error) as error:
                raise WeightFileError(
                    stored.file, f"is damaged at tensor {stack!r} ({error})", DOWNLOAD_AGAIN
                ) from error
            if array is not None:
                return array
        return TensorFile(self.path, {stack: stored}, self.metadata).read(stack)[row].copy()


def unstack(tensors: TensorFile) -> TensorFile:
    """Return the file with its stacks as rows; the file itself where it has none."""
    if not any(STACK in name for name in tensors.tensors):
        return tensors
    rows = {}
    for name, stored in tensors.tensors.items():
        if STACK not in name:
            rows[name] = stored
            continue
        for row in range(stored.shape[0] if stored.shape else 0):
            rows[f"{name}[{row}]"] = dataclasses.replace(stored, shape=stored.shape[1:])
    return UnstackedFile(tensors.path, rows, tensors.metadata)


def _read_npz_row(stored: StoredTensor, stack: str, row: int) -> np.ndarray | None:
    """Return one row of an array, or None where its bytes do not lie together in the file.

    `zipfile` would read all that comes before it, once a row.
    """
    with zipfile.ZipFile(stored.file) as archive:
        member = archive.getinfo(f"{stack}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            return None
        if row == 0:  # reading to the end compares the checksum, once a stack
            with archive.open(member) as file:
                while file.read(1 << 20):
                    pass
    with stored.file.open("rb") as file:
        file.seek(member.header_offset + 26)  # of the zip's own header for this member
        name_length, extra_length = struct.unpack("<HH", file.read(4))
        start = file.seek(name_length + extra_length, 1)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(file)]
        shape, is_fortran, dtype = read_header(file)
        if is_fortran:
            return None
        if file.tell() - start + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(f"{member.file_size} bytes are no array of shape {shape}")
        size = math.prod(stored.shape) * dtype.itemsize
        file.seek(row * size, 1)
        array = np.fromfile(file, dtype, math.prod(stored.shape)).reshape(stored.shape)
    # numpy does not know bfloat16 and stores it as two nameless bytes.
    return array.view(ml_dtypes.bfloat16) if dtype == np.dtype("V2") else array
