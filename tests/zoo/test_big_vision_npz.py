"""FAULTS C, E: big_vision's files, new and old."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit.zoo import read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError

GOLDEN = Path(__file__).parents[1] / "golden"
SINCOS = {"position_embedding": "sincos_2d", "source_image_size": 32}
NAMES = {
    "bigvision_gap_sincos_rep": SINCOS,
    "bigvision_map_scan_siglip": {},
    "bigvision_token_bf16": {},
}


def load(name):
    return dict(np.load(GOLDEN / f"{name}.npz"))


def understand(name):
    return read_checkpoint(GOLDEN / f"{name}.npz", NAMES[name])


@pytest.mark.parametrize(
    ("name", "pool", "num_classes", "representation_size", "num_prefix_positions"),
    [
        ("bigvision_gap_sincos_rep", "mean", 7, 32, None),
        ("bigvision_map_scan_siglip", "map", 0, None, None),
        ("bigvision_token_bf16", "token", 5, None, 0),
    ],
)
def test_the_rest_is_inferred(name, pool, num_classes, representation_size, num_prefix_positions):
    understood = understand(name)
    understood.check()
    config = understood.config
    assert (config.num_layers, config.num_heads, config.hidden_dim, config.mlp_dim) == (
        3,
        4,
        32,
        64,
    )
    assert (config.patch_size, config.image_size, config.num_channels) == ((8, 8), (32, 32), 3)
    assert (config.pool, config.num_classes) == (pool, num_classes)
    assert config.class_token == (pool == "token")
    assert config.representation_size == representation_size
    assert config.num_prefix_positions == num_prefix_positions
    assert (config.activation, config.layer_norm_epsilon) == ("gelu_tanh", 1e-6)
    assert understood.family == "big_vision_npz"
    assert (understood.labels, understood.ignored) == (None, frozenset())
    assert understood.position_resize == "align_corners_bilinear"


@pytest.mark.parametrize(
    "given", [{}, {"source_image_size": 32}, {"position_embedding": "learned"}]
)
def test_sin_cos_positions_and_size_must_be_given(read, given):
    arrays = {f"params/{n}": a for n, a in load("bigvision_gap_sincos_rep").items()}
    with pytest.raises(MissingWeightsError, match="- params/pos_embedding") as error:
        read(arrays, **given)
    for name in ("`position_embedding='sincos_2d'`", "`source_image_size`", "posembed_input"):
        assert name in str(error.value)


def test_a_table_is_never_passed_over_for_sin_cos(read):
    arrays = load("bigvision_gap_sincos_rep")
    arrays["pos_embedding"] = np.zeros((1, 16, 32), np.float32)
    with pytest.raises(MissingWeightsError, match=r"\+ pos_embedding"):
        read(arrays, **SINCOS).check()
    assert read(arrays).config.position_embedding == "learned"


def test_a_stack_is_its_blocks(read, same_weights):
    """The same weights, block by block, stacked and under other prefixes."""
    stacked = load("bigvision_map_scan_siglip")
    plain = {}
    for name, array in stacked.items():
        name = name.removeprefix("params/img/")
        if "encoderblock/" in name:
            for i in range(3):
                plain[name.replace("encoderblock/", f"encoderblock_{i}/")] = array[i]
        else:
            plain[name] = array
    expected = understand("bigvision_map_scan_siglip")
    read(plain).check()
    same_weights(read(plain), expected)
    for prefix in ("", "img/", "params/"):
        again = {prefix + name.removeprefix("params/img/"): a for name, a in stacked.items()}
        read(again).check()
        same_weights(read(again), expected)


def test_siglip_has_a_text_model_a_temperature_and_a_bias_beside(read):
    extra = {name: np.zeros(1) for name in ("params/txt/Encoder_0/x", "params/t", "params/b")}
    extra["opt/0/mu/img/Transformer/encoderblock/LayerNorm_0/bias"] = np.zeros((3, 32))
    understood = read(load("bigvision_map_scan_siglip") | extra)
    understood.check()
    assert {name.split("[")[0] for name in understood.ignored} == extra.keys()
    with pytest.raises(MissingWeightsError, match=r"\+ params/other"):
        read(load("bigvision_map_scan_siglip") | {"params/other": np.zeros(1)}).check()


def test_stacks_of_unequal_depth_are_named(read):
    arrays = load("bigvision_map_scan_siglip")
    name = "params/img/Transformer/encoderblock/LayerNorm_1/scale"
    with pytest.raises(MissingWeightsError) as error:
        read(arrays | {name: arrays[name][:2]}).check()
    assert error.value.missing == [f"{name}[2]"]


def test_query_key_and_value_of_the_pool():
    arrays, understood = (
        load("bigvision_map_scan_siglip"),
        understand("bigvision_map_scan_siglip"),
    )
    attention = "params/img/MAPHead_0/MultiHeadDotProductAttention_0"
    query, key, value = (arrays[f"{attention}/{n}/kernel"] for n in ("query", "key", "value"))
    np.testing.assert_array_equal(understood.weight("pool/query/kernel")[:, 8:16], query[:, 1])
    key_value = understood.weight("pool/key_value/kernel")
    np.testing.assert_array_equal(key_value[:, 8:16], key[:, 1])
    np.testing.assert_array_equal(key_value[:, 32 + 8 : 32 + 16], value[:, 1])


def test_bfloat16_is_read_as_it_is():
    array = load("bigvision_token_bf16")["head/kernel"]
    assert array.dtype == np.dtype("V2")
    weight = understand("bigvision_token_bf16").weight("head/kernel")
    np.testing.assert_array_equal(weight, array.view(ml_dtypes.bfloat16).astype(np.float32))


def test_bfloat16_stacks(read):
    arrays = load("bigvision_map_scan_siglip")
    half = {name: array.astype(ml_dtypes.bfloat16) for name, array in arrays.items()}
    understood = read(half)
    understood.check()
    weight = understood.weight("block_1/mlp/fc1/kernel")
    expected = half["params/img/Transformer/encoderblock/MlpBlock_0/Dense_0/kernel"][1]
    np.testing.assert_array_equal(weight, expected.astype(np.float32))


@pytest.mark.parametrize("position", ["pos_embedding", "Transformer/pos_embedding"])
def test_positions_with_a_row_for_the_class_token(read, position):
    """Before 2022: 1 + N rows, added after the class token."""
    arrays = load("bigvision_token_bf16")
    table = np.random.default_rng(0).normal(size=(1, 17, 32)).astype(np.float32)
    del arrays["pos_embedding"]
    understood = read(arrays | {position: table})
    understood.check()
    config = understood.config
    assert (config.class_token, config.num_prefix_positions) == (True, None)
    assert config.image_size == (32, 32)
    np.testing.assert_array_equal(understood.weight("position_embedding/embeddings"), table[0])
    assert read(arrays | {position: table}, source_image_size=32).config == config
    del arrays["cls"]  # the row tells that there was one
    for given in ({}, {"source_image_size": 32}):
        with pytest.raises(MissingWeightsError, match="- cls"):
            read(arrays | {position: table}, **given).check()


def test_old_places_of_positions_and_pool(read, same_weights):
    """Positions inside the Transformer, and the pool's parts at the top."""
    expected = understand("bigvision_map_scan_siglip")
    arrays = {
        name.removeprefix("params/img/").removeprefix("MAPHead_0/"): array
        for name, array in load("bigvision_map_scan_siglip").items()
    }
    for place in ("Transformer/pos_embedding", "Transformer/posembed_input/pos_embedding"):
        moved = {place if name == "pos_embedding" else name: a for name, a in arrays.items()}
        understood = read(moved)
        understood.check()
        same_weights(understood, expected)
    for name in ("probe", "LayerNorm_0/scale", "MultiHeadDotProductAttention_0/key/bias"):
        rest = {other: array for other, array in arrays.items() if other != name}
        with pytest.raises(MissingWeightsError) as error:
            read(rest).check()
        assert error.value.missing == [name]


