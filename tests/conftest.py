"""What every test may use: golden files, tiny models, the layer contract, a fresh process."""

import collections
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.pretrained import MODELS

GOLDEN = pathlib.Path(__file__).parent / "golden"
POLICIES = ("float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16")


@pytest.fixture(scope="session")
def golden() -> pathlib.Path:
    """The folder of files written by the source frameworks (tests/golden/README.md)."""
    return GOLDEN


@pytest.fixture
def tiny_config() -> keras_vit.ViTConfig:
    """A model of two small blocks on 16 x 16 pixels."""
    return keras_vit.ViTConfig(
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
        patch_size=4,
        image_size=16,
        num_classes=5,
    )


@pytest.fixture
def tiny_mixer_config() -> keras_vit.MixerConfig:
    """A model of two small blocks on 16 x 16 pixels."""
    return keras_vit.MixerConfig(
        num_layers=2,
        hidden_dim=16,
        tokens_mlp_dim=8,
        channels_mlp_dim=32,
        patch_size=4,
        image_size=16,
        num_classes=5,
    )


@pytest.fixture(params=["tiny_config", "tiny_mixer_config"], ids=["vit", "mixer"])
def image_config(request):
    """The configuration of a model of each class, one after the other."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def image_model(image_config, random_weights):
    """A model of each class, one after the other."""
    return random_weights(MODELS[type(image_config)](image_config))


@pytest.fixture
def random_weights():
    """Return a function that fills every weight of a model or layer from one seed."""

    def fill(model, seed: int = 0):
        rng = np.random.default_rng(seed)
        for variable in model.weights:
            if "int" in variable.dtype:
                continue  # states of seed generators
            variable.assign(rng.normal(0.0, 0.2, variable.shape))
        return model

    return fill


_LOADER = """
import json, sys
import keras, keras_vit
import numpy as np
for line in sys.stdin:
    path = json.loads(line)
    model = keras.saving.load_model(path, safe_mode=True)
    inputs = np.load(path + ".npy")
    outputs = keras.ops.cast(model(inputs), "float32")
    np.save(path + ".out.npy", keras.ops.convert_to_numpy(outputs))
    print("LOADED", flush=True)
"""


class FreshProcess:
    """A process that only did `import keras, keras_vit` and loads `.keras` files."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOADER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def outputs_of(self, model: keras.Model, inputs: np.ndarray, path: pathlib.Path) -> np.ndarray:
        """Save `model`, load it over there, and return what it makes of `inputs`."""
        model.save(path)
        np.save(f"{path}.npy", inputs)
        self._process.stdin.write(json.dumps(str(path)) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("LOADED"):
                return np.load(f"{path}.out.npy")
        raise AssertionError(f"the fresh process could not load {path}")

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)


@pytest.fixture(scope="session")
def fresh_process():
    process = FreshProcess()
    yield process
    process.close()


@pytest.fixture
def check_layer(fresh_process, tmp_path, random_weights):
    """Return a function that holds one layer to the contract of every layer here.

    Its config is JSON and rebuilds it, `build` alone makes every variable, shapes are right with
    a symbolic batch, gradients reach every weight, all dtype policies run, and the `.keras` file
    gives the same numbers in a fresh process, also in int8. Of several outputs the first counts.
    """

    def check(
        layer_class,
        arguments: dict,
        input_shape: tuple[int, ...],
        output_shape: tuple[int, ...],
        weights: dict[str, tuple[int, ...]],
        fixed_dtype: bool = False,
        no_effect: tuple[str, ...] = (),
    ):
        layer = layer_class(**arguments, name="layer")
        config = json.loads(json.dumps(layer.get_config()))
        again = layer_class.from_config(config)
        assert json.loads(json.dumps(again.get_config())) == config
        again.build((None, *input_shape))
        seeds = ("seed_generator_state",)
        built = {w.path: tuple(w.shape) for w in again.weights if not w.path.endswith(seeds)}
        assert built == {f"layer/{path}": shape for path, shape in weights.items()}

        inputs = keras.Input(input_shape)
        model = keras.Model(inputs, _first(layer(inputs)))
        assert tuple(model.output.shape) == (None, *output_shape)
        shape = layer.compute_output_shape((None, *input_shape))
        assert (shape[0] if isinstance(shape[0], tuple) else shape) == (None, *output_shape)
        random_weights(model)

        rng = np.random.default_rng(1)
        batch = rng.normal(size=(3, *input_shape)).astype("float32")
        outputs = _numbers(model(batch))
        assert outputs.shape == (3, *output_shape) and np.isfinite(outputs).all()
        _check_gradients(
            model, batch, rng.normal(size=outputs.shape), {f"layer/{path}" for path in no_effect}
        )
        outputs = _numbers(model(batch))
        loaded = fresh_process.outputs_of(model, batch, tmp_path / "layer.keras")
        np.testing.assert_array_equal(loaded, outputs)

        for policy in POLICIES:
            other = layer_class(**arguments, dtype=policy, name="layer")
            result = _first(other(batch))
            expected = "float32" if fixed_dtype else other.compute_dtype
            assert keras.backend.standardize_dtype(result.dtype) == expected
            assert np.isfinite(_numbers(keras.ops.cast(result, "float32"))).all()

        if any(isinstance(part, keras.layers.Dense) for part in layer._flatten_layers()):
            model.quantize("int8")
            quantized = _numbers(model(batch))
            assert np.abs(quantized - outputs).max() > 0.0
            loaded = fresh_process.outputs_of(model, batch, tmp_path / "int8.keras")
            np.testing.assert_array_equal(loaded, quantized)

    return check


def _first(outputs):
    return outputs[0] if isinstance(outputs, tuple) else outputs


def _numbers(tensor) -> np.ndarray:
    """`np.asarray` refuses torch tensors that need gradients."""
    return keras.ops.convert_to_numpy(tensor)


def _check_gradients(model: keras.Model, batch: np.ndarray, targets: np.ndarray, no_effect: set):
    """One step must move every trainable weight that has an effect."""
    if not model.trainable_weights:
        return
    before = {w.path: w.numpy() for w in model.trainable_weights}
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    model.train_on_batch(batch, targets)
    still = [w.path for w in model.trainable_weights if np.array_equal(w, before[w.path])]
    assert set(still) <= no_effect, f"no gradient reached {still}"


@pytest.fixture
def fused_operations():
    """A function that runs another and counts the operations of TensorFlow's optimized graphs."""
    from tensorflow.python.eager import context

    def count(run) -> collections.Counter:
        context.context().enable_run_metadata()
        try:
            context.context().export_run_metadata()  # forget what ran before
            run()
            graphs = context.context().export_run_metadata().function_graphs
        finally:
            context.context().disable_run_metadata()
        return collections.Counter(
            f"{node.op} {b','.join(fused.list.s).decode()}" if fused.list.s else node.op
            for graph in graphs
            for node in graph.post_optimization_graph.node
            for fused in [node.attr["fused_ops"]]
        )

    return count
