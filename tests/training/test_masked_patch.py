import dataclasses
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as to_numpy
from PIL import Image

from keras_vit import Mixer, ViT, assets, from_pretrained
from keras_vit.training.masked_patch import MaskedPatchModel, PatchCorruption

PATCHES = 16  # of the tiny model
# What stands between the patch embedding and the tokens that are predicted from.
FIELDS = [
    {},
    {"num_classes": 0, "num_register_tokens": 2, "num_prefix_positions": 1},
    {"class_token": False, "pool": "mean"},
    {"class_token": False, "pool": "map", "final_norm": "pool"},
    {"final_norm": "none", "pool": "token_mean"},
    {"distillation_token": True, "embedding_norm": True},
    {"representation_size": 7, "position_embedding": "sincos_2d"},
    {"position_insertion": "every_block"},
    {"position_insertion": "every_block_shared", "position_embedding": "learned_2d"},
    {"position_embedding": "relative", "image_size": (16, 32)},
    {"axial": True, "class_token": False, "pool": "mean", "image_size": (16, 32)},
    {"stem_layers": (), "stem_width": 32, "patch_size": 1},
    {"image_size": (12, 32), "patch_size": (3, 8)},
    {"num_channels": 1, "remat": True},
]


def _images(config, size: int = 4, seed: int = 0) -> np.ndarray:
    shape = (size, *config.image_size, config.num_channels)
    return np.random.default_rng(seed).integers(0, 256, shape).astype("float32")


def _blocks(config, size: int = 4, seed: int = 0) -> np.ndarray:
    """Pictures whose patches have one colour each, all colours alike."""
    height, width = config.patch_size
    shape = (size, *config.grid, config.num_channels)
    colors = np.random.default_rng(seed).integers(0, 256, shape).astype("float32")
    return colors.repeat(height, axis=1).repeat(width, axis=2)


def _model(config, random_weights=None, **kwargs) -> MaskedPatchModel:
    model = MaskedPatchModel(ViT(config), **{"seed": 1, **kwargs})
    if random_weights:
        random_weights(model)
    return model


def _compiled(model: MaskedPatchModel, rate: float = 0.0, **kwargs) -> MaskedPatchModel:
    model.compile(keras.optimizers.SGD(rate), jit_compile=False, **kwargs)
    return model


def _cross_entropy(logits: np.ndarray, classes: np.ndarray) -> float:
    logits = logits.astype("float64")
    log_sums = np.log(np.exp(logits).sum(axis=-1))
    return np.mean(log_sums - np.take_along_axis(logits, classes[..., None], -1)[..., 0])


# Embeddings that say which patch of which picture they are; the mask says -1.


def _numbered(batch: int, patches: int = PATCHES) -> np.ndarray:
    numbers = np.arange(batch * patches, dtype="float32").reshape(batch, patches, 1)
    return np.broadcast_to(numbers, (batch, patches, 3))


def _corrupt(batch: int, count: int = 8, seed: int = 1, training: bool = True, patches=PATCHES):
    layer = PatchCorruption(count, seed)
    layer.build((None, patches, 3))
    layer.mask_embedding.assign(-np.ones(3))
    numbers, chosen = layer(_numbered(batch, patches), training=training)
    numbers = to_numpy(numbers)
    assert (numbers == numbers[..., :1]).all()  # whole embeddings
    return numbers[..., 0].astype(int), to_numpy(chosen)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("count", [1, 8, PATCHES])
def test_the_number_of_corrupted_patches_is_exact(count, training):
    numbers, chosen = _corrupt(50, count, training=training)
    assert chosen.shape == (50, count)
    assert chosen.min() >= 0 and chosen.max() < PATCHES
    assert (np.diff(chosen, axis=1) > 0).all()
    changed = numbers != _numbered(50)[..., 0]
    others = np.ones_like(changed)
    np.put_along_axis(others, chosen, False, axis=1)
    assert changed.any() and not (changed & others).any()


