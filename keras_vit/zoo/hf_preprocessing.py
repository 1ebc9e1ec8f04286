"""transformers' `preprocessor_config.json`, to and from our `PreprocessingConfig`.

Missing keys mean the defaults of the image processor's class. transformers resizes as PIL does,
with antialiasing.
"""

import math
import re
import warnings

from keras_vit.checks import Pair, as_pair, is_real
from keras_vit.config import PreprocessingConfig

FILE_NAME = "preprocessor_config.json"
INTERPOLATION_OF_PIL = {0: "nearest", 2: "bilinear", 3: "bicubic"}
PIL_OF_INTERPOLATION = {name: number for number, name in INTERPOLATION_OF_PIL.items()}
# transformers keeps keys that it does not know; ours holds what its own cannot say (sampling
# without antialiasing, the exact fraction of a crop).
OWN_KEY = "keras_vit"

_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_CROP = {"do_center_crop": True, "crop_size": 224}
_CLIP = {
    "resample": 3,
    "size": {"shortest_edge": 224},
    **_CROP,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
# The defaults of transformers' classes; the sizes of ViT's and SigLIP's are the model's.
PROCESSORS = {
    "ViT": {"resample": 2, **_HALF},
    "DeiT": {"resample": 3, "size": 256, **_CROP, **_HALF},
    "CLIP": _CLIP,
    "Bit": _CLIP,
    "Siglip": {"resample": 3, **_HALF},
}
# Of these a size that is one number is that of the shorter side; else, of both.
SHORTER_SIDE = ("CLIP", "Bit", "Siglip")
VIT = {"image_processor_type": "ViTImageProcessor"}
# What an image processor of a class that is not in the table must say for itself. Beside that it
# has the defaults of transformers' base class: a size of one number is both sides, nothing is cut.
REQUIRED = ("size", "resample", "image_mean", "image_std")
# The steps that we have or that change no pixel. Other classes have more: `do_pad`, `do_grayscale`.
STEPS = {
    *("do_resize", "do_center_crop", "do_rescale", "do_normalize"),
    *("do_convert_rgb", "do_reduce_labels"),
}
# Keys that are no steps, and change pixels where they are set.
LACKED = {
    *("crop_pct", "offset", "rescale_offset", "include_top", "pad_size", "size_divisor"),
    *("keep_aspect_ratio", "ensure_multiple_of", "crop_to_patches"),
}


def read_preprocessing(
    values: dict | None, image_size: Pair, num_channels: int, published: dict = VIT
) -> PreprocessingConfig:
    """Return the preprocessing that a `preprocessor_config.json` asks for.

    Args:
        values: Its contents, or None where there is no such file.
        image_size: Of the model; a file for another size gives a warning.
        num_channels: Of the model.
        published: What models of this family have: instead of a missing file, and its
            `image_processor_type` for a file that names none.

    Raises:
        ValueError: If it asks for a class, step, filter or size that we do not know.
    """
    # Null is what a missing key is.
    said = published if values is None else {k: v for k, v in values.items() if v is not None}
    if OWN_KEY in said:
        return _own(said[OWN_KEY]).for_channels(num_channels)
    processor = _processor(said, _processor(published))
    values = PROCESSORS.get(processor, {}) | said
    _check_steps(values)
    number = values["resample"]
    if not is_real(number) or number not in INTERPOLATION_OF_PIL:
        raise ValueError(
            f"`resample` of {FILE_NAME} must be PIL's number of a filter that we have: "
            f"{INTERPOLATION_OF_PIL}. Received: resample={number!r}."
        )
    mean, std = _normalization(values)
    resize, crop_fraction, output_size = _resize(values, image_size, processor in SHORTER_SIDE)
    is_said = said is not published and {"size", "crop_size"} & said.keys()
    if is_said and output_size != image_size:
        warnings.warn(
            f"{FILE_NAME} prepares pictures of {output_size}, the model takes {image_size}: "
            "they are resized to the model's size.",
            stacklevel=2,
        )
    return PreprocessingConfig(
        mean=mean,
        std=std,
        interpolation=INTERPOLATION_OF_PIL[number],
        antialias=True,
        resize=resize,
        crop_fraction=crop_fraction,
    ).for_channels(num_channels)


def write_preprocessing(preprocessing: PreprocessingConfig, image_size: Pair) -> dict:
    """Return the `preprocessor_config.json` that says the same, as near as transformers can."""
    height, width = image_size
    values = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": PIL_OF_INTERPOLATION[preprocessing.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }
    resized = [math.floor(side / preprocessing.crop_fraction) for side in image_size]
    if preprocessing.resize == "crop" or preprocessing.crop_fraction < 1.0:
        values |= {
            # The ViT classes know no shortest edge and no crop; DeiT's squashes, then crops.
            "image_processor_type": "DeiTImageProcessor",
            "size": {"height": resized[0], "width": resized[1]},
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
        }
    if preprocessing.resize == "crop":
        values |= {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": min(resized)},
            "do_convert_rgb": len(preprocessing.mean) == 3,
        }
    return values | {OWN_KEY: preprocessing.to_dict()}


def _own(values: dict) -> PreprocessingConfig:
    if not isinstance(values, dict):
        raise ValueError(
            f"`{OWN_KEY}` of {FILE_NAME} must be an object with the fields of PreprocessingConfig. "
            f"Received: {values!r}. Remove it to read transformers' own keys."
        )
    return PreprocessingConfig(**values)


def _processor(values: dict, default: str | None = None) -> str | None:
    """Return the kind of image processor, whatever its backend and age.

    Args:
        values: Of the file.
        default: The kind where the file names none.

    Returns:
        Its key in `PROCESSORS`, or None for another class whose file says all that matters.
    """
    name = values.get("image_processor_type") or values.get("feature_extractor_type")
    if name is None:
        return default
    kind = re.fullmatch(r"(.+?)(?:ImageProcessor(?:Fast|Pil)?|FeatureExtractor)", name)
    if kind and kind[1] in PROCESSORS:
        return kind[1]
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise ValueError(
            f"{FILE_NAME} must say {', '.join(REQUIRED)} for an image processor whose defaults "
            f"keras_vit does not know. Received: {name!r}, without {', '.join(missing)}. "
            f"Write what this class does into {FILE_NAME}."
        )
    return None


def _check_steps(values: dict) -> None:
    """Raise for a step that we lack, or that we always take."""
    lacked = [
        key for key, value in values.items() if value and (key in LACKED or _is_other_step(key))
    ]
    if not values.get("do_resize", True):
        lacked.append("do_resize")
    if lacked:
        received = ", ".join(f"{key}={values[key]!r}" for key in lacked)
        raise ValueError(
            f"{FILE_NAME} must describe resizing, cropping, rescaling and normalization: keras_vit "
            f"has no more, and always resizes. Received: {received}. Write into {FILE_NAME} what "
            "these pictures need without it, and prepare them in your own way."
        )


def _is_other_step(key: str) -> bool:
    return key.startswith("do_") and key not in STEPS


def _normalization(values: dict) -> tuple[list[float], list[float]]:
    """Return mean and deviation in units of 0..1, whatever the file scales pixels by first."""
    mean, std = values["image_mean"], values["image_std"]
    if not all(map(is_real, (*mean, *std))):
        raise ValueError(
            f"`image_mean` and `image_std` of {FILE_NAME} must be lists of numbers. "
            f"Received: image_mean={mean!r}, image_std={std!r}."
        )
    if not values.get("do_normalize", True):
        mean, std = [0.0] * len(mean), [1.0] * len(std)
    factor = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
    if not is_real(factor) or not factor > 0:
        raise ValueError(
            f"`rescale_factor` of {FILE_NAME} must be a positive number, mostly 1/255. "
            f"Received: rescale_factor={factor!r}."
        )
    # (x * factor - mean) / std  =  (x / 255 - mean / scale) / (std / scale)
    scale = factor * 255
    if math.isclose(scale, 1.0, rel_tol=1e-6):
        return mean, std
    return [value / scale for value in mean], [value / scale for value in std]


def _resize(values: dict, image_size: Pair, is_shorter: bool) -> tuple[str, float, Pair]:
    """Return the resize mode, the crop fraction and the size that comes out.

    Args:
        values: Of the file, defaults included.
        image_size: Of the model.
        is_shorter: Whether a `size` of one number is that of the shorter side.
    """
    size = values.get("size", image_size)
    if is_shorter and isinstance(size, int):
        size = {"shortest_edge": size}
    shorter, size = _size(size, "size")
    mode = "squash" if shorter is None else "crop"
    if not values.get("do_center_crop", False):
        return mode, 1.0, size
    _, crop = _size(values.get("crop_size", image_size), "crop_size")
    return mode, min(crop) / min(size), crop


def _size(value: int | dict | Pair, name: str) -> tuple[int | None, Pair]:
    """Return the shortest edge, if `value` says only that, and the size as (height, width)."""
    if isinstance(value, dict):
        if "shortest_edge" in value:
            return value["shortest_edge"], as_pair(value["shortest_edge"], name)
        if not {"height", "width"} <= value.keys():
            raise ValueError(
                f"`{name}` of {FILE_NAME} must be a number, a height and a width, or a "
                f"shortest_edge. Received: {name}={value!r}."
            )
        value = (value["height"], value["width"])
    return None, as_pair(value, name)
