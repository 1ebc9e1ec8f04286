"""timm's ViT, DeiT and hybrid models: safetensors, mostly beside a `config.json`.

Shapes tell most of the architecture; timm's name of it and `model_args` tell the rest.
"""

import math

from keras_vit.checks import as_pair
from keras_vit.zoo.checkpoint import (
    Checkpoint,
    read_origin,
    source_config,
    square_image_size,
    whole_image_size,
)
from keras_vit.zoo.keymap import rename_theirs
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.timm_architectures import config_fields, read_arguments
from keras_vit.zoo.timm_names import BACKBONE, PATCH_KERNEL, POSITIONS, Layout, key_table
from keras_vit.zoo.timm_pretrained_cfg import (
    MULTI_LABEL,
    read_labels,
    read_preprocessing,
    read_pretrained_cfg,
)

NAME = "timm_safetensors"
WRAPPER_TYPE = "timm_wrapper"  # the `model_type` that transformers adds to timm's config.json


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether the names are timm's, and no `config.json` says that another library wrote it."""
    model_type = (config_json or {}).get("model_type", WRAPPER_TYPE)
    layout = Layout(tensors)
    return (
        model_type == WRAPPER_TYPE
        and layout.has(r"blocks\.\d+\.attn\.qkv\..*")
        and layout.has(r"patch_embed\..*|pos_embed|cls_token")
    )


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand a timm model.

    Args:
        tensors: The open file, or directory.
        config_json: Contents of its `config.json`, in the Hub's layout or the older flat one;
            without it timm's defaults hold for what shapes do not tell.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If `config.json` asks for what we do not have, or a size is nowhere said.
        MissingWeightsError: If a tensor is missing that a size is inferred from.
    """
    layout = Layout(tensors)
    if "architecture" not in (config_json or {}):
        config_json = None  # it is not timm's
    arguments = read_arguments(config_json, overrides) if config_json else {}
    values = read_pretrained_cfg(config_json)
    fields = config_fields(arguments) | _infer_sizes(layout) | _infer_parts(layout, arguments)
    if config_json is None:
        fields |= _infer_choices(layout, fields, overrides)
    if not layout.has(r"head(_dist)?\..*"):
        fields["num_classes"] = values["num_classes"]
    if "num_heads" not in fields | overrides:
        raise ValueError(
            f"`num_heads` must be given for {tensors.path}: no shape tells it, and no config.json "
            "beside it, with `model_args` or one of timm's architectures that keras_vit knows."
        )
    said = (overrides.get("source_image_size"), arguments.get("img_size"), values["input_size"][1:])
    image_size = next((size for size in said if size), None)
    fields |= _infer_positions(layout, fields | overrides, image_size)
    fields |= _said(arguments)
    config = source_config(fields, overrides)
    return Checkpoint(
        config=config,
        preprocessing=read_preprocessing(values, config.num_channels),
        labels=read_labels(values, config.num_classes),
        rules=rename_theirs(key_table(config), layout.spell),
        tensors=tensors,
        position_resize=arguments.get("position_resize", "bicubic_antialias"),
        family=NAME,
        ignored=_unused_pool(layout) if config.pool == "mean" else frozenset(),
        multi_label=(config_json or {}).get("problem_type") == MULTI_LABEL,
        origin=read_origin(config_json),
    )


def _infer_sizes(layout: Layout) -> dict:
    """Return the `ViTConfig` fields that are sizes.

    Several tensors tell most of them, so that one missing is reported as such later.
    """
    hidden_dim, num_channels, *patch_size = layout.need(PATCH_KERNEL, rank=4)
    fc1 = layout.find(r"blocks\.\d+\.mlp\.fc1\.(weight|bias)")
    fc2 = layout.find(r"blocks\.\d+\.mlp\.fc2\.weight")
    mlp_dim = fc2[1] if fc2 else (fc1 or layout.need("blocks.0.mlp.fc2.weight", rank=2))[0]
    head = layout.find(r"head(_dist)?\.(weight|bias)")
    fields = {
        "num_layers": layout.count(r"blocks\.(\d{1,3})\."),
        "hidden_dim": hidden_dim,
        "mlp_dim": mlp_dim,
        "gated_mlp": fc1 is not None and fc1[0] == 2 * mlp_dim,
        "patch_size": tuple(patch_size),
        "num_channels": num_channels,
        "num_classes": head[0] if head else 0,
    }
    head_dim = layout.find(r"blocks\.\d+\.attn\.[qk]_norm\..*")
    if head_dim:
        fields["num_heads"] = hidden_dim // head_dim[0]
    if layout.has(r"patch_embed\.backbone\..*"):
        stages = layout.count(r"patch_embed\.backbone\.stages\.(\d{1,3})\.")
        root = BACKBONE + ("stem.conv.weight" if stages else "conv.weight")
        stem_width, num_channels, _, _ = layout.need(root, rank=4)
        fields |= {
            "num_channels": num_channels,
            "stem_width": stem_width,
            "stem_layers": tuple(
                layout.count(rf"patch_embed\.backbone\.stages\.{stage}\.blocks\.(\d{{1,3}})\.")
                for stage in range(stages)
            ),
            "stem_numerics": "timm",
        }
    return fields


def _infer_parts(layout: Layout, arguments: dict) -> dict:
    """Return the `ViTConfig` fields that say which layers there are."""
    has_norm_pre = layout.has(r"norm_pre\..*")
    has_scale = layout.has(r"blocks\.\d+\.ls[12]\.gamma")
    pool_norm = "pool" if layout.has(r"fc_norm\..*") else "none"
    fields = {
        "embedding_norm": has_norm_pre,
        "patch_bias": not has_norm_pre,
        "qkv_bias": layout.has(r"blocks\.\d+\.attn\.qkv\.bias"),
        "qk_norm": layout.has(r"blocks\.\d+\.attn\.[qk]_norm\..*"),
        "layer_scale_init": (arguments.get("init_values") or 1e-5) if has_scale else None,
        "final_norm": "encoder" if layout.has(r"norm\..*") else pool_norm,
    }
    if fields["final_norm"] == "none":
        fields["final_norm"] = _final_norm(arguments)  # missing from the file, not from the model
    if layout.has(r"dist_token|head_dist\..*"):
        fields["distillation_token"] = True
    return fields


def _final_norm(arguments: dict) -> str:
    """Return where timm's class has its last norm."""
    if not arguments.get("final_norm", True):
        return "none"
    has_fc_norm = arguments.get("fc_norm")
    if has_fc_norm is None:
        has_fc_norm = arguments.get("global_pool") == "avg"
    return "pool" if has_fc_norm else "encoder"


