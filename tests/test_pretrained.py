import dataclasses
import json
import logging
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import ViT, from_pretrained, save_pretrained
from keras_vit.resample import (
    adapt_patch_kernel,
    resize_patch_kernel,
    resize_position_embeddings,
)
from keras_vit.zoo.catalogue import find
from keras_vit.zoo.https import cache_path

NPZ = ("vit_token", "vit_gap_linen_names", "vit_pre_logits")
CLASSIFIERS = ("hf_vit", "hf_vit_new_names", "hf_vit_1channel_no_qkv_bias")
TOLERANCE = 2e-5


def _difference(ours, theirs) -> float:
    return float(np.abs(np.asarray(ours) - theirs).max())


def _values(model) -> dict[str, np.ndarray]:
    return {variable.path: variable.numpy() for variable in model.weights}


@pytest.mark.parametrize("name", NPZ)
def test_official_npz_logits(golden, name):
    model = from_pretrained(golden / f"{name}.npz", include_normalization=False)
    expected = np.load(golden / f"{name}.expected.npz")
    assert _difference(model(expected["images"]), expected["logits"]) <= TOLERANCE


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_transformers_logits_and_hidden_states(golden, name):
    model = from_pretrained(golden / name, include_normalization=False)
    expected = np.load(golden / name / "expected.npz")
    last = f"block_{model.config.num_layers - 1}"
    ours = model.intermediates([last, "logits"])(expected["images"])
    assert _difference(ours["logits"], expected["logits"]) <= TOLERANCE
    assert _difference(ours[last], expected["last_hidden_state"]) <= TOLERANCE
    labels = json.loads((golden / name / "config.json").read_text())["id2label"]
    assert model.labels == tuple(labels.values())


def test_transformers_backbone(golden):
    """None gives the source's own pooled output, 0 the features before the tanh layer."""
    name = golden / "hf_vit_backbone"
    model = from_pretrained(name, include_normalization=False)
    expected = np.load(name / "expected.npz")
    ours = model.intermediates(["encoder_norm", "pre_logits"])(expected["images"])
    assert _difference(ours["encoder_norm"], expected["last_hidden_state"]) <= TOLERANCE
    assert _difference(model(expected["images"]), expected["pooler_output"]) <= TOLERANCE
    features = from_pretrained(name, num_classes=0, include_normalization=False)
    last = expected["last_hidden_state"][:, 0]
    assert _difference(features(expected["images"]), last) <= TOLERANCE


def test_normalization_in_the_graph_gives_the_same_logits(golden):
    model = from_pretrained(golden / "vit_token.npz")
    expected = np.load(golden / "vit_token.expected.npz")
    pixels = expected["images"] * 127.5 + 127.5
    assert _difference(model(pixels), expected["logits"]) <= TOLERANCE


def test_epsilon_and_activation_come_from_the_source(golden):
    """FAULTS E3, E4: asserted on the layers, since outputs do not pin an epsilon."""
    for name, epsilon, activation in [
        ("vit_token.npz", 1e-6, "gelu_tanh"),
        ("hf_vit", 1e-12, "gelu"),
    ]:
        model = from_pretrained(golden / name)
        norms = [
            part.epsilon
            for part in model._flatten_layers()
            if isinstance(part, keras.layers.LayerNormalization)
        ]
        assert set(norms) == {epsilon} and len(norms) == 7
        assert {model.get_layer(f"block_{i}").mlp.activation for i in range(3)} == {activation}


def test_another_number_of_classes_gets_a_zero_head_and_one_notice(golden, caplog):
    """FAULTS C1."""
    source = from_pretrained(golden / "hf_vit")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        model = from_pretrained(golden / "hf_vit", num_classes=3)
    assert len(caplog.records) == 1 and "for 3 classes; the source has 11" in caplog.text
    ours, theirs = _values(model), _values(source)
    assert ours["head/kernel"].shape == (32, 3) and not ours["head/kernel"].any()
    assert model.labels is None
    for path in theirs.keys() - {"head/kernel", "head/bias"}:
        np.testing.assert_array_equal(ours[path], theirs[path])