def test_a_grid_that_is_no_square_needs_the_image_size(read):
    """FAULTS A2."""
    arrays = load("bigvision_map_scan_siglip")
    arrays["params/img/pos_embedding"] = np.zeros((1, 12, 32), np.float32)
    with pytest.raises(ValueError, match="12 patches.*`source_image_size` must say"):
        read(arrays)
    understood = read(arrays, source_image_size=(16, 48))
    understood.check()
    assert understood.config.grid == (2, 6)
    with pytest.raises(MissingWeightsError, match=r"expected \(1, 16, 32\), found \(1, 12, 32\)"):
        read(arrays, source_image_size=32).check()


def test_a_class_token_beside_an_attention_pool_is_refused(read):
    arrays = load("bigvision_map_scan_siglip")
    with pytest.raises(ValueError, match="a class token or an attention pool.*Received: both"):
        read(arrays | {"params/img/cls": np.zeros((1, 1, 32), np.float32)})


@pytest.mark.parametrize("name", NAMES)
def test_predicts_as_big_vision(golden, name):
    """Golden, 2e-5: the output, and the tokens after the last normalization."""
    expected = np.load(golden / f"{name}.expected.npz")
    model = keras_vit.from_pretrained(
        golden / f"{name}.npz", include_normalization=False, **NAMES[name]
    )
    output = model.predict(expected["images"], verbose=0)
    np.testing.assert_allclose(output, expected["output"], rtol=0, atol=2e-5)
    encoded = model.intermediates(["encoder_norm"]).predict(expected["images"], verbose=0)
    np.testing.assert_allclose(encoded["encoder_norm"], expected["encoded"], rtol=0, atol=2e-5)
