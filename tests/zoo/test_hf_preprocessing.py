"""FAULTS D1: the file's own mean, deviation, filter and size rule."""

import warnings

import numpy as np
import pytest

from keras_vit.config import PreprocessingConfig
from keras_vit.zoo.hf_families import CLIP, DEIT, DINOV2, SIGLIP, VIT
from keras_vit.zoo.hf_preprocessing import OWN_KEY, read_preprocessing, write_preprocessing

VIT_DEFAULT = PreprocessingConfig(antialias=True)


def read(values, image_size=(224, 224), num_channels=3):
    return read_preprocessing(values, image_size, num_channels)


def test_absent_keys_mean_the_class_defaults():
    assert read(None) == VIT_DEFAULT
    assert read({}) == VIT_DEFAULT
    google = {
        "do_normalize": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "size": 224,
    }
    assert read(google) == VIT_DEFAULT
    assert read({"size": {"height": 224, "width": 224}, "rescale_factor": 1 / 255}) == VIT_DEFAULT


CLIP_STATISTICS = dict(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
)
IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
BICUBIC = dict(interpolation="bicubic", antialias=True)
DEIT_DEFAULT = PreprocessingConfig(**BICUBIC, crop_fraction=0.875)
CLIP_DEFAULT = PreprocessingConfig(**BICUBIC, **CLIP_STATISTICS, resize="crop")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ViTImageProcessor", VIT_DEFAULT),
        ("ViTImageProcessorFast", VIT_DEFAULT),
        ("ViTFeatureExtractor", VIT_DEFAULT),
        ("DeiTImageProcessor", DEIT_DEFAULT),
        ("DeiTFeatureExtractor", DEIT_DEFAULT),
        ("SiglipImageProcessor", PreprocessingConfig(**BICUBIC)),
        ("CLIPImageProcessorPil", CLIP_DEFAULT),
        ("BitImageProcessor", CLIP_DEFAULT),
    ],
)
def test_absent_keys_mean_the_defaults_of_the_class_that_is_named(name, expected):
    for key in ("image_processor_type", "feature_extractor_type"):
        assert read({key: name}) == expected
        assert read({key: name}, image_size=(384, 384)) == expected  # no size is said: no warning


def test_one_number_is_the_shorter_side_or_both():
    """openai/clip-vit-base-patch32 says `size: 224`, as google/vit-base-patch16-224 does."""
    values = {"size": 224, "crop_size": 224, "do_center_crop": True, "resample": 3}
    clip = read(values | {"feature_extractor_type": "CLIPFeatureExtractor"})
    assert (clip.resize, clip.crop_fraction) == ("crop", 1.0)
    vit = read(values | {"feature_extractor_type": "ViTFeatureExtractor"})
    assert (vit.resize, vit.crop_fraction) == ("squash", 1.0)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (VIT, VIT_DEFAULT),
        (DEIT, DEIT_DEFAULT),
        (
            DINOV2,
            PreprocessingConfig(**BICUBIC, **IMAGENET, resize="crop", crop_fraction=0.875),
        ),
        (SIGLIP, PreprocessingConfig(**BICUBIC)),
        (CLIP, CLIP_DEFAULT),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
@pytest.mark.parametrize("side", [224, 518])
def test_no_file_means_what_the_family_was_published_with(family, expected, side):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_preprocessing(None, (side, side), 3, family.preprocessing) == expected


def test_a_file_without_a_type_is_of_the_familys():
    """The class that transformers looks up by `model_type`, with its own defaults."""
    published = DINOV2.preprocessing
    assert read_preprocessing({}, (224, 224), 3, published) == CLIP_DEFAULT
    assert read_preprocessing({}, (224, 224), 3, SIGLIP.preprocessing).interpolation == "bicubic"


@pytest.mark.parametrize(("number", "name"), [(0, "nearest"), (2, "bilinear"), (3, "bicubic")])
def test_filters(number, name):
    assert read({"resample": number}).interpolation == name


def test_errors():
    with pytest.raises(ValueError, match="`resample`.*Received: resample=1"):
        read({"resample": 1})
    with pytest.raises(ValueError, match="`size`.*longest_edge"):
        read({"size": {"longest_edge": 224}})
    with pytest.raises(ValueError, match="must be lists of numbers.*image_mean=.'x'."):
        read({"image_mean": ["x"]})


ALL_SAID = {"size": 224, "resample": 3, "image_mean": [0.4] * 3, "image_std": [0.2] * 3}


