"""The card is Markdown under YAML, whatever the labels are."""

import dataclasses

import pytest
import yaml
from huggingface_hub import ModelCard

from keras_vit.config import MixerConfig, ViTConfig
from keras_vit.zoo.catalogue import find_by_source
from keras_vit.zoo.model_card import LIBRARIES, loading_code, model_card

TINY = ViTConfig(
    num_layers=2,
    num_heads=2,
    hidden_dim=16,
    mlp_dim=32,
    patch_size=4,
    image_size=(16, 32),
    num_classes=3,
)
HUB = {
    "source": "hf://google/vit-base-patch16-224-in21k",
    "revision": "b4569560a39a0f1af58e3ddaf17facf20ab919b0",
    "family": "google_hub",
    "licence": "Apache-2.0",
}
BUCKET = HUB | {
    "source": "https://storage.googleapis.com/vit_models/imagenet21k+imagenet2012/ViT-B_16.npz",
    "revision": None,
    "family": "imagenet21k_imagenet2012",
}
RUN = {
    "settings": {
        "recipe": {"name": "paper_sgd", "clip_norm": 1.0},
        "total_steps": 500,
        "steps_per_epoch": 50,
        "batch_size": 64,
        "learning_rate": 0.00375,
        "warmup_steps": 50,
        "augmentation": ["randaugment", "mixup"],
        "class_weights": None,
        "early_stopping": None,
        "seed": 0,
    },
    "data": "3 classes (cat, dog, owl): 90 pictures to train, 10 to validate.",
    "versions": {"keras_vit": "0.1.0", "keras": "3.15.1"},
    "metrics": {"loss": 0.25, "accuracy": 0.93359375, "val_loss": 0.5, "val_accuracy": 0.875},
}
NASTY = ("a|b", "- : #\nx: [", "---", "\"'\\", "\x07\x85\ud800", "<script>", "😀", "`code`", "null")


def metadata(card: str) -> dict:
    _, text, _ = card.split("---\n", 2)
    return yaml.safe_load(text)


def test_metadata_of_a_run():
    assert metadata(model_card(TINY, "hf", ("cat", "dog", "owl"), HUB, RUN)) == {
        "library_name": "transformers",
        "license": "apache-2.0",
        "base_model": "google/vit-base-patch16-224-in21k",
        "datasets": ["imagenet-21k"],
        "metrics": ["accuracy"],
        "pipeline_tag": "image-classification",
        "tags": ["vision-transformer", "keras"],
    }


def test_metadata_without_an_origin():
    card = model_card(dataclasses.replace(TINY, num_classes=0), "native")
    assert metadata(card) == {
        "library_name": "keras_vit",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["vision-transformer", "keras"],
    }
    assert "trained from random initialisation" in card
    assert "## Training" not in card and "## Metrics" not in card and "## Classes" not in card


def test_a_licence_that_the_hub_has_no_word_for():
    found = metadata(model_card(TINY, "timm", origin=HUB | {"licence": "Apple: AMLR #1"}))
    assert (found["license"], found["license_name"]) == ("other", "apple: amlr #1")


def test_weights_of_a_bucket_have_no_hub_id_but_a_row():
    card = model_card(TINY, "npz", origin=BUCKET)
    assert "base_model" not in metadata(card)
    assert metadata(card)["datasets"] == ["imagenet-21k", "imagenet-1k"]
    assert f"`{find_by_source(BUCKET['source']).id}`" in card
    assert "- Licence: Apache-2.0. The code is under Apache-2.0" in card
    assert "from_pretrained('path/to/this/folder/model.npz')" in card


@pytest.mark.parametrize("label", NASTY)
@pytest.mark.parametrize("layout", LIBRARIES)
def test_nasty_names_break_nothing(label, layout):
    run = RUN | {"data": label, "metrics": {label: 1.0}}
    origin = HUB | {"source": label, "licence": label, "revision": label}
    card = model_card(TINY, layout, (label, "dog", "owl"), origin, run)
    found = metadata(card)
    assert found["library_name"] == LIBRARIES[layout]
    assert ModelCard(card).data.library_name == LIBRARIES[layout]
    row = next(line for line in card.splitlines() if line.startswith("| 0 |"))
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == 3
    assert "<script>" not in row and card.encode()


