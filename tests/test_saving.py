import dataclasses
import json
import logging
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_vit import Mixer, PreprocessingConfig, ViT, from_pretrained, push_to_hub, save_pretrained

sys.path.append(str(pathlib.Path(__file__).parent / "zoo"))

from hub_server import GOOD_TOKEN, HubServer


def _values(model) -> dict[str, np.ndarray]:
    return {variable.path: variable.numpy() for variable in model.weights}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"num_classes": 0},
        {"num_classes": 0, "representation_size": 16},
        {"image_size": (16, 32), "qkv_bias": False, "num_channels": 1},
        {"pool": "mean", "class_token": False},
        {"pool": "mean"},
        {"representation_size": 7},
        {"activation": "gelu", "layer_norm_epsilon": 1e-12, "patch_size": (2, 4)},
    ],
    ids=str,
)
def test_save_pretrained_and_back_is_bit_exact(tiny_config, random_weights, tmp_path, fields):
    config = dataclasses.replace(tiny_config, **fields)
    labels = [f"class {i}" for i in range(config.num_classes)] or None
    preprocessing = PreprocessingConfig(resize="crop", crop_fraction=0.875, antialias=True)
    model = random_weights(ViT(config, preprocessing, labels=labels))
    save_pretrained(model, tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved")
    assert again.config == config and again.labels == model.labels
    assert again.preprocessing == model.preprocessing
    for path, value in _values(model).items():
        np.testing.assert_array_equal(_values(again)[path], value)
    assert not [p for p in (tmp_path / "saved").iterdir() if p.name.startswith(".")]


OTHERS = [
    {"stem_layers": (2, 1), "stem_width": 32, "patch_size": 1, "stem_numerics": "timm"},
    {"distillation_token": True, "num_register_tokens": 2, "num_prefix_positions": 1},
    {"position_embedding": "relative", "gated_mlp": True, "activation": "silu"},
    {"axial": True, "class_token": False, "pool": "mean", "final_norm": "pool"},
    {"position_insertion": "every_block", "embedding_norm": True, "patch_bias": False},
    {"activation": "quick_gelu", "representation_size": 8},
    {"num_register_tokens": 2, "num_prefix_positions": 1, "final_norm": "pool"},
    {"position_embedding": "sincos_2d"},
]


@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_what_no_other_library_is_goes_into_our_layout(
    tiny_config, random_weights, tmp_path, fields
):
    """A model is never written as one that would compute something else."""
    origin = {"position_resize": "bicubic_antialias"}
    model = random_weights(ViT(dataclasses.replace(tiny_config, **fields), origin=origin))
    model.multi_label = True
    assert save_pretrained(model, tmp_path) == "native"
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["model_type"], written["architecture"]) == ("keras_vit", "ViT")
    again = from_pretrained(tmp_path)
    assert again.config == model.config and again.multi_label
    assert again.origin["position_resize"] == "bicubic_antialias"
    after = _values(again)
    for path, value in _values(model).items():
        np.testing.assert_array_equal(after[path], value)


MAP = {"pool": "map", "class_token": False, "layer_scale_init": 0.1, "qk_norm": True}


@pytest.mark.parametrize(
    ("fields", "layout"),
    [
        ({}, "hf"),
        ({"layer_norm_epsilon": 1e-12}, "hf"),
        (MAP, "timm"),
        ({"num_register_tokens": 3, "activation": "gelu"}, "timm"),
        ({"representation_size": 8}, "native"),
    ],
    ids=str,
)
def test_the_first_layout_that_has_the_model(tiny_config, random_weights, tmp_path, fields, layout):
    model = random_weights(ViT(dataclasses.replace(tiny_config, **fields), labels=tuple("abcde")))
    assert save_pretrained(model, tmp_path / "saved") == layout
    for name in {layout, "native"}:
        assert save_pretrained(model, tmp_path / name, layout=name) == name
        again = from_pretrained(tmp_path / name)
        assert (again.config, again.labels) == (model.config, model.labels)
        assert again.preprocessing == model.preprocessing
        for path, value in _values(model).items():
            np.testing.assert_array_equal(_values(again)[path], value)


