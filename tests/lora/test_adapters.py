"""FAULTS J2: adapters that can be merged, dropped and swapped."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_vit import ViT
from keras_vit.lora import add_lora, freeze_base, lora_settings

POLICIES = ("float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16")


@pytest.fixture
def model(tiny_config, random_weights):
    return random_weights(ViT(tiny_config))


@pytest.fixture
def images(tiny_config):
    return np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3)).astype("float32")


def _train_adapters(model, seed: int = 2):
    """As if trained: B and A get other values, B not zero."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        if "lora_kernel" in variable.path:
            variable.assign(rng.normal(0.0, 0.2, variable.shape))
    return model


def _values(model) -> dict[str, np.ndarray]:
    return {variable.path: keras.ops.convert_to_numpy(variable) for variable in model.weights}


def _outputs(model, images):
    return keras.tree.map_structure(keras.ops.convert_to_numpy, model(images))


def _fit(model, images, jit_compile: bool = False) -> list[float]:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=jit_compile)
    return model.fit(images, np.arange(len(images)) % 5, epochs=2, verbose=0).history["loss"]


def _check_what_was_trained(model, before: dict[str, np.ndarray]):
    """Adapters and head have new values; all else is bit for bit what it was."""
    for path, value in _values(model).items():
        is_trained = "lora_kernel" in path or path.startswith("head/")
        assert np.array_equal(value, before[path]) != is_trained, path


@pytest.mark.parametrize("policy", POLICIES)
def test_outputs_stay_the_same_bit_for_bit(tiny_config, random_weights, images, policy):
    model = random_weights(ViT(tiny_config, dtype=policy))
    before = _outputs(model, images)
    assert model.add_lora(4, targets=("qkv", "proj", "fc1", "fc2")) is None
    np.testing.assert_array_equal(_outputs(model, images), before)
    assert np.abs(_outputs(_train_adapters(model), images) - before).max() > 0.0


@pytest.mark.parametrize("targets", [("qkv",), "proj", ["fc1", "fc2"]], ids=str)
def test_adapters_and_head_alone_are_trainable(tiny_config, targets):
    model = ViT(dataclasses.replace(tiny_config, representation_size=7))
    model.get_layer("head").trainable = False
    model.add_lora(3, targets=targets, alpha=6)
    targets = [targets] if isinstance(targets, str) else targets
    places = {"qkv": "attention", "proj": "attention", "fc1": "mlp", "fc2": "mlp"}
    adapters = {
        f"block_{i}/{places[target]}/{target}/lora_kernel_{part}"
        for i in range(2)
        for target in targets
        for part in "ab"
    }
    head = {f"{layer}/{name}" for layer in ("pre_logits", "head") for name in ("kernel", "bias")}
    assert {variable.path for variable in model.trainable_variables} == adapters | head
    assert lora_settings(model) == {"rank": 3, "targets": sorted(targets), "alpha": 6.0}


def test_setting_a_layer_trainable_thaws_kernels_and_freeze_base_freezes_them(model):
    model.add_lora(2)
    before = {variable.path for variable in model.trainable_variables}
    for value in (False, True):
        model.get_layer("block_0").trainable = value
    assert {variable.path for variable in model.trainable_variables} > before
    freeze_base(model)
    assert {variable.path for variable in model.trainable_variables} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "targets": ("qvk",)}, "Did you mean: qkv"),
        ({"rank": 2, "targets": ("qkv", "head")}, "Unknown target of LoRA. Received: 'head'"),
        ({"rank": 2, "targets": ()}, "must not be empty"),
        ({"rank": 0}, "must be a positive integer"),
        ({"rank": 2.5}, "must be a positive integer"),
        ({"rank": 16}, "smaller side of 16 in block_0/attention/qkv"),
        ({"rank": 2, "alpha": 0.0}, "`alpha` must be a positive number"),
        ({"rank": 2, "alpha": float("nan")}, "`alpha` must be a positive number"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.add_lora(**arguments)
    assert lora_settings(model) is None and len(model.trainable_weights) == len(model.weights)


def test_adapters_are_added_once(model):
    model.add_lora(2)
    with pytest.raises(ValueError, match=r"already. Received: rank=2.*merge_lora.*remove_lora"):
        model.add_lora(2, targets=("proj",))


def test_without_adapters_nothing_is_merged_or_removed(model):
    for method in (model.merge_lora, model.remove_lora):
        with pytest.raises(ValueError, match="has no adapters"):
            method()


def test_any_keras_model_with_blocks_takes_adapters():
    inputs = keras.Input((8,))
    outputs = keras.layers.Dense(6, name="block_0")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(outputs))
    add_lora(model, 2, targets="block_0")
    assert lora_settings(model) == {"rank": 2, "targets": ["block_0"], "alpha": 2}


