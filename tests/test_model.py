import dataclasses
import importlib
import json
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import VARIANTS, PreprocessingConfig, ViT, ViTConfig
from keras_vit.resample import resize_position_embeddings
from keras_vit.zoo.variables import count_parameters, variable_shapes


def _count(config: ViTConfig) -> int:
    """Parameters of the real model with one block, the rest of its equal blocks added."""
    model = ViT(dataclasses.replace(config, num_layers=1))
    block = model.get_layer("block_0").count_params()
    return model.count_params() + (config.num_layers - 1) * block


def _batch(config: ViTConfig, size: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (size, *config.image_size, config.num_channels)
    return rng.integers(0, 256, shape).astype("float32")


@pytest.mark.parametrize("name", VARIANTS)
def test_parameter_counts(name):
    """tests/zoo/test_variables.py compares these with the official table."""
    assert _count(VARIANTS[name]) == count_parameters(VARIANTS[name])


def test_parameter_counts_without_class_token():
    """The official repository's "-gap-norep" model."""
    config = dataclasses.replace(VARIANTS["S/32"], class_token=False, pool="mean")
    assert _count(config) == 22_878_184


def test_blocks_are_all_counted(tiny_config):
    """The shortcut of `_count` is the count."""
    assert _count(tiny_config) == ViT(tiny_config).count_params()


def test_variable_paths_are_the_documented_ones(tiny_config):
    paths = [w.path for w in ViT(dataclasses.replace(tiny_config, representation_size=7)).weights]
    block = [
        f"block_0/{name}"
        for name in (
            *("norm1/gamma", "norm1/beta"),
            *("attention/qkv/kernel", "attention/qkv/bias"),
            *("attention/proj/kernel", "attention/proj/bias"),
            *("norm2/gamma", "norm2/beta"),
            *("mlp/fc1/kernel", "mlp/fc1/bias", "mlp/fc2/kernel", "mlp/fc2/bias"),
        )
    ]
    assert paths == [
        "patch_embedding/projection/kernel",
        "patch_embedding/projection/bias",
        "prefix_tokens/class_token",
        "position_embedding/embeddings",
        *block,
        *(path.replace("block_0", "block_1") for path in block),
        "encoder_norm/gamma",
        "encoder_norm/beta",
        "pre_logits/kernel",
        "pre_logits/bias",
        "head/kernel",
        "head/bias",
    ]


# One of each kind of thing that a config can ask for, on the tiny model.
ARCHITECTURES = [
    {"class_token": False, "pool": "map", "num_register_tokens": 3},
    {"pool": "map", "gated_mlp": True, "activation": "silu", "image_size": (16, 32)},
    {"distillation_token": True},
    {"distillation_token": True, "num_classes": 0},
    {"num_register_tokens": 2, "num_prefix_positions": 0, "layer_scale_init": 1e-5},
    {"num_register_tokens": 2, "num_prefix_positions": 1, "qk_norm": True},
    {"embedding_norm": True, "patch_bias": False, "activation": "quick_gelu"},
    {"final_norm": "pool", "pool": "mean", "class_token": False},
    {"final_norm": "none"},
    {"position_embedding": "learned_2d", "image_size": (16, 32)},
    {"position_embedding": "sincos_2d", "image_size": (16, 32)},
    {"position_embedding": "relative", "image_size": (16, 32)},
    {"position_embedding": "none"},
    {"position_insertion": "every_block"},
    {"position_insertion": "every_block_shared", "position_embedding": "learned_2d"},
    {"axial": True, "class_token": False, "pool": "mean", "image_size": (16, 32)},
    {"stem_layers": (), "stem_width": 32, "image_size": 32},
    {"stem_layers": (2, 1), "stem_width": 32, "patch_size": 1, "image_size": (16, 32)},
]


@pytest.mark.parametrize("fields", [{}, *ARCHITECTURES], ids=str)
def test_variables_are_those_that_the_readers_know(tiny_config, fields):
    config = dataclasses.replace(tiny_config, **fields)
    weights = ViT(config).weights
    assert {weight.path: tuple(weight.shape) for weight in weights} == variable_shapes(config)


@pytest.mark.parametrize(
    "fields",
    [
        *ARCHITECTURES,
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
    ],
    ids=str,
)
def test_keras_file_reloads_in_a_fresh_process(
    tiny_config, fields, random_weights, fresh_process, tmp_path
):
    """FAULTS A2, B1, F1, F2, F3, J1, TRAPS 2, 4: each architecture, after fit, float and int8."""
    config = dataclasses.replace(tiny_config, **fields)
    model = random_weights(ViT(config, origin={"source": "test"}))
    images = _batch(config)
    model.compile("sgd", "mse")
    model.fit(images, np.zeros(model.output.shape[1:] and (3, model.output.shape[-1])), verbose=0)
    outputs = model.predict(images, verbose=0)
    assert outputs.dtype == np.float32 and np.isfinite(outputs).all()
    json.dumps(model.get_config())
    loaded = fresh_process.outputs_of(model, images, tmp_path / "float.keras")
    np.testing.assert_allclose(loaded, outputs, atol=1e-6)
    model.quantize("int8")
    quantized = np.asarray(model(images))
    loaded = fresh_process.outputs_of(model, images, tmp_path / "int8.keras")
    np.testing.assert_array_equal(loaded, quantized)


def test_quantize_leaves_head_and_positions_float(tiny_config):
    """FAULTS J1."""
    model = ViT(tiny_config)
    model.quantize("int8")
    modes = {part.path: part.quantization_mode for part in model._flatten_layers()}
    assert modes["head"] is None and modes["position_embedding"] is None
    assert modes["block_0/attention/qkv"] == modes["block_1/mlp/fc2"] == "int8"


def test_head_stays_float32_through_int8_and_back(tiny_config, random_weights, tmp_path):
    model = random_weights(ViT(tiny_config, dtype="mixed_bfloat16"))
    model.quantize("int8")
    model.save(tmp_path / "int8.keras")
    again = keras.saving.load_model(tmp_path / "int8.keras")
    assert again.get_layer("head").compute_dtype == "float32"
    assert again.get_layer("block_0").compute_dtype == "bfloat16"
    images = _batch(tiny_config)
    np.testing.assert_array_equal(again(images), model(images))


def test_transposed_picture_gives_the_transposed_token_map(tiny_config, random_weights):
    """FAULTS A2: 16 x 32 with its grid, kernel and picture transposed is 32 x 16."""
    wide = ViT(dataclasses.replace(tiny_config, image_size=(16, 32)))
    tall = ViT(dataclasses.replace(tiny_config, image_size=(32, 16)))
    random_weights(wide)
    for ours, theirs in zip(tall.weights, wide.weights, strict=True):
        value = theirs.numpy()
        if ours.path == "patch_embedding/projection/kernel":
            value = value.swapaxes(0, 1)
        if ours.path == "position_embedding/embeddings":
            grid = value[1:].reshape(4, 8, 16).swapaxes(0, 1).reshape(32, 16)
            value = np.concatenate([value[:1], grid])
        ours.assign(value)
    images = _batch(wide.config)
    names = ["encoder_norm", "logits"]
    of_wide = wide.intermediates(names)(images)
    of_tall = tall.intermediates(names)(images.swapaxes(1, 2))
    np.testing.assert_allclose(of_tall["logits"], of_wide["logits"], atol=1e-5)
    grid = np.asarray(of_wide["encoder_norm"])[:, 1:].reshape(3, 4, 8, 16)
    turned = np.asarray(of_tall["encoder_norm"])[:, 1:].reshape(3, 8, 4, 16)
    np.testing.assert_allclose(turned.swapaxes(1, 2), grid, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16", "float16"])
@pytest.mark.parametrize("num_classes", [0, 5])
def test_outputs_are_float32_whatever_the_policy(tiny_config, policy, num_classes, tmp_path):
    config = dataclasses.replace(tiny_config, num_classes=num_classes)
    model = ViT(config, dtype=policy)
    images = _batch(config)
    outputs = model(images)
    assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
    assert model.get_layer("normalization").compute_dtype == "float32"
    assert model.get_layer("block_0").compute_dtype == keras.DTypePolicy(policy).compute_dtype
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.dtype_policy.name == policy
    np.testing.assert_array_equal(again(images), outputs)


def test_integer_pixels_equal_float_pixels(tiny_config, random_weights):
    """TRAPS 3: a uint8 Input would cut floats; a float32 one takes both."""
    model = random_weights(ViT(tiny_config))
    images = _batch(tiny_config)
    expected = model.predict(images, verbose=0)
    np.testing.assert_array_equal(model.predict(images.astype("uint8"), verbose=0), expected)
    np.testing.assert_allclose(model(images.astype("int32")), expected, atol=1e-6)
    half = model.predict(images + 0.5, verbose=0)
    assert np.abs(half - expected).max() > 1e-5


def test_normalization_is_in_the_model(tiny_config, random_weights):
    """FAULTS D1: `include_normalization=False` leaves exactly that step to the caller."""
    preprocessing = PreprocessingConfig(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    inside = random_weights(ViT(tiny_config, preprocessing))
    outside = ViT(tiny_config, preprocessing, include_normalization=False)
    outside.set_weights(inside.get_weights())
    images = _batch(tiny_config)
    by_hand = (images / 255.0 - preprocessing.mean) / preprocessing.std
    np.testing.assert_allclose(outside(by_hand), inside(images), atol=1e-5)


def test_statistics_follow_the_channels(tiny_config):
    """FAULTS B1."""
    preprocessing = PreprocessingConfig(mean=(0.1, 0.2, 0.3), std=(0.2, 0.4, 0.6))
    grey = ViT(dataclasses.replace(tiny_config, num_channels=1), preprocessing)
    assert grey.preprocessing.mean == pytest.approx((0.2,))
    many = ViT(dataclasses.replace(tiny_config, num_channels=4), preprocessing)
    assert many.preprocessing.mean == (0.1, 0.2, 0.3, 0.1)
    assert many.preprocessing.std == (0.2, 0.4, 0.6, 0.2)


def test_intermediates_share_weights_and_names(tiny_config, random_weights):
    model = random_weights(ViT(dataclasses.replace(tiny_config, representation_size=7)))
    names = ["embeddings", "block_0", "block_1", "encoder_norm", "pooled", "pre_logits", "logits"]
    images = _batch(tiny_config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = model.intermediates(names)(images)
    shapes = {name: tuple(value.shape) for name, value in values.items()}
    tokens = (3, 17, 16)
    assert shapes == {
        "embeddings": tokens,
        "block_0": tokens,
        "block_1": tokens,
        "encoder_norm": tokens,
        "pooled": (3, 16),
        "pre_logits": (3, 7),
        "logits": (3, 5),
    }
    np.testing.assert_array_equal(values["logits"], model(images))
    block = model.get_layer("block_1")
    np.testing.assert_allclose(block(values["block_0"]), values["block_1"], atol=1e-6)
    np.testing.assert_array_equal(np.asarray(values["encoder_norm"])[:, 0], values["pooled"])
    assert set(model.intermediates("pooled")(images)) == {"pooled"}
    with pytest.raises(ValueError, match="must not be empty"):
        model.intermediates([])
    with pytest.raises(ValueError, match="'block_7'.*block_"):
        model.intermediates(["block_7"])


def test_head_starts_at_zero_and_class_token_at_zero(tiny_config):
    """Paper D.3; official initialisers."""
    keras.utils.set_random_seed(0)
    model = ViT(dataclasses.replace(tiny_config, hidden_dim=64, mlp_dim=128))
    np.testing.assert_array_equal(model(_batch(tiny_config)), np.zeros((3, 5)))
    values = {w.path: w.numpy() for w in model.weights}
    assert not values["prefix_tokens/class_token"].any()
    assert abs(values["position_embedding/embeddings"].std() - 0.02) < 0.003
    assert abs(values["block_0/mlp/fc1/bias"].std() - 1e-6) < 3e-7
    limit = (6 / (64 + 128)) ** 0.5
    assert 0.98 * limit < np.abs(values["block_0/mlp/fc1/kernel"]).max() <= limit
    fan_in = 4 * 4 * 3
    assert abs(values["patch_embedding/projection/kernel"].std() - fan_in**-0.5) < 0.01


def test_drop_path_rises_linearly(tiny_config):
    model = ViT(dataclasses.replace(tiny_config, num_layers=5, drop_path_rate=0.2))
    rates = [model.get_layer(f"block_{index}").drop_path2.rate for index in range(5)]
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


def test_every_norm_has_the_configured_epsilon(tiny_config):
    """FAULTS E3: outputs do not pin an epsilon, so the layers are asked."""
    model = ViT(dataclasses.replace(tiny_config, layer_norm_epsilon=3e-5))
    epsilons = [
        part.epsilon
        for part in model._flatten_layers()
        if isinstance(part, keras.layers.LayerNormalization)
    ]
    assert epsilons == [3e-5] * 5


def test_read_weights_fills_named_variables_and_leaves_no_trace(tiny_config, tmp_path):
    """TRAPS 16: a file-reading initialiser must not stay on the layers."""
    source = {}

    def read(path, shape):
        if path.startswith("head"):
            return None
        source[path] = np.full(shape, len(source), "float32")
        return source[path]

    model = ViT(tiny_config, read_weights=read)
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


def test_fit_warns_of_unit_range(tiny_config):
    """TRAPS 15: pixels 0..1 into a model of 0..255 train on black pictures, silently."""
    model = ViT(tiny_config)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.array([0, 1, 2])
    images = _batch(tiny_config)
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
        bare = ViT(tiny_config, include_normalization=False)
        bare.compile("sgd", model.loss)
        bare.fit(images / 255.0, labels, verbose=0)


def test_fit_takes_a_generator_whole(tiny_config):
    model = ViT(tiny_config)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = _batch(tiny_config)
    batches = ((images / 255.0, np.array([0, 1, 2])) for _ in range(4))
    with pytest.warns(UserWarning, match="pixels 0..255"):
        model.fit(batches, steps_per_epoch=4, epochs=1, verbose=0)
    assert int(model.optimizer.iterations) == 4


def test_another_number_of_channels_is_refused(tiny_config):
    """FAULTS B: one channel would broadcast to three inside the normalisation."""
    model = ViT(tiny_config)
    for channels in (1, 4):
        with pytest.raises(ValueError, match="must have 3 channels.*model.preprocess|found shape="):
            model(np.zeros((2, 16, 16, channels), "float32"))


def test_policy_must_be_floating_point(tiny_config):
    with pytest.raises(ValueError, match="`dtype` must be a floating point.*'uint8'"):
        ViT(tiny_config, dtype="uint8")


def test_fit_compiled_by_xla(tiny_config):
    """FAULTS A6: nothing in the model lacks an XLA kernel."""
    model = ViT(tiny_config)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=True)
    history = model.fit(_batch(tiny_config), np.array([0, 1, 2]), verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_works_inside_a_users_functional_model(tiny_config, random_weights, tmp_path):
    """FAULTS F2."""
    backbone = random_weights(ViT(dataclasses.replace(tiny_config, num_classes=0)))
    inputs = keras.Input((16, 16, 3))
    model = keras.Model(inputs, keras.layers.Dense(2)(backbone(inputs)))
    images = _batch(tiny_config)
    outputs = model.predict(images, verbose=0)
    model.save(tmp_path / "user.keras")
    again = keras.saving.load_model(tmp_path / "user.keras")
    np.testing.assert_array_equal(again.predict(images, verbose=0), outputs)
    model.save_weights(tmp_path / "user.weights.h5")
    random_weights(model, seed=5)
    model.load_weights(tmp_path / "user.weights.h5")
    np.testing.assert_array_equal(model.predict(images, verbose=0), outputs)


def test_from_variant():
    model = ViT.from_variant("Ti/16", image_size=32, num_classes=3, num_layers=1)
    assert model.output.shape == (None, 3) and model.config.hidden_dim == 192
    with pytest.raises(ValueError, match="'B/61'.*Did you mean.*B/16"):
        ViT.from_variant("B/61")
    with pytest.raises(ValueError, match="'num_clases'.*num_classes"):
        ViT.from_variant("B/16", num_clases=3)


def test_labels_are_one_a_class(tiny_config):
    assert ViT(tiny_config, labels=list("abcde")).labels == ("a", "b", "c", "d", "e")
    with pytest.raises(ValueError, match="2 labels, num_classes=5"):
        ViT(tiny_config, labels=["cat", "dog"])
    for labels in ("abcde", 5):
        with pytest.raises(ValueError, match="`labels` must be a list of names"):
            ViT(tiny_config, labels=labels)


def test_public_names_exist_and_stay():
    """TRAPS 1, 17: importing the modules behind them must not put a module in their place."""
    names = [
        n for n in keras_vit.__all__ if n not in ("VARIANTS", "MIXER_VARIANTS", "assets", "layers")
    ]
    first = {name: getattr(keras_vit, name) for name in names}
    for module in ("exporters", "recipes", "runs", "pretrained", "zoo.catalogue"):
        importlib.import_module(f"keras_vit.{module}")
    for name in names:
        assert callable(first[name]) and getattr(keras_vit, name) is first[name]
    with pytest.raises(AttributeError, match="no attribute 'from_pretraned'"):
        _ = keras_vit.from_pretraned


SCORED = [
    {"image_size": (16, 32)},
    {"image_size": (16, 32), "num_register_tokens": 3, "num_prefix_positions": 1},
    {"image_size": (16, 32), "class_token": False, "pool": "map"},
    {"image_size": (16, 32), "position_embedding": "relative", "qk_norm": True},
    {"image_size": (16, 32), "attention_dropout_rate": 0.5},
]


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("fields", SCORED, ids=str)
def test_attention_scores(tiny_config, fields, policy, random_weights):
    """FAULTS I1: rows sum to 1, and the model's own numbers stay as they are."""
    config = dataclasses.replace(tiny_config, **fields)
    model = random_weights(ViT(config, dtype=policy))
    images = _batch(config)
    before = model.predict(images, verbose=0)
    scores = model.attention_scores()(images)
    assert list(scores) == ["block_0", "block_1"]
    for value in scores.values():
        assert value.shape == (3, 2, config.num_tokens, config.num_tokens)
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
        np.testing.assert_allclose(np.asarray(value).sum(-1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(model.predict(images, verbose=0), before)
    assert np.asarray(scores["block_0"]).std() > 0
    last = model.attention_scores(-1)(images)
    assert list(last) == ["block_1"]
    np.testing.assert_array_equal(last["block_1"], scores["block_1"])


def test_attention_scores_are_those_of_the_model(tiny_config, random_weights):
    """FAULTS I1: scores times values, projected, is what the block's attention gives."""
    model = random_weights(ViT(tiny_config))
    images = _batch(tiny_config)
    block = model.get_layer("block_1")
    tokens = model.intermediates("block_0")(images)["block_0"]
    normed = np.asarray(block.norm1(tokens))
    value = (normed @ block.attention.qkv.kernel.numpy() + block.attention.qkv.bias.numpy())[
        ..., 32:
    ]
    value = value.reshape(3, 17, 2, 8).transpose(0, 2, 1, 3)
    scores = np.asarray(model.attention_scores([1])(images)["block_1"])
    mixed = (scores @ value).transpose(0, 2, 1, 3).reshape(3, 17, 16)
    expected = mixed @ block.attention.proj.kernel.numpy() + block.attention.proj.bias.numpy()
    np.testing.assert_allclose(block.attention(normed), expected, atol=1e-5)


def test_attention_scores_after_load_and_quantize(tiny_config, random_weights, tmp_path):
    """FAULTS I1."""
    model = random_weights(ViT(tiny_config))
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    images = _batch(tiny_config)
    scores = again.attention_scores()(images)["block_1"]
    np.testing.assert_array_equal(scores, model.attention_scores()(images)["block_1"])


def test_attention_scores_errors(tiny_config):
    with pytest.raises(ValueError, match="`blocks` must be numbers from 0 to 1.*blocks=2"):
        ViT(tiny_config).attention_scores(2)
    with pytest.raises(ValueError, match="`blocks` must be numbers"):
        ViT(tiny_config).attention_scores([])
    axial = dataclasses.replace(tiny_config, axial=True, class_token=False, pool="mean")
    with pytest.raises(ValueError, match="axial=True"):
        ViT(axial).attention_scores()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"num_register_tokens": 2, "num_prefix_positions": 1},
        {"position_embedding": "learned_2d"},
        {"position_embedding": "sincos_2d"},
        {"position_insertion": "every_block"},
        {"axial": True, "class_token": False, "pool": "mean"},
        {"stem_layers": (), "stem_width": 32, "patch_size": 1},
    ],
    ids=str,
)
def test_with_image_size_resizes_positions_and_shares_the_rest(
    tiny_config, fields, random_weights, tmp_path
):
    """FAULTS A1, A2."""
    config = dataclasses.replace(tiny_config, **fields)
    model = random_weights(ViT(config))
    wide = model.with_image_size((16, 32))
    images = _batch(wide.config)
    outputs = wide.predict(images, verbose=0)
    assert wide.config.image_size == (16, 32) and np.isfinite(outputs).all()
    old = {weight.path: weight.numpy() for weight in model.weights}
    for weight in wide.weights:
        if not weight.path.startswith("position_embedding"):
            np.testing.assert_array_equal(weight, old[weight.path])
    assert wide.get_layer("patch_embedding") is model.get_layer("patch_embedding")
    back = model.with_image_size(16)
    np.testing.assert_array_equal(back(_batch(config)), model(_batch(config)))
    wide.save(tmp_path / "wide.keras")
    again = keras.saving.load_model(tmp_path / "wide.keras")
    np.testing.assert_array_equal(again(images), wide(images))


def test_with_image_size_follows_the_sources_rule(tiny_config, random_weights):
    model = random_weights(ViT(tiny_config, origin={"position_resize": "bicubic"}))
    table = model.get_layer("position_embedding").embeddings.numpy()
    expected = resize_position_embeddings(table, 1, (4, 4), (6, 4), "bicubic")
    tall = model.with_image_size((24, 16))
    np.testing.assert_array_equal(tall.get_layer("position_embedding").embeddings, expected)


def test_with_image_size_refuses_what_has_no_meaning(tiny_config):
    relative = ViT(dataclasses.replace(tiny_config, position_embedding="relative"))
    with pytest.raises(ValueError, match="position_embedding='relative'.*offsets"):
        relative.with_image_size(32)
    with pytest.raises(ValueError, match="try 16 or 20"):
        ViT(tiny_config).with_image_size(18)


def test_every_position_insertion_matters(tiny_config, random_weights):
    """Paper, Table 8: the table is added before every block, its own or the first's."""
    images = _batch(tiny_config)
    shared = dataclasses.replace(tiny_config, position_insertion="every_block_shared")
    model = random_weights(ViT(shared))
    views = model.intermediates(["embeddings", "block_0", "block_1"])(images)
    table = model.get_layer("position_embedding").embeddings.numpy()
    first = model.get_layer("block_0")(np.asarray(views["embeddings"]))
    np.testing.assert_allclose(first, views["block_0"], atol=1e-5)
    second = model.get_layer("block_1")(np.asarray(views["block_0"]) + table)
    np.testing.assert_allclose(second, views["block_1"], atol=1e-5)