@pytest.mark.parametrize("name", ["BlipImageProcessor", "ConvNextFeatureExtractor", "Other"])
@pytest.mark.parametrize("family", [VIT, CLIP], ids=lambda family: family.model_type)
def test_another_class_must_say_all(name, family):
    """Its defaults are not the family's: CLIP's would cut."""
    values = ALL_SAID | {"image_processor_type": name}
    expected = PreprocessingConfig(mean=(0.4,) * 3, std=(0.2,) * 3, **BICUBIC)
    assert read_preprocessing(values, (224, 224), 3, family.preprocessing) == expected
    for key in ALL_SAID:
        said = {other: value for other, value in values.items() if other != key}
        for lacking in (said, said | {key: None}):
            with pytest.raises(ValueError, match=f"Received: '{name}', without {key}. Write"):
                read_preprocessing(lacking, (224, 224), 3, family.preprocessing)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("do_flip_channel_order", True),
        ("do_pad", True),
        ("do_grayscale", True),
        ("rescale_offset", True),
        ("offset", True),
        ("crop_pct", 0.875),
        ("size_divisor", 32),
        ("do_resize", False),
    ],
)
@pytest.mark.parametrize("name", ["ViTImageProcessor", "ConvNextImageProcessor", None])
def test_what_we_lack_is_refused(name, key, value):
    with pytest.raises(ValueError, match=f"Received: {key}={value}. Write into preprocessor_con"):
        read(ALL_SAID | {"image_processor_type": name, key: value})


def test_keys_that_change_no_pixel():
    """What files of transformers' classes hold besides, new and old ones."""
    harmless = dict(
        do_convert_rgb=True,
        do_reduce_labels=True,
        data_format="channels_first",
        input_data_format=None,
        return_tensors=None,
        device="cpu",
        disable_grouping=None,
        default_to_square=True,
        image_seq_length=256,
        processor_class="CLIPProcessor",
        do_pad=False,
        pad_size=None,
        crop_pct=None,
        rescale_offset=False,
        keras_vit=None,
        crop_size=None,
        do_center_crop=None,
        size=None,
        _valid_processor_keys=["images", "do_resize"],
    )
    assert read(harmless) == VIT_DEFAULT


def test_wrong_types_name_their_key():
    for values, named in (
        ({"rescale_factor": 0}, "`rescale_factor` of pre.*Received: rescale_factor=0"),
        ({"rescale_factor": "x"}, "`rescale_factor` of pre.*Received: rescale_factor='x'"),
        ({"resample": [2]}, r"`resample` of pre.*Received: resample=\[2\]"),
        ({"keras_vit": [1]}, r"`keras_vit` of pre.*Received: \[1\]"),
    ):
        with pytest.raises(ValueError, match=named):
            read(values)


@pytest.mark.parametrize("crop_size", [224, {"height": 224, "width": 224}])
@pytest.mark.parametrize("size", [{"shortest_edge": 256}, {"height": 256, "width": 256}, 256])
def test_crop(size, crop_size):
    values = {"size": size, "do_center_crop": True, "crop_size": crop_size}
    understood = read(values)
    mode = "crop" if "shortest_edge" in str(size) else "squash"  # DeiT's makes a square first
    assert (understood.resize, understood.crop_fraction) == (mode, 0.875)
    assert read(values | {"do_center_crop": False, "size": 224}).resize == "squash"
    assert read({"size": {"shortest_edge": 224}}).resize == "crop"


@pytest.mark.parametrize(
    "values",
    [
        {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
        {"do_normalize": False},
        {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3},
        {"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [127.5] * 3},
        {"do_rescale": False, "do_normalize": False},
    ],
)
def test_normalization_gives_the_same_numbers(values):
    pixels = np.array([[0.0, 100.0, 255.0]])
    factor = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
    expected = pixels * factor
    if values.get("do_normalize", True):
        expected = (expected - np.array(values["image_mean"])) / np.array(values["image_std"])
    understood = read(values)
    ours = (pixels / 255 - np.array(understood.mean)) / np.array(understood.std)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_channels_of_the_model():
    assert read({"image_mean": [0.1, 0.2, 0.3]}, num_channels=1).mean == pytest.approx((0.2,))


def test_another_size_than_the_model_warns():
    with pytest.warns(UserWarning, match=r"\(224, 224\).*\(384, 384\)"):
        read({"size": 224}, image_size=(384, 384))


@pytest.mark.parametrize(
    "preprocessing",
    [
        PreprocessingConfig(),  # antialias=False: what transformers cannot say
        PreprocessingConfig(resize="crop", crop_fraction=0.9, interpolation="bicubic"),
        PreprocessingConfig(mean=(0.3,), std=(0.7,), interpolation="nearest"),
    ],
)
def test_round_trip(preprocessing):
    values = write_preprocessing(preprocessing, (32, 48))
    assert read(values, (32, 48), len(preprocessing.mean)) == preprocessing


def test_transformers_reads_the_nearest_it_has():
    preprocessing = PreprocessingConfig(
        antialias=True, resize="crop", crop_fraction=0.875, interpolation="bicubic"
    )
    values = write_preprocessing(preprocessing, (224, 224))
    del values[OWN_KEY]
    assert values["size"] == {"shortest_edge": 256}
    assert read(values) == preprocessing
