import collections
from pathlib import Path

import pytest

from keras_vit.zoo.catalogue import (
    catalogue,
    close_candidates,
    filter_rows,
    find,
    find_by_source,
    list_models,
    markdown_table,
)
from keras_vit.zoo.rows import FAMILY_FIELDS, MODEL_FIELDS

ZOO = Path(__file__).parents[2] / "zoo"
BUCKET = "https://storage.googleapis.com/vit_models/"
OTHER = "S_32-i1k-300ep-lr_0.001-aug_strong2-wd_0.03-do_0.1-sd_0.1--kitti-steps_0k-lr_0.01-res_384"


def test_readme_table_is_current():
    assert (ZOO / "README.md").read_text() == markdown_table(), (
        "Run `python -m keras_vit.zoo.catalogue`."
    )


def test_readme_table_says_what_a_row_says():
    lines = {line.split("`")[1]: line for line in markdown_table().splitlines() if "| `" in line}
    assert lines.keys() == catalogue().keys()
    assert "head of 21843 is all zeros" in lines["vit_base_patch16_224.orig_in21k"]
    assert "12 x 640 /16" in lines["vit_betwixt_patch16_reg1_gap_256.sbb_in1k"]
    assert "| 12 x 768 /30 |" in lines["flexivit_base.patch30_in21k"]
    assert lines["vit_large_patch14_clip_224.metaclip_400m"].endswith("| CC-BY-NC-4.0 |")
    assert "| 84.534, timm's" in lines["vit_base_patch16_224.augreg_in21k_ft_in1k"]


def test_schema_explains_every_field():
    schema = (ZOO / "SCHEMA.md").read_text()
    assert not [name for name in [*FAMILY_FIELDS, *MODEL_FIELDS] if f"`{name}`" not in schema]


def test_list_models_by_pattern():
    everything = list_models()
    assert everything == sorted(catalogue())
    assert list_models("vit_huge_patch14_224.orig*") == [
        "vit_huge_patch14_224.orig_in21k",
        "vit_huge_patch14_224.orig_in21k_hub",
        "vit_huge_patch14_224.orig_in21k_timm",
    ]
    assert list_models("resnet*") == []


def test_list_models_by_filters():
    rows = catalogue()
    assert set(list_models(family="timm_deit*")) == {
        row.id for row in rows.values() if row.family in ("timm_deit", "timm_deit3")
    }
    small = list_models("*in1k", max_parameters=6_000_000, image_size=224, min_top1=75)
    assert "vit_tiny_patch16_224.augreg_in21k_ft_in1k" in small
    assert "deit_tiny_patch16_224.fb_in1k" not in small  # 72.16
    for name in small:
        row = rows[name]
        assert row.parameters <= 6_000_000 and row.image_size == 224 and row.top1 >= 75
    assert set(list_models(licence="cc-by-nc*")) == {
        row.id for row in rows.values() if row.licence == "CC-BY-NC-4.0"
    }
    assert list_models(family="sam", licence="MIT") == []


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"family": "timm_diet"}, "Unknown `family`.*timm_diet.*Did you mean: timm_deit"),
        ({"licence": "apache"}, "Unknown `licence`.*apache"),
        ({"licence": 5}, "`licence` must be a string. Received: licence=5"),
        ({"family": b"sam"}, "`family` must be a string. Received: family=b'sam'"),
        ({"max_parameters": "30"}, "`max_parameters` must be a number.*max_parameters='30'"),
        ({"min_top1": True}, "`min_top1` must be a number.*min_top1=True"),
        ({"image_size": "224"}, "`image_size` must be a positive integer.*image_size='224'"),
        ({"image_size": 224.0}, "`image_size` must be a positive integer.*image_size=224.0"),
        ({"image_size": (224, 224)}, "`image_size` must be a positive integer"),
    ],
)
def test_a_filter_that_nothing_can_pass(filters, message):
    with pytest.raises(ValueError, match=message):
        filter_rows(**filters)


def test_names_are_texts():
    with pytest.raises(ValueError, match="`pattern` must be a string. Received: pattern=None"):
        list_models(None)
    with pytest.raises(ValueError, match="`name` must be a string. Received: name=5"):
        find(5)


def test_loading_counts_no_parameters():
    """The catalogue must stay quick: 500 rows in well under a second."""
    catalogue.cache_clear()
    assert not [row.id for row in catalogue().values() if "parameters" in vars(row)]


def test_every_family_of_the_issue_is_there():
    counts = collections.Counter(row.family for row in catalogue().values())
    google = {"imagenet21k": 9, "imagenet21k_imagenet2012": 8, "augreg": 48, "sam": 5, "gsam": 4}
    google |= {"mixer": 11, "big_vision": 3, "flexivit": 17}
    hub = {"google_hub": 11, "google_siglip": 10, "google_siglip2": 15, "openai_clip": 4}
    hub |= {"laion_clip": 5, "facebook_deit": 8, "facebook_dino": 4, "facebook_dinov2": 16}
    hub |= {"facebook_mae": 3, "facebook_msn": 5}
    from_timm = {name: count for name, count in counts.items() if name.startswith("timm_")}
    assert sum(from_timm.values()) >= 306
    least = google | hub
    assert not {name: counts[name] for name in least if counts[name] < least[name]}


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
    assert (pretrained.num_classes, pretrained.representation_size) == (0, 768)
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
        ("timm/vit_base_patch16_224.augreg_in21k", "vit_base_patch16_224.augreg_in21k_timm"),
        ("timm/vit_base_patch16_224.dino", "vit_base_patch16_224.dino"),
        ("timm/vit_base_patch16_clip_224.openai", "vit_base_patch16_clip_224.openai"),
        (
            "vit_base_patch16_clip_quickgelu_224.openai",
            "vit_base_patch16_clip_quickgelu_224.openai",
        ),
        (f"augreg/{OTHER}", f"augreg/{OTHER}"),
        (f"{OTHER}.npz", f"augreg/{OTHER}"),
    ],
)
def test_find(name, id):
    assert find(name).id == id


def test_one_file_of_clip_is_read_in_two_ways():
    """Trap: 17 files that were trained with quick GELU are run with exact GELU under their id."""
    exact = find("vit_base_patch16_clip_224.openai")
    quick = find("vit_base_patch16_clip_quickgelu_224.openai")
    assert exact.source == quick.source
    assert (exact.config.activation, exact.reader_fields) == ("gelu", {})
    assert quick.config.activation == quick.reader_fields["activation"] == "quick_gelu"


def test_any_file_of_augreg_is_a_row():
    row = find(OTHER)
    assert (row.variant, row.image_size, row.num_classes) == ("S/32", 384, 4)
    assert (row.source, row.reader) == (f"{BUCKET}augreg/{OTHER}.npz", "official_npz")
    assert (row.licence, row.family, row.top1, row.size_bytes) == (
        "Apache-2.0",
        "augreg",
        None,
        None,
    )
    assert find_by_source(row.source) == row
    with pytest.raises(ValueError, match="known augmentation. Received: 'aug_strong3'"):
        find(OTHER.replace("strong2", "strong3"))


def test_unknown_name_lists_close_matches():
    with pytest.raises(ValueError, match="Did you mean:.*vit_base_patch16_224.orig_in21k") as error:
        find("vit_base_patch16_224.orig_in22k")
    assert str(error.value).count("vit_") <= 6  # what was received, and five at most
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