def test_same_number_of_classes_keeps_the_head_unless_reset(golden):
    source = _values(from_pretrained(golden / "hf_vit"))
    kept = from_pretrained(golden / "hf_vit", num_classes=11)
    np.testing.assert_array_equal(_values(kept)["head/kernel"], source["head/kernel"])
    assert kept.labels is not None
    reset = from_pretrained(golden / "hf_vit", num_classes=11, reset_head=True)
    assert not _values(reset)["head/kernel"].any() and reset.labels is None
    also = from_pretrained(golden / "hf_vit", reset_head=True)
    assert not _values(also)["head/kernel"].any() and also.config.num_classes == 11


def test_headless_source_wants_classes_for_a_new_head(golden):
    with pytest.raises(ValueError, match="`num_classes` must be given with `reset_head=True`"):
        from_pretrained(golden / "hf_vit_backbone", reset_head=True)
    assert from_pretrained(golden / "hf_vit_backbone", num_classes=4).output.shape == (None, 4)


def test_tanh_layer_goes_with_the_old_head_unless_kept(golden):
    """FAULTS C4, on both files: with and without `pre_logits`."""
    name = golden / "vit_pre_logits.npz"
    assert from_pretrained(name).config.representation_size == 24
    assert from_pretrained(name, num_classes=3).config.representation_size is None
    assert from_pretrained(name, num_classes=0).output.shape == (None, 32)
    kept = from_pretrained(name, num_classes=3, representation_size=24)
    np.testing.assert_array_equal(
        _values(kept)["pre_logits/kernel"], _values(from_pretrained(name))["pre_logits/kernel"]
    )
    assert from_pretrained(golden / "vit_token.npz", num_classes=0).output.shape == (None, 32)
    with pytest.raises(ValueError, match="representation_size=5, the source has 24"):
        from_pretrained(name, num_classes=3, representation_size=5)


@pytest.mark.parametrize("image_size", [16, 64, (32, 64), (64, 32)], ids=str)
@pytest.mark.parametrize("name", ["vit_token.npz", "vit_gap_linen_names.npz", "hf_vit"])
def test_another_image_size(golden, name, image_size, caplog):
    """FAULTS A1, A2: the grid is resized by the source's rule, prefix rows stay, one notice."""
    source = from_pretrained(golden / name)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "keras_vit"):
        model = from_pretrained(golden / name, image_size=image_size)
    assert [record.getMessage()[:8] for record in caplog.records] == ["Position"]
    rule = "bicubic" if name == "hf_vit" else "align_corners_bilinear"
    assert model.origin["position_resize"] == rule
    path = "position_embedding/embeddings"
    table, prefix = _values(source)[path], source.config.num_prefix_tokens
    expected = resize_position_embeddings(table, prefix, (4, 4), model.config.grid, rule)
    np.testing.assert_array_equal(_values(model)[path], expected)
    np.testing.assert_array_equal(_values(model)[path][:prefix], table[:prefix])
    pixels = np.zeros((2, *model.config.image_size, model.config.num_channels), "uint8")
    assert np.isfinite(model.predict(pixels, verbose=0)).all()


def test_same_image_size_is_bit_identical(golden, caplog):
    with caplog.at_level(logging.WARNING, "keras_vit"):
        model = from_pretrained(golden / "vit_token.npz", image_size=32)
    file = np.load(golden / "vit_token.npz")
    stored = file["Transformer/posembed_input/pos_embedding"][0]
    np.testing.assert_array_equal(_values(model)["position_embedding/embeddings"], stored)
    assert not caplog.records


def test_image_size_that_does_not_fit(golden):
    """FAULTS A7."""
    with pytest.raises(ValueError, match=r"image_size=\(30, 30\).*try 24 or 32"):
        from_pretrained(golden / "vit_token.npz", image_size=30)


def test_one_channel_equals_grey_through_three(golden):
    """FAULTS B1, B2: the sum of the kernel over its channels."""
    colour = from_pretrained(golden / "vit_token.npz")
    grey = from_pretrained(golden / "vit_token.npz", num_channels=1)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1)).astype("uint8")
    np.testing.assert_allclose(grey(pixels), colour(np.repeat(pixels, 3, -1)), atol=1e-5)