@pytest.mark.parametrize(
    ("policy", "jit_compile"),
    [("float32", True), ("float32", False), ("mixed_bfloat16", False), ("mixed_float16", False)],
)
def test_fit_trains_adapters_and_head_alone(
    tiny_config, random_weights, images, policy, jit_compile
):
    model = random_weights(ViT(tiny_config, dtype=policy))
    model.add_lora(4, targets=("qkv", "fc1"))
    before = _values(model)
    losses = _fit(model, images, jit_compile=jit_compile)
    assert losses[1] < losses[0]
    _check_what_was_trained(model, before)


def test_a_compiled_model_is_to_be_compiled_again(model, images):
    """What was compiled before would train the frozen weights."""
    model.compile("sgd", "mse")
    model.add_lora(4)
    with pytest.raises(ValueError, match="compile"):
        model.fit(images, np.zeros((4, 5)), verbose=0)


def test_predict_sees_adapters_that_came_after_it(model, images):
    before = model.predict(images, verbose=0)
    model.add_lora(4)
    _train_adapters(model)
    after = model.predict(images, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, _outputs(model, images), atol=1e-5)


def test_merged_equals_adapted_and_removed_equals_original(model, images):
    """FAULTS J2."""
    model.labels = list("abcde")
    original, values = _outputs(model, images), _values(model)
    model.add_lora(4, targets=("qkv", "proj", "fc1", "fc2"), alpha=8)
    adapted = _outputs(_train_adapters(model), images)
    assert np.abs(adapted - original).max() > 1e-2
    merged, removed = model.merge_lora(), model.remove_lora()
    np.testing.assert_allclose(_outputs(merged, images), adapted, atol=1e-5)
    np.testing.assert_array_equal(_outputs(removed, images), original)
    for new in (merged, removed):
        assert type(new) is ViT and new.config == model.config and new.labels == model.labels
        assert lora_settings(new) is None and set(_values(new)) == set(values)
        assert len(new.trainable_weights) == len(new.weights)
    for path, value in _values(removed).items():
        np.testing.assert_array_equal(value, values[path])
    np.testing.assert_array_equal(_outputs(model, images), adapted)  # untouched


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float16"])
def test_merge_and_remove_keep_the_policy(tiny_config, random_weights, images, policy):
    model = random_weights(ViT(tiny_config, dtype=policy))
    original = _outputs(model, images)
    model.add_lora(4)
    adapted = _outputs(_train_adapters(model), images)
    merged = model.merge_lora()
    assert merged.get_layer("block_0").compute_dtype == model.get_layer("block_0").compute_dtype
    np.testing.assert_allclose(_outputs(merged, images), adapted, atol=0.1)
    np.testing.assert_array_equal(_outputs(model.remove_lora(), images), original)


def test_views_of_an_adapted_model_are_adapted(model, images):
    """They share its blocks; what is new in them is as frozen as it was."""
    model.add_lora(4)
    adapters = {v.path for v in model.trainable_weights if "lora_kernel" in v.path}
    resized, new_head = model.with_image_size(32), model.reset_head(3)
    for view in (resized, new_head):
        trainable = {variable.path for variable in view.trainable_weights}
        assert trainable == adapters | {"head/kernel", "head/bias"}
        assert lora_settings(view) == lora_settings(model)
    assert resized.merge_lora().config.image_size == (32, 32)
    tokens = model.intermediates("encoder_norm")
    before = _outputs(tokens, images)["encoder_norm"]
    _train_adapters(model)
    assert np.abs(_outputs(tokens, images)["encoder_norm"] - before).max() > 1e-2


def test_views_with_adapters_cannot_be_saved(image_model, tmp_path):
    """FAULTS J2: their file could not be read, and a copy had lost the adapters."""
    image_model.intermediates("pooled").save(tmp_path / "plain.keras")
    keras.saving.load_model(tmp_path / "plain.keras")
    image_model.add_lora(2, targets="fc1")
    with pytest.raises(ValueError, match="'block_0' with adapters.*Save the `keras_vit` model"):
        image_model.intermediates("pooled").save(tmp_path / "view.keras")
    with pytest.raises(ValueError, match="'block_0' with adapters"):
        keras.models.clone_model(image_model)
    image_model.merge_lora().intermediates("pooled").save(tmp_path / "view.keras")


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_keras_file_keeps_adapters_and_original_kernels(
    tiny_config, random_weights, images, fresh_process, tmp_path, policy
):
    """FAULTS J2: Keras stores W + A B in the compute dtype and gives back A and B of zeros."""
    model = random_weights(ViT(tiny_config, dtype=policy))
    original = _outputs(model, images)
    model.add_lora(4, alpha=8)
    adapted = _outputs(_train_adapters(model), images)
    loaded = fresh_process.outputs_of(model, images, tmp_path / "adapted.keras")
    np.testing.assert_array_equal(loaded, adapted)
    again = keras.saving.load_model(tmp_path / "adapted.keras")
    assert lora_settings(again) == lora_settings(model)
    values = _values(again)
    for path, value in _values(model).items():
        np.testing.assert_array_equal(values[path], value)
    np.testing.assert_array_equal(_outputs(again.remove_lora(), images), original)


