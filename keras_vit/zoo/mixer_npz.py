"""Google's `.npz` files of MLP-Mixer (imagenet1k, imagenet21k, SAM, GSAM), Flax names."""

from keras_vit.config import MixerConfig
from keras_vit.zoo.checkpoint import Checkpoint, source_config, square_image_size
from keras_vit.zoo.flax_layout import NUMERICS, FlaxLayout, dense, norm
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import TensorFile

NAME = "mixer_npz"
BLOCK = r"MixerBlock_(\d{1,3})/"


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether the names are those of Google's Flax Mixer."""
    return FlaxLayout(tensors).has("MixerBlock_")


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand a Mixer; its token MLP is made for one number of patches.

    Args:
        tensors: The open file.
        config_json: Not used; these files have none.
        overrides: `MixerConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If a size cannot be inferred.
        MissingWeightsError: If a tensor is missing that a size is inferred from.
    """
    layout = FlaxLayout(tensors)
    *patch_size, num_channels, hidden_dim = layout.need("stem/kernel", rank=4)
    image_size = overrides.get("source_image_size")
    if image_size is None:
        patches = _outputs(layout, "token_mixing/Dense_1")
        image_size = square_image_size(layout.tensors.path, patches, patch_size)
    fields = {
        "num_layers": layout.count(BLOCK),
        "hidden_dim": hidden_dim,
        "tokens_mlp_dim": _outputs(layout, "token_mixing/Dense_0"),
        "channels_mlp_dim": _outputs(layout, "channel_mixing/Dense_0"),
        "patch_size": tuple(patch_size),
        "image_size": image_size,
        "num_channels": num_channels,
        "num_classes": layout.num_classes(),
        **NUMERICS,
    }
    config = source_config(fields, overrides, MixerConfig)
    return layout.checkpoint(NAME, config, _rules(config))


def _outputs(layout: FlaxLayout, name: str) -> int:
    """Return the width of a block's Dense, from its kernel or its bias."""
    first = f"MixerBlock_0/{name}/kernel"
    return layout.find_or_need(rf"{BLOCK}{name}/(kernel|bias)", first, rank=2)[-1]


def _rules(config: MixerConfig) -> list[Rule]:
    """Return the key table, in the file's names without prefix."""
    block = "MixerBlock_{i}"
    rules = [
        *dense("patch_embedding/projection", "stem"),
        *norm("block_{i}/norm1", f"{block}/LayerNorm_0"),
        *dense("block_{i}/token_mixing/fc1", f"{block}/token_mixing/Dense_0"),
        *dense("block_{i}/token_mixing/fc2", f"{block}/token_mixing/Dense_1"),
        *norm("block_{i}/norm2", f"{block}/LayerNorm_1"),
        *dense("block_{i}/channel_mixing/fc1", f"{block}/channel_mixing/Dense_0"),
        *dense("block_{i}/channel_mixing/fc2", f"{block}/channel_mixing/Dense_1"),
        *norm("encoder_norm", "pre_head_layer_norm"),
    ]
    return rules + dense("head", "head") if config.num_classes else rules