def test_a_layout_without_the_model_is_an_error_that_names_those_with_it(tiny_config, tmp_path):
    model = ViT(dataclasses.replace(tiny_config, activation="gelu", layer_norm_epsilon=1e-12))
    for layout in ("timm", "npz"):
        with pytest.raises(ValueError, match="`layout` must be one that has this model: hf, nat"):
            save_pretrained(model, tmp_path / "saved", layout=layout)
    with pytest.raises(ValueError, match="Unknown `layout`.*Did you mean: timm"):
        save_pretrained(model, tmp_path / "saved", layout="tim")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("fields", "layout", "lacks"),
    [
        ({"layer_norm_epsilon": 1e-12}, "timm", "layer_norm_epsilon=1e-12"),
        ({"activation": "gelu", "layer_norm_epsilon": 1e-12}, "timm", "layer_norm_epsilon=1e-12"),
        (
            {"class_token": False, "pool": "mean", "activation": "gelu", "axial": True},
            "npz",
            "axial=True, activation='gelu'",
        ),
        ({"axial": True, "class_token": False, "pool": "mean"}, "timm", "axial=True"),
        ({"image_size": (16, 32)}, "npz", "image_size=(16, 32)"),
        ({"merged_tokens_per_block": 2}, "npz", "merged_tokens_per_block=2"),
        ({"merged_tokens_per_block": 2}, "timm", "merged_tokens_per_block=2"),
        (
            {"position_embedding": "relative", "gated_mlp": True, "activation": "silu"},
            "npz",
            "gated_mlp=True, position_embedding='relative', activation='silu'",
        ),
    ],
    ids=str,
)
def test_it_says_what_the_layout_lacks(tiny_config, tmp_path, fields, layout, lacks):
    model = ViT(dataclasses.replace(tiny_config, **fields))
    with pytest.raises(ValueError) as error:
        save_pretrained(model, tmp_path, layout=layout)
    assert str(error.value).endswith(f"layout='{layout}', which has no model with {lacks}.")


def test_of_a_mixer_no_field_is_named(tiny_mixer_config, tmp_path):
    with pytest.raises(ValueError, match="has this model: native.*layout='hf'.$"):
        save_pretrained(Mixer(tiny_mixer_config), tmp_path, layout="hf")


def test_arguments_of_the_wrong_type(tiny_config, tmp_path):
    model = ViT(tiny_config)
    with pytest.raises(ValueError, match="Unknown `layout`"):
        save_pretrained(model, tmp_path / "saved", layout=["hf"])
    for card in ([], 5, b""):
        with pytest.raises(ValueError, match="`card` must be the directory of a run"):
            save_pretrained(model, tmp_path / "saved", card=card)
    assert not (tmp_path / "saved").exists()


def test_a_label_that_no_file_can_hold_is_named(tiny_config, tmp_path):
    model = ViT(tiny_config, labels=("a", "b", "c", "\udcff!", "\u2028"))
    for layout in ("hf", "timm", "native", "npz"):
        with pytest.raises(ValueError, match=r"Received: '\\udcff!'"):
            save_pretrained(model, tmp_path / "saved", layout=layout)
    assert not (tmp_path / "saved").exists()


def test_a_folder_named_as_the_card_is_refused_before_anything_is_written(tiny_config, tmp_path):
    (tmp_path / "README.md").mkdir()
    with pytest.raises(IsADirectoryError, match="no folder named 'README.md'"):
        save_pretrained(ViT(tiny_config), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_npz_does_not_hide_behind_another_model(tiny_config, tmp_path):
    save_pretrained(ViT(tiny_config), tmp_path, layout="hf")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="holds config.json, model.safetensors"):
        save_pretrained(ViT(tiny_config), tmp_path, layout="npz")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("layout", "preprocessing", "is_told"),
    [
        ("hf", {}, True),
        ("timm", {"interpolation": "bicubic"}, True),
        ("hf", {"antialias": True}, False),
        ("timm", {"interpolation": "nearest"}, False),
        ("native", {}, False),
    ],
)
def test_what_a_library_does_to_pictures_is_told(
    tiny_config, tmp_path, caplog, layout, preprocessing, is_told
):
    with caplog.at_level(logging.WARNING, "keras_vit"):
        save_pretrained(ViT(tiny_config, PreprocessingConfig(**preprocessing)), tmp_path, layout)
    assert len(caplog.records) == is_told
    assert ("antialiases pictures" in caplog.text) == is_told
    assert ("antialiases pictures" in (tmp_path / "README.md").read_text()) == is_told


@pytest.mark.parametrize(
    ("layout", "rule", "fields"),
    [
        ("native", "bilinear", {}),
        ("hf", "bicubic", {}),
        ("timm", "bicubic_antialias", {"num_register_tokens": 2, "num_prefix_positions": 0}),
    ],
)
def test_origin_survives_a_save_and_a_load(tiny_config, tmp_path, layout, rule, fields):
    """A licence goes with the weights, however often they are saved."""
    known = {
        "source": "hf://google/vit-base-patch16-224-in21k",
        "revision": "abc",
        "family": "google_hub",
        "licence": "Apache-2.0",
        "position_resize": rule,
    }
    config = dataclasses.replace(tiny_config, **fields)
    save_pretrained(ViT(config, origin=known), tmp_path / "one", layout=layout)
    again = from_pretrained(tmp_path / "one")
    assert again.origin == known
    save_pretrained(again, tmp_path / "two")
    card = (tmp_path / "two/README.md").read_text()
    assert "license: apache-2.0" in card and "google/vit-base-patch16-224-in21k` at `abc`" in card


