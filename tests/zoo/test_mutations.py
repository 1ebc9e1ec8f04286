"""FAULTS K1 and its cousins: damaged and lying checkpoints are refused, or read as they are.

Each case breaks one file of a good checkpoint. What follows must be an error that names a file,
or weights that an independent reader of the broken files agrees with; those of the good
checkpoint where what was broken is no weight. Case N of a layout is always the same.
"""

import contextlib
import io
import json
import pathlib
import re
import resource
import shutil
import signal
import struct
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest
from mutations import DTYPES, OF_NO_WEIGHT, Files, mutate
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.zoo import keymap, native, read_checkpoint
from keras_vit.zoo.checkpoint import Checkpoint
from keras_vit.zoo.writing import Contents

SEED = 20260
SECONDS_A_CASE = 20
MEMORY = 1 << 30  # bytes that a case, and all of them, may add; a checkpoint has 0.0001 of that
# Sizes of pictures that differ from the model's are worth a warning, and beside the point here.
pytestmark = pytest.mark.filterwarnings("ignore:.* prepares pictures of:UserWarning")

# Good checkpoints ------------------------------------------------------------------------------


def _folder(golden, name):
    files = {path.name: path.read_bytes() for path in (golden / name).iterdir()}
    del files["expected.npz"]
    return files


def _npz(golden, name, save=None):
    if save is None:
        return {"weights.npz": (golden / f"{name}.npz").read_bytes()}
    stream = io.BytesIO()
    with np.load(golden / f"{name}.npz") as arrays:
        save(stream, **arrays)
    return {"weights.npz": stream.getvalue()}


def _hf(golden):
    processor = {"do_resize": True, "size": {"height": 16, "width": 16}, "image_mean": [0.5] * 3}
    return _folder(golden, "hf_vit") | {"preprocessor_config.json": json.dumps(processor).encode()}


def _sharded(golden, directory):
    tensors, files = load_file(golden / "hf_vit" / "model.safetensors"), _hf(golden)
    shard_of = {name: f"shard-{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for shard in sorted(set(shard_of.values())):
        own = {name: array for name, array in tensors.items() if shard_of[name] == shard}
        save_file(own, directory / shard)
        files[shard] = (directory / shard).read_bytes()
    del files["model.safetensors"]
    index = {"metadata": {"total_size": 1}, "weight_map": shard_of}
    return files | {"model.safetensors.index.json": json.dumps(index).encode()}


def _native(golden, directory):
    checkpoint = read_checkpoint(golden / "timm_map")
    contents = Contents(
        config=checkpoint.config,
        preprocessing=checkpoint.preprocessing,
        read_ours=checkpoint.weight,
    )
    native.write(contents, directory / "native")
    return {path.name: path.read_bytes() for path in (directory / "native").iterdir()}


LAYOUTS = {
    "hf": lambda golden, directory: _hf(golden),
    "hf sharded": _sharded,
    "timm registers": lambda golden, directory: _folder(golden, "timm_registers_layerscale"),
    "timm map": lambda golden, directory: _folder(golden, "timm_map"),
    "native": _native,
    "keras-hub": lambda golden, directory: _folder(golden, "keras_hub_vit"),
    "official": lambda golden, directory: _npz(golden, "vit_token"),
    "official compressed": lambda golden, directory: _npz(golden, "vit_token", np.savez_compressed),
    "hybrid": lambda golden, directory: _npz(golden, "hybrid_root_only"),
    "big_vision stacked": lambda golden, directory: _npz(golden, "bigvision_map_scan_siglip"),
    "big_vision bfloat16": lambda golden, directory: _npz(golden, "bigvision_token_bf16"),
    "mixer": lambda golden, directory: _npz(golden, "mixer"),
}


# What must follow -------------------------------------------------------------------------------


def stored_arrays(directory) -> dict[str, np.ndarray | None]:
    """Every array of the weight files by name, read plainly; None for what cannot be."""
    readers = {".npz": _arrays_of_zip, ".safetensors": _arrays_of_safetensors, ".h5": _arrays_of_h5}
    arrays = {}
    for path in directory.iterdir():
        if path.suffix in readers:
            arrays |= readers[path.suffix](path)
    return arrays


def _arrays_of_zip(path):
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            try:
                npy = io.BytesIO(archive.read(info))  # compares the checksum
                array = np.lib.format.read_array(npy, allow_pickle=False)
                arrays[info.filename.removesuffix(".npy")] = None if npy.read() else array
            except Exception:
                arrays[info.filename.removesuffix(".npy")] = None
    return arrays


def _arrays_of_safetensors(path):
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in DTYPES:
            begin, end = entry["data_offsets"]
            numbers = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
            arrays[name] = numbers.reshape(entry["shape"])
    return arrays


def _arrays_of_h5(path):
    arrays = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return arrays


def expected_weight(rule, arrays):
    def read(name):
        row = re.fullmatch(r"(.+)\[(\d+)\]", name)
        array = arrays[row[1]][int(row[2])] if row else arrays[name]
        assert array is not None, f"{name} was read, and cannot be"
        array = array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array
        return array.astype(np.float32)

    return keymap.apply(rule, read)


@contextlib.contextmanager
def bounded():
    """One case may neither hang nor make memory grow without bound."""

    def stop(*_):
        pytest.fail(f"still busy after {SECONDS_A_CASE} s")

    handler, limits = signal.signal(signal.SIGALRM, stop), resource.getrlimit(resource.RLIMIT_AS)
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits[1]))
    signal.alarm(SECONDS_A_CASE)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, handler)


