"""FAULTS B3, C1, D1, E1-E4: transformers' models, read and written."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.zoo import hf_safetensors, read_checkpoint
from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

GOLDEN = Path(__file__).parents[1] / "golden"
# What each file is of our fields, and which of its tensors no output depends on.
FAMILIES = {
    "hf_deit_distilled": ({"distillation_token": True}, set()),
    "hf_dinov2": ({"layer_scale_init": 1.0}, {"embeddings.mask_token"}),
    "hf_dinov2_registers": (
        {"layer_scale_init": 1.0, "num_register_tokens": 4, "num_prefix_positions": 1},
        {"embeddings.mask_token"},
    ),
    "hf_siglip_vision": ({"class_token": False, "pool": "map"}, set()),
    "hf_clip_vision": (
        {"embedding_norm": True, "patch_bias": False, "final_norm": "pool"},
        set(),
    ),
    "hf_vit_msn": ({}, set()),
}


def write(config, directory, read_ours, labels=None, preprocessing=None):
    contents = Contents(
        config=config,
        preprocessing=preprocessing or PreprocessingConfig(),
        read_ours=read_ours,
        labels=labels,
    )
    hf_safetensors.write(contents, directory)


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


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_channels", "image_size"])
def test_absurd_sizes(edited, name):
    """Neither time nor memory for what cannot be there."""
    with pytest.raises(ValueError, match="at most 1000 layers.*=\\(?8000000000.*config.json"):
        read_checkpoint(edited("hf_vit", **{name: 8 * 10**9}))


@pytest.mark.parametrize("source", FAMILIES)
def test_each_family(source):
    fields, unread = FAMILIES[source]
    understood = read_checkpoint(GOLDEN / source)
    understood.check()
    sizes = dict(num_layers=3, num_heads=4, hidden_dim=32, mlp_dim=64, patch_size=8, image_size=32)
    known = ("num_classes", "activation", "layer_norm_epsilon")  # pinned in test_hf_families
    known = {name: getattr(understood.config, name) for name in known}
    assert understood.config == ViTConfig(**sizes, **known, **fields)
    assert understood.ignored == unread
    used = {name.partition("[")[0] for rule in understood.rules for name in rule.theirs}
    assert used | unread == load_file(GOLDEN / source / "model.safetensors").keys()
    for path, shape in variable_shapes(understood.config).items():
        assert understood.weight(path).shape == shape


@pytest.mark.parametrize("source", FAMILIES)
def test_each_tensor_of_a_family_removed_or_misshapen_is_named(tmp_path, source):
    """FAULTS C2."""
    arrays = load_file(GOLDEN / source / "model.safetensors")
    shutil.copy(GOLDEN / source / "config.json", tmp_path)
    for name in arrays.keys() - FAMILIES[source][1]:
        rest = {other: array for other, array in arrays.items() if other != name}
        save_file(rest, tmp_path / "model.safetensors")
        with pytest.raises(MissingWeightsError) as error:
            read_checkpoint(tmp_path).check()
        assert name in str(error.value)
        for shape in ((2, 2), (7,), (), (0,)):
            odd = {name: np.zeros(shape, np.float32)}
            save_file(rest | odd, tmp_path / "model.safetensors")
            with pytest.raises(ValueError, match=f"{re.escape(name)}|id2label"):
                read_checkpoint(tmp_path).check()
    save_file(arrays | {"stray": np.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(MissingWeightsError, match=r"\+ stray"):
        read_checkpoint(tmp_path).check()


@pytest.mark.parametrize("source", [name for name in FAMILIES if name != "hf_vit_msn"])
def test_bare_file_of_a_family(tmp_path, source, same_weights):
    """The names tell the family, and its defaults what no shape tells."""
    shutil.copy(GOLDEN / source / "model.safetensors", tmp_path / "x.safetensors")
    bare = read_checkpoint(tmp_path / "x.safetensors", {"num_heads": 4})
    bare.check()
    whole = read_checkpoint(GOLDEN / source)
    same_weights(bare, whole)
    assert bare.position_resize == whole.position_resize


def test_bare_file_of_a_gated_dinov2(tmp_path):
    """facebook/dinov2-giant's MLP, and the names that transformers 5 has for it."""
    config = dataclasses.replace(
        read_checkpoint(GOLDEN / "hf_dinov2").config, gated_mlp=True, activation="silu", mlp_dim=48
    )
    weights = random_weights(config)
    write(config, tmp_path, weights.__getitem__)
    arrays = load_file(tmp_path / "model.safetensors")
    for i in range(3):
        mlp = f"encoder.layer.{i}.mlp"
        for kind in ("weight", "bias"):
            gate, up = np.split(arrays.pop(f"{mlp}.weights_in.{kind}"), 2)
            arrays |= {f"{mlp}.gate_proj.{kind}": gate, f"{mlp}.up_proj.{kind}": up}
            arrays[f"{mlp}.down_proj.{kind}"] = arrays.pop(f"{mlp}.weights_out.{kind}")
            for new, old in (("q", "query"), ("k", "key"), ("v", "value")):
                attention = f"encoder.layer.{i}.attention"
                old = f"{attention}.attention.{old}.{kind}"
                arrays[f"{attention}.{new}_proj.{kind}"] = arrays.pop(old)
            arrays[f"{attention}.o_proj.{kind}"] = arrays.pop(f"{attention}.output.dense.{kind}")
    save_file(arrays, tmp_path / "new.safetensors")
    for name in ("model.safetensors", "new.safetensors"):
        (tmp_path / "config.json").unlink(missing_ok=True)
        bare = read_checkpoint(tmp_path / name, {"num_heads": 4})
        bare.check()
        assert bare.config == config
        for path, array in weights.items():
            np.testing.assert_array_equal(bare.weight(path), array)


