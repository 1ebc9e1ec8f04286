"""transformers' `preprocessor_config.json`, to and from our `PreprocessingConfig`.

Missing keys mean the defaults of `ViTImageProcessor`: bilinear, squashed to the model's size,
divided by 255, mean and deviation 0.5. transformers resizes as PIL does, with antialiasing.
"""

import math
import warnings

from keras_vit.checks import Pair, as_pair
from keras_vit.config import PreprocessingConfig

FILE_NAME = "preprocessor_config.json"
INTERPOLATION_OF_PIL = {0: "nearest", 2: "bilinear", 3: "bicubic"}
PIL_OF_INTERPOLATION = {name: number for number, name in INTERPOLATION_OF_PIL.items()}
# transformers keeps keys that it does not know; ours holds what its own cannot say (sampling
# without antialiasing, the exact fraction of a crop).
OWN_KEY = "keras_vit"


def read_preprocessing(
    values: dict | None, image_size: Pair, num_channels: int
) -> PreprocessingConfig:
    """Return the preprocessing that a `preprocessor_config.json` asks for.

    Args:
        values: Its contents, or None where there is no such file.
        image_size: Of the model; a file for another size gives a warning.
        num_channels: Of the model.

    Raises:
        ValueError: If it asks for a filter or a size that we do not know.
    """
    values = values or {}
    if OWN_KEY in values:
        return PreprocessingConfig(**values[OWN_KEY]).for_channels(num_channels)
    number = values.get("resample", 2)
    if number not in INTERPOLATION_OF_PIL:
        raise ValueError(
            f"`resample` of {FILE_NAME} must be PIL's number of a filter that we have: "
            f"{INTERPOLATION_OF_PIL}. Received: resample={number!r}."
        )
    mean, std = _normalization(values)
    resize, crop_fraction, output_size = _resize(values, image_size)
    if output_size != image_size:
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


def _normalization(values: dict) -> tuple[list[float], list[float]]:
    """Return mean and deviation in units of 0..1, whatever the file scales pixels by first."""
    mean, std = values.get("image_mean", [0.5] * 3), values.get("image_std", [0.5] * 3)
    if not values.get("do_normalize", True):
        mean, std = [0.0] * len(mean), [1.0] * len(std)
    factor = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
    # (x * factor - mean) / std  =  (x / 255 - mean / scale) / (std / scale)
    scale = factor * 255
    if math.isclose(scale, 1.0, rel_tol=1e-6):
        return mean, std
    return [value / scale for value in mean], [value / scale for value in std]


def _resize(values: dict, image_size: Pair) -> tuple[str, float, Pair]:
    """Return the resize mode, the crop fraction and the size that comes out."""
    shorter, size = _size(values.get("size", image_size), "size")
    if not values.get("do_center_crop", False):
        return ("squash", 1.0, size) if shorter is None else ("crop", 1.0, size)
    _, crop = _size(values.get("crop_size", image_size), "crop_size")
    mode = "squash" if shorter is None else "crop"
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
