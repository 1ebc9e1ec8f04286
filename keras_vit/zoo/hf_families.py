"""transformers' vision models, one value each: reading, recognising and writing follow from it.

To add one: name its tensors in `hf_names`, write its `Family` here, add it to `FAMILIES`, and a
row to the table of `tests/parity/test_transformers.py`, which compares names, shapes, defaults
and outputs with the installed transformers.
"""

import dataclasses
import math

from keras_vit.config import ViTConfig
from keras_vit.zoo import hf_names
from keras_vit.zoo.hf_names import Dialect
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.transforms import DROP_BATCH_AXIS

# Layers outside the tower, whose names have its prefix cut off.
HEADS = ("classifier", "cls_classifier", "distillation_classifier", "visual_projection")


@dataclasses.dataclass(frozen=True)
class Task:
    """One class of transformers, and the model that it is of ours.

    Args:
        class_name: In `architectures` of config.json.
        layer: The layer that only this task has, without prefix, or None.
        sets: The field that is as wide as this layer: `"num_classes"`,
            `"representation_size"` or None.
        fields: `ViTConfig` fields of this task.
        says: What config.json says, where two tasks of a class differ in it.
    """

    class_name: str
    layer: str | None = None
    sets: str | None = None
    fields: dict = dataclasses.field(default_factory=dict)
    says: dict = dataclasses.field(default_factory=dict)

    @property
    def has_outer_head(self) -> bool:
        """Whether the tower is a part of the model, with a prefix."""
        return self.layer in HEADS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One of transformers' models.

    Args:
        model_type: In config.json.
        nesting_type: The `model_type` of a config.json that holds this one's as `vision_config`.
        defaults: What keys that config.json lacks mean.
        keys: The key of config.json for each field of `ViTConfig` that has one.
        fields: `ViTConfig` fields that are the same in all its models.
        dialects: Its names; the first is written.
        prefix: Before the names of the tower in a model that has more.
        tasks: Its classes. Those whose layer is there come first, then those that are named.
        optional: Layers that one task reads and another passes over.
        ignored: A pattern of tensors that no task reads here.
        fillers: Tensors that no output depends on, and the number to fill them with in a file:
            rules of a vector of hidden_dim.
        position_resize: Its rule, a name of `resample.POSITION_RESIZE_RULES`.
        preprocessing: What a missing `preprocessor_config.json` means; the type in it is also
            that of one that names none.
        is_square: Whether pictures and patches must be.
        is_written: Whether models are written as this; else another family writes the same.
    """

    model_type: str
    nesting_type: str | None = None
    defaults: dict
    keys: dict
    fields: dict = dataclasses.field(default_factory=dict)
    dialects: tuple[Dialect, ...]
    prefix: str
    tasks: tuple[Task, ...]
    optional: tuple[str, ...] = ()
    ignored: str
    fillers: tuple[tuple[Rule, float], ...] = ()
    position_resize: str = "bicubic"
    preprocessing: dict
    is_square: bool = False
    is_written: bool = True


DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
}
KEYS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "mlp_dim": "intermediate_size",
    "patch_size": "patch_size",
    "image_size": "image_size",
    "num_channels": "num_channels",
    "layer_norm_epsilon": "layer_norm_eps",
}
_DROPOUTS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

VIT = Family(
    model_type="vit",
    defaults=DEFAULTS | _DROPOUTS | {"qkv_bias": True},
    keys=KEYS
    | {
        "qkv_bias": "qkv_bias",
        "dropout_rate": "hidden_dropout_prob",
        "attention_dropout_rate": "attention_probs_dropout_prob",
    },
    dialects=hf_names.VIT,
    prefix="vit.",
    tasks=(
        Task("ViTForImageClassification", "classifier", "num_classes"),
        Task("ViTModel"),
        Task("ViTModel", "pooler.dense", "representation_size"),
    ),
    optional=("pooler.dense",),
    ignored=r"embeddings\.mask_token|decoder\..+",  # masked pixels
    preprocessing={"image_processor_type": "ViTImageProcessor"},
)
VIT_MSN = dataclasses.replace(
    VIT,
    model_type="vit_msn",
    defaults=VIT.defaults | {"layer_norm_eps": 1e-6},
    tasks=(
        Task("ViTMSNForImageClassification", "classifier", "num_classes"),
        Task("ViTMSNModel"),
    ),
    is_written=False,
)
# The encoder, which sees all patches here and is not asked to restore any.
VIT_MAE = dataclasses.replace(
    VIT, model_type="vit_mae", tasks=(Task("ViTMAEModel"),), is_written=False
)
# A head that reads the distillation token is one more head; unread it is but a register.
_UNREAD = {"num_register_tokens": 1}
DEIT = dataclasses.replace(
    VIT,
    model_type="deit",
    dialects=hf_names.DEIT,
    prefix="deit.",
    tasks=(
        Task(
            "DeiTForImageClassificationWithTeacher",
            "cls_classifier",
            "num_classes",
            {"distillation_token": True},
        ),
        Task("DeiTForImageClassification", "classifier", "num_classes", _UNREAD),
        Task("DeiTModel", fields=_UNREAD),
        Task("DeiTModel", "pooler.dense", "representation_size", _UNREAD),
    ),
    preprocessing={"image_processor_type": "DeiTImageProcessor"},
)
DINOV2 = Family(
    model_type="dinov2",
    defaults={key: value for key, value in VIT.defaults.items() if key != "intermediate_size"}
    | {
        "layer_norm_eps": 1e-6,
        "patch_size": 14,
        "mlp_ratio": 4,
        "layerscale_value": 1.0,
        "drop_path_rate": 0.0,
        "use_swiglu_ffn": False,
    },
    keys={ours: theirs for ours, theirs in VIT.keys.items() if ours != "mlp_dim"}
    | {
        "layer_scale_init": "layerscale_value",
        "drop_path_rate": "drop_path_rate",  # there of every block, here of the last
        "gated_mlp": "use_swiglu_ffn",
    },
    dialects=hf_names.DINOV2,
    prefix="dinov2.",
    tasks=(
        Task("Dinov2ForImageClassification", "classifier", "num_classes", {"pool": "token_mean"}),
        Task("Dinov2Model"),
    ),
    ignored=r"embeddings\.mask_token",
    fillers=((Rule("mask_token", ("embeddings.mask_token",), DROP_BATCH_AXIS), 0.0),),
    # As published with the weights; the class itself cuts nothing off and has CLIP's statistics.
    preprocessing={
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 256},
        "crop_size": {"height": 224, "width": 224},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
    is_square=True,
)
DINOV2_WITH_REGISTERS = dataclasses.replace(
    DINOV2,
    model_type="dinov2_with_registers",
    defaults=DINOV2.defaults | {"patch_size": 16, "num_register_tokens": 4},
    keys=DINOV2.keys | {"num_register_tokens": "num_register_tokens"},
    fields={"num_prefix_positions": 1},
    dialects=hf_names.DINOV2_WITH_REGISTERS,
    prefix="dinov2_with_registers.",
    tasks=(
        Task(
            "Dinov2WithRegistersForImageClassification",
            "classifier",
            "num_classes",
            {"pool": "token_mean"},
        ),
        Task("Dinov2WithRegistersModel"),
    ),
    position_resize="bicubic_antialias",
)
_TOWER_KEYS = KEYS | {"attention_dropout_rate": "attention_dropout"}
SIGLIP = Family(
    model_type="siglip_vision_model",
    nesting_type="siglip",
    defaults=DEFAULTS
    | {
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
        "attention_dropout": 0.0,
        "vision_use_head": True,
    },
    keys=_TOWER_KEYS,
    fields={"class_token": False},
    dialects=hf_names.SIGLIP,
    prefix="vision_model.",
    tasks=(
        Task(
            "SiglipForImageClassification",
            "classifier",
            "num_classes",
            {"pool": "mean"},
            {"vision_use_head": False},
        ),
        Task("SiglipVisionModel", "head", None, {"pool": "map"}, {"vision_use_head": True}),
        Task("SiglipVisionModel", None, None, {"pool": "mean"}, {"vision_use_head": False}),
    ),
    optional=("head",),
    ignored=r"text_model\..+|logit_scale|logit_bias|embeddings\.position_ids",
    preprocessing={"image_processor_type": "SiglipImageProcessor"},
    is_square=True,
)
_CLIP_TOKEN = {"pool": "token", "final_norm": "pool"}
CLIP = Family(
    model_type="clip_vision_model",
    nesting_type="clip",
    defaults=DEFAULTS
    | {
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "patch_size": 32,
        "attention_dropout": 0.0,
        "projection_dim": 512,
    },
    keys=_TOWER_KEYS,
    fields={"embedding_norm": True, "patch_bias": False},
    dialects=hf_names.CLIP,
    prefix="vision_model.",
    tasks=(
        Task(
            "CLIPForImageClassification",
            "classifier",
            "num_classes",
            {"pool": "mean", "final_norm": "none"},
        ),
        Task(
            "CLIPVisionModelWithProjection",
            "visual_projection",
            "representation_size",
            _CLIP_TOKEN | {"representation": "linear"},
        ),
        Task("CLIPVisionModel", fields=_CLIP_TOKEN),
    ),
    optional=("post_layernorm", "visual_projection"),
    ignored=r"text_model\..+|text_projection\..+|logit_scale|embeddings\.position_ids",
    fillers=(  # of the norm that a mean of patches passes by
        (Rule("post_layernorm/gamma", ("post_layernorm.weight",)), 1.0),
        (Rule("post_layernorm/beta", ("post_layernorm.bias",)), 0.0),
    ),
    preprocessing={"image_processor_type": "CLIPImageProcessor"},
    is_square=True,
)

FAMILIES = (VIT, VIT_MSN, VIT_MAE, DEIT, DINOV2, DINOV2_WITH_REGISTERS, SIGLIP, CLIP)
# Fields beside a family's `keys` that its models may have of any value.
_FREE = ("activation", "mlp_dim", "dropout_rate", "drop_path_rate", "patch_drop_rate", "remat")


def mlp_dim(hidden_dim: int, mlp_ratio: float, is_gated: bool) -> int:
    """Return the width that DINOv2's `mlp_ratio` stands for.

    A gated MLP keeps two thirds of it, rounded up to a multiple of 8.
    """
    width = math.floor(hidden_dim * mlp_ratio)
    return (int(width * 2 / 3) + 7) // 8 * 8 if is_gated else width


def mlp_ratio(config: ViTConfig) -> int | None:
    """Return the `mlp_ratio` of a model, which transformers wants whole, or None."""
    widths = (mlp_dim(config.hidden_dim, ratio, config.gated_mlp) for ratio in range(1, 33))
    return next((i for i, width in enumerate(widths, 1) if width == config.mlp_dim), None)


def express(config: ViTConfig) -> tuple[Family, Task] | None:
    """Return what a model is in transformers, or None where it is nothing there."""
    for family in FAMILIES:
        if not family.is_written or not _fits(family, config):
            continue
        for task in family.tasks:
            sets = (task.sets,) if task.sets else ()
            fields = {name: getattr(config, name) for name in (*family.keys, *_FREE, *sets)}
            if None in fields.values() or (sets and not fields[task.sets]):
                continue
            # All that config.json does not say must be as in this family and task.
            said = {"num_classes": 0} | fields | family.fields | task.fields
            if config == ViTConfig(**said):
                return family, task
    return None


def _fits(family: Family, config: ViTConfig) -> bool:
    if family.is_square and len({*config.image_size}) + len({*config.patch_size}) > 2:
        return False
    if "mlp_ratio" in family.defaults and mlp_ratio(config) is None:
        return False
    return config.activation == "silu" or not config.gated_mlp
