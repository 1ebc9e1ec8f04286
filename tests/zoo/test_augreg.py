import hub_server
import pytest

from keras_vit.variants import VARIANTS
from keras_vit.zoo import augreg
from keras_vit.zoo.catalogue import catalogue, find
from keras_vit.zoo.https import DownloadError

UPSTREAM = "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
ADAPTED = f"{UPSTREAM}--oxford_iiit_pet-steps_0k-lr_0.003-res_384"
COLUMNS = "name,ds,final_val,adapt_ds,adapt_resolution,adapt_final_val,filename,adapt_filename"


def name_of(model: str, dataset: str = "i21k", augmentation: str = "none", adapt: str = "") -> str:
    start = f"{model}-{dataset}-300ep-lr_0.001-aug_{augmentation}-wd_0.1-do_0.0-sd_0.0"
    return f"{start}--{adapt}" if adapt else start


def line(final, upstream, adapt_dataset="", size="", adapt_final="", steps="20k-lr_0.01") -> str:
    adapted = f"{upstream}--{adapt_dataset}-steps_{steps}-res_{float(size or 0):.0f}"
    dataset = upstream.split("-")[1]
    return ",".join(
        ["X", dataset, final, adapt_dataset, size, adapt_final]
        + [upstream, adapted if adapt_dataset else ""]
    )


LIGHT, STRONG = name_of("B_16", augmentation="light1"), name_of("B_16", augmentation="strong1")
INDEX = [
    COLUMNS,
    line("0.47", LIGHT, "imagenet2012", "384", "0.85"),
    line("0.47", LIGHT, "imagenet2012", "224.0", "0.86"),
    line("0.47", LIGHT, "cifar100", "384.0", "0.91"),
    line("0.48", STRONG, "imagenet2012", "384.0", "0.84"),
    line("0.79", name_of("B_16", "i1k"), "imagenet2012", "384.0", "0.80"),  # not i21k
    line("", name_of("B_16", augmentation="medium1"), "imagenet2012", "384.0", ""),  # no figure
    line("0.99", name_of("L_16")),  # another model
    line("0.40", name_of("S_16")),
]


@pytest.fixture
def index(monkeypatch):
    """A server with a small index in the real one's columns."""
    with hub_server.HubServer() as server:
        monkeypatch.setattr(augreg, "INDEX_URL", f"{server.url}/augreg/index.csv")
        text = "\n".join(INDEX).encode()
        server.files["/augreg/index.csv"] = hub_server.PlainFile(text)
        yield server


def test_a_name_of_a_pretrained_model():
    file = augreg.parse(UPSTREAM)
    assert file == augreg.AugregFile(
        name=UPSTREAM,
        model="R26_S_32",
        dataset="i21k",
        epochs=300,
        learning_rate=0.001,
        augmentation="light1",
        weight_decay=0.1,
        dropout=0.0,
        stochastic_depth=0.0,
    )
    assert (file.variant, file.image_size, file.num_classes) == ("R26+S/32", 224, 21843)


def test_a_name_of_a_finetuned_model():
    file = augreg.parse(f"augreg/{ADAPTED}.npz")
    assert (file.name, file.adapt_dataset) == (ADAPTED, "oxford_iiit_pet")
    assert (file.adapt_steps, file.adapt_learning_rate, file.adapt_resolution) == (0, 0.003, 384)
    assert (file.image_size, file.num_classes) == (384, 37)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("R26_S_32", "R26_S_16", "model. Received: 'R26_S_16'"),
        ("i21k", "i22k", "dataset. Received: 'i22k'.*X of: i1k, i21k, i21k_30"),
        ("300ep", "300", "epochs. Received: '300' .*Write Xep, with X of: a number"),
        ("300ep", "ep", "epochs. Received: 'ep'"),
        ("-lr_0.001", "", "learning_rate. Received: 'aug_light1'"),
        ("lr_0.001", "lr_x", "learning_rate. Received: 'lr_x'"),
        ("aug_light1", "aug_light2", "augmentation. Received: 'aug_light2'"),
        ("wd_0.1", "wd_.", "weight_decay. Received: 'wd_.'"),
        ("do_0.0", "0.0", "dropout. Received: '0.0'"),
        ("sd_0.0", "sd_0.0.0", "stochastic_depth. Received: 'sd_0.0.0'"),
        ("oxford_iiit_pet", "pets", "adapt_dataset. Received: 'pets'.*oxford_iiit_pet"),
        ("steps_0k", "steps_500", "adapt_steps. Received: 'steps_500'"),
        ("lr_0.003", "lr_", "adapt_learning_rate. Received: 'lr_'"),
        ("res_384", "res_512", "adapt_resolution. Received: 'res_512'.*X of: 224, 384"),
        ("-res_384", "", "adapt_resolution. Received: ''"),
        ("res_384", "res_384-v2", "end after its adapt_resolution. Received: 'v2'"),
        ("--", "-extra--", "end after its stochastic_depth. Received: 'extra'"),
    ],
)
def test_an_error_says_which_part(old, new, part):
    with pytest.raises(ValueError, match=part):
        augreg.parse(ADAPTED.replace(old, new))