@pytest.mark.parametrize(
    ("source", "model_type", "layer"),
    [("hf_siglip_vision", "siglip", None), ("hf_clip_vision", "clip", "visual_projection")],
)
def test_image_tower_of_a_model_of_pictures_and_texts(
    tmp_path, same_weights, source, model_type, layer
):
    """The text tower is passed over, and so are the numbers that join the two."""
    arrays = load_file(GOLDEN / source / "model.safetensors")
    image = {f"vision_model.{name}": array for name, array in arrays.items()}
    text = {
        "text_model.encoder.layers.0.layer_norm1.weight": np.zeros(5, np.float32),
        "text_model.embeddings.position_ids": np.zeros((1, 3), np.int64),
        "vision_model.embeddings.position_ids": np.zeros((1, 17), np.int64),
        "logit_scale": np.zeros((), np.float32),
    }
    if layer:
        image[f"{layer}.weight"] = np.ones((6, 32), np.float32)
        text["text_projection.weight"] = np.zeros((6, 5), np.float32)
    else:
        text["logit_bias"] = np.zeros(1, np.float32)
    save_file(image | text, tmp_path / "model.safetensors")
    tower = json.loads((GOLDEN / source / "config.json").read_text())
    values = {"model_type": model_type, "vision_config": tower, "text_config": {"hidden_size": 5}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    understood = read_checkpoint(tmp_path)
    understood.check()
    assert understood.ignored == text.keys()
    alone = read_checkpoint(GOLDEN / source)
    if layer:
        assert understood.config.representation_size == 6
        assert understood.config.representation == "linear"
        np.testing.assert_array_equal(understood.weight("pre_logits/kernel"), np.ones((32, 6)))
        plain = dataclasses.replace(understood.config, representation_size=None)
        assert plain == alone.config
    else:
        same_weights(understood, alone)


def test_siglip_without_its_pool(edited):
    """`vision_use_head: false`, a classifier, and what the caller wants."""
    pool = {"class_token": False, "pool": "mean"}
    config = read_checkpoint(edited("hf_siglip_vision", vision_use_head=False)).config
    assert (config.pool, config.num_classes) == ("mean", 0)
    understood = read_checkpoint(edited("hf_siglip_vision"), {"pool": "mean"})
    understood.check()
    assert understood.config == config
    assert understood.ignored and all(name.startswith("head.") for name in understood.ignored)
    head = {"classifier.weight": np.ones((3, 32), np.float32)}
    head["classifier.bias"] = np.ones(3, np.float32)
    understood = read_checkpoint(edited("hf_siglip_vision", add=head))
    understood.check()
    assert understood.config == dataclasses.replace(config, num_classes=3, **pool)


def test_clip_classifier_passes_its_last_norm_by(edited):
    head = {"classifier.weight": np.ones((3, 32), np.float32)}
    head["classifier.bias"] = np.ones(3, np.float32)
    understood = read_checkpoint(edited("hf_clip_vision", add=head))
    understood.check()
    assert understood.ignored == {"post_layernorm.weight", "post_layernorm.bias"}
    assert (understood.config.pool, understood.config.final_norm) == ("mean", "none")


def test_deit_with_one_head_has_an_unread_token(edited):
    def rename(name):
        return name.replace("cls_classifier", "classifier")

    path = edited("hf_deit_distilled", rename)
    arrays = load_file(path / "model.safetensors")
    arrays = {name: array for name, array in arrays.items() if "distillation_c" not in name}
    save_file(arrays, path / "model.safetensors")
    understood = read_checkpoint(path)
    understood.check()
    config = understood.config
    assert (config.num_register_tokens, config.num_prefix_positions) == (1, None)
    token = arrays["deit.embeddings.distillation_token"][0]
    np.testing.assert_array_equal(understood.weight("prefix_tokens/register_tokens"), token)


@pytest.mark.parametrize(
    "fields",
    [
        {"distillation_token": True},
        {"num_register_tokens": 1},
        {"num_classes": 0, "num_register_tokens": 1, "representation_size": 3},
        {"layer_scale_init": 0.1, "pool": "token_mean", "drop_path_rate": 0.2},
        {
            "layer_scale_init": 0.1,
            "pool": "token_mean",
            "gated_mlp": True,
            "activation": "silu",
            "mlp_dim": 24,
            "num_register_tokens": 3,
            "num_prefix_positions": 1,
        },
        {"class_token": False, "pool": "mean", "dropout_rate": 0.3},
        {"class_token": False, "pool": "mean", "num_classes": 0},
        {"class_token": False, "pool": "map", "num_classes": 0, "attention_dropout_rate": 0.1},
        {"embedding_norm": True, "patch_bias": False, "pool": "mean", "final_norm": "none"},
        {
            "embedding_norm": True,
            "patch_bias": False,
            "final_norm": "pool",
            "num_classes": 0,
            "representation_size": 3,
            "representation": "linear",
            "activation": "quick_gelu",
        },
    ],
    ids=str,
)
def test_write_and_read_back_each_family(tmp_path, tiny_config, fields):
    config = dataclasses.replace(tiny_config, **fields)
    weights = random_weights(config)
    labels = tuple("abcde") if config.num_classes else None
    write(config, tmp_path, weights.__getitem__, labels)
    understood = read_checkpoint(tmp_path)
    understood.check()
    assert (understood.config, understood.labels) == (config, labels)
    for path, array in weights.items():
        np.testing.assert_array_equal(understood.weight(path), array)
    arrays = load_file(tmp_path / "model.safetensors")
    assert hf_safetensors.stored_shapes(config) == {k: a.shape for k, a in arrays.items()}


def test_tensors_that_only_transformers_has_are_filled(tmp_path, tiny_config):
    """Its classes ask for them, and no output depends on them."""
    config = dataclasses.replace(tiny_config, layer_scale_init=0.1, pool="token_mean")
    weights = random_weights(config)
    write(config, tmp_path, weights.__getitem__)
    mask = load_file(tmp_path / "model.safetensors")["dinov2.embeddings.mask_token"]
    np.testing.assert_array_equal(mask, np.zeros((1, 16)))
    clip = {"embedding_norm": True, "patch_bias": False, "pool": "mean", "final_norm": "none"}
    config = dataclasses.replace(tiny_config, **clip)
    weights = random_weights(config)
    write(config, tmp_path, weights.__getitem__)
    arrays = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(arrays["vision_model.post_layernorm.weight"], np.ones(16))
    np.testing.assert_array_equal(arrays["vision_model.post_layernorm.bias"], np.zeros(16))


@pytest.mark.parametrize(
    "source",
    [
        *("hf_vit", "hf_vit_backbone", "hf_vit_1channel_no_qkv_bias"),
        *(name for name in FAMILIES if name != "hf_vit_msn"),
    ],
)
def test_written_file_equals_the_source(tmp_path, source):
    """The old dialect, bit for bit, and what transformers needs of config.json."""
    understood = read_checkpoint(GOLDEN / source)
    write(
        understood.config,
        tmp_path,
        understood.weight,
        understood.labels,
        preprocessing=understood.preprocessing,
    )
    original = load_file(GOLDEN / source / "model.safetensors")
    written = load_file(tmp_path / "model.safetensors")
    assert written.keys() == original.keys()
    for name in original.keys() - understood.ignored:
        np.testing.assert_array_equal(written[name], original[name])
    golden = json.loads((GOLDEN / source / "config.json").read_text())
    values = json.loads((tmp_path / "config.json").read_text())
    not_written = {"dtype", "encoder_stride", "initializer_range", "transformers_version"}
    not_written |= {"pooler_act", "pooler_output_size"}  # written with a pooler alone
    not_written |= {"projection_dim", "initializer_factor"}  # with a projection, CLIP
    not_written |= {"apply_layernorm", "out_features", "out_indices", "stage_names"}  # backbones
    not_written |= {"reshape_hidden_states", "use_mask_token"}
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
    write(config, tmp_path, weights.__getitem__, labels, preprocessing=preprocessing)
    write(config, tmp_path, weights.__getitem__, labels, preprocessing=preprocessing)  # replaces
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
    write(tiny_config, tmp_path, weights.__getitem__)
    assert read_checkpoint(tmp_path).labels is None
    assert len(json.loads((tmp_path / "config.json").read_text())["id2label"]) == 5


@pytest.mark.parametrize(
    "changes",
    [{"pool": "mean"}, {"pool": "map", "class_token": False}, {"representation_size": 5}],
)
def test_what_transformers_cannot_express(tmp_path, tiny_config, changes):
    config = dataclasses.replace(tiny_config, **changes)
    assert not hf_safetensors.can_express(config)
    assert hf_safetensors.can_express(tiny_config)
    with pytest.raises(ValueError, match="`config` must be a ViT as transformers has it"):
        write(config, tmp_path, lambda path: None)
    assert not list(tmp_path.iterdir())


def test_wrong_number_of_labels(tmp_path, tiny_config):
    with pytest.raises(ValueError, match="`labels` must"):
        write(tiny_config, tmp_path, lambda path: None, ("a",))
