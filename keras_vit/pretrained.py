"""From a checkpoint anywhere to a Keras model."""

import dataclasses
import logging
import os
from typing import Any

import numpy as np

from keras_vit import assets, resample
from keras_vit.checks import Pair
from keras_vit.config import ModelConfig, ViTConfig
from keras_vit.image_model import ImageModel
from keras_vit.layers.initializers import Donated, ReadWeights
from keras_vit.mixer import Mixer
from keras_vit.model import ViT
from keras_vit.zoo import WeightFileError, read_checkpoint
from keras_vit.zoo.checkpoint import Checkpoint
from keras_vit.zoo.download import Fetched, fetch, forget

_LOGGER = logging.getLogger("keras_vit")
MODELS = {model.config_class: model for model in (ViT, Mixer)}
# Kernels that read pixels, in models without and with a ResNet stem.
_PIXEL_KERNELS = ("patch_embedding/projection/kernel", "resnet_stem/root/kernel")


def from_pretrained(
    source: str | os.PathLike,
    num_classes: int | None = None,
    reset_head: bool = False,
    image_size: int | Pair | None = None,
    num_channels: int | None = None,
    include_normalization: bool = True,
    drop_path_rate: float = 0.0,
    dropout_rate: float = 0.0,
    attention_dropout_rate: float = 0.0,
    patch_drop_rate: float = 0.0,
    dtype: Any = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike | None = None,
    local_files_only: bool = False,
    strict: bool = True,
    source_image_size: int | Pair | None = None,
    representation_size: int | None = None,
    patch_size: int | Pair | None = None,
    **config_fields,
) -> ImageModel:
    """Return a model with the weights of a checkpoint.

    Sizes, epsilons, activation, labels and preprocessing come from the source. Positions are
    resized to another `image_size` by the source's own rule; a patch kernel for other channels
    is summed (one channel) or tiled and rescaled (timm's rule).

    Args:
        source: An id of `keras_vit.list_models()`, a Hugging Face Hub id with an optional
            `@revision`, `hf://...`, an `https://` or `gs://` URL, a file, a directory, or
            `"bundled"`: the small model that the package carries (28 x 28 pixels, one channel).
        num_classes: None gives what the source gives: its logits, or, of a source without a
            head, its pooled output. 0 gives the pooled features before any tanh layer. k gives
            k logits: the source's head if it has k, else a new one of zeros.
        reset_head: A new head even if the source's has as many classes.
        image_size: Input side in pixels, an integer or `(height, width)`. None: the source's.
        num_channels: Channels of the input. None: the source's.
        include_normalization: False leaves mean and standard deviation to the caller.
        drop_path_rate: Stochastic depth of the last block, for fine-tuning.
        dropout_rate: After positions and dense layers, for fine-tuning.
        attention_dropout_rate: On attention weights, for fine-tuning.
        patch_drop_rate: Part of the patches that training leaves out, for cheaper fine-tuning.
        dtype: Policy of all layers, as in Keras.
        revision: Branch, tag or commit of a Hub repository.
        token: Hub access token.
        cache_dir: Where downloads are kept.
        local_files_only: Touch no network.
        strict: False keeps initial values for tensors that the source lacks and passes over
            those that the model has no use for.
        source_image_size: Image size of the source, where its file does not say it.
        representation_size: Keep the source's tanh layer of this width under a new head. By
            default it goes with the old head, as in the official fine-tuning code.
        patch_size: Side of a patch in pixels, an integer or `(height, width)`. None: the
            source's, or of a FlexiViT the zoo's. The patch kernel is resized as FlexiViT does.
        **config_fields: Fields of `ViTConfig` (`MixerConfig` of an MLP-Mixer) that the source
            does not say, such as `num_heads=` for a bare file, or says wrongly, or that are the
            caller's, such as `remat=True`, or `merged_tokens_per_block=8` for a faster model.

    Returns:
        A `keras_vit.ViT` or `keras_vit.Mixer`, an ordinary Keras model.

    Raises:
        ValueError: If the source is unknown, is no model that this version builds, or does not
            hold the tensors of its architecture; or if an argument does not fit it.
        OSError: If the source cannot be had.

    Example:

    ```python
    model = keras_vit.from_pretrained("google/vit-base-patch16-224", num_classes=10)
    ```
    """
    if source == "bundled":
        source = assets.checkpoint()
    fetched = fetch(source, revision, token, cache_dir, local_files_only)
    if source_image_size is not None:
        config_fields["source_image_size"] = source_image_size
    checkpoint, sizes = _read(fetched, config_fields, image_size=image_size, patch_size=patch_size)
    missing = checkpoint.check(strict)
    stored = checkpoint.config
    keeps_head = _keeps_head(stored, num_classes, reset_head, source)
    config = _model_config(
        stored,
        num_classes=num_classes,
        **sizes,
        num_channels=num_channels,
        drop_path_rate=drop_path_rate,
        dropout_rate=dropout_rate,
        attention_dropout_rate=attention_dropout_rate,
        patch_drop_rate=patch_drop_rate,
        representation_size=representation_size,
        keeps_tanh=keeps_head and num_classes != 0,
    )
    model = MODELS[type(config)](
        config,
        checkpoint.preprocessing,
        labels=checkpoint.labels if keeps_head else None,
        multi_label=checkpoint.multi_label and keeps_head,
        include_normalization=include_normalization,
        origin=_origin(fetched, checkpoint),
        read_weights=_weights_for(config, checkpoint, keeps_head),
        dtype=dtype,
    )
    _tell(config, checkpoint, keeps_head, missing)
    return model