def test_at_most_twenty_classes():
    labels = [f"class {number}" for number in range(25)]
    card = model_card(dataclasses.replace(TINY, num_classes=25), "native", tuple(labels))
    assert "| 19 | class 19 |" in card and "| 20 |" not in card
    assert "And 5 more, 25 in all." in card
    card = model_card(dataclasses.replace(TINY, num_classes=20), "native", tuple(labels[:20]))
    assert "| 19 | class 19 |" in card and "more" not in card


def test_a_run_is_told():
    card = model_card(TINY, "hf", ("cat", "dog", "owl"), HUB, RUN)
    assert "90 pictures to train, 10 to validate" in card
    assert "| recipe | paper_sgd |" in card and "| learning_rate | 0.00375 |" in card
    assert "| augmentation | randaugment, mixup |" in card and "class_weights" not in card
    assert (
        "keras-vit finetune PICTURES --model hf://google/vit-base-patch16-224-in21k"
        f"@{HUB['revision']} --recipe paper_sgd --steps 500 --batch-size 64 "
        "--learning-rate 0.00375 --warmup-steps 50 --seed 0 --augment randaugment --augment mixup\n"
    ) in card
    assert (
        "| val_accuracy | 0.8750 |" in card and "Made with keras_vit 0.1.0, keras 3.15.1." in card
    )
    assert f"`{HUB['revision']}`" in card
    assert "# Vision Transformer, 16 x 32 pixels, 3 classes\n" in card


@pytest.mark.parametrize("run", [{}, {"settings": {}}, {"settings": {"recipe": None}}, {"data": 1}])
def test_a_run_that_says_little(run):
    assert metadata(model_card(TINY, "hf", run=run))["library_name"] == "transformers"


def test_a_mixer():
    mixer = MixerConfig(
        num_layers=1, hidden_dim=8, tokens_mlp_dim=4, channels_mlp_dim=8, patch_size=4
    )
    card = model_card(mixer, "native")
    assert "# MLP-Mixer, 224 x 224 pixels, 1000 classes" in card
    assert metadata(card)["tags"] == ["mlp-mixer", "keras"]


def test_metrics_say_their_epoch_where_it_is_known():
    assert "Of epoch 3. Names with `val_`" in model_card(TINY, "hf", run=RUN | {"epoch": 3})
    assert "Of epoch" not in model_card(TINY, "hf", run=RUN)


def test_a_notice_is_a_sentence_of_the_card():
    assert "\nPictures differ.\n" in model_card(TINY, "hf", notice="Pictures differ.")


def test_a_card_says_whose_the_libraries_are():
    card = model_card(TINY, "npz")
    assert "With keras_vit (the package keras-vit-zoo):" in card
    assert "With vision_transformer, Google's code:" in card
    assert "timm.data.create_transform(" in model_card(TINY, "timm")


def test_how_to_load():
    assert loading_code("native", "it's/1", 3) == {
        "keras_vit": 'import keras_vit\n\nmodel = keras_vit.from_pretrained("it\'s/1")'
    }
    assert (
        "timm.create_model('hf-hub:me/x', pretrained=True)"
        in (loading_code("timm", "me/x", 3, on_hub=True)["timm"])
    )
    assert "'local-dir:me/x'" in loading_code("timm", "me/x", 3)["timm"]
    assert "AutoModelForImageClassification" in loading_code("hf", "x", 3)["transformers"]
    assert "AutoModel.from_pretrained('x')" in loading_code("hf", "x", 0)["transformers"]
    for layout in LIBRARIES:
        for code in loading_code(layout, "it's/1", 3).values():
            compile(code, "code", "exec")


def test_a_card_for_the_hub_names_the_repository():
    card = model_card(TINY, "timm", repository="me/flowers")
    assert "'hf-hub:me/flowers'" in card and "from_pretrained('me/flowers')" in card
