import dataclasses

import keras
import numpy as np
import pytest

from keras_vit import ViT


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
    for blocks in ([2], [-3], ["block_0"]):
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
