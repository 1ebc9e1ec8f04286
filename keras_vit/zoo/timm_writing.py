"""Write a model as timm does: `config.json` and `model.safetensors`, which it loads by itself.

`timm.create_model("local-dir:PATH", pretrained=True)`, or `"hf-hub:org/name"`. What timm builds
follows from the name of one of its architectures and from `model_args`, which replace arguments
of that architecture. What is no plain value (a norm with another epsilon, a gated MLP, a ResNet)
has no place in `model_args`: the architecture must have it.
"""

import math
from pathlib import Path

from keras_vit.checks import Pair
from keras_vit.config import ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo import hf_preprocessing, writing
from keras_vit.zoo.checkpoint import ORIGIN_KEY
from keras_vit.zoo.tensor_files import WEIGHTS_NAME
from keras_vit.zoo.timm_architectures import ONLY_VALUE, architectures, config_fields
from keras_vit.zoo.timm_names import BACKBONE, PATCH_KERNEL, key_table
from keras_vit.zoo.timm_pretrained_cfg import MULTI_LABEL, OWN_KEY, read_preprocessing
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

TIMM_RESIZE = "bicubic_antialias"  # how timm fits positions, unless an architecture says otherwise
GLOBAL_POOL_OF_POOL = {"token": "token", "mean": "avg", "map": "map"}
NORM_LAYER_OF_EPSILON = {1e-6: "layernorm"}  # the only one that is a plain value
POS_EMBED_OF_POSITION_EMBEDDING = {"learned": "learn", "none": "none"}
# Architectures whose MLP is gated: the only ones to say SiLU in capitals.
GATED_ACT_LAYER = "SiLU"
# timm's hybrids with a ResNet-V2, by the units in its stages; its root is 64 wide.
HYBRIDS = {
    (): ("vit_tiny_r_s16_p8_224", "vit_tiny_r_s16_p8_384"),
    (2, 2, 2, 2): (*("vit_small_r26_s32_224", "vit_small_r26_s32_384", "vit_base_r26_s32_224"),),
    (3, 4, 9): ("vit_base_r50_s16_224", "vit_base_r50_s16_384"),
    (3, 4, 6, 3): ("vit_large_r50_s32_224", "vit_large_r50_s32_384"),
}
TOYS = {"test_vit", "test_vit2"}  # of timm's tests: nobody's model is called so
# timm's word for a size.
WIDTHS = {
    192: "tiny",
    384: "small",
    512: "medium",
    768: "base",
    1024: "large",
    1152: "so400m",
    1280: "huge",
    1408: "giant",
    1536: "giant",
    1664: "gigantic",
}


def can_express(config: ModelConfig) -> bool:
    """Whether timm has this model. Rates of dropout and the like are the trainer's, there."""
    return isinstance(config, ViTConfig) and _has_its_parts(config) and bool(_bases(config))


def write(contents: Contents, directory: str | Path) -> None:
    """Write `model.safetensors` and `config.json`.

    Args:
        contents: For its configuration see `can_express`. The rule for other image sizes is kept
            where an architecture of timm's has it, else it becomes timm's own.
        directory: Made where it does not exist; files of these names are replaced.

    Raises:
        ValueError: If timm has no such model.
    """
    config, preprocessing = contents.config, contents.preprocessing
    if not can_express(config):
        raise ValueError(
            "`config` must be a ViT that timm has: epsilon 1e-6, or 1e-5 as in its CLIP; learned "
            "positions or none; one vector pooled, and no layer between it and the head. "
            f"Received: {config}. Use the `native` layout."
        )
    name = _architecture(config, contents.position_resize)
    values = {
        "architecture": name,
        "num_classes": config.num_classes,
        "num_features": config.hidden_dim,
        "global_pool": GLOBAL_POOL_OF_POOL[config.pool],
        "pretrained_cfg": _pretrained_cfg(config, preprocessing, contents.origin.get("licence")),
        "model_args": _model_args(config, architectures()[name]),
    }
    if contents.origin:
        values[ORIGIN_KEY] = contents.origin
    if contents.labels:
        values["label_names"] = list(contents.labels)
    if contents.multi_label:
        values["problem_type"] = MULTI_LABEL  # transformers' word, whose wrapper reads it
    if read_preprocessing(values["pretrained_cfg"], config.num_channels) != preprocessing:
        values[OWN_KEY] = preprocessing.to_dict()
    weights = writing.weights_writer(key_table(config), variable_shapes(config), contents.read_ours)
    contents.write_files(
        directory,
        {WEIGHTS_NAME: weights, "config.json": writing.json_writer(values)},
        removes=(hf_preprocessing.FILE_NAME,),
    )


def _has_its_parts(config: ViTConfig) -> bool:
    """Whether each part of the model is one that timm's classes have."""
    if config.stem_layers is not None and (config.stem_numerics, config.stem_width) != ("timm", 64):
        return False
    if config.distillation_token and (
        config.num_register_tokens
        or config.num_prefix_positions is not None
        or config.position_embedding != "learned"
        or config.final_norm == "pool"
    ):
        return False  # VisionTransformerDistilled knows none of these
    return (
        config.position_embedding in POS_EMBED_OF_POSITION_EMBEDDING
        and config.position_insertion == "input"
        and config.num_prefix_positions in (None, 0)
        and not config.axial
        and not config.merged_tokens_per_block
        and config.pool in GLOBAL_POOL_OF_POOL
        and not (config.pool == "map" and config.gated_mlp)  # timm's pool has a plain MLP
        and config.representation_size is None
        and config.embedding_norm != config.patch_bias
        and config.layer_scale_init != 0.0  # no scale, to timm
    )


