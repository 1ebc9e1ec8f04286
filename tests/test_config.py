import dataclasses

import numpy as np
import pytest

from keras_vit import VARIANTS, MixerConfig, PreprocessingConfig, ViTConfig

BASE = VARIANTS["B/16"]


def test_sizes_become_pairs_and_the_grid_keeps_its_aspect():
    """FAULTS A2: nothing infers a square."""
    config = dataclasses.replace(BASE, image_size=(224, 448), patch_size=(16, 32))
    assert config.grid == (14, 14)
    assert dataclasses.replace(BASE, image_size=(32, 64)).grid == (2, 4)
    assert BASE.image_size == (224, 224) and BASE.num_tokens == 197
    assert dataclasses.replace(BASE, class_token=False, pool="mean").num_tokens == 196


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_size": 225}, r"image_size=\(225, 225\), patch_size=\(16, 16\).*try 224 or 240"),
        ({"image_size": (224, 8)}, "For the width try 16"),
        ({"image_size": (1, 2, 3)}, "`image_size` must be a positive integer or two"),
        ({"patch_size": 0}, "`patch_size` must be a positive integer.*patch_size=0"),
        ({"patch_size": 16.5}, "`patch_size`.*16.5"),
        ({"num_heads": 7}, "hidden_dim=768, num_heads=7"),
        ({"num_layers": 0}, "`num_layers` must be a positive integer. Received: num_layers=0"),
        ({"num_classes": -1}, "`num_classes` must be 0"),
        ({"num_classes": 2.0}, "`num_classes` must be 0"),
        ({"representation_size": 0}, "`representation_size` must be None"),
        ({"activation": "geul"}, "'geul'. Did you mean: gelu"),
        ({"pool": "max"}, "Unknown `pool`"),
        ({"position_embedding": "rope"}, "Unknown `position_embedding`"),
        ({"dropout_rate": 1.0}, "`dropout_rate` must be at least 0 and below 1"),
        ({"layer_norm_epsilon": 0.0}, "`layer_norm_epsilon` must be above 0"),
        ({"class_token": False}, "`class_token=False`. Use `pool='mean'`"),
        ({"class_token": 1}, "`class_token` must be True or False. Received: class_token=1"),
        ({"stem_layers": 3}, r"`stem_layers` must be None, or the residual units.*\(3, 4, 9\)"),
        ({"stem_layers": (3, 0)}, "`stem_layers` must be None"),
        ({"stem_width": 48}, "`stem_width` must be a multiple of 32.*stem_width=48"),
        ({"stem_layers": (3, 4, 9)}, "times the stem's stride of 16.*For the height try 256"),
        ({"stem_numerics": "tim"}, "Did you mean: timm"),
        ({"num_register_tokens": -1}, "`num_register_tokens` must be 0 or a positive"),
        ({"layer_scale_init": "small"}, "`layer_scale_init` must be None or a number"),
        ({"final_norm": "head"}, "Unknown `final_norm`"),
        ({"position_insertion": "all"}, "Unknown `position_insertion`"),
        ({"num_prefix_positions": 2}, "from 0 to the 1 prefix tokens. Received"),
        ({"num_prefix_positions": 0, "position_embedding": "none"}, "is for `position_embedding="),
        (
            {"position_embedding": "none", "position_insertion": "every_block"},
            "positions that are added to tokens",
        ),
        (
            {"position_embedding": "sincos_2d", "hidden_dim": 18, "num_heads": 1},
            "a multiple of 4.*hidden_dim=18",
        ),
        (
            {"position_embedding": "learned_2d", "hidden_dim": 15, "num_heads": 1},
            "needs an even width",
        ),
        ({"axial": True}, "needs a grid of patches alone.*class_token=True"),
        ({"distillation_token": True, "representation_size": 4}, "no `representation_size`"),
        ({"distillation_token": True, "pool": "mean"}, "needs `pool='token'`"),
        ({"class_token": False, "pool": "token_mean"}, "`pool='token_mean'` reads the class token"),
        ({"representation": "relu"}, "Unknown `representation`"),
        ({"patch_drop_rate": 1.0}, "`patch_drop_rate` must be at least 0 and below 1"),
        ({"merged_tokens_per_block": -1}, "`merged_tokens_per_block` must be 0 .no merging. or"),
        ({"merged_tokens_per_block": 0.5}, "`merged_tokens_per_block` must be 0"),
        (
            {"merged_tokens_per_block": 8, "position_embedding": "relative"},
            "`merged_tokens_per_block` must be 0 where.*input.*position_embedding='relative'",
        ),
        (
            {"patch_drop_rate": 0.5, "position_insertion": "every_block_shared"},
            "`patch_drop_rate` must be 0 where.*position_insertion='every_block_shared'",
        ),
        (
            {"patch_drop_rate": 0.5, "axial": True, "class_token": False, "pool": "mean"},
            "`patch_drop_rate` must be 0 where.*`axial=False`",
        ),
    ],
)
def test_errors_name_argument_value_and_remedy(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BASE, **fields)


