"""Learning rates by depth (FAULTS H4)."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as to_numpy

from keras_vit import ViT
from keras_vit.training.layer_decay import LAYERWISE, layer_decay
from keras_vit.training.optimizers import MomentumSGD
from keras_vit.training.schedules import warmup_cosine

CLASSES = [keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW]
CLASSES += [keras.optimizers.Lamb, keras.optimizers.Lion, MomentumSGD]


@pytest.fixture
def model(tiny_config, random_weights) -> ViT:
    return random_weights(ViT(tiny_config))


def exponent(path: str) -> int:
    """Parts after that of a variable, in a model of two blocks."""
    parts = {"block_0": 2, "block_1": 1, "encoder_norm": 1, "head": 0}
    return parts.get(path.split("/")[0], 3)


def make_gradients(model: keras.Model, steps: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(2)
    shapes = [variable.shape for variable in model.trainable_variables]
    return [[rng.normal(size=shape).astype("float32") for shape in shapes] for _ in range(steps)]


def apply(optimizer: keras.optimizers.Optimizer, gradients: list, variables: list):
    optimizer.apply([keras.ops.convert_to_tensor(value) for value in gradients], variables)


def test_ratio_of_the_updates_is_the_power_of_the_decay(model):
    """FAULTS H4; reference/torch_formats.md, section 4."""
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.zeros(variable.shape))
    [gradients] = make_gradients(model, 1)
    apply(layer_decay(keras.optimizers.SGD(0.5), model, 0.75), gradients, variables)
    seen = set()
    for variable, gradient in zip(variables, gradients, strict=True):
        expected = -0.5 * 0.75 ** exponent(variable.path) * gradient
        np.testing.assert_allclose(to_numpy(variable), expected, rtol=1e-6, atol=0.0)
        seen.add(exponent(variable.path))
    assert seen == {0, 1, 2, 3}


def test_the_stem_of_twelve_blocks_has_the_rate_of_timm(tiny_config):
    """reference/torch_formats.md: depth 12, decay .75, stem .023757."""
    model = ViT(tiny_config.__class__(**{**tiny_config.to_dict(), "num_layers": 12}))
    multipliers = layer_decay(keras.optimizers.SGD(), model, 0.75).multipliers
    assert multipliers["prefix_tokens/class_token"] == pytest.approx(0.023757, abs=5e-7)
    assert multipliers["encoder_norm/gamma"] == multipliers["block_11/mlp/fc1/kernel"] == 0.75
    assert multipliers["head/kernel"] == 1.0
    assert set(multipliers) == {variable.path for variable in model.trainable_variables}


@pytest.mark.parametrize("optimizer_class", CLASSES)
def test_equals_one_optimizer_for_each_depth(model, optimizer_class):
    """With state, a schedule, decoupled weight decay and what is excluded from it."""
    variables = model.trainable_variables
    gradients = make_gradients(model, 3)
    before = [to_numpy(variable) for variable in variables]
    rates = [0.0, 0.01, 0.02]

    expected = {}
    for part in range(4):
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        optimizer = optimizer_class(0.0, weight_decay=0.1)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        for rate, values in zip(rates, gradients, strict=True):
            optimizer.learning_rate = rate * 0.6**part
            apply(optimizer, values, variables)
        new = {v.path: to_numpy(v) for v in variables if exponent(v.path) == part}
        expected.update(new)

    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    schedule = warmup_cosine(0.02, 10, 2)
    optimizer = optimizer_class(schedule, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer = layer_decay(optimizer, model, 0.6)
    for values in gradients:
        apply(optimizer, values, variables)
    for variable in variables:
        np.testing.assert_allclose(to_numpy(variable), expected[variable.path], atol=1e-6)


def test_every_optimizer_is_tested():
    assert [kind.__name__ for kind in CLASSES] == list(LAYERWISE)


def test_gradients_are_clipped_by_the_norm_of_all(model):
    """Not by the norm of each depth."""
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.zeros(variable.shape))
    [gradients] = make_gradients(model, 1)
    norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients))
    optimizer = layer_decay(keras.optimizers.SGD(1.0, global_clipnorm=1.0), model, 0.5)
    apply(optimizer, gradients, variables)
    for variable, gradient in zip(variables, gradients, strict=True):
        expected = -(0.5 ** exponent(variable.path)) * gradient / norm
        np.testing.assert_allclose(to_numpy(variable), expected, rtol=1e-5, atol=1e-9)


def test_a_decay_of_one_is_the_optimizer_itself(model):
    gradients = make_gradients(model, 2)
    before = [to_numpy(variable) for variable in model.trainable_variables]
    results = []
    for optimizer in (MomentumSGD(0.1), layer_decay(MomentumSGD(0.1), model, 1.0)):
        for variable, value in zip(model.trainable_variables, before, strict=True):
            variable.assign(value)
        for values in gradients:
            apply(optimizer, values, model.trainable_variables)
        results.append(np.concatenate([np.ravel(to_numpy(v)) for v in model.trainable_variables]))
    np.testing.assert_array_equal(*results)


def test_learning_rate_is_that_of_the_head_and_can_be_set(model):
    optimizer = layer_decay(keras.optimizers.AdamW(0.25), model, 0.5)
    assert float(optimizer.learning_rate) == 0.25
    optimizer.learning_rate = 0.0
    before = to_numpy(model.trainable_variables[0])
    [gradients] = make_gradients(model, 1)
    apply(optimizer, gradients, model.trainable_variables)
    np.testing.assert_array_equal(to_numpy(model.trainable_variables[0]), before)


PICTURES = np.random.default_rng(3).uniform(0.0, 255.0, (4, 16, 16, 3)).astype("float32")
CLASSES_SEEN = np.array([0, 1, 2, 3])

_CONTINUE = """
import sys
import keras, keras_vit
import numpy as np
model = keras.saving.load_model(sys.argv[1])
inputs = np.load(sys.argv[2])
model.fit(inputs["pictures"], inputs["classes"], batch_size=4, epochs=2, shuffle=False, verbose=0)
np.savez(sys.argv[3], **{v.path: np.asarray(v) for v in model.trainable_variables})
"""


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.AdamW, MomentumSGD])
def test_a_file_goes_on_bit_for_bit_in_a_fresh_process(model, optimizer_class, tmp_path):
    """FAULTS H4, F1: `MultiOptimizer` with a function does not reload."""
    optimizer = optimizer_class(warmup_cosine(0.02, 9, 2), weight_decay=0.1, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(layer_decay(optimizer, model, 0.75), loss, jit_compile=False)
    model.fit(PICTURES, CLASSES_SEEN, batch_size=4, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    model.fit(PICTURES, CLASSES_SEEN, batch_size=4, epochs=2, shuffle=False, verbose=0)
    np.savez(tmp_path / "inputs.npz", pictures=PICTURES, classes=CLASSES_SEEN)
    files = [str(tmp_path / name) for name in ("model.keras", "inputs.npz", "after.npz")]
    command = [sys.executable, "-c", _CONTINUE, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = np.load(tmp_path / "after.npz")
    for variable in model.trainable_variables:
        np.testing.assert_array_equal(after[variable.path], to_numpy(variable), variable.path)


def test_exclusions_survive_reloading_whenever_they_were_made(model):
    before = keras.optimizers.AdamW(0.1)
    before.exclude_from_weight_decay(var_list=[model.get_layer("head").kernel])
    optimizer = layer_decay(before, model, 0.75)
    optimizer.exclude_from_weight_decay(var_names=["class_token"])
    optimizer.build(model.trainable_variables)
    again = type(optimizer).from_config(optimizer.get_config())
    again.build(model.trainable_variables)
    for one in (optimizer, again):
        free = {v.path for v in model.trainable_variables if not one._use_weight_decay(v)}
        assert free == {"head/kernel", "prefix_tokens/class_token"}


def test_works_with_loss_scaling(tiny_config, random_weights):
    """Keras wraps the optimizer in mixed_float16."""
    model = random_weights(ViT(tiny_config, dtype="mixed_float16"))
    before = {variable.path: to_numpy(variable) for variable in model.trainable_variables}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = layer_decay(keras.optimizers.SGD(0.01), model, 0.75)
    model.compile(optimizer, loss, jit_compile=False)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    model.fit(PICTURES, CLASSES_SEEN, batch_size=4, verbose=0)
    moved = [np.abs(to_numpy(v) - before[v.path]).max() for v in model.trainable_variables]
    assert np.isfinite(moved).all() and np.max(moved) > 0.0


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.01, float("nan"), "0.5", True, None])
def test_decay_out_of_range(model, decay):
    with pytest.raises(ValueError, match="`decay` must be above 0 and at most 1. Received: decay="):
        layer_decay(keras.optimizers.SGD(), model, decay)


def test_unknown_optimizer(model):
    with pytest.raises(ValueError, match=r"Received: 'AdamX'. Did you mean: Adam, AdamW"):
        layer_decay(type("AdamX", (keras.optimizers.Adam,), {})(), model, 0.5)
    twice = layer_decay(keras.optimizers.SGD(), model, 0.5)
    with pytest.raises(ValueError, match="Received: 'LayerwiseSGD'"):
        layer_decay(twice, model, 0.5)


def test_optimizer_in_use(model):
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    with pytest.raises(ValueError, match="`optimizer` must be new"):
        layer_decay(optimizer, model, 0.5)


def test_a_variable_that_it_does_not_know(model):
    model.trainable_part(blocks=False, stem=False)
    optimizer = layer_decay(keras.optimizers.SGD(), model, 0.5)
    assert set(optimizer.multipliers) == {"head/kernel", "head/bias"}
    model.trainable_part(blocks=slice(1, None), stem=False)
    with pytest.raises(ValueError, match="must know every variable .* unknown, block_1/"):
        optimizer.build(model.trainable_variables)