@pytest.mark.parametrize("num_channels", [2, 4, 13])
def test_more_channels_are_tiled_and_rescaled(golden, num_channels):
    """FAULTS B1: preprocess, predict and the normalisation follow."""
    model = from_pretrained(golden / "vit_token.npz", num_channels=num_channels)
    kernel = _values(from_pretrained(golden / "vit_token.npz"))["patch_embedding/projection/kernel"]
    tiled = np.concatenate([kernel] * 5, axis=2)[:, :, :num_channels] * (3 / num_channels)
    ours = _values(model)["patch_embedding/projection/kernel"]
    np.testing.assert_allclose(ours, tiled, rtol=1e-6)
    assert len(model.preprocessing.mean) == num_channels
    pixels = np.zeros((2, 40, 50, num_channels), "uint8")
    assert model.predict(model.preprocess(pixels), verbose=0).shape == (2, 10)


def test_config_of_other_channels_is_honoured(golden):
    """FAULTS B3."""
    model = from_pretrained(golden / "hf_vit_1channel_no_qkv_bias")
    assert model.config.num_channels == 1 and len(model.preprocessing.mean) == 1
    assert model.get_layer("block_0").attention.qkv.bias is None


def test_missing_and_stray_tensors_raise_and_strict_is_the_way_out(golden, tmp_path):
    """FAULTS C2."""
    tensors = dict(np.load(golden / "vit_token.npz"))
    del tensors["head/bias"]
    tensors["stray/kernel"] = np.zeros(3, "float32")
    np.savez(tmp_path / "broken.npz", **tensors)
    with pytest.raises(ValueError, match=r"- head/bias\n\+ stray/kernel"):
        from_pretrained(tmp_path / "broken.npz")
    loose = from_pretrained(tmp_path / "broken.npz", strict=False)
    assert not _values(loose)["head/bias"].any()
    whole = from_pretrained(golden / "vit_token.npz")
    np.testing.assert_array_equal(_values(loose)["head/kernel"], _values(whole)["head/kernel"])


def test_loading_twice_gives_the_same_model(golden):
    """FAULTS C2: nothing is random."""
    one, two = (from_pretrained(golden / "hf_vit") for _ in range(2))
    pixels = np.zeros((1, 32, 32, 3), "uint8")
    np.testing.assert_array_equal(one(pixels), two(pixels))


def test_rates_are_the_callers(golden):
    model = from_pretrained(golden / "hf_vit", drop_path_rate=0.2, dropout_rate=0.1)
    assert model.config.drop_path_rate == 0.2 and model.config.attention_dropout_rate == 0.0
    assert model.get_layer("block_2").drop_path1.rate == pytest.approx(0.2)


def test_bare_file_wants_heads(golden, tmp_path):
    shutil.copy(golden / "hf_vit" / "model.safetensors", tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="`num_heads` must be given"):
        from_pretrained(tmp_path / "bare.safetensors")
    model = from_pretrained(tmp_path / "bare.safetensors", num_heads=4, include_normalization=False)
    expected = np.load(golden / "hf_vit" / "expected.npz")
    assert _difference(model(expected["images"]), expected["logits"]) <= TOLERANCE


def test_unknown_field_and_unknown_source(golden):
    with pytest.raises(ValueError, match="'num_head'.*num_heads"):
        from_pretrained(golden / "hf_vit", num_head=4)
    with pytest.raises(ValueError, match="vit_base_patch16_224"):
        from_pretrained("vit_base_patch16_224.augreg_in21k_ft_in1")


def test_remat_is_the_callers(golden, tmp_path):
    """FAULTS H2: and the flag is kept in the file."""
    model = from_pretrained(golden / "vit_token.npz", remat=True)
    assert model.get_layer("block_0").remat
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").get_layer("block_0").remat