def test_stem_stride_and_grid():
    """Official table: the root is /4, and each stage but the first halves."""
    cases = {(): 4, (3,): 4, (2, 1): 8, (3, 4, 9): 16, (2, 2, 2, 2): 32}
    for layers, stride in cases.items():
        config = dataclasses.replace(BASE, stem_layers=layers, patch_size=1, image_size=(64, 128))
        assert config.stem_stride == stride
        assert config.grid == (64 // stride, 128 // stride)


def test_tokens_and_positions_are_counted():
    config = dataclasses.replace(BASE, num_register_tokens=4, num_prefix_positions=1)
    assert (config.num_prefix_tokens, config.num_tokens, config.num_positions) == (5, 201, 197)
    all_positions = dataclasses.replace(config, num_prefix_positions=5)
    assert all_positions.num_prefix_positions is None and all_positions.num_positions == 201


def test_mixer_config_errors():
    fields = dict(num_layers=2, hidden_dim=8, tokens_mlp_dim=4, channels_mlp_dim=8, patch_size=4)
    assert MixerConfig(**fields, image_size=(8, 16)).num_tokens == 8
    with pytest.raises(ValueError, match="`tokens_mlp_dim` must be a positive integer"):
        MixerConfig(**{**fields, "tokens_mlp_dim": 0})
    with pytest.raises(ValueError, match="`drop_path_rate` must be at least 0 and below 1"):
        MixerConfig(**fields, drop_path_rate=1.0)
    with pytest.raises(ValueError, match="try 4"):
        MixerConfig(**fields, image_size=3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mean": (0.5,)}, "one finite number a channel"),
        ({"std": (0.5, 0.0, 0.5)}, "above 0"),
        ({"interpolation": "lanczos"}, "Unknown `interpolation`"),
        ({"resize": "pad"}, "Unknown `resize`"),
        ({"crop_fraction": 1.5}, "`crop_fraction` must be above 0 and at most 1"),
    ],
)
def test_preprocessing_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        PreprocessingConfig(**fields)


def test_dicts_rebuild_the_values():
    assert ViTConfig(**BASE.to_dict()) == BASE
    preprocessing = PreprocessingConfig(resize="crop", crop_fraction=0.875, antialias=True)
    assert PreprocessingConfig(**preprocessing.to_dict()) == preprocessing


def test_whole_numbers_of_numpy_are_taken():
    config = dataclasses.replace(BASE, num_classes=np.int64(3), num_layers=np.int32(2))
    assert (config.num_classes, config.num_layers) == (3, 2)
    assert type(config.num_classes) is int


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"drop_path_rate": "x"}, "`drop_path_rate` must be at least 0.*'x'"),
        ({"layer_norm_epsilon": "1e-6"}, "`layer_norm_epsilon` must be above 0.*'1e-6'"),
        ({"layer_norm_epsilon": True}, "`layer_norm_epsilon` must be above 0"),
        ({"qkv_bias": "x"}, "`qkv_bias` must be True or False"),
        ({"num_classes": True}, "`num_classes` must be 0"),
    ],
)
def test_wrong_types(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BASE, **fields)


def test_statistics_are_finite():
    with pytest.raises(ValueError, match="one finite number a channel"):
        PreprocessingConfig(mean=(float("nan"),) * 3)


def test_one_spelling_without_a_representation():
    assert dataclasses.replace(BASE, representation="linear") == BASE
