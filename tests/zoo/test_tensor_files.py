"""FAULTS E2, E5, H6, K1: files are opened by their bytes, read one tensor at a time."""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit.zoo.file_formats import WeightFileError
from keras_vit.zoo.tensor_files import open_tensors, read_json

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden"
TENSORS = {
    "a/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4, dtype=np.float16),
}


@pytest.fixture(params=["npz", "compressed npz", "safetensors"])
def file(request, tmp_path):
    path = tmp_path / "weights"  # no suffix: the bytes tell
    if request.param == "safetensors":
        save_file(TENSORS, path, metadata={"format": "pt"})
    else:
        save = np.savez if request.param == "npz" else np.savez_compressed
        with path.open("wb") as stream:
            save(stream, **TENSORS)
    return path


def test_names_shapes_dtypes_and_values(file):
    tensors = open_tensors(file)
    assert tensors.shapes == {"a/kernel": (2, 3), "b": (4,)}
    assert tensors.dtypes == {"a/kernel": "float32", "b": "float16"}
    for name, expected in TENSORS.items():
        array = tensors.read(name)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
        array += 1  # fresh and writeable
        np.testing.assert_array_equal(tensors.read(name), expected)


def test_safetensors_metadata(tmp_path):
    save_file(TENSORS, tmp_path / "x", metadata={"format": "pt"})
    assert open_tensors(tmp_path / "x").metadata == {"format": "pt"}
    save_file(TENSORS, tmp_path / "y")
    assert open_tensors(tmp_path / "y").metadata == {}


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.99])
def test_truncated_files_say_so(file, kept):
    """FAULTS K1."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(WeightFileError, match="truncated or damaged|empty|neither") as error:
        open_tensors(file)
    assert str(file) in str(error.value)
    assert "Download it again" in str(error.value)


def test_damage_inside_is_found_when_read(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(100_000, np.float32))
    content = bytearray(path.read_bytes())
    content[200_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightFileError, match="damaged at tensor 'a'"):
        open_tensors(path).read("a")


def npy_bytes(array, **header):
    """The bytes of an `.npy` file whose header says something else about its array."""
    stream = io.BytesIO()
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(stream, fields | header)
    return stream.getvalue() + array.tobytes()


@pytest.mark.parametrize(
    "header",
    [{"descr": "<f2"}, {"descr": "<f8"}, {"shape": (3,)}, {"shape": (2, -2, -1)}, {"shape": ()}]
    + [{"shape": (10**12, 10**12)}],
    ids=str,
)
def test_a_header_that_lies_is_found_before_anything_is_made(tmp_path, header):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", npy_bytes(np.ones(4, np.float32), **header))
    with pytest.raises(WeightFileError, match="a.npy has 144 bytes, and no .* array of shape"):
        open_tensors(tmp_path / "x.npz")


def test_one_name_is_one_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", npy_bytes(np.ones(2)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", npy_bytes(np.zeros(2)))
    with pytest.raises(WeightFileError, match="two arrays of one name"):
        open_tensors(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        archive.writestr("a.npy", npy_bytes(np.ones(2)))
        archive.writestr("a", b"no array")
    np.testing.assert_array_equal(open_tensors(tmp_path / "y.npz").read("a"), np.ones(2))


def write_keras_weights(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[f"layers/{name}/vars/0"] = array


def test_keras_weights(tmp_path):
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    kernel = TENSORS["a/kernel"]
    write_keras_weights(tmp_path / "model.weights.h5", dense=kernel, dense_1=values)
    tensors = open_tensors(tmp_path)
    assert tensors.shapes == {"layers/dense/vars/0": (2, 3), "layers/dense_1/vars/0": (2,)}
    assert list(tensors.dtypes.values()) == ["float32", "bfloat16"]
    np.testing.assert_array_equal(tensors.read("layers/dense/vars/0"), kernel)
    np.testing.assert_array_equal(tensors.read("layers/dense_1/vars/0"), values)


def test_hdf5_that_keras_did_not_write(tmp_path):
    path = tmp_path / "tf_model.h5"
    with h5py.File(path, "w") as file:
        file["vit/embeddings/cls_token:0"] = np.zeros(2)
    with pytest.raises(WeightFileError, match="HDF5 file, but none of Keras 3's.*save_pretrained"):
        open_tensors(path)


@pytest.mark.parametrize(
    "array",
    [
        dict(data=np.zeros(9), chunks=(3,), compression="gzip"),
        dict(shape=(10**9,), dtype="float32"),  # never written
        dict(data=["text"], dtype=h5py.string_dtype()),
        dict(data=np.zeros(2, ">f4")),
        dict(shape=(2,), dtype="float64", external="elsewhere"),
    ],
    ids=["compressed", "absent", "text", "big-endian", "in another file"],
)
def test_hdf5_arrays_that_are_not_plain(array, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("elsewhere").write_bytes(b"no weights".ljust(16))
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("layers/a/vars/0", **array)
    with pytest.raises(WeightFileError, match="no plain array of numbers"):
        open_tensors("x.h5")


def test_hdf5_links_are_not_followed(tmp_path):
    for name in ("x.h5", "y.h5"):
        write_keras_weights(tmp_path / name, dense=np.ones(2))
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["layers/dense_1"] = h5py.ExternalLink("y.h5", "/layers/dense")
    assert open_tensors(tmp_path / "x.h5").shapes == {"layers/dense/vars/0": (2,)}


def test_hdf5_arrays_that_share_bytes(tmp_path):
    path = tmp_path / "x.h5"
    write_keras_weights(path, dense=np.ones(2), dense_1=np.zeros(2))
    with h5py.File(path) as file:
        places = [file[f"layers/{name}/vars/0"].id.get_offset() for name in ("dense", "dense_1")]
    first, second = (struct.pack("<QQ", place, 16) for place in places)
    content = path.read_bytes()
    assert content.count(second) == 1
    path.write_bytes(content.replace(second, first))
    with pytest.raises(WeightFileError, match="belong to two things"):
        open_tensors(path)


def test_pickles_are_refused_unloaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return exec, (f"open({str(tmp_path / 'exploded')!r}, 'w')",)

    for name in ("model.safetensors", "weights.npz"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(WeightFileError, match="pickle"):
            open_tensors(tmp_path / name)
    np.savez(tmp_path / "objects.npz", a=np.zeros(2), b=np.array([Bomb()], dtype=object))
    with pytest.raises(WeightFileError, match="pickled Python objects in 'b'"):
        open_tensors(tmp_path / "objects.npz")
    with zipfile.ZipFile(tmp_path / "torch.npz", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    with pytest.raises(WeightFileError, match="torch pickle in a zip.*never loaded"):
        open_tensors(tmp_path / "torch.npz")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("picture.png", b"")
    with pytest.raises(WeightFileError, match="zip without .npy arrays"):
        open_tensors(tmp_path / "other.npz")
    assert not (tmp_path / "exploded").exists()


def test_bfloat16_of_both_formats(tmp_path):
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", a=values)  # numpy stores two nameless bytes
    save_file({"a": values}, tmp_path / "x.safetensors")
    for name in ("x.npz", "x.safetensors"):
        tensors = open_tensors(tmp_path / name)
        assert tensors.dtypes == {"a": "bfloat16"}
        assert tensors.read("a").dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(tensors.read("a").astype(np.float32), [1.5, -2.0])


def write_shards(directory):
    shard_of = {}
    for number, (name, array) in enumerate(TENSORS.items(), start=1):
        shard_of[name] = f"model-0000{number}-of-00002.safetensors"
        save_file({name: array}, directory / shard_of[name])
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shard_of}))
    return index


def test_shards(tmp_path):
    """FAULTS E2."""
    index = write_shards(tmp_path)
    for path in (tmp_path, index):
        tensors = open_tensors(path)
        assert tensors.directory == tmp_path
        for name, expected in TENSORS.items():
            np.testing.assert_array_equal(tensors.read(name), expected)


def test_shard_errors(tmp_path):
    index = write_shards(tmp_path)
    second = tmp_path / "model-00002-of-00002.safetensors"
    save_file({"other": np.zeros(1)}, second)
    with pytest.raises(WeightFileError, match="its shards do not hold: b"):
        open_tensors(tmp_path)
    save_file({name: np.zeros(1) for name in ("a/kernel", "b")}, second)
    with pytest.raises(WeightFileError, match="00002.*repeats tensors: a/kernel"):
        open_tensors(tmp_path)
    second.write_bytes(b"<html>")
    with pytest.raises(WeightFileError, match="00002.*web page"):
        open_tensors(tmp_path)
    second.unlink()
    with pytest.raises(FileNotFoundError, match="the shard model-00002-of-00002.safetensors"):
        open_tensors(tmp_path)
    index.write_text(json.dumps({"weight_map": {"b": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(WeightFileError, match="its shards do not hold: b"):
        open_tensors(tmp_path)
    index.write_text(json.dumps({"weight_map": {"b": "../elsewhere.safetensors"}}))
    with pytest.raises(WeightFileError, match="outside its directory"):
        open_tensors(tmp_path)
    index.write_text(json.dumps({"weight_map": {"b": 3}}))
    with pytest.raises(WeightFileError, match="shards that are no file names"):
        open_tensors(tmp_path)
    index.write_text("{}")
    with pytest.raises(WeightFileError, match="no `weight_map`"):
        open_tensors(tmp_path)


def test_directories(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        open_tensors(tmp_path / "absent")
    for name in ("config.json", "pytorch_model.bin", "tf_model.h5"):
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(WeightFileError, match="only pytorch_model.bin, tf_model.h5.*config.json"):
        open_tensors(tmp_path)
    np.savez(tmp_path / "one.npz", a=np.zeros(1))
    assert open_tensors(tmp_path).shapes == {"a": (1,)}
    np.savez(tmp_path / "two.npz", a=np.zeros(1))
    with pytest.raises(WeightFileError, match="several .npz files: one.npz, two.npz"):
        open_tensors(tmp_path)
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert open_tensors(tmp_path).shapes.keys() == TENSORS.keys()


def test_json_beside_the_weights(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"a": 1}')
    for path in (tmp_path, tmp_path / "model.safetensors"):
        assert open_tensors(path).json("config.json") == {"a": 1}
        assert open_tensors(path).json("absent.json") is None
    (tmp_path / "config.json").write_text('{"a": ')
    with pytest.raises(WeightFileError, match="config.json is not JSON"):
        read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(WeightFileError, match="config.json is not JSON"):
        read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(WeightFileError, match="no JSON object"):
        read_json(tmp_path / "config.json")


def test_no_file_stays_open_or_mapped(file):
    """FAULTS H6."""
    tensors = open_tensors(file)
    array = tensors.read("a/kernel")
    assert str(file) not in Path("/proc/self/maps").read_text()
    opened = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
    assert str(file) not in opened
    assert array.sum() == 15


def test_a_load_imports_no_torch():
    """FAULTS E5."""
    code = (
        "import sys, keras_vit.zoo as zoo\n"
        f"checkpoint = zoo.read_checkpoint({str(GOLDEN / 'hf_vit')!r})\n"
        "checkpoint.weight('head/kernel')\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
