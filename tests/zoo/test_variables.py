"""Exact parameter counts of every named architecture."""

import dataclasses

import pytest

from keras_vit.config import ViTConfig
from keras_vit.variants import MIXER_VARIANTS, VARIANTS
from keras_vit.zoo.variables import count_parameters, variable_shapes

# The official unit test's counts at 224 pixels and 1000 classes (vit_jax/models_test.py).
OFFICIAL_COUNTS = {
    "Ti/16": 5_717_416,
    "S/16": 22_050_664,
    "S/32": 22_878_952,
    "B/8": 86_576_872,
    "B/16": 86_567_656,
    "B/32": 88_224_232,
    "L/16": 304_326_632,
    "L/32": 306_535_400,
    "H/14": 632_045_800,
    "R+Ti/16": 6_337_704,
    "R26+S/32": 36_431_912,
    "R26+B/32": 101_383_976,
    "R50+B/16": 98_659_112,
    "R50+L/32": 328_994_856,
}
OFFICIAL_MIXER_COUNTS = {"B/16": 59_880_472, "B/32": 60_293_428, "L/16": 208_196_168}


def test_official_counts():
    assert {name: count_parameters(VARIANTS[name]) for name in OFFICIAL_COUNTS} == OFFICIAL_COUNTS
    counts = {name: count_parameters(MIXER_VARIANTS[name]) for name in OFFICIAL_MIXER_COUNTS}
    assert counts == OFFICIAL_MIXER_COUNTS


def test_official_counts_of_the_testing_models():
    """With a class token, and without it."""
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=10, mlp_dim=10, patch_size=16)
    assert count_parameters(ViTConfig(**sizes)) == 21_390
    assert count_parameters(ViTConfig(**sizes, class_token=False, pool="mean")) == 21_370


@pytest.mark.parametrize("name", sorted(VARIANTS.keys() - OFFICIAL_COUNTS.keys()))
def test_plain_models_without_an_official_count(name):
    """By the paper's equations."""
    config = VARIANTS[name]
    dim, mlp_dim, patch = config.hidden_dim, config.mlp_dim, config.patch_size[0]
    patches = (224 // patch) ** 2
    stem = 3 * patch**2 * dim + dim + dim + (1 + patches) * dim
    block = 4 * dim + 4 * (dim**2 + dim) + 2 * dim * mlp_dim + mlp_dim + dim
    expected = stem + config.num_layers * block + 2 * dim + 1000 * dim + 1000
    assert count_parameters(config) == expected


@pytest.mark.parametrize("name", sorted(MIXER_VARIANTS.keys() - OFFICIAL_MIXER_COUNTS.keys()))
def test_mixers_without_an_official_count(name):
    config = MIXER_VARIANTS[name]
    dim, patch = config.hidden_dim, config.patch_size[0]
    tokens = (224 // patch) ** 2
    mixings = ((tokens, config.tokens_mlp_dim), (dim, config.channels_mlp_dim))
    block = 4 * dim + sum(2 * width * hidden + hidden + width for width, hidden in mixings)
    expected = 3 * patch**2 * dim + dim + config.num_layers * block + 2 * dim + 1000 * dim + 1000
    assert count_parameters(config) == expected


@pytest.mark.parametrize(
    ("variant", "count"),
    [("S/16", 22_049_896), ("S/32", 22_878_184), ("B/16", 86_566_120), ("B/32", 88_222_696)],
)
def test_mean_pooling(variant, count):
    config = dataclasses.replace(VARIANTS[variant], class_token=False, pool="mean")
    assert count_parameters(config) == count


def test_every_optional_part():
    config = ViTConfig(
        num_layers=1,
        num_heads=1,
        hidden_dim=2,
        mlp_dim=3,
        patch_size=(2, 1),
        image_size=4,
        num_channels=1,
        num_classes=5,
        representation_size=4,
        qkv_bias=False,
    )
    stem, tokens = 2 * 2 + 2, 2 + 9 * 2
    block = 2 * 4 + (2 * 6 + 2 * 2 + 2) + (2 * 3 + 3 + 3 * 2 + 2)
    assert count_parameters(config) == stem + tokens + block + 4 + (2 * 4 + 4) + (4 * 5 + 5)


def test_no_head_no_variables_of_it():
    for config in (VARIANTS["R+Ti/16"], MIXER_VARIANTS["S/32"]):
        headless = dataclasses.replace(config, num_classes=0)
        names = variable_shapes(config).keys() - variable_shapes(headless).keys()
        assert names == {"head/kernel", "head/bias"}
