import dataclasses

import keras
import numpy as np
import pytest

from keras_vit import ViT, layer_decay


def _images(model, size: int = 3) -> np.ndarray:
    shape = (size, *model.config.image_size, model.config.num_channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype("float32")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["block_0", "block_1", "head", "stem"]),
        ({"blocks": False, "stem": False}, ["head"]),
        ({"blocks": slice(1, None), "stem": False}, ["block_1", "head"]),
        ({"blocks": [-1], "head": False, "stem": False}, ["block_1"]),
        ({"blocks": (), "head": False}, ["stem"]),
    ],
    ids=str,
)
def test_trainable_part_trains_that_part_only(image_model, arguments, expected):
    images = _images(image_model)
    image_model.trainable_part(**arguments)
    groups = [name for name, variables in image_model.parameter_groups().items() if variables]
    assert sorted(groups) == expected
    before = {weight.path: weight.numpy() for weight in image_model.weights}
    image_model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    image_model.fit(images, np.array([0, 1, 2]), verbose=0)
    moved = {
        weight.path
        for weight in image_model.weights
        if not np.array_equal(weight.numpy(), before[weight.path])
    }
    trainable = {weight.path for weight in image_model.trainable_weights}
    # The bias of a token MLP shifts all channels of a token alike, which normalization undoes.
    no_effect = {path for path in trainable if path.endswith("token_mixing/fc2/bias")}
    assert moved | no_effect == trainable
    parts = {path.split("/")[0] for path in moved}
    assert ("head" in parts) == ("head" in expected)
    assert ("patch_embedding" in parts) == ("stem" in expected)
    assert ("encoder_norm" in parts) == ("block_1" in expected)
    image_model.trainable_part()
    assert len(image_model.trainable_weights) == len(image_model.weights)


def test_trainable_part_refuses_unknown_blocks(image_model):
    for blocks in ([2], [-3], ["block_0"], [1.0], 1.0, [True], [[0]]):
        with pytest.raises(ValueError, match="`blocks` must be numbers from 0 to 1"):
            image_model.trainable_part(blocks=blocks)


def test_parameter_groups_are_in_order_and_hold_each_variable_once(image_model):
    groups = image_model.parameter_groups()
    assert list(groups) == ["stem", "block_0", "block_1", "head"]
    paths = [variable.path for variables in groups.values() for variable in variables]
    assert sorted(paths) == sorted(weight.path for weight in image_model.trainable_weights)
    assert "encoder_norm/gamma" in [variable.path for variable in groups["block_1"]]


def test_embeddings_at_every_block_belong_to_its_group(tiny_config):
    model = ViT(dataclasses.replace(tiny_config, position_insertion="every_block"))
    groups = model.parameter_groups()
    paths = {name: [variable.path for variable in group] for name, group in groups.items()}
    assert "position_embedding/embeddings" in paths["stem"]
    assert "position_embedding_1/embeddings" in paths["block_1"]


def test_what_is_frozen_stays_so(image_model, tmp_path):
    """Through a `.keras` file, with its optimizer, and in models that share layers."""
    image_model.trainable_part(blocks=[1], stem=False)
    paths = [weight.path for weight in image_model.trainable_weights]
    optimizer = layer_decay(keras.optimizers.AdamW(1e-3), image_model, 0.5)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    image_model.compile(optimizer, loss)
    image_model.fit(_images(image_model), np.array([0, 1, 2]), verbose=0)
    image_model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert [weight.path for weight in again.trainable_weights] == paths
    images = _images(image_model)
    for model in (image_model, again):
        model.fit(images, np.array([0, 1, 2]), verbose=0)
    np.testing.assert_allclose(again(images), image_model(images), atol=1e-6)
    new = image_model.reset_head(3)
    assert [weight.path for weight in new.trainable_weights] == paths


def test_frozen_positions_stay_so_at_another_size(tiny_config):
    model = ViT(tiny_config)
    model.trainable_part(blocks=False, stem=False)
    wide = model.with_image_size((16, 32))
    assert {weight.path for weight in wide.trainable_weights} == {"head/kernel", "head/bias"}


def test_a_new_head_learns_though_the_old_one_was_frozen(tiny_config):
    """The head of two tokens has layers of its own, which must not stay frozen either."""
    for distilled in (False, True):
        model = ViT(dataclasses.replace(tiny_config, distillation_token=distilled))
        model.trainable_part(head=False)
        new = model.reset_head(3)
        heads = [weight for weight in new.weights if weight.path.startswith("head/")]
        assert heads and all(weight.trainable for weight in heads)
        assert len(new.trainable_weights) == len(new.weights)


def test_a_slice_of_no_block_is_an_error(image_model):
    with pytest.raises(ValueError, match="must choose some of the 2 blocks.*slice\\(8, None"):
        image_model.trainable_part(blocks=slice(8, None))


def test_flags_are_flags(image_model):
    with pytest.raises(ValueError, match="`head` must be True or False. Received: head='no'"):
        image_model.trainable_part(head="no")


def test_freezing_asks_to_compile_again(image_model):
    """What `fit` compiled before would go on training what is frozen now."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    image_model.compile("sgd", loss)
    image_model.fit(_images(image_model), np.array([0, 1, 2]), verbose=0)
    image_model.trainable_part(blocks=False)
    with pytest.raises(ValueError, match="compile"):
        image_model.fit(_images(image_model), np.array([0, 1, 2]), verbose=0)