def write(files: Files, directory) -> pathlib.Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def load(directory) -> tuple[Checkpoint, dict[str, np.ndarray]]:
    checkpoint = read_checkpoint(directory)
    checkpoint.check()
    return checkpoint, {rule.ours: checkpoint.weight(rule.ours) for rule in checkpoint.rules}


def run_cases(layout, count, golden, tmp_path):
    """Break a good checkpoint `count` times, one after the other."""
    files = LAYOUTS[layout](golden, tmp_path)
    _, good = load(write(files, tmp_path / "good"))
    assert all(np.isfinite(value).all() for value in good.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = 0
    for number in range(count):
        change, name, broken = mutate(files, np.random.default_rng([SEED, number]))
        where = f"case {number} of {layout}: {change.__name__} in {name}"
        directory = write(broken, tmp_path / "broken")
        try:
            with bounded():
                checkpoint, weights = load(directory)
        except (ValueError, OSError) as error:
            assert any(known in str(error) for known in (str(directory), *broken)), where
            continue
        except Exception as error:
            raise AssertionError(where) from error
        loaded += 1
        arrays = stored_arrays(directory)
        for rule in checkpoint.rules:
            expected = expected_weight(rule, arrays)
            np.testing.assert_array_equal(weights[rule.ours], expected, err_msg=where)
            if change in OF_NO_WEIGHT and rule.ours in good:
                np.testing.assert_array_equal(expected, good[rule.ours], err_msg=where)
    assert 0 < loaded < count
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown << 10 < MEMORY


@pytest.mark.parametrize("layout", LAYOUTS)
def test_three_hundred_broken_checkpoints(layout, golden, tmp_path):
    run_cases(layout, 25, golden, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ten_thousand_broken_checkpoints(layout, golden, tmp_path):
    run_cases(layout, 834, golden, tmp_path)


@pytest.mark.parametrize("number", [10**6, 10**9, 10**12, 10**30])
@pytest.mark.parametrize(
    ("layout", "table", "key"),
    [
        *(("hf", (), key) for key in ("num_hidden_layers", "hidden_size", "intermediate_size")),
        *(("hf", (), key) for key in ("image_size", "patch_size", "num_channels")),
        *(("timm map", ("model_args",), key) for key in ("depth", "embed_dim", "img_size")),
        ("timm map", ("model_args",), "reg_tokens"),
        *(("native", ("config",), key) for key in ("num_layers", "num_classes", "mlp_dim")),
        *(("keras-hub", ("config",), key) for key in ("num_layers", "hidden_dim", "image_shape")),
    ],
)
def test_numbers_that_no_model_has(layout, table, key, number, golden, tmp_path):
    """No list is made as long as they say."""
    directory = write(LAYOUTS[layout](golden, tmp_path), tmp_path / "broken")
    values = json.loads((directory / "config.json").read_text())
    inner = values
    for name in table:
        inner = inner.setdefault(name, {})
    inner[key] = [number, number, 3] if key == "image_shape" else number
    (directory / "config.json").write_text(json.dumps(values))
    with bounded(), pytest.raises(ValueError, match="broken"):
        load(directory)


@pytest.mark.parametrize("layout", ["hf", "timm map", "keras-hub", "official"])
def test_a_broken_checkpoint_makes_no_broken_model(layout, golden, tmp_path):
    files = LAYOUTS[layout](golden, tmp_path)
    built = 0
    for number in range(8):
        _, _, broken = mutate(files, np.random.default_rng([SEED, 1, number]))
        try:
            model = keras_vit.from_pretrained(write(broken, tmp_path / "broken"))
        except (ValueError, OSError):
            continue
        built += 1
        shape = (1, *model.input_shape[1:])
        assert np.isfinite(model(np.full(shape, 128.0, np.float32))).all()
    assert built < 8
