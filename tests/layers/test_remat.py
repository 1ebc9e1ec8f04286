"""Computing a block twice changes memory and nothing else (FAULTS H2)."""

import dataclasses
import functools
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as to_numpy

from keras_vit import ViT
from keras_vit.layers import DropPath, EncoderBlock
from keras_vit.layers.remat import rematerialise

BACKEND = keras.backend.backend()
MODES = {
    "eager": {"run_eagerly": True},
    "graph": {"jit_compile": False},
    "jit": {"jit_compile": True},
}


class ByKerasAlone(EncoderBlock):
    def call(self, tokens, training=False):
        return keras.remat(functools.partial(self._run, training=training))(tokens)


def make_model(block_class: type, rate: float, remat: bool, dtype: str | None) -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5, 8))
    tokens = inputs
    for index in range(2):
        tokens = block_class(
            hidden_dim=8,
            num_heads=2,
            mlp_dim=12,
            layer_scale_init=0.5,
            dropout_rate=rate,
            attention_dropout_rate=rate,
            drop_path_rate=rate,
            remat=remat,
            dtype=dtype,
            name=f"block_{index}",
        )(tokens)
    outputs = keras.layers.Dense(3, dtype="float32", name="out")(tokens[:, 0])
    return keras.Model(inputs, outputs)


def after_one_step(
    rate: float,
    mode: str,
    remat: bool = False,
    dtype: str | None = None,
    block_class: type = EncoderBlock,
):
    """The weights after a step of rate 1, which differ by what gradients do; and the seeds."""
    if mode == "jit" and BACKEND == "torch":
        pytest.skip("torch does not compile")
    model = make_model(block_class, rate, remat, dtype)
    model.compile(keras.optimizers.SGD(1.0), "mse", **MODES[mode])
    rng = np.random.default_rng(0)
    pictures, targets = rng.normal(size=(8, 5, 8)), rng.normal(size=(8, 3))
    keras.utils.set_random_seed(1)  # torch draws the masks of unseeded dropouts from its own state
    model.fit(pictures, targets, batch_size=8, shuffle=False, verbose=0)
    weights = {w.path: to_numpy(w).astype("float32") for w in model.trainable_variables}
    states = [to_numpy(state) for state in model.variables if state.path.endswith("_state")]
    return weights, states


