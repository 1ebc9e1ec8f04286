"""timm's `pretrained_cfg`: the part of its `config.json` about pictures and classes."""

from keras_vit.checks import as_labels
from keras_vit.config import PreprocessingConfig

# Keys of ours beside it: timm passes over them. The first holds what timm's own cannot say
# (sampling without antialiasing); the second is transformers' for sigmoid classifiers.
OWN_KEY = "keras_vit"
MULTI_LABEL = "multi_label_classification"
# What timm takes for fields of `pretrained_cfg` that are not there.
PRETRAINED_DEFAULTS = {
    "input_size": (3, 224, 224),
    "num_classes": 0,
    "interpolation": "bicubic",
    "crop_pct": 0.875,
    "crop_mode": "center",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
# Without any config.json: those of most of timm's ViTs, and the size that the positions tell.
BARE_DEFAULTS = PRETRAINED_DEFAULTS | {
    "input_size": (),
    "crop_pct": 0.9,
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
}


def read_pretrained_cfg(config_json: dict | None) -> dict:
    """Return timm's `pretrained_cfg`, whole, with what stands beside it.

    Args:
        config_json: Of the Hub's layout; or of the older one, which is flat; or None.
    """
    if config_json is None:
        return BARE_DEFAULTS
    values = config_json.get("pretrained_cfg", config_json)
    beside = {
        "num_classes": config_json.get("num_classes"),
        "label_names": config_json.get("label_names") or config_json.get("labels"),
        "label_descriptions": config_json.get("label_descriptions"),
        OWN_KEY: config_json.get(OWN_KEY),
    }
    if config_json.get("architectures") == ["TimmWrapperModel"]:
        beside["num_classes"] = 0  # transformers' headless class, which keeps the number
    return PRETRAINED_DEFAULTS | _without_none(values) | _without_none(beside)


def read_preprocessing(values: dict, num_channels: int) -> PreprocessingConfig:
    """Return how timm prepares pictures.

    Args:
        values: As `read_pretrained_cfg` returns them.
        num_channels: Of the model.

    Raises:
        ValueError: If `crop_mode` or `interpolation` is one that we do not have.
    """
    if OWN_KEY in values:
        return PreprocessingConfig(**values[OWN_KEY]).for_channels(num_channels)
    mode = values["crop_mode"]
    if mode not in ("center", "squash"):
        raise ValueError(
            f"`crop_mode` of config.json must be 'center' or 'squash'. Received: {mode!r}. "
            "Correct config.json, and prepare pictures in your own way."
        )
    return PreprocessingConfig(
        mean=values["mean"],
        std=values["std"],
        interpolation=values["interpolation"],
        antialias=True,  # timm resizes with PIL
        resize="squash" if mode == "squash" else "crop",
        crop_fraction=values["crop_pct"],
    ).for_channels(num_channels)


def read_labels(values: dict, num_classes: int) -> tuple[str, ...] | None:
    """Return the labels, described where `label_descriptions` do, or None.

    Args:
        values: As `read_pretrained_cfg` returns them.
        num_classes: Of the model.

    Raises:
        ValueError: If they are not those of the classes.
    """
    names = values.get("label_names")
    if not names or not num_classes:
        return None
    if isinstance(names, dict):
        # timm allows gaps: such a class keeps its number as its name.
        gaps = {str(number) for number in range(num_classes)}
        if not names.keys() <= gaps:
            raise ValueError(
                f"`label_names` of config.json must name classes 0 to {num_classes - 1}, which are "
                f"the head's. Received: {', '.join(sorted(names.keys() - gaps)[:20])}. "
                "Correct config.json."
            )
        names = [names.get(number, number) for number in sorted(gaps, key=int)]
    if list(names) == [f"LABEL_{number}" for number in range(num_classes)]:
        return None  # what transformers calls classes that nobody named
    described = values.get("label_descriptions") or {}
    return as_labels([described.get(name, name) for name in names], num_classes)


def _without_none(values: dict) -> dict:
    return {key: value for key, value in values.items() if value is not None}
