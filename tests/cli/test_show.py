import csv
import json

import keras
import pytest

import keras_vit
from keras_vit.zoo.catalogue import catalogue, find
from keras_vit.zoo.https import cache_path
from keras_vit.zoo.variables import count_parameters

ZOO_ID = "vit_base_patch16_224.augreg_in21k_ft_in1k"


def facts(result) -> dict[tuple[str, str], str]:
    """Value by section and name."""
    assert result.code == 0, result.err
    rows = csv.DictReader(result.out.splitlines(), delimiter="\t")
    return {(row["section"], row["name"]): row["value"] for row in rows}


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    def refuse(*arguments, **keywords):
        raise AssertionError("`show` asked the network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))


def test_a_row_of_the_zoo_without_its_file(command):
    row, shown = find(ZOO_ID), facts(command("show", ZOO_ID))
    assert shown["model", "top-1"] == (
        f"{row.top1:.2f} % on ImageNet-1k, measured by {row.measured_by}"
    )
    assert shown["model", "licence"] == "Apache-2.0"
    assert shown["model", "paper"] == row.paper and shown["model", "file"] == row.source
    assert shown["model", "on this machine"].startswith("no")
    assert shown["architecture", "variant"] == "B/16"
    assert shown["architecture", "tokens"] == "197"
    assert shown["architecture", "patch_size"] == "16 x 16"
    assert int(shown["parameters", "all"]) == row.parameters == 86567656
    assert int(shown["parameters", "block_0 ... block_11"]) == 12 * 7087872
    parts = [int(value) for key, value in shown.items() if key[0] == "parameters"]
    assert sum(parts) == 2 * row.parameters
    assert shown["preprocessing", "resize"] == "to 224 x 224, whatever the aspect"
    assert shown["preprocessing", "filter"] == "bilinear, sampled as TensorFlow does"
    assert "minus 127.5, divided by 127.5" in shown["preprocessing", "normalise"]
    assert f"--model {ZOO_ID} " in shown["next", "fine-tune"]


def test_a_row_by_its_other_names(command):
    shown = facts(command("show", "google/vit-base-patch16-224-in21k@main"))
    assert shown["model", "id"] == "vit_base_patch16_224.orig_in21k_hub"
    assert shown["model", "top-1"] == "none is published of this file"
    assert shown["architecture", "representation_size"] == "768"
    assert ("next", "predict") not in shown  # it has no classes
    mixer = next(row.id for row in catalogue().values() if row.variant == "Mixer-B/16")
    shown = facts(command("show", mixer))
    assert shown["architecture", "variant"] == "Mixer-B/16"
    assert shown["parameters", "all"] == str(find(mixer).parameters)
    url = find(ZOO_ID).source
    assert facts(command("show", url))["model", "id"] == ZOO_ID


def test_a_row_whose_file_is_here(command):
    target = cache_path(find(ZOO_ID).source)
    target.parent.mkdir(parents=True)
    target.write_bytes(b"12345")
    target.with_name(f"{target.name}.json").write_text('{"size_bytes": 5}')
    assert facts(command("show", ZOO_ID))["model", "on this machine"] == str(target)


def test_a_folder_of_weights(command, checkpoint, model):
    shown = facts(command("show", checkpoint))
    assert shown["model", "labels"] == "cat, dog"
    assert shown["model", "stored as"] == "float32"
    assert shown["architecture", "kind"] == "Vision Transformer"
    assert shown["architecture", "pool"] == "mean" and shown["architecture", "mlp_dim"] == "16"
    assert ("architecture", "variant") not in shown
    assert int(shown["parameters", "all"]) == model.count_params()


def test_the_bundled_model(command):
    shown = facts(command("show", "bundled"))
    assert shown["architecture", "num_classes"] == "6"
    assert "--model bundled" in shown["next", "fine-tune"]


def test_a_run(command, run_directory, tmp_path):
    """Model, origin, recipe and metrics; and that it has not ended, if so."""
    model = keras.saving.load_model(run_directory / "best.keras")
    model.origin = {"source": "hf://somebody/vit", "licence": None}
    model.save(tmp_path / "last.keras")
    settings = {"recipe": {"name": "paper_sgd", "clip": 1}, "total_steps": 500, "model": {}}
    settings |= {"learning_rate": 0.0037499999, "class_weights": [0.75, 1.5], "data": {}, "seed": 0}
    settings |= {"steps_per_epoch": 9, "warmup_steps": 1, "batch_size": 4, "early_stopping": None}
    settings |= {"augmentation": ["MixUp"], "augmentation_settings": [{"alpha": 0.2}]}
    description = {"settings": settings, "data": "2 classes (cat, dog): 6 pictures to train"}
    (tmp_path / "run.json").write_text(json.dumps(description))
    shown = facts(command("show", tmp_path))
    assert shown["model", "file"] == str(tmp_path / "last.keras")
    assert shown["model", "origin: source"] == "hf://somebody/vit"
    assert ("model", "origin: licence") not in shown
    assert shown["run", "recipe"] == "paper_sgd" and shown["run", "total_steps"] == "500"
    assert shown["run", "learning_rate"] == "0.00375"
    assert shown["run", "class_weights"] == "0.75, 1.5" and shown["run", "augmentation"] == "MixUp"
    assert ("run", "augmentation_settings") not in shown and ("run", "early_stopping") not in shown
    assert shown["run", "pictures"] == description["data"]
    assert shown["run", "metrics"] == "not yet: the run has not ended"
    assert int(shown["parameters", "all"]) == model.count_params()
    assert shown["next", "evaluate"] == f"keras-vit evaluate {tmp_path} PICTURES/"

    description["metrics"] = {"val_accuracy": 0.9166666865348816}
    (tmp_path / "run.json").write_text(json.dumps(description))
    assert facts(command("show", tmp_path))["run", "val_accuracy"] == "0.9167"
    (tmp_path / "run.json").write_text('{"settings": {}}')
    result = command("show", tmp_path)
    assert result.code == 1 and "run.json is damaged" in result.err


def test_what_was_frozen_and_adapted(command, run_directory, tmp_path):
    model = keras.saving.load_model(run_directory / "best.keras")
    assert ("model", "trained") not in facts(command("show", run_directory))
    model.trainable_part(blocks=False, stem=False)
    model.save(tmp_path / "frozen.keras")
    shown = facts(command("show", tmp_path / "frozen.keras"))
    assert shown["model", "trained"] == "34 parameters; frozen: stem, block_0"
    model.add_lora(2)
    model.save(tmp_path / "adapted.keras")
    shown = facts(command("show", tmp_path / "adapted.keras"))
    assert shown["model", "LoRA"] == "rank 2, alpha 2, on qkv"
    # (16 + 48) x 2 of the adapter, 16 x 2 + 2 of the head
    assert shown["model", "trained"] == "162 parameters; frozen: stem"


def test_a_keras_file_as_it_is(command, run_directory, tmp_path):
    """int8 weights; several classes a picture."""
    model = keras.saving.load_model(run_directory / "best.keras")
    model.quantize("int8")
    model.multi_label = True
    model.labels = None
    model.save(tmp_path / "int8.keras")
    shown = facts(command("show", tmp_path / "int8.keras"))
    assert shown["model", "stored as"] == "float32, int8"
    assert shown["model", "several classes a picture"] == "yes"
    assert shown["model", "labels"] == "none: classes have numbers alone"
    assert "inside the model" in shown["preprocessing", "normalise"]
    assert ("next", "fine-tune") not in shown


def test_official_files_of_other_architectures(command, golden):
    shown = facts(command("show", golden / "mixer.npz"))
    assert shown["architecture", "kind"] == "MLP-Mixer"
    assert ("architecture", "tokens_mlp_dim") in shown
    shown = facts(command("show", golden / "hybrid_two_stages.npz"))
    assert ("architecture", "stem_layers") in shown and ("parameters", "resnet_stem") in shown


def test_a_mixer_in_a_keras_file(command, tmp_path):
    config = keras_vit.config.MixerConfig(
        **dict(num_layers=2, hidden_dim=8, tokens_mlp_dim=4, channels_mlp_dim=6, patch_size=8),
        image_size=(16, 24),
        num_classes=0,
    )
    keras_vit.mixer.Mixer(config).save(tmp_path / "mixer.keras")
    shown = facts(command("show", tmp_path / "mixer.keras"))
    assert shown["architecture", "kind"] == "MLP-Mixer"
    assert shown["architecture", "tokens"] == "6"
    assert shown["architecture", "image_size"] == "16 x 24"
    assert int(shown["parameters", "all"]) == count_parameters(config)
    assert ("model", "labels") not in shown and ("next", "predict") not in shown


def test_a_terminal_gets_panels(command, terminal):
    result = command("show", ZOO_ID)
    assert result.code == 0
    for title in ("model", "architecture", "parameters", "preprocessing", "next"):
        assert f" {title} " in result.out
    assert "86,567,656" in result.out and "12 x 7,087,872" in result.out
    assert "(14 x 14 patches after 1 of no patch)" in result.out
    assert "\t" not in result.out


def test_unknown_and_unusable_sources(command, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    (tmp_path / "text.npz").write_text("no weights")
    (tmp_path / "cut.keras").write_text("no model")
    for source, said in (
        ("vit_base_patch16_244", "Did you mean: vit_base_patch16_224"),
        ("ViT-B_16", "which lies in several directories"),
        ("somebody/vit", "nothing is downloaded to show it"),
        ("https://u:pw@example.org/vit.npz", "`keras-vit download https://example.org/vit.npz`"),
        ("https://[bad/vit.npz", "must be a valid URL"),
        ("~nouser/vit", "must be a file or folder that exists"),
        (tmp_path / "nowhere", "must be a file or folder that exists"),
        (tmp_path / "run", "ended before its first"),
        (tmp_path / "saved", "which is for serving"),
        (tmp_path / "text.npz", "is neither an .npz nor a safetensors file"),
        (tmp_path / "text.npz", "or make it anew if it is yours"),
        (tmp_path / "cut.keras", "must be a whole .keras file"),
    ):
        result = command("show", source)
        assert (result.code, result.out) == (1, ""), source
        assert result.err.startswith("error: ") and said in result.err, result.err
        assert "network is switched off" not in result.err and "pw" not in result.err


def test_a_crop_in_words(command, tmp_path):
    config = keras_vit.PreprocessingConfig(
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        interpolation="bicubic",
        antialias=True,
        resize="crop",
        crop_fraction=0.875,
    )
    tiny = dict(num_layers=1, num_heads=1, hidden_dim=8, mlp_dim=8, patch_size=16, image_size=224)
    keras_vit.ViT(keras_vit.ViTConfig(**tiny), config).save(tmp_path / "crop.keras")
    shown = facts(command("show", tmp_path / "crop.keras"))
    assert shown["preprocessing", "resize"] == (
        "to cover 256 x 256, aspect kept; the middle 224 x 224 is cut out"
    )
    assert shown["preprocessing", "filter"] == "bicubic, as PIL does, antialiased"
    assert "minus (123.675, 116.28, 103.53), divided" in shown["preprocessing", "normalise"]
