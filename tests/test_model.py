import dataclasses
import importlib
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import ViT, ViTConfig
from keras_vit.resample import resize_position_embeddings


def _batch(config: ViTConfig, size: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (size, *config.image_size, config.num_channels)
    return rng.integers(0, 256, shape).astype("float32")


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


def test_intermediates_have_the_documented_names_and_shapes(tiny_config, random_weights):
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
    norm = model.get_layer("encoder_norm")
    np.testing.assert_array_equal(norm(values["block_1"]), values["encoder_norm"])
    np.testing.assert_array_equal(norm(values["block_1"][:, 0]), values["pooled"])


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


def test_reset_head_drops_a_tanh_layer(tiny_config, random_weights):
    """FAULTS C4."""
    model = random_weights(ViT(dataclasses.replace(tiny_config, representation_size=7)))
    new = model.reset_head(3)
    assert new.config.representation_size is None
    assert "pre_logits" not in [layer.name for layer in new.layers]


@pytest.mark.parametrize("num_classes", [3, 0])
def test_reset_head_keeps_the_layer_before_the_head_if_asked(
    tiny_config, random_weights, num_classes
):
    """As the official few-shot evaluation does, which reads it."""
    model = random_weights(ViT(dataclasses.replace(tiny_config, representation_size=7)))
    new = model.reset_head(num_classes, keep_pre_logits=True)
    assert new.config == dataclasses.replace(model.config, num_classes=num_classes)
    assert new.get_layer("pre_logits") is model.get_layer("pre_logits")
    images = _batch(tiny_config)
    if num_classes:
        np.testing.assert_array_equal(new(images), np.zeros((3, 3)))
    else:
        expected = model.intermediates(["pre_logits"])(images)["pre_logits"]
        np.testing.assert_allclose(new(images), expected, atol=1e-6)


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


def test_attention_scores_say_that_they_cannot_be_saved(tiny_config, tmp_path):
    """FAULTS I1."""
    view = ViT(tiny_config).attention_scores(1)
    with pytest.raises(ValueError, match="cannot be saved.*'block_1'.*Save the model itself"):
        view.save(tmp_path / "view.keras")


def test_attention_scores_errors(tiny_config):
    with pytest.raises(ValueError, match="`blocks` must be numbers from 0 to 1.*blocks=2"):
        ViT(tiny_config).attention_scores(2)
    with pytest.raises(ValueError, match="`blocks` must be numbers"):
        ViT(tiny_config).attention_scores([])
    axial = dataclasses.replace(tiny_config, axial=True, class_token=False, pool="mean")
    with pytest.raises(ValueError, match="axial=True"):
        ViT(axial).attention_scores()
    merging = dataclasses.replace(tiny_config, merged_tokens_per_block=2)
    with pytest.raises(ValueError, match="merged_tokens_per_block=2. Make it with 0"):
        ViT(merging).attention_scores()


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


@pytest.mark.parametrize("jit_compile", [False, True])
def test_another_image_size_learns_in_a_graph(golden, jit_compile):
    """FAULTS A5: positions are resized once, when the weights are read."""
    model = keras_vit.from_pretrained(golden / "hf_vit", image_size=(64, 32), num_classes=3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=jit_compile)
    images = np.random.default_rng(0).uniform(0, 255, (2, 64, 32, 3)).astype("float32")
    before = model.get_layer("position_embedding").embeddings.numpy()
    model.fit(images, np.array([0, 2]), verbose=0)
    assert np.isfinite(model.predict(images, verbose=0)).all()
    assert np.abs(model.get_layer("head").kernel.numpy()).max() > 0
    assert model.get_layer("position_embedding").embeddings.shape == before.shape == (33, 32)


REDUCED = [
    {},
    {"class_token": False, "pool": "mean", "final_norm": "pool"},
    {"class_token": False, "pool": "map"},
    {"pool": "token_mean", "num_register_tokens": 3},
    {"distillation_token": True},
]


@pytest.mark.parametrize("fields", REDUCED, ids=str)
def test_merging_in_each_kind_of_model(tiny_config, fields, random_weights, tmp_path):
    """Same weights, fewer tokens from block to block, and the file keeps the number."""
    config = dataclasses.replace(tiny_config, **fields)
    plain = random_weights(ViT(config))
    merging = random_weights(ViT(dataclasses.replace(config, merged_tokens_per_block=3)))
    assert [w.path for w in merging.weights] == [w.path for w in plain.weights]
    images = _batch(config)
    views = merging.intermediates(["embeddings", "block_0", "block_1", "logits"])(images)
    tokens = config.num_tokens
    counts = [views[name].shape[1] for name in ("embeddings", "block_0", "block_1")]
    assert counts == [tokens, tokens - 3, tokens - 6]
    outputs = merging.predict(images, verbose=0)
    assert np.abs(outputs - plain.predict(images, verbose=0)).max() > 1e-4
    merging.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.config.merged_tokens_per_block == 3
    np.testing.assert_array_equal(again.predict(images, verbose=0), outputs)


@pytest.mark.parametrize("fields", REDUCED, ids=str)
def test_merging_patches_that_are_alike_changes_no_logit(tiny_config, fields, random_weights):
    """Two kinds of patches, without positions: only copies are merged, whatever reads them."""
    fields = {**fields, "position_embedding": "none", "num_layers": 2}
    config = dataclasses.replace(tiny_config, **fields)
    plain = random_weights(ViT(config))
    merging = random_weights(ViT(dataclasses.replace(config, merged_tokens_per_block=3)))
    kinds = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype("float32")
    image = kinds[np.array([0, 1, 1, 0] * 4).reshape(4, 4)]  # (rows, columns, 4, 4, 3)
    image = image.transpose(0, 2, 1, 3, 4).reshape(1, 16, 16, 3)
    np.testing.assert_allclose(merging(image), plain(image), atol=1e-4)


def test_reduced_models_learn_on_fewer_tokens(tiny_config, random_weights):
    """Both reductions at once, before a stack that keeps them: a fit step, then all patches."""
    fields = {"patch_drop_rate": 0.5, "merged_tokens_per_block": 2, "embedding_norm": True}
    model = ViT(dataclasses.replace(tiny_config, **fields), dtype="mixed_bfloat16")
    names = [layer.name for layer in model.layers]
    assert names.index("embedding_dropout") + 1 == names.index("patch_dropout")
    assert names.index("patch_dropout") + 1 == names.index("embedding_norm")
    seen = []
    pool = model.get_layer("pool")
    call = pool.call
    pool.call = lambda tokens: seen.append(tokens.shape[1]) or call(tokens)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    history = model.fit(_batch(tiny_config), np.array([0, 1, 2]), verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    model.predict(_batch(tiny_config), verbose=0)
    assert set(seen) == {1 + 8 - 4, 1 + 16 - 4}


def test_without_reduction_the_model_is_the_plain_one(tiny_config):
    layers = ViT(tiny_config).layers
    assert "patch_dropout" not in [layer.name for layer in layers]
    assert {type(layer).__name__ for layer in layers if "block" in layer.name} == {"EncoderBlock"}
    assert ViTConfig(**{**tiny_config.to_dict(), "merged_tokens_per_block": 0}) == tiny_config


def test_merging_models_change_size_and_head(tiny_config, random_weights):
    model = random_weights(ViT(dataclasses.replace(tiny_config, merged_tokens_per_block=20)))
    wide = model.with_image_size((16, 32))
    views = wide.intermediates(["block_0", "block_1"])(_batch(wide.config))
    assert [views[name].shape[1] for name in ("block_0", "block_1")] == [1 + 16, 1 + 8]
    assert wide.get_layer("block_0") is model.get_layer("block_0")
    assert model.reset_head(3)(_batch(tiny_config)).shape == (3, 3)