def test_timm_keeps_labels_licence_and_the_rule_for_positions(tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, activation="gelu", num_prefix_positions=0)
    origin = {"source": "flexi", "position_resize": "bilinear", "licence": "Apache-2.0"}
    model = ViT(config, labels=tuple("abcde"), multi_label=True, origin=origin)
    save_pretrained(model, tmp_path, layout="timm")
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["architecture"] == "flexivit_base"
    assert written["pretrained_cfg"]["license"] == "apache-2.0"
    again = from_pretrained(tmp_path)
    assert again.origin["position_resize"] == "bilinear"
    assert again.multi_label and again.labels == tuple("abcde")


def test_a_file_of_another_layout_is_not_left(tiny_config, tmp_path):
    """It would say how pictures are prepared for a model that is no longer there."""
    model = ViT(tiny_config)
    save_pretrained(model, tmp_path, layout="hf")
    assert (tmp_path / "preprocessor_config.json").exists()
    save_pretrained(model, tmp_path, layout="timm")
    assert {path.name for path in tmp_path.iterdir()} == {
        *("config.json", "model.safetensors", "README.md"),
    }


def test_npz_is_read_back_bit_for_bit(tiny_config, random_weights, tmp_path, caplog):
    model = random_weights(ViT(tiny_config, labels=tuple("abcde")))
    with caplog.at_level(logging.WARNING, "keras_vit"):
        assert save_pretrained(model, tmp_path, layout="npz") == "npz"
    assert "cannot hold the labels, which are in labels.txt" in caplog.text
    again = from_pretrained(tmp_path / "model.npz")
    assert again.config == model.config
    for path, value in _values(model).items():
        np.testing.assert_array_equal(_values(again)[path], value)
    other = ViT(tiny_config, PreprocessingConfig(antialias=True))
    with pytest.raises(ValueError, match="`preprocessing` must be the official one"):
        save_pretrained(other, tmp_path / "other", layout="npz")


RUN = {
    "settings": {"recipe": {"name": "paper_sgd"}, "total_steps": 7, "seed": 0},
    "data": "5 classes: 10 pictures to train.",
    "metrics": {"val_accuracy": 0.75},
}


@pytest.mark.parametrize("kind", ["directory", "file", "contents"])
def test_the_card_tells_the_run(tiny_config, tmp_path, kind):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    card = {"directory": tmp_path, "file": str(tmp_path / "run.json"), "contents": RUN}[kind]
    save_pretrained(ViT(tiny_config), tmp_path / "saved", card=card)
    text = (tmp_path / "saved/README.md").read_text(encoding="utf-8")
    assert "| val_accuracy | 0.7500 |" in text and "--recipe paper_sgd --steps 7" in text


def test_a_card_of_other_classes_is_refused(tiny_config, tmp_path):
    def card(names):
        return RUN | {"settings": RUN["settings"] | {"data": {"class_names": names}}}

    with_labels, without = ViT(tiny_config, labels=tuple("abcde")), ViT(tiny_config)
    for model, names in ((with_labels, list("abcdx")), (with_labels, ["a"]), (without, ["a"])):
        with pytest.raises(ValueError, match="`card` must be the run that trained the model"):
            save_pretrained(model, tmp_path / "saved", card=card(names))
    assert not (tmp_path / "saved").exists()
    for model, names in ((with_labels, list("abcde")), (without, list("abcde")), (without, [])):
        save_pretrained(model, tmp_path / "saved", card=card(names))


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"settings": 3}', '{"metrics": [1]}'])
def test_a_card_that_is_none_is_refused_before_anything_is_written(tiny_config, tmp_path, content):
    with pytest.raises(FileNotFoundError, match="`card` must be the directory of a run"):
        save_pretrained(ViT(tiny_config), tmp_path / "saved", card=tmp_path / "nowhere")
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match="run.json is (damaged|no description of a run)"):
        save_pretrained(ViT(tiny_config), tmp_path / "saved", card=tmp_path)
    with pytest.raises(ValueError, match="`card` is no description of a run"):
        save_pretrained(ViT(tiny_config), tmp_path / "saved", card={"settings": {"recipe": 1}})
    assert not (tmp_path / "saved").exists()


PUSH = """
import json, sys
import numpy as np
from keras_vit import ViT, ViTConfig, from_pretrained, push_to_hub

config = ViTConfig(**json.loads(sys.argv[1]))
model = ViT(config, labels=["a", "b", "c"])
for number, variable in enumerate(model.weights):
    variable.assign(np.random.default_rng(number).normal(size=variable.shape))
answers = []
for call in json.loads(sys.argv[2]):
    url = push_to_hub(model, **call)
    again = from_pretrained(call["repo_id"], revision=call.get("revision"))
    assert again.config == config and again.labels == model.labels
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    answers.append([url, again.origin["source"]])
try:
    push_to_hub(model, "foreign/x")
except OSError as error:
    answers.append(str(error))
print(json.dumps(answers))
"""