def test_shares_are_those_of_the_paper():
    numbers, chosen = _corrupt(4000)
    before = np.take_along_axis(_numbered(4000)[..., 0], chosen, axis=1)
    after = np.take_along_axis(numbers, chosen, axis=1)
    masked, kept = np.mean(after == -1), np.mean(after == before)
    # 32,000 draws: seven standard deviations.
    np.testing.assert_allclose([masked, kept], [0.8, 0.1], atol=0.015)
    np.testing.assert_allclose(1.0 - masked - kept, 0.1, atol=0.012)


def test_others_are_any_other_patches_of_the_same_picture():
    batch = 4000
    numbers, _ = _corrupt(batch, PATCHES)
    picture, patch = np.divmod(numbers, PATCHES)
    replaced = (numbers != -1) & (numbers != _numbered(batch)[..., 0])
    rows, places = np.nonzero(replaced)
    np.testing.assert_array_equal(picture[replaced], rows)
    distances = np.bincount((patch[replaced] - places) % PATCHES, minlength=PATCHES)
    assert distances[0] == 0 and distances[1:].min() > 0
    np.testing.assert_allclose(distances[1:] / distances.sum(), 1 / 15, atol=0.02)


def test_every_patch_is_corrupted_equally_often():
    _, chosen = _corrupt(4000, 4)
    shares = np.bincount(chosen.ravel(), minlength=PATCHES) / 4000
    np.testing.assert_allclose(shares, 0.25, atol=0.03)  # four standard deviations


def test_pictures_calls_and_seeds_differ():
    layer = PatchCorruption(8, seed=1)
    embeddings = _numbered(6)
    first, second = (to_numpy(layer(embeddings, training=True)[1]) for _ in range(2))
    assert len({tuple(row) for row in first}) > 1
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(_corrupt(6, seed=1)[1], first)
    assert not np.array_equal(_corrupt(6, seed=2)[1], first)


