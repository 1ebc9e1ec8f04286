"""What holds for every model, whatever its class."""

import dataclasses
import json
import warnings

import keras
import numpy as np
import pytest

from keras_vit import Mixer, PreprocessingConfig, ViT
from keras_vit.pretrained import MODELS
from keras_vit.zoo.variables import variable_shapes


def _model(config, *args, **kwargs):
    return MODELS[type(config)](config, *args, **kwargs)


def _images(model, size: int = 3) -> np.ndarray:
    shape = (size, *model.config.image_size, model.config.num_channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype("float32")


def _numpy(tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(tensor)


# One of each kind of thing that a config can ask for, on the tiny models.
VITS = [
    {"class_token": False, "pool": "map", "num_register_tokens": 3},
    {"pool": "map", "gated_mlp": True, "activation": "silu", "image_size": (16, 32)},
    {"distillation_token": True},
    {"distillation_token": True, "num_classes": 0},
    {"num_register_tokens": 2, "num_prefix_positions": 0, "layer_scale_init": 1e-5},
    {"num_register_tokens": 2, "num_prefix_positions": 1, "qk_norm": True},
    {"embedding_norm": True, "patch_bias": False, "activation": "quick_gelu"},
    {"final_norm": "pool", "pool": "mean", "class_token": False},
    {"final_norm": "none"},
    {"pool": "token_mean", "final_norm": "pool", "num_register_tokens": 1},
    {"num_classes": 0, "representation_size": 7, "representation": "linear"},
    {"position_embedding": "learned_2d", "image_size": (16, 32)},
    {"position_embedding": "sincos_2d", "image_size": (16, 32)},
    {"position_embedding": "relative", "image_size": (16, 32)},
    {"position_embedding": "none"},
    {"position_insertion": "every_block"},
    {"position_insertion": "every_block_shared", "position_embedding": "learned_2d"},
    {"axial": True, "class_token": False, "pool": "mean", "image_size": (16, 32)},
    {"stem_layers": (), "stem_width": 32, "image_size": 32},
    {"stem_layers": (2, 1), "stem_width": 32, "patch_size": 1, "image_size": (16, 32)},
    {},
    {"class_token": False, "pool": "mean"},
    {"pool": "mean"},
    {"representation_size": 7},
    {"num_classes": 0},
    {"num_classes": 0, "representation_size": 7},
    {"image_size": (16, 32)},
    {"image_size": (12, 32), "patch_size": (3, 8)},
    {"num_channels": 1},
    {"num_channels": 13},
    {"qkv_bias": False, "layer_norm_epsilon": 1e-12, "activation": "gelu"},
    {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "drop_path_rate": 0.2},
]
MIXERS = [
    {},
    {"num_classes": 0},
    {"image_size": (16, 32), "num_channels": 1},
    {"image_size": (12, 32), "patch_size": (3, 8)},
    {"activation": "gelu", "layer_norm_epsilon": 1e-5},
    {"dropout_rate": 0.1, "drop_path_rate": 0.2},
]
# What these add is the same in all channels of a token, or in all scores of a query: a
# normalization or a softmax takes it out.
NO_EFFECT = ("token_mixing/fc2/bias", "key_norm/beta")


def test_every_norm_has_the_configured_epsilon(image_config):
    """FAULTS E3: outputs do not pin an epsilon, so the layers are asked."""
    model = _model(dataclasses.replace(image_config, layer_norm_epsilon=3e-5))
    epsilons = [
        part.epsilon
        for part in model._flatten_layers()
        if isinstance(part, keras.layers.LayerNormalization)
    ]
    assert epsilons == [3e-5] * 5


@pytest.mark.parametrize(
    ("kind", "fields"),
    [*(("vit", fields) for fields in VITS), *(("mixer", fields) for fields in MIXERS)],
    ids=str,
)
def test_keras_file_reloads_in_a_fresh_process(
    tiny_config, tiny_mixer_config, kind, fields, random_weights, fresh_process, tmp_path
):
    """FAULTS A2, B1, F1, F2, F3, J1, TRAPS 2, 4: each architecture, after fit, float and int8."""
    tiny = {"vit": tiny_config, "mixer": tiny_mixer_config}[kind]
    config = dataclasses.replace(tiny, **fields)
    model = random_weights(_model(config, origin={"source": "test"}))
    shapes = {w.path: tuple(w.shape) for w in model.weights if "seed" not in w.path}
    assert shapes == variable_shapes(config)
    images = _images(model)
    keras.utils.set_random_seed(0)  # of the dropouts: all three examples could lose a branch
    before = {w.path: _numpy(w) for w in model.trainable_weights}
    model.compile("sgd", "mse")
    model.fit(images, np.zeros((3, model.output.shape[-1])), verbose=0)
    after = {w.path: _numpy(w) for w in model.trainable_weights}
    still = [path for path in after if np.array_equal(after[path], before[path])]
    assert not [path for path in still if not path.endswith(NO_EFFECT)]
    outputs = model.predict(images, verbose=0)
    assert outputs.dtype == np.float32 and np.isfinite(outputs).all()
    json.dumps(model.get_config())
    loaded = fresh_process.outputs_of(model, images, tmp_path / "float.keras")
    np.testing.assert_allclose(loaded, outputs, atol=1e-6)
    model.quantize("int8")
    quantized = _numpy(model(images))
    loaded = fresh_process.outputs_of(model, images, tmp_path / "int8.keras")
    np.testing.assert_array_equal(loaded, quantized)


def test_the_reloaded_model_says_what_it_is(image_config, tmp_path):
    model = _model(image_config, labels=list("abcde"), origin={"source": "test"}, multi_label=True)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model) and again.name == model.name
    assert again.config == image_config and again.labels == tuple("abcde")
    assert again.origin == {"source": "test"} and again.multi_label


def test_quantize_takes_the_dense_layers_of_the_blocks(image_model):
    """FAULTS J1."""
    image_model.quantize("int8")
    for part in image_model._flatten_layers():
        is_dense = isinstance(part, keras.layers.Dense) and part.path.startswith("block_")
        assert part.quantization_mode == ("int8" if is_dense else None), part.path


def test_head_stays_float32_through_int8_and_back(image_config, random_weights, tmp_path):
    model = random_weights(_model(image_config, dtype="mixed_bfloat16"))
    model.quantize("int8")
    model.save(tmp_path / "int8.keras")
    again = keras.saving.load_model(tmp_path / "int8.keras")
    assert again.get_layer("head").compute_dtype == "float32"
    assert again.get_layer("block_0").compute_dtype == "bfloat16"
    images = _images(model)
    np.testing.assert_array_equal(again(images), model(images))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16", "float16"])
@pytest.mark.parametrize("num_classes", [0, 5])
def test_outputs_are_float32_whatever_the_policy(image_config, policy, num_classes, tmp_path):
    model = _model(dataclasses.replace(image_config, num_classes=num_classes), dtype=policy)
    images = _images(model)
    outputs = model(images)
    assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
    assert model.get_layer("normalization").compute_dtype == "float32"
    assert model.get_layer("block_0").compute_dtype == keras.DTypePolicy(policy).compute_dtype
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.dtype_policy.name == policy
    np.testing.assert_array_equal(again(images), outputs)


@pytest.mark.parametrize("dtype", ["uint8", "int8_from_float32"])
def test_policy_must_be_floating_point(image_config, dtype):
    with pytest.raises(ValueError, match=f"`dtype` must be a floating point policy.*'{dtype}'"):
        _model(image_config, dtype=dtype)


def test_integer_pixels_equal_float_pixels(image_model):
    """TRAPS 3: a uint8 Input would cut floats; a float32 one takes both."""
    images = _images(image_model)
    expected = image_model.predict(images, verbose=0)
    integers = image_model.predict(images.astype("uint8"), verbose=0)
    np.testing.assert_array_equal(integers, expected)
    np.testing.assert_allclose(image_model(images.astype("int32")), expected, atol=1e-6)
    half = image_model.predict(images + 0.5, verbose=0)
    assert np.abs(half - expected).max() > 1e-5


def test_normalization_is_in_the_model(image_config, random_weights):
    """FAULTS D1: `include_normalization=False` leaves exactly that step to the caller."""
    preprocessing = PreprocessingConfig(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    inside = random_weights(_model(image_config, preprocessing))
    outside = _model(image_config, preprocessing, include_normalization=False)
    outside.set_weights(inside.get_weights())
    images = _images(inside)
    by_hand = (images / 255.0 - preprocessing.mean) / preprocessing.std
    np.testing.assert_allclose(outside(by_hand), inside(images), atol=1e-5)


def test_statistics_follow_the_channels(image_config):
    """FAULTS B1."""
    preprocessing = PreprocessingConfig(mean=(0.1, 0.2, 0.3), std=(0.2, 0.4, 0.6))
    grey = _model(dataclasses.replace(image_config, num_channels=1), preprocessing)
    assert grey.preprocessing.mean == pytest.approx((0.2,))
    many = _model(dataclasses.replace(image_config, num_channels=4), preprocessing)
    assert many.preprocessing.mean == (0.1, 0.2, 0.3, 0.1)
    assert many.preprocessing.std == (0.2, 0.4, 0.6, 0.2)


def test_another_number_of_channels_is_refused(image_model):
    """FAULTS B: one channel would broadcast to three inside the normalisation."""
    for channels in (1, 4):
        with pytest.raises(ValueError, match="must have 3 channels.*model.preprocess|found shape="):
            image_model(np.zeros((2, 16, 16, channels), "float32"))


def test_intermediates_share_the_weights(image_model):
    images = _images(image_model)
    names = ["block_0", "block_1", "encoder_norm", "pooled", "logits"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        views = image_model.intermediates(names)(images)
    assert list(views) == names
    np.testing.assert_array_equal(views["logits"], image_model(images))
    block = image_model.get_layer("block_1")(views["block_0"])
    np.testing.assert_allclose(block, views["block_1"], atol=1e-5)
    assert set(image_model.intermediates("pooled")(images)) == {"pooled"}
    with pytest.raises(ValueError, match="must not be empty"):
        image_model.intermediates([])
    with pytest.raises(ValueError, match="'block_7'.*Did you mean.*block_"):
        image_model.intermediates(["block_7"])


def test_the_head_starts_at_zero_and_the_last_block_drops_most(image_config):
    """Paper D.3."""
    model = _model(dataclasses.replace(image_config, num_layers=3, drop_path_rate=0.4))
    np.testing.assert_array_equal(model(_images(model)), np.zeros((3, 5)))
    rates = [model.get_layer(f"block_{index}").drop_path2.rate for index in range(3)]
    assert rates == [0.0, 0.2, 0.4]


def test_read_weights_fills_named_variables_and_leaves_no_trace(image_config, tmp_path):
    """TRAPS 16: a file-reading initialiser must not stay on the layers."""
    source = {}

    def read(path, shape):
        if path.startswith("head"):
            return None
        source[path] = np.full(shape, len(source), "float32")
        return source[path]

    model = _model(image_config, read_weights=read)
    for variable in model.weights:
        expected = source.get(variable.path, np.zeros(variable.shape))
        np.testing.assert_array_equal(variable, expected)
    assert len(source) == len(model.weights) - 2
    for part in model._flatten_layers():
        for attribute, value in vars(part).items():
            if attribute.endswith("_initializer"):
                assert type(value).__module__.startswith("keras."), (part.path, attribute)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_fit_warns_of_unit_range(image_model):
    """TRAPS 15: pixels 0..1 into a model of 0..255 train on black pictures, silently."""
    model = image_model
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.array([0, 1, 2])
    images = _images(model)
    for scaled in (images / 255.0, [images / 255.0], {"images": images / 255.0}):
        with pytest.warns(UserWarning, match="pixels 0..255.*from 0 to 1"):
            model.fit(scaled, labels, verbose=0)
    with pytest.warns(UserWarning, match="pixels 0..255.*from 0 to 1"):
        model.predict(images / 255.0, verbose=0)
    with pytest.warns(UserWarning, match="pixels 0..255.*from 0 to 1"):
        model.evaluate(images / 255.0, labels, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(images, labels, validation_data=(images, labels), verbose=0)
        model.predict(images.astype("uint8"), verbose=0)
        model.evaluate(images, labels, verbose=0)
        model.fit(np.zeros_like(images), labels, verbose=0)
        bare = _model(model.config, include_normalization=False)
        bare.compile("sgd", model.loss)
        bare.fit(images / 255.0, labels, verbose=0)


def test_fit_takes_a_generator_whole(image_model):
    model = image_model
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = _images(model)
    batches = ((images / 255.0, np.array([0, 1, 2])) for _ in range(4))
    with pytest.warns(UserWarning, match="pixels 0..255"):
        model.fit(batches, steps_per_epoch=4, epochs=1, verbose=0)
    assert int(model.optimizer.iterations) == 4


def test_fit_compiled_by_xla(image_model):
    """FAULTS A6: nothing in the model lacks an XLA kernel."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    image_model.compile("sgd", loss, jit_compile=True)
    history = image_model.fit(_images(image_model), np.array([0, 1, 2]), verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_works_inside_a_users_functional_model(image_config, random_weights, tmp_path):
    """FAULTS F2."""
    backbone = random_weights(_model(dataclasses.replace(image_config, num_classes=0)))
    inputs = keras.Input((16, 16, 3))
    model = keras.Model(inputs, keras.layers.Dense(2)(backbone(inputs)))
    images = _images(backbone)
    outputs = model.predict(images, verbose=0)
    model.save(tmp_path / "user.keras")
    again = keras.saving.load_model(tmp_path / "user.keras")
    np.testing.assert_array_equal(again.predict(images, verbose=0), outputs)
    model.save_weights(tmp_path / "user.weights.h5")
    random_weights(model, seed=5)
    model.load_weights(tmp_path / "user.weights.h5")
    np.testing.assert_array_equal(model.predict(images, verbose=0), outputs)


@pytest.mark.parametrize(
    ("model_class", "name", "width"), [(ViT, "Ti/16", 192), (Mixer, "S/32", 512)]
)
def test_from_variant(model_class, name, width):
    model = model_class.from_variant(name, image_size=64, num_classes=3, num_layers=1)
    assert model.output.shape == (None, 3) and model.config.hidden_dim == width
    with pytest.raises(ValueError, match="'B/61'.*Did you mean.*B/16"):
        model_class.from_variant("B/61")
    with pytest.raises(ValueError, match="'num_clases'.*num_classes"):
        model_class.from_variant("B/16", num_clases=3)


def test_labels_are_one_a_class(image_config):
    assert _model(image_config, labels=list("abcde")).labels == ("a", "b", "c", "d", "e")
    with pytest.raises(ValueError, match="2 labels, num_classes=5"):
        _model(image_config, labels=["cat", "dog"])
    for labels in ("abcde", 5):
        with pytest.raises(ValueError, match="`labels` must be a list of names"):
            _model(image_config, labels=labels)


def test_a_config_of_another_model_is_refused(tiny_config):
    with pytest.raises(ValueError, match="`config` must be a `keras_vit.MixerConfig`.*ViTConfig"):
        Mixer(tiny_config)
    with pytest.raises(ValueError, match="`config` must be a `keras_vit.ViTConfig`.*dict"):
        ViT({})


def test_reset_head_shares_all_but_the_head(image_model):
    """FAULTS C1: another number of classes, and the body is the same."""
    images = _images(image_model)
    before = image_model(images)
    new = image_model.reset_head(3, labels=["a", "b", "c"])
    assert new.output.shape == (None, 3) and new.labels == ("a", "b", "c")
    assert type(new) is type(image_model) and new.config.num_classes == 3
    assert not new.get_layer("head").kernel.numpy().any()
    assert new.get_layer("block_1") is image_model.get_layer("block_1")
    features = image_model.reset_head(0)
    assert features.output.shape == (None, 16)
    pooled = image_model.intermediates("pooled")(images)["pooled"]
    np.testing.assert_array_equal(features(images), pooled)
    new.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    new.get_layer("head").kernel.assign(np.eye(16, 3))
    new.fit(images, np.array([0, 1, 2]), verbose=0)
    moved = np.abs(np.asarray(image_model(images)) - np.asarray(before))
    assert moved.max() > 0  # the weights are shared


def test_reset_head_of_as_many_classes_is_new(image_model):
    """FAULTS C1: asked for, so done."""
    new = image_model.reset_head(5)
    assert not np.asarray(new(_images(image_model))).any()
    assert np.asarray(image_model(_images(image_model))).any()


def test_views_of_views_work(image_model, tmp_path):
    new = image_model.reset_head(3).reset_head(4)
    new.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    images = _images(image_model)
    np.testing.assert_array_equal(again(images), new(images))


def test_quantized_models_are_refused(image_model):
    image_model.quantize("int8")
    with pytest.raises(ValueError, match="`reset_head` needs float weights"):
        image_model.reset_head(3)


def test_probabilities_are_a_softmax_or_sigmoids(image_model):
    logits = np.array([[0.0, 1.0, 2.0]], "float32")
    np.testing.assert_allclose(np.sum(image_model.probabilities(logits)), 1.0, atol=1e-6)
    image_model.multi_label = True
    sigmoids = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(image_model.probabilities(logits), sigmoids, atol=1e-6)


@pytest.mark.parametrize("change", ["add_lora", "quantize"])
def test_models_that_share_layers_see_what_changes(tiny_config, random_weights, change):
    """What one compiled before must not outlive the layers' change."""
    model = random_weights(ViT(tiny_config))
    images = _images(model)
    view, other = model.intermediates(["pooled"]), model.reset_head(0)
    for each in (model, view, other):
        each.predict(images, verbose=0)
    if change == "add_lora":
        other.add_lora(rank=2)
        for weight in other.weights:
            if "lora" in weight.path:
                weight.assign(np.full(weight.shape, 0.3))
    else:
        model.quantize("int8")
    np.testing.assert_allclose(model.predict(images, verbose=0), model(images), atol=1e-6)
    pooled = view.predict(images, verbose=0)["pooled"]
    np.testing.assert_allclose(pooled, other.predict(images, verbose=0), atol=1e-6)
    np.testing.assert_allclose(pooled, view(images)["pooled"], atol=1e-6)
