from pathlib import Path

import pytest

from keras_vit.zoo.catalogue import (
    catalogue,
    close_candidates,
    find,
    find_by_source,
    list_models,
    markdown_table,
)
from keras_vit.zoo.rows import FAMILY_FIELDS, MODEL_FIELDS

ZOO = Path(__file__).parents[2] / "zoo"
BUCKET = "https://storage.googleapis.com/vit_models/"


def test_readme_table_is_current():
    assert (ZOO / "README.md").read_text() == markdown_table(), (
        "Run `python -m keras_vit.zoo.catalogue`."
    )


def test_schema_explains_every_field():
    schema = (ZOO / "SCHEMA.md").read_text()
    assert not [name for name in [*FAMILY_FIELDS, *MODEL_FIELDS] if f"`{name}`" not in schema]


def test_list_models_by_pattern():
    everything = list_models()
    assert everything == sorted(catalogue())
    assert list_models("vit_huge*") == [
        "vit_huge_patch14_224.orig_in21k",
        "vit_huge_patch14_224.orig_in21k_hub",
    ]
    assert list_models("resnet*") == []


def test_the_nine_recommended_pairs_are_listed():
    rows = [row for row in catalogue().values() if row.family == "augreg"][:18]
    variants = ["L/16", "B/16", "S/16", "R50+L/32", "R26+S/32", "Ti/16", "B/32", "S/32", "R+Ti/16"]
    published = [85.59, 85.49, 83.73, 85.99, 83.85, 78.22, 83.59, 79.58, 75.40]
    for variant, top1, before, after in zip(
        variants, published, rows[::2], rows[1::2], strict=True
    ):
        assert (before.variant, before.image_size, before.num_classes) == (variant, 224, 21843)
        assert (after.variant, after.image_size, after.num_classes) == (variant, 384, 1000)
        assert after.source.startswith(before.source.removesuffix(".npz") + "--imagenet2012-")
        assert (after.top1, after.measured_by) == (top1, "the official repository's README")


def test_same_file_name_in_two_directories_is_two_checkpoints():
    pretrained, finetuned = find("imagenet21k/ViT-B_16"), find("imagenet21k+imagenet2012/ViT-B_16")
    assert (pretrained.num_classes, pretrained.representation_size) == (21843, 768)
    assert (finetuned.num_classes, finetuned.representation_size) == (1000, None)
    with pytest.raises(
        ValueError, match="(?s)ViT-B_16.*imagenet21k/ViT-B_16.*imagenet2012/ViT-B_16"
    ):
        find("ViT-B_16.npz")


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("vit_base_patch16_224.augreg_in21k", "vit_base_patch16_224.augreg_in21k"),
        ("ViT-H_14", "vit_huge_patch14_224.orig_in21k"),
        ("ViT-B_16-224.npz", "vit_base_patch16_224.orig_in21k_ft_in1k"),
        ("google/vit-base-patch16-224", "vit_base_patch16_224.orig_in21k_ft_in1k_hub"),
        (
            "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
            "vit_tiny_patch16_224.augreg_in21k",
        ),
    ],
)
def test_find(name, id):
    assert find(name).id == id


def test_unknown_name_lists_close_matches():
    with pytest.raises(ValueError, match="Did you mean:.*vit_base_patch16_224.orig_in21k"):
        find("vit_base_patch16_224.orig_in22k")
    assert "google/vit-base-patch16-224" in close_candidates()


def test_find_by_source():
    row = find("imagenet21k/ViT-B_16")
    assert find_by_source(BUCKET + "imagenet21k/ViT-B_16.npz") is row
    assert find_by_source(BUCKET + "ViT-B_16.npz") is None
    large = find("google/vit-large-patch16-224")
    assert large.source == "hf://google/vit-large-patch16-224@refs/pr/2"
    assert find_by_source("hf://google/vit-large-patch16-224") is large
    assert find_by_source("hf://google/vit-large-patch16-224@abc") is large
    assert find_by_source("hf://somebody/vit-large-patch16-224") is None


def test_official_files_are_squashed_without_antialias_and_those_of_the_hub_as_pil():
    official = find("ViT-H_14").preprocessing
    hub = find("google/vit-base-patch16-224").preprocessing
    for preprocessing in (official, hub):
        assert (preprocessing.resize, preprocessing.interpolation) == ("squash", "bilinear")
        assert preprocessing.mean == preprocessing.std == (0.5, 0.5, 0.5)
    assert (official.antialias, hub.antialias) == (False, True)