def furthest(weights: dict, plain: dict) -> float:
    """The largest difference; relative to the plain weight where that is above 1."""
    assert weights.keys() == plain.keys()
    return max(
        float(np.max(np.abs(weights[path] - value) / np.maximum(1.0, np.abs(value))))
        for path, value in plain.items()
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_a_step_of_fit_is_the_plain_one(rate, mode):
    """FAULTS H2: gradients of every weight, with and without dropouts."""
    plain, plain_states = after_one_step(rate, mode)
    weights, states = after_one_step(rate, mode, remat=True)
    assert furthest(weights, plain) <= 1e-6
    # Attention, its output, two in the MLP, two drop paths; each has drawn once.
    assert len(states) == (12 if rate else 0)
    assert all(state[1] == 1 for state in states)
    if BACKEND != "torch":
        np.testing.assert_array_equal(states, plain_states)


@pytest.mark.parametrize("dtype", ["mixed_float16", "float16", "mixed_bfloat16", "bfloat16"])
def test_a_step_in_half_precision_is_the_plain_one(dtype):
    if BACKEND == "jax":
        pytest.skip("JAX compiles what it rematerialises, which rounds halves elsewhere")
    plain, _ = after_one_step(0.4, "eager", dtype=dtype)
    weights, _ = after_one_step(0.4, "eager", remat=True, dtype=dtype)
    assert furthest(weights, plain) <= 1e-6


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX refuses it, torch restores its state")
def test_keras_alone_would_draw_other_masks():
    """The fault is still there: without it `rematerialise` may go."""
    plain, _ = after_one_step(0.4, "graph")
    weights, states = after_one_step(0.4, "graph", block_class=ByKerasAlone)
    assert furthest(weights, plain) > 1e-2
    assert all(state[1] == 2 for state in states)


def test_training_goes_on_with_new_masks():
    block = EncoderBlock(8, 2, 12, dropout_rate=0.5, remat=True)
    tokens = np.ones((2, 5, 8), "float32")
    first, second = (to_numpy(block(tokens, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 0.0
    calm = [to_numpy(block(tokens)) for _ in range(2)]
    np.testing.assert_array_equal(*calm)


def test_model_and_file_keep_the_flag(tiny_config, tmp_path):
    """FAULTS H2: ".keras reload keeps the flag"."""
    model = ViT(dataclasses.replace(tiny_config, remat=True))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for one in (model, again):
        assert [one.get_layer(f"block_{index}").remat for index in range(2)] == [True, True]


def test_frozen_weights_stay():
    model = make_model(EncoderBlock, 0.4, remat=True, dtype=None)
    model.get_layer("block_0").attention.trainable = False
    before = {weight.path: to_numpy(weight) for weight in model.weights}
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    rng = np.random.default_rng(0)
    model.fit(rng.normal(size=(8, 5, 8)), rng.normal(size=(8, 3)), verbose=0)
    still = {
        weight.path for weight in model.weights if (to_numpy(weight) == before[weight.path]).all()
    }
    assert still == {w.path for w in model.get_layer("block_0").attention.weights}


class Twice(keras.layers.Layer):
    """It calls one drop path two times, which would drop the same examples again."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop_path = DropPath(0.5, seed=0)

    def call(self, tokens):
        return rematerialise(self, self._run, tokens)

    def _run(self, tokens):
        return self.drop_path(self.drop_path(tokens, training=True), training=True)


def test_a_second_draw_is_refused():
    layer = Twice()
    with pytest.raises(RuntimeError, match="each of its dropouts once. Received: a second draw"):
        layer(np.ones((2, 3), "float32"))
    # The generator is itself again.
    states = [to_numpy(layer.drop_path.seed_generator.next()) for _ in range(2)]
    assert states[1][1] == states[0][1] + 1


def run(code: str, *arguments: str):
    """What `code` prints last, as JSON, in a process of its own."""
    # What is freed goes back to the system, so that memory shows what is in use. With oneDNN
    # TensorFlow would keep it in a pool.
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536", "TF_ENABLE_ONEDNN_OPTS": "0"}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


_IMPORTS = """
import json, sys
import keras, numpy as np
from keras_vit.layers import EncoderBlock
remat = sys.argv[1] == "rematerialised"
"""

_MEASURE = """
import re

def memory(field):
    return int(re.search(field + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

inputs = keras.Input((197, 96))
tokens = inputs
for index in range(12):
    tokens = EncoderBlock(96, 3, 384, dropout_rate=0.1, drop_path_rate=0.1, remat=remat)(tokens)
model = keras.Model(inputs, keras.layers.Dense(3)(tokens[:, 0]))
model.compile("sgd", "mse", jit_compile=sys.argv[2] == "jit")
pictures, targets = np.ones((16, 197, 96), "float32"), np.zeros((16, 3), "float32")
model.fit(pictures, targets, batch_size=16, verbose=0)  # compiles, which takes memory too
before = memory("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # the peak begins again
model.fit(pictures, targets, batch_size=16, verbose=0)
print(json.dumps(round(memory("VmHWM") - before)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_peak_memory_falls(mode, capsys):
    """FAULTS H2: "older recompute_grad saved nothing"."""
    if mode == "jit" and BACKEND != "tensorflow":
        pytest.skip("XLA for CPUs drops the barriers that keep JAX's two runs apart")
    growth = {way: run(_IMPORTS + _MEASURE, way, mode) for way in ("plain", "rematerialised")}
    with capsys.disabled():
        print(f"\n12 blocks, 16 x 197 x 96, {BACKEND}, {mode}: a step takes {growth} MiB")
    assert growth["rematerialised"] < 0.6 * growth["plain"]


_TWO_DEVICES = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""

_MIRRORED = """
keras.utils.set_random_seed(0)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    inputs = keras.Input((5, 8))
    tokens = EncoderBlock(8, 2, 12, dropout_rate=0.4, drop_path_rate=0.4, remat=remat)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(tokens[:, 0]))
    model.compile("sgd", "mse", jit_compile=False)
rng = np.random.default_rng(0)
data = rng.normal(size=(8, 5, 8)), rng.normal(size=(8, 3))
model.fit(*data, batch_size=8, shuffle=False, verbose=0)
print(json.dumps([np.ravel(weight.numpy()).tolist() for weight in model.weights]))
"""


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "tensorflow", reason="a strategy of TensorFlow")
def test_two_devices_take_the_plain_step():
    results = []
    for way in ("plain", "rematerialised"):
        results.append(np.concatenate(run(_TWO_DEVICES + _IMPORTS + _MIRRORED, way)))
    np.testing.assert_allclose(*results, rtol=0.0, atol=1e-6)
