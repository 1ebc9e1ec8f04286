import dataclasses
import json

import pytest

from keras_vit import MIXER_VARIANTS, VARIANTS

CONFIGS = [VARIANTS["R50+B/16"], VARIANTS["B/16"], MIXER_VARIANTS["B/16"]]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_json_values_rebuild_the_config(config):
    values = json.loads(json.dumps(config.to_dict()))
    assert type(config)(**values) == config


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_layers": 0}, "`num_layers` must be a positive integer. Received: num_layers=0"),
        ({"num_channels": 1.5}, "`num_channels` must be a positive integer"),
        ({"activation": "tanh"}, "Unknown `activation`"),
        ({"dropout_rate": -0.1}, "`dropout_rate` must be at least 0"),
        ({"layer_norm_epsilon": 1.0}, "`layer_norm_epsilon` must be above 0.*epsilon=1.0"),
        ({"image_size": "big"}, "`image_size` must be a positive integer or two"),
    ],
)
def test_common_fields_are_checked(config, fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **fields)


def test_grid_counts_patches_of_the_stem():
    assert VARIANTS["R50+B/16"].grid == VARIANTS["B/16"].grid == (14, 14)
    assert dataclasses.replace(MIXER_VARIANTS["B/16"], image_size=(32, 64)).grid == (2, 4)
