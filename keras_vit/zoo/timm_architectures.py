"""What timm's names and arguments of an architecture say that no tensor shape tells."""

import functools
import tomllib
from pathlib import Path

DATA = Path(__file__).with_suffix(".toml")
# By name in lower case, without underscores; None and "" are timm's defaults.
ACTIVATION_OF_ACT_LAYER = {
    None: "gelu",
    "": "gelu",
    "gelu": "gelu",
    "gelutanh": "gelu_tanh",
    "quickgelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}
EPSILON_OF_NORM_LAYER = {
    None: 1e-6,
    "": 1e-6,
    "layernorm": 1e-6,
    "layernormfp32": 1e-6,
    "layernorm(eps=1e-05)": 1e-5,
}
POOL_OF_GLOBAL_POOL = {"token": "token", "avg": "mean", "map": "map"}
# The one value that we have of what timm can vary; None is its default.
ONLY_VALUE = {
    "scale_attn_norm": False,
    "scale_mlp_norm": False,
    "proj_bias": True,
    "pool_include_prefix": False,
    "embed_norm_layer": None,
    "embed_layer": None,
    "block_fn": None,
    "mlp_layer": None,
    "attn_layer": None,
}
# Shapes tell these, or `config_fields` and the reader take them as they are.
TAKEN = {
    *("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "num_heads"),
    *("mlp_ratio", "qkv_bias", "qk_norm", "init_values", "class_token", "pos_embed"),
    *("no_embed_class", "reg_tokens", "pre_norm", "final_norm", "fc_norm"),
    *("distilled", "position_resize"),  # of our table
}
# timm's defaults of arguments that say which layers there are. Each architecture states them, so
# that a layer whose tensors a file lacks is missing from it, not from the model.
LAYER_DEFAULTS = {"qkv_bias": True, "qk_norm": False, "pre_norm": False, "fc_norm": None}
# Without effect on what a loaded model computes.
WITHOUT_EFFECT = {
    *("dynamic_img_size", "dynamic_img_pad", "weight_init", "fix_init", "device", "dtype"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"),
    "drop_path_rate",
}


@functools.cache
def architectures() -> dict[str, dict]:
    """Return timm's arguments of each architecture, by name, those that shapes tell left out."""
    return {
        name: {**LAYER_DEFAULTS, **family, "num_heads": num_heads}
        for family in _data()["family"]
        for name, num_heads in family["num_heads"].items()
    }


def unread() -> dict[str, list[str]]:
    """Return the architectures that only look like ViTs, by the module of timm they are in."""
    return _data()["unread"]


def read_arguments(config_json: dict, overrides: dict) -> dict:
    """Return timm's arguments: those of the architecture, then `model_args`.

    An architecture that is not in the table has the defaults of timm's class, and the layers
    that its file has.

    Args:
        config_json: A timm `config.json`.
        overrides: `ViTConfig` fields that the caller knows better.

    Raises:
        ValueError: If it is another kind of model, or one asks for what we do not have.
    """
    name = config_json["architecture"]
    for module, names in unread().items():
        if name in names:
            raise ValueError(
                "`architecture` of config.json must be of a kind of model that keras_vit has. "
                f"Received: architecture={name!r}, of timm's module {module}: its tensors are "
                "named like a ViT's, but it computes something else with them, mostly with "
                "relative or rotary positions. Use timm itself for this model."
            )
    arguments = architectures().get(name, {}) | (config_json.get("model_args") or {})
    if "pool" in overrides:
        arguments.pop("global_pool", None)
        arguments.pop("fc_norm", None)  # whose default hangs on it
    lacking = [f"{key}={value!r}" for key, value in arguments.items() if not _is_had(key, value)]
    if lacking:
        raise ValueError(
            "`architecture` and `model_args` of config.json must describe a model that keras_vit "
            f"has. Received: architecture={name!r}, which needs {', '.join(lacking)}. "
            "Use timm itself for this model."
        )
    return arguments


def config_fields(arguments: dict) -> dict:
    """Return the `ViTConfig` fields that timm's arguments say.

    Args:
        arguments: As `read_arguments` returns them; those absent have timm's defaults.
    """
    fields = {
        "activation": ACTIVATION_OF_ACT_LAYER[_plain(arguments.get("act_layer"))],
        "layer_norm_epsilon": EPSILON_OF_NORM_LAYER[_plain(arguments.get("norm_layer"))],
        "pool": POOL_OF_GLOBAL_POOL[arguments.get("global_pool", "token")],
        "class_token": arguments.get("class_token", True),
        "distillation_token": arguments.get("distilled", False),
        "num_register_tokens": arguments.get("reg_tokens", 0),
        "position_embedding": (
            "learned" if arguments.get("pos_embed", "learn") == "learn" else "none"
        ),
    }
    if "num_heads" in arguments:
        fields["num_heads"] = arguments["num_heads"]
    return fields


def _is_had(key: str, value: object) -> bool:
    """Whether we have this value of an argument."""
    if key == "act_layer":
        return _plain(value) in ACTIVATION_OF_ACT_LAYER
    if key == "norm_layer":
        return _plain(value) in EPSILON_OF_NORM_LAYER
    if key == "global_pool":
        return value in POOL_OF_GLOBAL_POOL
    if key in ONLY_VALUE:
        return value == ONLY_VALUE[key]
    return key in TAKEN or key in WITHOUT_EFFECT


@functools.cache
def _data() -> dict:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def _plain(name: str | None) -> str | None:
    return name and name.lower().replace("_", "")
