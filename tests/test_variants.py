import dataclasses

import pytest

from keras_vit.pretrained import MODELS
from keras_vit.variants import MIXER_SIZES, MIXER_VARIANTS, SIZES, VARIANTS
from keras_vit.zoo.variables import count_parameters


def test_names_say_size_and_stride():
    """A hybrid's number is the stride of the whole; R+Ti/16 is of stride 32, despite its name."""
    for name, config in (VARIANTS | MIXER_VARIANTS).items():
        stride = 32 if name == "R+Ti/16" else int(name.split("/")[1])
        assert config.patch_size[0] * config.stem_stride == stride, name


def test_every_size_has_a_variant():
    assert {name.split("/")[0].split("+")[-1] for name in VARIANTS} == set(SIZES)
    assert {name.split("/")[0] for name in MIXER_VARIANTS} == set(MIXER_SIZES)


def test_those_that_train_with_dropout():
    """As in the official configurations."""
    with_dropout = {name for name, config in VARIANTS.items() if config.dropout_rate}
    assert with_dropout == {"L/16", "H/14", "R50+B/16", "R50+L/32"}


def _count(config) -> int:
    """Parameters of the real model with one block, the rest of its equal blocks added."""
    model = MODELS[type(config)](dataclasses.replace(config, num_layers=1))
    block = model.get_layer("block_0").count_params()
    return model.count_params() + (config.num_layers - 1) * block


@pytest.mark.parametrize(
    "config",
    [*VARIANTS.values(), *MIXER_VARIANTS.values()],
    ids=[*VARIANTS, *(f"Mixer {name}" for name in MIXER_VARIANTS)],
)
def test_parameter_counts(config):
    """tests/zoo/test_variables.py compares these with the official table."""
    assert _count(config) == count_parameters(config)


def test_blocks_are_all_counted(image_model):
    """The shortcut of `_count` is the count."""
    assert _count(image_model.config) == image_model.count_params()


def test_parameter_counts_without_class_token():
    """The official repository's "-gap-norep" model."""
    config = dataclasses.replace(VARIANTS["S/32"], class_token=False, pool="mean")
    assert _count(config) == 22_878_184
