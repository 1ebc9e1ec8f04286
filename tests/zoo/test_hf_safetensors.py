"""FAULTS B3, C1, D1, E1-E4: transformers' ViT, read and written."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.zoo import hf_safetensors, read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.variables import variable_shapes

GOLDEN = Path(__file__).parents[1] / "golden"


def random_weights(config, seed=0):
    random = np.random.default_rng(seed)
    return {
        path: random.normal(size=shape).astype(np.float32)
        for path, shape in variable_shapes(config).items()
    }


def test_classifier():
    understood = read_checkpoint(GOLDEN / "hf_vit")
    assert understood.config == ViTConfig(
        num_layers=3,
        num_heads=4,
        hidden_dim=32,
        mlp_dim=64,
        patch_size=8,
        image_size=32,
        num_classes=11,
        activation="gelu",
        layer_norm_epsilon=1e-12,
    )
    assert understood.labels == tuple(f"class {i}" for i in range(11))  # 2 before 10
    assert understood.preprocessing == PreprocessingConfig(antialias=True)
    assert understood.position_resize == "bicubic"
    arrays = load_file(GOLDEN / "hf_vit" / "model.safetensors")
    attention = "vit.encoder.layer.1.attention.attention"
    qkv = understood.weight("block_1/attention/qkv/kernel")
    np.testing.assert_array_equal(qkv[:, 64:], arrays[f"{attention}.value.weight"].T)


def test_headless_with_pooler():
    understood = read_checkpoint(GOLDEN / "hf_vit_backbone")
    assert (understood.config.num_classes, understood.config.representation_size) == (0, 32)
    assert understood.labels is None


@pytest.mark.parametrize("prefix", ["vit.", "", "module.", "module.vit.", "student.encoder_q."])
def test_prefixes_give_the_same_weights(edited, prefix, same_weights):
    """FAULTS E1."""

    def rename(name):
        if name.startswith("classifier."):
            return prefix.removesuffix("vit.") + name
        return prefix + name.removeprefix("vit.")

    understood = read_checkpoint(edited("hf_vit", rename=rename))
    understood.check()
    same_weights(understood, read_checkpoint(GOLDEN / "hf_vit"))


def test_one_channel_without_qkv_bias():
    """FAULTS B3."""
    config = read_checkpoint(GOLDEN / "hf_vit_1channel_no_qkv_bias").config
    assert (config.num_channels, config.qkv_bias) == (1, False)


def test_four_channels(edited):
    """FAULTS B3."""
    kernel = np.random.default_rng(0).normal(size=(32, 4, 8, 8)).astype(np.float32)
    name = "vit.embeddings.patch_embeddings.projection.weight"
    understood = read_checkpoint(edited("hf_vit", add={name: kernel}, num_channels=4))
    understood.check()
    weight = understood.weight("patch_embedding/projection/kernel")
    np.testing.assert_array_equal(weight[1, 2, 3], kernel[:, 3, 1, 2])
    assert understood.preprocessing.mean == (0.5,) * 4
    with pytest.raises(MissingWeightsError, match=r"expected \(32, 3, 8, 8\), found \(32, 4"):
        read_checkpoint(edited("hf_vit", add={name: kernel})).check()


@pytest.mark.parametrize(
    ("hidden_act", "activation"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        (None, "gelu"),
    ],
)
def test_activation(edited, hidden_act, activation):
    """FAULTS E4."""
    assert read_checkpoint(edited("hf_vit", hidden_act=hidden_act)).config.activation == activation


def test_unknown_activation(edited):
    with pytest.raises(ValueError, match="`hidden_act`.*Received: hidden_act='relu'"):
        read_checkpoint(edited("hf_vit", hidden_act="relu"))


def test_config_json_fields_and_defaults(edited):
    """FAULTS E3."""
    assert read_checkpoint(edited("hf_vit", layer_norm_eps=1e-5)).config.layer_norm_epsilon == 1e-5
    assert read_checkpoint(edited("hf_vit", layer_norm_eps=None)).config.layer_norm_epsilon == 1e-12
    msn = edited("hf_vit", layer_norm_eps=None, model_type="vit_msn")
    assert read_checkpoint(msn).config.layer_norm_epsilon == 1e-6
    config = read_checkpoint(edited("hf_vit", hidden_dropout_prob=0.1, qkv_bias=None)).config
    assert (config.dropout_rate, config.qkv_bias) == (0.1, True)
    config = read_checkpoint(edited("hf_vit", image_size=[16, 64], patch_size=[8, 8])).config
    assert config.grid == (2, 8)
    nothing = dict.fromkeys(
        ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        + ("image_size", "patch_size", "num_channels")
    )
    base = read_checkpoint(edited("hf_vit", **nothing)).config
    assert (base.hidden_dim, base.num_layers, base.num_heads, base.mlp_dim) == (768, 12, 12, 3072)
    assert (base.image_size, base.patch_size, base.num_channels) == ((224, 224), (16, 16), 3)


@pytest.mark.parametrize(
    "id2label",
    [
        {str(i): "x" for i in range(10)},
        {str(i): "x" for i in range(12)},
        {str(i): "x" for i in [*range(10), 11]},
        {str(i): "x" for i in [*range(10), "ten"]},
    ],
)
def test_labels_with_gaps_or_out_of_range(edited, id2label):
    with pytest.raises(ValueError, match="`id2label` of config.json must name the classes 0 to 10"):
        read_checkpoint(edited("hf_vit", id2label=id2label))


def test_labels_that_nobody_gave(edited):
    assert read_checkpoint(edited("hf_vit", id2label=None)).labels is None
    invented = {str(i): f"LABEL_{i}" for i in range(11)}
    understood = read_checkpoint(edited("hf_vit", id2label=invented))
    assert (understood.labels, understood.config.num_classes) == (None, 11)


def test_whole_head_missing_is_an_error_for_a_classifier(edited, tmp_path):
    """FAULTS C2."""
    arrays = load_file(GOLDEN / "hf_vit" / "model.safetensors")
    path = edited("hf_vit")
    headless = {name: array for name, array in arrays.items() if "classifier" not in name}
    save_file(headless, tmp_path / "model.safetensors")
    with pytest.raises(MissingWeightsError, match=r"- classifier.bias\n- classifier.weight"):
        read_checkpoint(path).check()


def test_parts_for_other_tasks_are_ignored(edited):
    extra = {
        "vit.embeddings.mask_token": np.zeros((1, 1, 32), np.float32),
        "vit.pooler.dense.weight": np.zeros((32, 32), np.float32),
        "vit.pooler.dense.bias": np.zeros(32, np.float32),
        "decoder.0.weight": np.zeros((48, 32, 1, 1), np.float32),
    }
    understood = read_checkpoint(edited("hf_vit", add=extra))
    understood.check()
    assert understood.ignored == extra.keys()
    assert understood.config.representation_size is None


def test_pooler_of_another_kind(edited):
    with pytest.raises(ValueError, match="`pooler_act`.*'tanh'.*'relu'"):
        read_checkpoint(edited("hf_vit_backbone", pooler_act="relu"))


@pytest.mark.parametrize("source", ["hf_vit", "hf_vit_new_names", "hf_vit_backbone"])
def test_bare_file(tmp_path, source, same_weights):
    path = tmp_path / "x.safetensors"
    shutil.copy(GOLDEN / source / "model.safetensors", path)
    with pytest.raises(ValueError, match="`num_heads` must be given"):
        read_checkpoint(path)
    bare, whole = read_checkpoint(path, {"num_heads": 4}), read_checkpoint(GOLDEN / source)
    bare.check()
    assert bare.config == whole.config
    same_weights(bare, whole)
    with pytest.raises(ValueError, match=r"expected \(1, 65, 32\), found \(1, 17, 32\)"):
        read_checkpoint(path, {"num_heads": 4, "source_image_size": 64}).check()


def test_preprocessor_config(edited):
    """FAULTS D1."""
    path = edited("hf_vit")
    values = {"size": 32, "resample": 3, "image_mean": [0.4] * 3, "image_std": [0.2] * 3}
    (path / "preprocessor_config.json").write_text(json.dumps(values))
    assert read_checkpoint(path).preprocessing == PreprocessingConfig(
        mean=(0.4,) * 3, std=(0.2,) * 3, interpolation="bicubic", antialias=True
    )


@pytest.mark.parametrize("source", ["hf_vit", "hf_vit_backbone", "hf_vit_1channel_no_qkv_bias"])
def test_written_file_equals_the_source(tmp_path, source):
    """The old dialect, bit for bit, and what transformers needs of config.json."""
    understood = read_checkpoint(GOLDEN / source)
    hf_safetensors.write(
        understood.config,
        understood.preprocessing,
        understood.labels,
        understood.weight,
        tmp_path,
    )
    original = load_file(GOLDEN / source / "model.safetensors")
    written = load_file(tmp_path / "model.safetensors")
    assert written.keys() == original.keys()
    for name, array in original.items():
        np.testing.assert_array_equal(written[name], array)
    golden = json.loads((GOLDEN / source / "config.json").read_text())
    values = json.loads((tmp_path / "config.json").read_text())
    not_written = {"dtype", "encoder_stride", "initializer_range", "transformers_version"}
    not_written |= {"pooler_act", "pooler_output_size"}  # written with a pooler alone
    assert golden.keys() - values.keys() <= not_written
    assert {key: golden[key] for key in values} == values


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "gelu", "layer_norm_epsilon": 1e-12},
        {"qkv_bias": False, "num_channels": 1},
        {"image_size": (8, 24), "patch_size": (4, 8)},
        {"num_classes": 0},
        {"num_classes": 0, "representation_size": 5},
        {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-6, "drop_path_rate": 0.1},
        {"dropout_rate": 0.1, "attention_dropout_rate": 0.2},
    ],
)
def test_write_and_read_back(tmp_path, tiny_config, changes):
    config = dataclasses.replace(tiny_config, **changes)
    weights = random_weights(config)
    labels = ("cat", "犬", "cat", "d", "e") if config.num_classes else None
    preprocessing = PreprocessingConfig(interpolation="bicubic").for_channels(config.num_channels)
    hf_safetensors.write(config, preprocessing, labels, weights.__getitem__, tmp_path)
    hf_safetensors.write(config, preprocessing, labels, weights.__getitem__, tmp_path)  # replaces
    understood = read_checkpoint(tmp_path)
    understood.check()
    assert understood.config == config
    assert understood.preprocessing == preprocessing
    assert understood.labels == labels
    for path, array in weights.items():
        np.testing.assert_array_equal(understood.weight(path), array)
    names = {"model.safetensors", "config.json", "preprocessor_config.json"}
    assert {entry.name for entry in tmp_path.iterdir()} == names


def test_no_labels_stay_no_labels(tmp_path, tiny_config):
    weights = random_weights(tiny_config)
    hf_safetensors.write(tiny_config, PreprocessingConfig(), None, weights.__getitem__, tmp_path)
    assert read_checkpoint(tmp_path).labels is None
    assert len(json.loads((tmp_path / "config.json").read_text())["id2label"]) == 5


@pytest.mark.parametrize(
    "changes",
    [{"pool": "mean"}, {"pool": "mean", "class_token": False}, {"representation_size": 5}],
)
def test_what_transformers_cannot_express(tmp_path, tiny_config, changes):
    config = dataclasses.replace(tiny_config, **changes)
    assert not hf_safetensors.can_express(config)
    assert hf_safetensors.can_express(tiny_config)
    with pytest.raises(ValueError, match="`config` must be a ViT as transformers has it"):
        hf_safetensors.write(config, PreprocessingConfig(), None, lambda path: None, tmp_path)
    assert not list(tmp_path.iterdir())


def test_wrong_number_of_labels(tmp_path, tiny_config):
    with pytest.raises(ValueError, match="`labels` must"):
        hf_safetensors.write(
            tiny_config, PreprocessingConfig(), ("a",), lambda path: None, tmp_path
        )