def _bases(config: ViTConfig) -> list[str]:
    """Return the architectures that become this model by plain arguments."""
    hybrids = {name for names in HYBRIDS.values() for name in names}
    if config.stem_layers is None:
        names = [name for name in architectures() if name not in hybrids | TOYS]
    else:
        names = HYBRIDS.get(config.stem_layers, ())
    return [name for name in names if _fits(architectures()[name], config)]


def _fits(row: dict, config: ViTConfig) -> bool:
    if not all(row.get(key, value) == value for key, value in ONLY_VALUE.items()):
        return False
    if "rms" in row.get("norm_layer", "").lower():
        return False
    epsilons = {config_fields(row)["layer_norm_epsilon"], *NORM_LAYER_OF_EPSILON}
    return (
        config.layer_norm_epsilon in epsilons
        and row.get("distilled", False) == config.distillation_token
        and (row.get("act_layer") == GATED_ACT_LAYER) == config.gated_mlp
    )


def _architecture(config: ViTConfig, position_resize: str) -> str:
    """Return the name that fits best: few arguments to replace, many words that are true."""
    is_square = config.image_size[0] == config.image_size[1]
    words = {WIDTHS.get(config.hidden_dim), f"patch{config.patch_size[0]}"}
    words |= {str(config.image_size[0])} if is_square else set()

    def unlikeness(name: str) -> int:
        row = architectures()[name]
        keeps_resize = row.get("position_resize", TIMM_RESIZE) == position_resize
        # The rule weighs more than a word, and less than to call a model by a stranger's name.
        return len(_replaced(config, row)) - len(words & set(name.split("_"))) - 2 * keeps_resize

    return min(_bases(config), key=unlikeness)


def _model_args(config: ViTConfig, row: dict) -> dict:
    """Return timm's arguments: all that shapes tell, others where the architecture differs."""

    def plain(pair: Pair) -> int | list[int]:
        return pair[0] if pair[0] == pair[1] else list(pair)

    # A gated MLP of timm's counts both halves.
    mlp_dim = config.mlp_dim * (2 if config.gated_mlp else 1)
    return {
        "img_size": plain(config.image_size),
        "patch_size": plain(config.patch_size),
        "in_chans": config.num_channels,
        "embed_dim": config.hidden_dim,
        "depth": config.num_layers,
        "num_heads": config.num_heads,
        "mlp_ratio": _ratio(mlp_dim, config.hidden_dim),
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "pre_norm": config.embedding_norm,
        "no_embed_class": config.num_prefix_positions == 0,
        "fc_norm": config.final_norm == "pool",
        **_replaced(config, row),
    }


def _replaced(config: ViTConfig, row: dict) -> dict:
    """Return the arguments that no shape tells, where the architecture has others."""
    fields = config_fields(row)
    wanted = {
        "global_pool": ("pool", GLOBAL_POOL_OF_POOL.get(config.pool)),
        "class_token": ("class_token", config.class_token),
        "reg_tokens": ("num_register_tokens", config.num_register_tokens),
        "pos_embed": (
            "position_embedding",
            POS_EMBED_OF_POSITION_EMBEDDING.get(config.position_embedding),
        ),
        "act_layer": ("activation", config.activation),
        "norm_layer": ("layer_norm_epsilon", NORM_LAYER_OF_EPSILON.get(config.layer_norm_epsilon)),
    }
    replaced = {
        argument: value
        for argument, (field, value) in wanted.items()
        if fields[field] != getattr(config, field)
    }
    if row.get("init_values") != config.layer_scale_init:
        replaced["init_values"] = config.layer_scale_init or 0.0  # timm passes over None
    if row.get("final_norm", True) != (config.final_norm != "none"):
        replaced["final_norm"] = config.final_norm != "none"
    return replaced


def _ratio(mlp_dim: int, hidden_dim: int) -> float:
    """Return the number whose product with the width timm cuts to the right integer."""
    ratio = mlp_dim / hidden_dim
    return ratio if int(hidden_dim * ratio) == mlp_dim else math.nextafter(ratio, math.inf)


def _pretrained_cfg(
    config: ViTConfig, preprocessing: PreprocessingConfig, licence: str | None
) -> dict:
    """Return the part about pictures and classes."""
    first_conv = PATCH_KERNEL
    if config.stem_layers is not None:
        first_conv = BACKBONE + ("stem.conv.weight" if config.stem_layers else "conv.weight")
    values = {
        "tag": "keras_vit",
        "custom_load": False,
        "input_size": [config.num_channels, *config.image_size],
        "fixed_input_size": True,
        "interpolation": preprocessing.interpolation,
        "crop_pct": preprocessing.crop_fraction,
        "crop_mode": "squash" if preprocessing.resize == "squash" else "center",
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "num_classes": config.num_classes,
        "pool_size": None,
        "first_conv": first_conv.removesuffix(".weight"),
        "classifier": ["head", "head_dist"] if config.distillation_token else "head",
    }
    return values | ({"license": licence.lower()} if licence else {})