def _keeps_head(
    stored: ModelConfig, num_classes: int | None, reset_head: bool, source: Any
) -> bool:
    """Whether the model has the source's own head, or none as the source."""
    keeps_head = not reset_head and num_classes in (None, stored.num_classes)
    if not keeps_head and num_classes is None and not stored.num_classes:
        raise ValueError(
            "`num_classes` must be given with `reset_head=True` for a source without a head. "
            f"Received: source={str(source)!r}, num_classes=None."
        )
    return keeps_head


def _origin(fetched: Fetched, checkpoint: Checkpoint) -> dict[str, str | None]:
    """Where the weights come from: the address, or of local files what they say of it."""
    origin = {**fetched.origin, "position_resize": checkpoint.position_resize}
    if fetched.path.resolve() == assets.checkpoint().resolve():
        return origin | {"source": "bundled", "licence": "MIT"}
    if "://" in origin["source"]:
        return origin | {"licence": origin["licence"] or checkpoint.origin.get("licence")}
    return origin | checkpoint.origin


def _read(fetched: Fetched, fields: dict, **sizes: Any) -> tuple[Checkpoint, dict]:
    """The checkpoint, and the sizes wanted of the model; the caller's win over the zoo's."""
    row = fetched.row
    if row is not None and row.config_overrides:
        fields = row.reader_fields | fields
        sizes = {
            name: getattr(row.config, name) if size is None else size
            for name, size in sizes.items()
        }
    try:
        checkpoint = read_checkpoint(fetched.path, fields)
    except WeightFileError:
        forget(fetched)
        raise
    if row is not None and row.position_resize:
        checkpoint = dataclasses.replace(checkpoint, position_resize=row.position_resize)
    return checkpoint, sizes


def _model_config(stored: ModelConfig, keeps_tanh: bool, **wanted: Any) -> ModelConfig:
    """The source's configuration with what the caller wants otherwise; None is as the source."""
    representation_size = wanted.pop("representation_size")
    if isinstance(stored, ViTConfig):
        if representation_size not in (None, stored.representation_size):
            raise ValueError(
                "`representation_size` must be None, or the width of the source's tanh layer to "
                f"keep it. Received: representation_size={representation_size}, the source has "
                f"{stored.representation_size}."
            )
        if keeps_tanh:
            representation_size = stored.representation_size
        changes = {name: value for name, value in wanted.items() if value is not None}
        return dataclasses.replace(stored, **changes, representation_size=representation_size)
    rates = wanted.pop("attention_dropout_rate"), wanted.pop("patch_drop_rate")
    if any(rates) or representation_size:
        raise ValueError(
            "An MLP-Mixer has no attention, no tanh layer and needs each patch. Leave out "
            "`attention_dropout_rate`, `patch_drop_rate` and `representation_size`. "
            f"Received: attention_dropout_rate={rates[0]}, patch_drop_rate={rates[1]}, "
            f"representation_size={representation_size}."
        )
    config = dataclasses.replace(
        stored, **{name: value for name, value in wanted.items() if value is not None}
    )
    if config.image_size != stored.image_size:
        raise ValueError(
            "`image_size` must be the source's: the token MLPs of an MLP-Mixer know each patch. "
            f"Received: image_size={config.image_size}, the source has {stored.image_size}."
        )
    return config


def _weights_for(config: ModelConfig, checkpoint: Checkpoint, keeps_head: bool) -> ReadWeights:
    """The function that gives each variable of a model of `config` its first value."""
    stored = checkpoint.config
    pixel_kernel = _PIXEL_KERNELS[stored.stem_stride > 1]

    def read(path: str, shape: tuple[int, ...]) -> Donated | None:
        if path.startswith("head/") and not keeps_head:
            return None
        value = checkpoint.weight(path)
        if value is None:  # missing, with strict=False
            return None
        if not np.isfinite(value).all():
            raise ValueError(
                f"{checkpoint.tensors.path} holds NaN or infinite numbers in {path}. "
                "The file is damaged, or its training diverged: take another."
            )
        value = resample.fit_positions(path, value, stored, config, checkpoint.position_resize)
        if path == _PIXEL_KERNELS[0]:
            value = resample.resize_patch_kernel(value, config.patch_size)
        if path == pixel_kernel:
            value = resample.adapt_patch_kernel(value, config.num_channels)
        if value.shape != shape:
            raise ValueError(
                f"{checkpoint.tensors.path} does not fit the model: {path} must have the shape "
                f"{shape}. Received: {value.shape}. Check the arguments that name sizes."
            )
        return Donated(value)

    return read


def _tell(
    config: ModelConfig, checkpoint: Checkpoint, keeps_head: bool, missing: list[str]
) -> None:
    """Say once what is not as in the source."""
    if missing:
        _LOGGER.warning(
            "%d tensors are missing and keep their initial values: %s.",
            len(missing),
            ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else ""),
        )
    stored = checkpoint.config
    if config.num_classes and not keeps_head:
        _LOGGER.warning(
            "The head is new, all zeros, for %d classes; the source has %d. Train before you "
            "predict.",
            config.num_classes,
            stored.num_classes,
        )
    if config.grid != stored.grid:
        _LOGGER.warning(
            "Position embeddings resized from %dx%d to %dx%d patches (%s).",
            *stored.grid,
            *config.grid,
            checkpoint.position_resize,
        )