def test_reloaded_model_goes_on_learning(model, images, tmp_path):
    model.add_lora(4)
    _fit(model, images)
    model.save(tmp_path / "adapted.keras")
    again = keras.saving.load_model(tmp_path / "adapted.keras")
    trainable = [variable.path for variable in model.trainable_weights]
    assert [variable.path for variable in again.trainable_weights] == trainable
    before = _values(again)
    again.fit(images, np.arange(4), verbose=0)
    _check_what_was_trained(again, before)


def test_weight_files_of_adapted_and_plain_models(tiny_config, random_weights, images, tmp_path):
    """An adapted model reads both; a plain one refuses adapters that it would drop."""
    plain = random_weights(ViT(tiny_config), seed=3)
    plain.save_weights(tmp_path / "plain.weights.h5")
    model = random_weights(ViT(tiny_config))
    model.add_lora(4)
    adapted = _outputs(_train_adapters(model), images)
    model.save_weights(tmp_path / "adapted.weights.h5")
    a = _values(model)["block_0/attention/qkv/lora_kernel_a"]
    model.load_weights(tmp_path / "plain.weights.h5")
    np.testing.assert_array_equal(_outputs(model, images), _outputs(plain, images))
    np.testing.assert_array_equal(_values(model)["block_0/attention/qkv/lora_kernel_a"], a)
    model.load_weights(tmp_path / "adapted.weights.h5")
    np.testing.assert_array_equal(_outputs(model, images), adapted)
    with pytest.raises(ValueError, match="expected 2 variables, but received 4"):
        plain.load_weights(tmp_path / "adapted.weights.h5")


def test_adapters_of_a_quantized_model(model, images, fresh_process, tmp_path):
    """FAULTS J1, J2 (QLoRA): train, save, reload and take out; to merge would change outputs."""
    model.quantize("int8")
    quantized = _outputs(model, images)
    model.add_lora(4, targets=("qkv", "fc2"))
    np.testing.assert_array_equal(_outputs(model, images), quantized)
    before = _values(model)
    losses = _fit(model, images)
    assert losses[1] < losses[0]
    _check_what_was_trained(model, before)
    for variable in model.get_layer("head").weights:
        variable.assign(before[variable.path])
    adapted = _outputs(model, images)
    assert np.abs(adapted - quantized).max() > 1e-3
    loaded = fresh_process.outputs_of(model, images, tmp_path / "qlora.keras")
    np.testing.assert_array_equal(loaded, adapted)
    again = keras.saving.load_model(tmp_path / "qlora.keras")
    assert again.get_layer("block_0").attention.qkv.quantization_mode == "int8"
    np.testing.assert_array_equal(_outputs(again.remove_lora(), images), quantized)
    with pytest.raises(ValueError, match=r"float kernels only.*int8.*save_lora"):
        again.merge_lora()


def test_quantizing_an_adapted_model_keeps_its_adapters(model, images, fresh_process, tmp_path):
    model.add_lora(4)
    float_outputs = _outputs(_train_adapters(model), images)
    model.quantize("int8")
    quantized = _outputs(model, images)
    error = np.abs(quantized - float_outputs).max()
    assert 0.0 < error < 0.1 * np.abs(float_outputs).max()
    loaded = fresh_process.outputs_of(model, images, tmp_path / "int8.keras")
    np.testing.assert_array_equal(loaded, quantized)
    model.save_lora(tmp_path / "adapters.safetensors")
    removed = model.remove_lora()
    removed.load_lora(tmp_path / "adapters.safetensors")
    np.testing.assert_array_equal(_outputs(removed, images), quantized)


def test_kernels_that_keras_cannot_adapt(model):
    model.quantize("float8")
    with pytest.raises(ValueError, match="quantized to 'float8'"):
        model.add_lora(2)


def test_adapters_are_not_lost_where_layers_are_made_anew(tiny_config):
    """FAULTS J2."""
    axial = dataclasses.replace(tiny_config, axial=True, class_token=False, pool="mean")
    model = ViT(axial)
    model.add_lora(rank=2)
    with pytest.raises(ValueError, match="Adapters stay with the layers.*merge_lora"):
        model.with_image_size((16, 32))
    model.merge_lora().with_image_size((16, 32))