def test_evaluation_draws_the_same_whatever_the_seed():
    first, second = (_corrupt(6, seed=seed, training=False) for seed in (1, 2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert len({tuple(row) for row in first[1]}) > 1


def test_a_single_patch_has_no_other():
    numbers, _ = _corrupt(200, 1, patches=1)
    assert set(np.unique(numbers)) <= {-1, *range(200)}
    assert (numbers[numbers != -1] == np.arange(200)[numbers[:, 0] != -1]).all()


# The model.


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_all_of_the_backbone_but_its_head_is_in_it(tiny_config, fields, random_weights):
    """Without corruption the tokens are the backbone's own; one step moves all that they need."""
    config = dataclasses.replace(tiny_config, **fields)
    model = _model(config, random_weights)
    backbone, images = model.backbone, _images(config)
    last = "encoder_norm" if config.final_norm == "encoder" else "block_1"
    tokens = to_numpy(backbone.intermediates([last])(images)[last])[:, config.num_prefix_tokens :]
    kernel, bias = (to_numpy(variable) for variable in model.head.weights)
    expected = tokens @ kernel + bias
    outputs = model.predict(images, verbose=0)
    assert expected.shape == (4, config.grid[0] * config.grid[1], 8**config.num_channels)
    np.testing.assert_allclose(outputs["predictions"], expected, atol=1e-4)
    before = {v.path: to_numpy(v) for v in model.weights + backbone.weights}
    history = _compiled(model, 1.0).fit(images, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    still = {v.path for v in model.trainable_weights if np.array_equal(to_numpy(v), before[v.path])}
    assert still <= {"block_0/attention/key_norm/beta", "block_1/attention/key_norm/beta"}
    assert {"patch_corruption/mask_embedding", "patch_head/kernel"} <= set(before) - still
    unread = [v for v in backbone.weights if id(v) not in {id(w) for w in model.weights}]
    parts = {v.path.split("/")[0] for v in unread}
    assert parts <= {"pool", "pool_norm", "pre_logits", "head"}
    assert ("head" in parts) == (config.num_classes > 0)
    for variable in unread:
        np.testing.assert_array_equal(to_numpy(variable), before[variable.path])


@pytest.mark.parametrize("target", ["mean_color", "downsized"])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_untrained_model_knows_no_color(tiny_config, target, channels):
    config = dataclasses.replace(tiny_config, num_channels=channels)
    model = _compiled(_model(config, target=target))
    loss = model.evaluate(_blocks(config), verbose=0)
    np.testing.assert_allclose(loss, np.log(8**channels), rtol=1e-4)


def test_the_loss_is_of_corrupted_patches_behind_the_mask(tiny_config, random_weights):
    """By hand, from all tokens: uncorrupted patches add nothing."""
    model = _compiled(_model(tiny_config, random_weights))
    images = _images(tiny_config)
    embeddings, chosen = model.corruption(model.stem(images), training=False)
    tokens = to_numpy(model.encoder(embeddings))[:, 1:]
    kernel, bias = (to_numpy(variable) for variable in model.head.weights)
    logits = tokens @ kernel + bias  # (batch, patches, 512)
    targets = model.predict(images, verbose=0)["targets"]
    chosen = to_numpy(chosen)
    assert chosen.shape == (4, 8)
    logits = np.take_along_axis(logits, chosen[..., None], axis=1)
    targets = np.take_along_axis(targets, chosen, axis=1)
    expected = _cross_entropy(logits, targets)
    loss = model.evaluate(images, batch_size=4, verbose=0)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    # The same patches in training, if drawn so.
    model.corruption.call = lambda embeddings, training: PatchCorruption.call(
        model.corruption, embeddings, training=False
    )
    np.testing.assert_allclose(float(model.train_on_batch(images)), expected, rtol=1e-4)


def test_evaluation_is_of_masked_pictures_and_prediction_is_not(tiny_config, random_weights):
    model = _compiled(_model(tiny_config, random_weights))
    images = _images(tiny_config)
    outputs = model.predict(images, verbose=0)
    assert outputs["predictions"].shape == (4, PATCHES, 512)
    assert outputs["targets"].shape == (4, PATCHES)
    losses = [model.evaluate(images, verbose=0) for _ in range(2)]
    assert losses[0] == losses[1]
    clean = _cross_entropy(outputs["predictions"], outputs["targets"])
    assert abs(losses[0] - clean) > 1e-2
    after = model.predict(images, verbose=0)  # evaluation leaves no trace
    np.testing.assert_array_equal(after["predictions"], outputs["predictions"])


@pytest.mark.parametrize(
    ("target", "predicted", "wanted"),
    [
        ("mean_color", (512,), ()),
        ("downsized", (16, 512), (16,)),
        ("patch", (48,), (48,)),
    ],
)
def test_every_target_learns(tiny_config, target, predicted, wanted):
    """Of pictures of one colour each, what is masked is told by what is seen."""
    keras.utils.set_random_seed(0)
    model = _model(tiny_config, target=target)
    images = np.ones((1, 16, 16, 1), "float32") * _images(tiny_config)[:, :1, :1]
    outputs = model(images, training=True)
    assert tuple(outputs["predictions"].shape) == (4, 8, *predicted)
    assert tuple(outputs["targets"].shape) == (4, 8, *wanted)
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=False)
    before = model.evaluate(images, verbose=0)
    model.fit(images, epochs=20, verbose=0)
    assert model.evaluate(images, verbose=0) < 0.5 * before


def test_labels_and_weights_change_nothing(tiny_config):
    import tensorflow as tf

    images = _images(tiny_config, 8)
    labels, weights = np.arange(8) % 5, np.linspace(0.0, 2.0, 8)
    losses = []
    for data in (
        tf.data.Dataset.from_tensor_slices(images).batch(4),
        tf.data.Dataset.from_tensor_slices((images.astype("uint8"), labels)).batch(4),
        tf.data.Dataset.from_tensor_slices((images, labels, weights)).batch(4),
    ):
        keras.utils.set_random_seed(3)
        model = _compiled(_model(tiny_config), 0.1, metrics=["accuracy"])
        history = model.fit(data, validation_data=data, verbose=0).history
        assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
        losses.append(history["loss"] + history["val_loss"])
    np.testing.assert_allclose(losses, [losses[0]] * 3, rtol=1e-6)


def test_metrics_are_of_the_corrupted_patches(tiny_config):
    model = _compiled(_model(tiny_config), metrics=["accuracy"])
    images = np.full((2, 16, 16, 3), 200.0, "float32")
    color = 6 * 64 + 6 * 8 + 6
    for wanted, accuracy in ((color, 1.0), (color + 1, 0.0)):
        model.head.bias.assign(10.0 * np.eye(512)[wanted])
        _, measured = model.evaluate(images, verbose=0)
        assert measured == accuracy


def test_training_repeats_by_seed(tiny_config):
    def losses(seed: int) -> list[float]:
        keras.utils.set_random_seed(3)
        model = _compiled(_model(tiny_config, seed=seed), 0.5)
        images = _blocks(tiny_config, 8)
        return model.fit(images, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]

    first = losses(1)
    np.testing.assert_allclose(losses(1), first, rtol=1e-5)
    assert np.abs(np.subtract(losses(2), first)).max() > 1e-4


def test_dropout_of_the_backbone_is_of_training_alone(tiny_config, random_weights):
    config = dataclasses.replace(tiny_config, dropout_rate=0.5)
    images = _images(config)
    model = _compiled(_model(config, random_weights))
    plain = _compiled(_model(tiny_config, random_weights))
    np.testing.assert_allclose(
        model.evaluate(images, verbose=0), plain.evaluate(images, verbose=0), rtol=1e-5
    )
    assert abs(model.train_on_batch(images) - plain.train_on_batch(images)) > 1e-3


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_targets_and_losses_are_exact_in_half_precision(tiny_config, policy):
    images = np.full((4, 16, 16, 3), 223.9, "float32")  # 224 in bfloat16, another level
    model = MaskedPatchModel(ViT(tiny_config, dtype=policy), seed=1)
    outputs = model(images, training=True)
    assert keras.backend.standardize_dtype(outputs["predictions"].dtype) == "float32"
    assert set(np.unique(to_numpy(outputs["targets"]))) == {6 * 73}
    assert model.corruption.compute_dtype == policy.removeprefix("mixed_")
    history = _compiled(model, 0.01).fit(images, verbose=0).history["loss"]
    np.testing.assert_allclose(history, np.log(512), rtol=1e-3)


def test_a_file_comes_back_whole(tiny_config, random_weights, tmp_path):
    """TRAPS 2: the backbone's own outputs, those of the model, its optimizer; all by one file."""
    config = dataclasses.replace(tiny_config, representation_size=7)
    model = _model(config, random_weights, target="downsized", corruption_rate=0.25, name="mpp")
    model.compile(keras.optimizers.Adam(1e-3), metrics=["accuracy"], jit_compile=False)
    images = _images(config)
    model.fit(images, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_config() == model.get_config() and again.name == "mpp"
    assert again.backbone.config == config
    for one, other in ((model.backbone, again.backbone), (model.encoder, again.encoder)):
        assert [v.path for v in other.weights] == [v.path for v in one.weights]
    np.testing.assert_array_equal(
        again.backbone.predict(images, verbose=0), model.backbone.predict(images, verbose=0)
    )
    assert again.evaluate(images, verbose=0) == model.evaluate(images, verbose=0)
    assert int(again.optimizer.iterations) == 1
    again.fit(images, verbose=0)
    assert int(again.optimizer.iterations) == 2


def test_a_configuration_makes_an_equal_model(tiny_config):
    model = _model(tiny_config, target="patch", corruption_rate=0.3, seed=7, trainable=False)
    again = MaskedPatchModel.from_config(model.get_config())
    assert again.get_config() == model.get_config()
    assert (again.target, again.corruption_rate, again.seed) == ("patch", 0.3, 7)
    assert again.corruption.count == model.corruption.count == 5
    assert not again.trainable_weights
    layer = PatchCorruption.from_config(model.corruption.get_config())
    assert (layer.count, layer.seed, layer.name) == (5, 7, "patch_corruption")


def test_is_registered_by_the_package_alone():
    """TRAPS 2: the file loads where only `keras_vit` was imported."""
    code = (
        "import keras, keras_vit; "
        "print(keras.saving.get_registered_object('keras_vit>MaskedPatchModel').__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "MaskedPatchModel", done.stderr


def test_the_bundled_model_learns_on_bundled_pictures_and_is_tuned_after():
    source = from_pretrained(assets.checkpoint())
    files = sorted((assets.pictures() / "train").glob("*/*.png"))
    images = np.stack([np.asarray(Image.open(file).convert("L")) for file in files])
    images = images[..., None].astype("float32")
    model = MaskedPatchModel(source, seed=0)
    model.compile(keras.optimizers.Adam(1e-3), metrics=["accuracy"], jit_compile=False)
    before, _ = model.evaluate(images, verbose=0)
    np.testing.assert_allclose(before, np.log(8), rtol=1e-4)
    logits = source.predict(images[:4], verbose=0)
    model.fit(images, batch_size=25, epochs=3, verbose=0)
    after, accuracy = model.evaluate(images, verbose=0)
    assert after < 0.8 * before and accuracy > 0.3
    assert model.backbone is source
    trained = source.predict(images[:4], verbose=0)
    assert np.abs(trained - logits).max() > 1e-3
    tuned = source.reset_head(4)
    assert tuned.get_layer("block_0") is source.get_layer("block_0")
    assert all(variable.trainable for variable in tuned.weights if "seed" not in variable.path)


def test_frozen_parts_of_the_backbone_stay(tiny_config):
    backbone = ViT(tiny_config)
    backbone.trainable_part(blocks=[1], stem=False, head=False)
    model = MaskedPatchModel(backbone, seed=1)
    parts = {v.path.split("/")[0] for v in model.trainable_weights}
    assert parts == {"block_1", "encoder_norm", "patch_corruption", "patch_head"}


def test_a_model_of_shared_layers_is_a_backbone_too(tiny_config, random_weights):
    """Its layers have been called before, in another graph."""
    first = random_weights(ViT(tiny_config))
    model = random_weights(MaskedPatchModel(first.reset_head(3), seed=1))
    images = _images(tiny_config)
    view = first.intermediates(["encoder_norm"])
    expected = to_numpy(view(images)["encoder_norm"])
    actual = to_numpy(model.encoder(model.stem(images)))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_pixels_of_the_unit_range_are_warned_of(tiny_config):
    model = _compiled(_model(tiny_config))
    with pytest.warns(UserWarning, match="0..255"):
        model.fit(_images(tiny_config) / 255.0, verbose=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch_drop_rate": 0.5}, "must keep every patch.* patch_drop_rate=0.5. Make it with 0"),
        ({"merged_tokens_per_block": 2}, "must keep every patch.* merged_tokens_per_block=2"),
        ({"num_channels": 4}, "neither grey nor RGB.* Received: 4 channels"),
    ],
)
def test_backbones_that_cannot(tiny_config, fields, message):
    with pytest.raises(ValueError, match=message):
        _model(dataclasses.replace(tiny_config, **fields))


def test_other_models_are_an_error(tiny_config, tiny_mixer_config):
    with pytest.raises(ValueError, match="`backbone` must be a `keras_vit.ViT`. Received: Mixer"):
        MaskedPatchModel(Mixer(tiny_mixer_config))
    with pytest.raises(ValueError, match="Received: include_normalization=False"):
        MaskedPatchModel(ViT(tiny_config, include_normalization=False))
    quantized = ViT(tiny_config)
    quantized.quantize("int8")
    with pytest.raises(ValueError, match="needs float weights. Received: a quantized model"):
        MaskedPatchModel(quantized)


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.01, 0.01, float("nan"), "0.5", True, None])
def test_rates_that_corrupt_nothing_or_more_than_all(tiny_config, rate):
    with pytest.raises(ValueError, match="`corruption_rate` must be .* 16 patches"):
        _model(tiny_config, corruption_rate=rate)


def test_an_unknown_target(tiny_config):
    with pytest.raises(ValueError, match="Unknown `target`.*Did you mean: mean_color"):
        _model(tiny_config, target="mean_colour")