@pytest.mark.parametrize("source", ["hf_vit", "vit_token.npz", "timm_token"])
def test_tokens_of_any_source_are_merged(golden, source, tmp_path):
    """The weights stay those of the source; our layout alone says how many go."""
    plain = from_pretrained(golden / source)
    model = from_pretrained(golden / source, merged_tokens_per_block=2, patch_drop_rate=0.5)
    assert model.config.merged_tokens_per_block == 2 and model.config.patch_drop_rate == 0.5
    before = _values(plain)
    values = _values(model)
    assert before.keys() == {path for path in values if "seed_generator" not in path}
    for path, value in before.items():
        np.testing.assert_array_equal(values[path], value)
    assert save_pretrained(model, tmp_path) == "native"
    again = from_pretrained(tmp_path)
    assert again.config == dataclasses.replace(model.config, patch_drop_rate=0.0)
    pixels = np.random.default_rng(0).uniform(0, 255, (2, 32, 32, 3)).astype("float32")
    np.testing.assert_array_equal(again(pixels), model(pixels))
    assert _difference(model(pixels), plain(pixels)) > 1e-4
    assert from_pretrained(tmp_path, merged_tokens_per_block=0).config == plain.config


@pytest.mark.parametrize("num_channels", [1, 4])
def test_channels_of_a_hybrid_are_its_roots(golden, num_channels):
    """FAULTS B1."""
    path = golden / "hybrid_two_stages.npz"
    kernel = _values(from_pretrained(path))["resnet_stem/root/kernel"]
    model = from_pretrained(path, num_channels=num_channels)
    expected = adapt_patch_kernel(kernel, num_channels)
    np.testing.assert_array_equal(_values(model)["resnet_stem/root/kernel"], expected)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(golden, tmp_path, number):
    """A file that loads and answers NaN for ever is worse than one that does not load."""
    tensors = dict(np.load(golden / "vit_token.npz"))
    tensors["head/kernel"] = tensors["head/kernel"] * number
    np.savez(tmp_path / "diverged.npz", **tensors)
    with pytest.raises(ValueError, match="NaN or infinite numbers in head/kernel"):
        from_pretrained(tmp_path / "diverged.npz")
    assert from_pretrained(tmp_path / "diverged.npz", num_classes=0).output.shape == (None, 32)


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_weights_are_floating_point(golden, tmp_path, dtype):
    tensors = dict(np.load(golden / "vit_token.npz"))
    tensors["head/bias"] = tensors["head/bias"].astype(dtype)
    np.savez(tmp_path / "cast.npz", **tensors)
    with pytest.raises(ValueError, match=f"floating point weights.*head/bias of dtype {dtype}"):
        from_pretrained(tmp_path / "cast.npz")


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("config.json", "model_type", ["vit"]),
        ("config.json", "layer_norm_eps", None),
        ("config.json", "hidden_dropout_prob", "0.1"),
        ("config.json", "hidden_act", []),
        ("config.json", "id2label", 5),
        ("preprocessor_config.json", "rescale_factor", 0),
        ("preprocessor_config.json", "rescale_factor", "x"),
        ("preprocessor_config.json", "image_mean", 0.5),
        ("preprocessor_config.json", "resample", [2]),
        ("preprocessor_config.json", "keras_vit", {"bogus": 1}),
    ],
    ids=str,
)
def test_wrong_types_in_a_configuration(golden, tmp_path, file, field, value):
    shutil.copytree(golden / "hf_vit", tmp_path, dirs_exist_ok=True)
    path = tmp_path / file
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, field: value}))
    with pytest.raises(ValueError, match="config.json|must be"):
        from_pretrained(tmp_path)


def test_misshapen_tensors_that_sizes_follow_from(golden, tmp_path):
    tensors = dict(np.load(golden / "vit_token.npz"))
    for name in ("embedding/kernel", "Transformer/posembed_input/pos_embedding"):
        np.savez(tmp_path / "bad.npz", **{**tensors, name: np.zeros(1, "float32")})
        with pytest.raises(ValueError, match=f"! {name}: expected . axes"):
            from_pretrained(tmp_path / "bad.npz")


@pytest.mark.parametrize("name", ["image_size", "num_channels"])
def test_zero_is_not_the_sources_size(golden, name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer.*0"):
        from_pretrained(golden / "vit_token.npz", **{name: 0})


def test_representation_size_is_checked_with_a_kept_head(golden):
    with pytest.raises(ValueError, match="representation_size=8, the source has None"):
        from_pretrained(golden / "vit_token.npz", representation_size=8)


def test_a_keras_file_is_told(tiny_config, tmp_path):
    ViT(tiny_config).save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="saved by Keras.*load_model"):
        from_pretrained(tmp_path / "model.keras")