def test_every_row_of_the_table_agrees_with_its_name():
    rows = [row for row in catalogue().values() if row.family == augreg.FAMILY]
    assert len(rows) == 48
    for row in rows:
        file = augreg.parse(row.source.removeprefix(augreg.FOLDER_URL))
        assert (row.variant, row.image_size) == (file.variant, file.image_size)
        assert row.num_classes == file.num_classes
    assert set(augreg.VARIANT_OF_MODEL.values()) <= VARIANTS.keys()


def test_a_row_made_on_the_fly():
    like = find("vit_tiny_patch16_384.augreg_in21k_ft_in1k")
    row = augreg.make_row(ADAPTED, like)
    assert (row.id, row.source) == (f"augreg/{ADAPTED}", f"{augreg.FOLDER_URL}{ADAPTED}.npz")
    assert (row.config.stem_layers, row.config.image_size) == ((2, 2, 2, 2), (384, 384))
    assert row.config.num_classes == 37 and row.preprocessing == like.preprocessing
    assert (row.licence, row.top1, row.measured_by) == ("Apache-2.0", None, None)


@pytest.mark.parametrize(
    ("name", "is_file", "is_choice"),
    [
        (UPSTREAM, True, False),
        (f"augreg/{ADAPTED}.npz", True, False),
        ("augreg/B_16", False, True),
        ("augreg/B_16--imagenet2012", False, True),
        ("augreg/B_16--imagenet2012-res_384", False, True),
        ("augreg/X_16", False, True),
        ("B_16", False, False),
        ("B_16--imagenet2012", False, False),
        ("org/B_16", False, False),
        ("vit_base_patch16_224.augreg_in21k", False, False),
        ("weights-B_16.npz", False, False),
    ],
)
def test_what_is_a_name_of_augreg(name, is_file, is_choice):
    assert (augreg.is_file_name(name), augreg.is_choice(name)) == (is_file, is_choice)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("augreg/B_16", STRONG),
        ("augreg/B_16--imagenet2012", f"{LIGHT}--imagenet2012-steps_20k-lr_0.01-res_224"),
        ("augreg/B_16--imagenet2012-res_384", f"{LIGHT}--imagenet2012-steps_20k-lr_0.01-res_384"),
        ("augreg/B_16--cifar100", f"{LIGHT}--cifar100-steps_20k-lr_0.01-res_384"),
        ("augreg/S_16", name_of("S_16")),
    ],
)
def test_the_official_choice(index, tmp_path, name, expected):
    assert augreg.choose(name, tmp_path).name == expected
    assert augreg.choose(name, tmp_path, offline=True).name == expected
    assert index.count("GET", "/augreg/index.csv") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("augreg/B_61", "Unknown model of augreg. Received: 'B_61'. Did you mean: B_16"),
        ("augreg/Ti_16", "index.csv lists. Received: 'augreg/Ti_16', and no file"),
        ("augreg/B_16--cifar10", "Unknown dataset of augreg/B_16.*Did you mean: cifar100"),
        ("augreg/B_16--cifar100-res_224", "no file there fits it with a figure"),
        ("augreg/L_16--cifar100", "Unknown dataset of augreg/L_16"),
    ],
)
def test_what_the_index_lacks(index, tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        augreg.choose(name, tmp_path)


def test_offline_without_the_index(tmp_path):
    with pytest.raises(DownloadError, match=r"index\.csv is not in the cache"):
        augreg.choose("augreg/B_16", tmp_path, offline=True)