def test_what_is_pushed_comes_back_bit_for_bit(tiny_config, tmp_path):
    config = dataclasses.replace(tiny_config, num_classes=3, activation="gelu").to_dict()
    calls = [
        {"repo_id": "org/hf", "private": True, "card": RUN, "commit_message": "Mine"},
        {"repo_id": "org/timm", "layout": "timm", "revision": "v2"},
        {"repo_id": "org/timm", "layout": "native"},
    ]
    with HubServer() as server:
        done = subprocess.run(
            [sys.executable, "-c", PUSH, json.dumps(config), json.dumps(calls)],
            env=server.environment(tmp_path, HF_TOKEN=GOOD_TOKEN),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = json.loads(done.stdout.splitlines()[-1])
        for (url, source), call in zip(answers[:3], calls, strict=True):
            assert url.startswith(f"{server.url}/{call['repo_id']}/commit/")
            assert source == f"hf://{call['repo_id']}"
        assert "no namespace 'foreign'" in answers[3]
        assert server.repositories["org/hf"].access == "private"
        assert server.repositories["org/timm"].access == "public"
        assert set(server.files_of("org/hf")) - {".gitattributes"} == {
            *("README.md", "config.json", "model.safetensors", "preprocessor_config.json"),
        }
        card = server.files_of("org/hf")["README.md"].decode()
        assert "from_pretrained('org/hf')" in card and "| val_accuracy | 0.7500 |" in card
        assert b"hf-hub:org/timm" in server.files_of("org/timm", "v2")["README.md"]
        native = json.loads(server.files_of("org/timm")["config.json"])
        assert native["model_type"] == "keras_vit"
        assert GOOD_TOKEN not in done.stdout + done.stderr


def test_nothing_is_uploaded_that_nobody_could_load(tiny_config):
    model = ViT(tiny_config)
    with pytest.raises(ValueError, match="`layout` must be one of hf, timm, native or None"):
        push_to_hub(model, "org/x", layout="npz")
    with pytest.raises(ValueError, match="`repo_id` must be 'namespace/name'"):
        push_to_hub(model, "x")
    with pytest.raises(OSError, match="needs a token that may write"):
        push_to_hub(model, "org/x", token=False)


def test_mixer_goes_into_our_layout_and_stays_at_its_size(golden, tmp_path):
    model = from_pretrained(golden / "mixer.npz")
    assert isinstance(model, Mixer)
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path, dropout_rate=0.1)
    assert again.config == dataclasses.replace(model.config, dropout_rate=0.1)
    after = _values(again)
    for path, value in _values(model).items():
        np.testing.assert_array_equal(after[path], value)
    with pytest.raises(ValueError, match="`image_size` must be the source's: the token MLPs"):
        from_pretrained(golden / "mixer.npz", image_size=64)
    with pytest.raises(ValueError, match="An MLP-Mixer has no attention"):
        from_pretrained(golden / "mixer.npz", attention_dropout_rate=0.1)
    with pytest.raises(ValueError, match="needs each patch.*patch_drop_rate=0.5"):
        from_pretrained(golden / "mixer.npz", patch_drop_rate=0.5)


def test_several_labels_are_said_as_transformers_says_them(tiny_config, tmp_path):
    model = ViT(tiny_config, multi_label=True)
    save_pretrained(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"
    assert from_pretrained(tmp_path).multi_label
    assert not from_pretrained(tmp_path, num_classes=3).multi_label


def test_adapters_are_not_lost_in_silence(tiny_config, tmp_path):
    """FAULTS J2."""
    model = ViT(tiny_config)
    model.add_lora(rank=2)
    with pytest.raises(ValueError, match="`model` must have no adapters.*merge_lora"):
        save_pretrained(model, tmp_path)
    save_pretrained(model.merge_lora(), tmp_path)


def test_saving_replaces_nothing_when_it_fails(tiny_config, tmp_path, monkeypatch):
    model = ViT(tiny_config)
    save_pretrained(model, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(
        "keras_vit.zoo.hf_safetensors.writing.json_writer",
        lambda value: lambda path: path.write_text(1),
    )
    with pytest.raises(TypeError):
        save_pretrained(model, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_quantized_model_has_no_plain_weights(tiny_config, tmp_path):
    model = ViT(tiny_config)
    model.quantize("int8")
    with pytest.raises(ValueError, match="Received: a quantized model"):
        save_pretrained(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(ValueError, match="must be a `keras_vit.ViT`"):
        save_pretrained(keras.Sequential(), tmp_path / "saved")