def _said(arguments: dict) -> dict:
    """Return the fields that the architecture or `model_args` say, though shapes tell them: what
    the file then lacks is missing from it, not from the model."""
    fields = {
        ours: arguments[theirs]
        for ours, theirs in (
            ("num_layers", "depth"),
            ("hidden_dim", "embed_dim"),
            ("patch_size", "patch_size"),
            ("qkv_bias", "qkv_bias"),
            ("qk_norm", "qk_norm"),
            ("embedding_norm", "pre_norm"),
        )
        if theirs in arguments
    }
    if "pre_norm" in arguments:
        fields["patch_bias"] = not arguments["pre_norm"]
    if "fc_norm" in arguments:
        fields["final_norm"] = _final_norm(arguments)
    if arguments.get("init_values"):
        fields["layer_scale_init"] = arguments["init_values"]
    return fields


def _infer_choices(layout: Layout, fields: dict, overrides: dict) -> dict:
    """Return what a `config.json` says and tensors only suggest."""
    registers = layout.find("reg_token")
    inferred = {
        "num_register_tokens": registers[1] if registers else 0,
        "activation": "silu" if fields["gated_mlp"] else fields["activation"],
    }
    class_token = layout.has("cls_token") or fields["distillation_token"]
    if layout.has(r"attn_pool\..*"):
        pool = "map"
    elif fields["final_norm"] == "pool":
        pool = "mean"
    elif class_token or "pool" in overrides:
        pool = overrides.get("pool", "token")
    else:
        raise ValueError(
            f"`pool` must be given for {layout.tensors.path}: without a config.json, nothing says "
            "whether the tensor cls_token is missing, or pool='mean' does without."
        )
    return inferred | {"pool": pool, "class_token": class_token or pool == "token"}


def _infer_positions(layout: Layout, fields: dict, image_size: int | list | None) -> dict:
    """Return the image size, and how many prefix tokens have positions.

    Args:
        layout: The file.
        fields: All other fields.
        image_size: Where it is said.
    """
    is_learned = fields["position_embedding"] == "learned"
    if image_size is None and not is_learned:
        raise ValueError(
            f"`source_image_size` must be given for {layout.tensors.path}: without a table of "
            "positions, no shape tells it."
        )
    if image_size is not None and not (is_learned and POSITIONS in layout.shapes):
        return {"image_size": image_size}
    stem = fields.get("stem_layers")
    stride = 1 if stem is None else 2 ** max(2, 1 + len(stem))
    step = [side * stride for side in as_pair(fields["patch_size"], "patch_size")]
    rows = layout.need(POSITIONS, rank=3)[1]
    if image_size is None:
        return _infer_square(layout, fields, rows, step)
    image_size = height, width = whole_image_size(layout.tensors.path, image_size, step)
    extra = rows - height // step[0] * (width // step[1])
    if 0 <= extra <= _count_prefix(fields):
        return {"image_size": image_size, "num_prefix_positions": extra}
    return {"image_size": image_size}  # the comparison of shapes will say what is wrong


def _infer_square(layout: Layout, fields: dict, rows: int, step: list[int]) -> dict:
    """Return the same for a square grid: timm gives all prefix tokens positions, or none."""
    path, prefix = layout.tensors.path, _count_prefix(fields)
    fits = [count for count in sorted({0, prefix}) if _is_square(rows - count)]
    if len(fits) > 1:
        raise ValueError(
            f"`source_image_size` must be given for {path}: its {rows} positions are a square "
            f"with its {prefix} prefix tokens and without them."
        )
    if fits:
        size = square_image_size(path, rows - fits[0], step)
        return {"image_size": size, "num_prefix_positions": fits[0]}
    # A square and one more: the class token is missing from the file, not from the model.
    size = square_image_size(path, rows - prefix - (not fields["class_token"]), step)
    return {"image_size": size, "class_token": True}


def _is_square(cells: int) -> bool:
    return cells > 0 and math.isqrt(cells) ** 2 == cells


def _count_prefix(fields: dict) -> int:
    return fields["class_token"] + fields["distillation_token"] + fields["num_register_tokens"]


def _unused_pool(layout: Layout) -> frozenset[str]:
    """Return the attention pool in files of SigLIP models that average instead."""
    return frozenset(layout.spell(n) for n in layout.shapes if n.startswith("attn_pool."))
