"""What can happen to the files of a checkpoint, at random: `mutate`.

Each change takes a file's bytes and random numbers and returns its bytes, or None where it does
not apply.
"""

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable

import numpy as np

ANY_VALUE = [None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.5, 10**9, 10**12, 10**30, 1e308]
ANY_VALUE += [float("nan"), float("inf"), "", "x", "3", "gelu", "\ud800", "../x", "\0"]
ANY_VALUE += [[], [1], [2, 2, 2], [[]], [None], {}, {"a": 1}, {"height": 8}, "9" * 5000]
SIZES = [0, 1, 2, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1]
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4", "U8": "|u1", "BOOL": "|b1"}
Files = dict[str, bytes]


def flip_anywhere(content, rng, start=0, end=None):
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        content[rng.integers(start, end or len(content))] = rng.integers(256)
    return bytes(content)


def flip_head(content, rng):
    return flip_anywhere(content, rng, 0, min(len(content), 1500))


def flip_tail(content, rng):
    return flip_anywhere(content, rng, max(0, len(content) - 1500))


def truncate(content, rng):
    return content[: rng.integers(len(content))]


def append(content, rng):
    return content + rng.bytes(rng.integers(1, 100))


def move_bytes(content, rng):
    start, other = sorted(rng.integers(0, len(content), 2))
    size = rng.integers(1, 64)
    return content[:start] + content[other : other + size] + content[start + size :]


def lie_in_a_number(content, rng):
    """Some field of 2, 4 or 8 bytes at either end, where formats keep lengths and offsets."""
    ends = [*range(0, 64), *range(max(0, len(content) - 200), len(content) - 8)]
    place, code = rng.choice(ends), rng.choice(["H", "I", "Q"])
    value = struct.pack(f"<{code}", int(rng.choice(SIZES)) % 2 ** (8 * struct.calcsize(code)))
    return content[:place] + value + content[place + len(value) :]


def lie_in_the_header(content, rng):
    """One field of a safetensors header, or an `.npy` header with a right checksum."""
    if content[:2] == b"PK":
        return _lie_in_npy(content, rng)
    if content[8:9] != b"{":
        return None
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    name, other = rng.choice(names, 2, replace=False)
    entry = header[name]
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    length = len(content) - 8 - size
    lies = [
        {"shape": shape[::-1]},
        {"shape": [side * 2 for side in shape]},
        {"shape": [*shape, 1]},
        {"shape": [-side for side in shape]},
        {"shape": [10**12, 10**12]},
        {"dtype": str(rng.choice([*DTYPES, "F8_E4M3", "X"]))},
        {"data_offsets": header[other]["data_offsets"]},
        {"data_offsets": [begin, end + 4]},
        {"data_offsets": [begin, 2**62]},
        {"data_offsets": [length, length + end - begin]},
        {"data_offsets": [end, begin]},
        {str(rng.choice(["shape", "dtype", "data_offsets"])): _any_value(rng)},
    ]
    entry |= lies[rng.integers(len(lies))]
    text = json.dumps(header)
    if rng.random() < 0.15:  # a name twice
        text = json.dumps({name: header[other]})[:-1] + "," + text[1:]
    elif rng.random() < 0.15:
        del header[name]
        text = json.dumps(header | ({"x": entry} if rng.random() < 0.5 else {}))
    header_bytes = text.encode()
    return struct.pack("<Q", len(header_bytes)) + header_bytes + content[8 + size :]


def _lie_in_npy(content, rng):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
        compression = archive.infolist()[0].compress_type
    number = rng.integers(len(members))
    name, npy = members[number]
    stream = io.BytesIO(npy)
    np.lib.format.read_magic(stream)
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    lies = [
        {"shape": shape[::-1]},
        {"shape": tuple(side * 2 for side in shape)},
        {"shape": (*shape, 1)},
        {"shape": tuple(-side for side in shape)},
        {"shape": (10**12, 10**12)},
        {"descr": str(rng.choice([*DTYPES.values(), ">f4", "|O", "|V2", "<U1"]))},
        {"fortran_order": not is_fortran},
        {str(rng.choice(["shape", "descr", "fortran_order"])): _any_value(rng)},
    ]
    fields = {"descr": dtype.str, "fortran_order": is_fortran, "shape": shape}
    header = repr(fields | lies[rng.integers(len(lies))]).encode("utf-8", "replace") + b"\n"
    start = npy[:8] + struct.pack("<H", len(header)) + header
    members[number] = name, start + npy[stream.tell() :]
    choice = rng.random()
    if choice < 0.15:
        members.append((name, npy))  # a name twice
    elif choice < 0.25:
        del members[number]
    elif choice < 0.3:
        members[number] = "x.npy", npy
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the name that is there twice
        for name, npy in members:
            archive.writestr(name, npy)
    return target.getvalue()


def break_numbers(content, rng):
    """NaN, infinity or another number in place of four bytes of data."""
    if content[:2] == b"PK" or content[8:9] != b"{":
        return None
    start = 8 + struct.unpack("<Q", content[:8])[0]
    place = start + 4 * rng.integers((len(content) - start) // 4)
    value = np.float32(rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e38, 12.5])).tobytes()
    return content[:place] + value + content[place + 4 :]


def change_json(content, rng):
    """One value anywhere in a JSON tree."""
    values = json.loads(content)
    parents = [values]
    for parent in parents:
        inner = parent.values() if isinstance(parent, dict) else parent
        parents += [value for value in inner if isinstance(value, dict | list) and value]
    parent = parents[rng.integers(len(parents))]
    keys = list(parent) if isinstance(parent, dict) else range(len(parent))
    key, other = (keys[rng.integers(len(keys))] for _ in range(2))
    what = rng.integers(6)
    if what == 0:
        del parent[key]
    elif what == 1:
        parent[key] = [parent[key]]
    elif what == 2:
        parent[key], parent[other] = parent[other], parent[key]
    elif what == 3 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
        parent[key] *= int(rng.choice([2, 3, -1, 10**6, 10**9, 10**12]))
    else:
        parent[key] = _any_value(rng)
    return json.dumps(values).encode()


def _any_value(rng):
    return ANY_VALUE[rng.integers(len(ANY_VALUE))]


BYTES = [flip_anywhere, flip_head, flip_tail, truncate, append, move_bytes, lie_in_a_number]
OF_WEIGHTS = [*BYTES, lie_in_the_header, lie_in_the_header, lie_in_the_header, break_numbers]
OF_JSON = [change_json] * 6 + [flip_anywhere, truncate, append]
# Where no number is touched, whatever loads has the good weights.
OF_NO_WEIGHT = {truncate, append, change_json}


def mutate(files: Files, rng) -> tuple[Callable, str, Files]:
    """Return what was done, to which file, and the files."""
    while True:
        name = sorted(files)[rng.integers(len(files))]
        changes = OF_JSON if name.endswith(".json") else OF_WEIGHTS
        change = changes[rng.integers(len(changes))]
        content = change(files[name], rng)
        if content is not None:
            return change, name, files | {name: content}