def test_bundled_by_its_name():
    model = from_pretrained("bundled", num_classes=0)
    assert model.output.shape == (None, 128)
    assert (model.origin["source"], model.origin["licence"]) == ("bundled", "MIT")
    by_path = from_pretrained(keras_vit.assets.checkpoint(), num_classes=0)
    assert by_path.origin == model.origin


def test_what_is_no_weight_file_is_not_kept_in_the_cache(published, tmp_path):
    """A server may have answered with a page of its own."""
    id = "vit_base_patch16_gap_224.gsam_in1k"
    arguments = published(id, "vit_gap_linen_names.npz")
    cached = cache_path(find(id).source, tmp_path)
    cached.write_bytes(b"<html>".ljust(cached.stat().st_size))
    with pytest.raises(keras_vit.zoo.WeightFileError, match="is a web page"):
        from_pretrained(**arguments)
    with pytest.raises(keras_vit.zoo.download.DownloadError):
        from_pretrained(**arguments)


def test_origin_travels_with_the_model(golden, tmp_path):
    model = from_pretrained(golden / "vit_token.npz")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.origin == model.origin and again.origin["source"] == "vit_token.npz"
    assert isinstance(again, keras_vit.ViT)


@pytest.fixture
def published(golden, tmp_path):
    """Return a function that puts a golden file where a row's file would lie in the cache."""

    def put(id: str, name: str) -> dict:
        target = cache_path(find(id).source, tmp_path)
        target.parent.mkdir(parents=True)
        shutil.copy(golden / name, target)
        record = json.dumps({"size_bytes": target.stat().st_size})
        target.with_name(f"{target.name}.json").write_text(record)
        return {"source": id, "cache_dir": tmp_path, "local_files_only": True}

    return put


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("vit_small_patch16_gap_224.bv_90ep_in1k", "bigvision_gap_sincos_rep"),
        ("flexivit_small.1200ep_in1k", "bigvision_token_bf16"),
        ("vit_base_patch16_gap_224.gsam_in1k", "vit_gap_linen_names"),
    ],
)
def test_bare_files_load_by_their_id_alone(golden, published, id, name):
    """What no tensor tells is in the row; the caller's sizes win over the row's."""
    arguments = published(id, f"{name}.npz")
    if name != "vit_gap_linen_names":  # which says all itself
        model = from_pretrained(**arguments)
        assert model.config.grid == find(id).config.grid
        assert model.config.patch_size == (16, 16)
        arguments |= {"image_size": 32, "patch_size": 8}
    model = from_pretrained(**arguments, include_normalization=False)
    expected = np.load(golden / f"{name}.expected.npz")
    logits = expected["logits" if "logits" in expected else "output"]
    assert _difference(model(expected["images"]), logits) <= TOLERANCE


def test_flexivit_is_resized_by_its_own_rules(golden, published):
    arguments = published("flexivit_small.1200ep_in1k", "bigvision_token_bf16.npz")
    source = _values(from_pretrained(**arguments, image_size=32, patch_size=8))
    model = from_pretrained(**arguments)
    ours = _values(model)
    assert model.config.image_size == (240, 240) and model.config.num_classes == 5
    kernel = "patch_embedding/projection/kernel"
    np.testing.assert_array_equal(ours[kernel], resize_patch_kernel(source[kernel], (16, 16)))
    table = "position_embedding/embeddings"
    expected = resize_position_embeddings(source[table], 0, (4, 4), (15, 15), "bilinear")
    np.testing.assert_array_equal(ours[table], expected)
    again = model.with_image_size(288)
    expected = resize_position_embeddings(ours[table], 0, (15, 15), (18, 18), "bilinear")
    np.testing.assert_array_equal(_values(again)[table], expected)


def test_patch_size_of_any_source(golden):
    source = _values(from_pretrained(golden / "hf_vit"))
    model = from_pretrained(golden / "hf_vit", patch_size=(8, 4))
    kernel = "patch_embedding/projection/kernel"
    assert _values(model)[kernel].shape[:2] == model.config.patch_size == (8, 4)
    expected = resize_patch_kernel(source[kernel], (8, 4))
    np.testing.assert_array_equal(_values(model)[kernel], expected)
