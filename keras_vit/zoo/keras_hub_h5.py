"""keras-hub's ViT presets: a folder with `config.json` and `model.weights.h5`.

Of a classifier, `task.json` says what stands on the backbone and `task.weights.h5` holds it;
`preprocessor.json` or `image_converter.json` say how pictures are prepared. A `.weights.h5`
names variables by the path of attributes and classes that leads to them, each layer's in the
order in which it makes them (kernel, bias; gamma, beta). GELU is exact. Read from keras-hub 0.32.
"""

import dataclasses
import warnings
from pathlib import Path

import numpy as np

from keras_vit.checks import as_pair
from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.resample import DEFAULT_POSITION_RESIZE
from keras_vit.zoo.checkpoint import Checkpoint, source_config
from keras_vit.zoo.keymap import Rule, expand, rename_theirs
from keras_vit.zoo.tensor_files import TensorFile, open_tensors
from keras_vit.zoo.transforms import (
    DROP_BATCH_AXIS,
    IDENTITY,
    Transform,
    heads_out_kernel,
    heads_qkv_bias,
    heads_qkv_kernel,
)

NAME = "keras_hub_h5"
PACKAGE = "keras_hub>"  # begins every `registered_name`
TASK_FILE, TASK_WEIGHTS_NAME = "task.json", "task.weights.h5"
# Where the converter of images is described, and how deep.
CONVERTERS = {
    "preprocessor.json": lambda values: values["config"]["image_converter"],
    "image_converter.json": lambda values: values,
}
POOL_OF_POOLING = {"token": "token", "gap": "mean"}
IS_MULTI_LABEL = {None: False, "linear": False, "softmax": False, "sigmoid": True}
CONVERTER_KEYS = {
    *("name", "trainable", "dtype", "image_size", "scale", "offset", "interpolation"),
    *("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "bounding_box_format"),
    "data_format",
}
EMBEDDING = "layers/vi_t_patching_and_embedding"
ENCODER = "layers/vi_t_encoder"
BLOCK = f"{ENCODER}/encoder_layers/vi_t_encoder_block"


def recognises(tensors: TensorFile, config_json: dict | None) -> bool:
    """Whether `config.json` is keras-hub's, or without it, whether the paths are its ViT's."""
    if config_json is None:
        return any(name.startswith(ENCODER) for name in tensors.tensors)
    return str(config_json.get("registered_name")).startswith(PACKAGE)


def read(tensors: TensorFile, config_json: dict | None, overrides: dict) -> Checkpoint:
    """Understand a preset of keras-hub's `ViTBackbone`, or of a `ViTImageClassifier`.

    Logits are read whatever activation follows them. Layers without bias, where the model has
    one, get zeros.

    Args:
        tensors: The open file, or directory.
        config_json: Contents of its `config.json`.
        overrides: `ViTConfig` fields that the caller knows better, and `source_image_size`.

    Raises:
        ValueError: If `config.json` is missing, or a file asks for what we do not have.
    """
    where = tensors.directory
    if config_json is None:
        raise ValueError(
            f"{where / 'config.json'} is missing; it says which model the weights are of."
        )
    backbone = _object(config_json, "ViTBackbone", where / "config.json")
    fields, multi_label = _backbone_fields(backbone), False
    task_json = tensors.json(TASK_FILE)
    if task_json is not None:
        task = _object(task_json, "ViTImageClassifier", where / TASK_FILE)
        of_task = _object(task["backbone"], "ViTBackbone", where / TASK_FILE)
        if _backbone_fields(of_task) != fields:
            raise ValueError(f"{where / TASK_FILE} has another backbone than config.json.")
        multi_label = _is_multi_label(task, where)
        fields |= _head_fields(task, fields["class_token"], where)
        tensors = _with_task_weights(tensors)
    config = source_config(fields, overrides)
    return Checkpoint(
        config=config,
        preprocessing=_read_preprocessing(tensors, config),
        labels=None,
        rules=_rules(config, backbone),
        tensors=tensors,
        position_resize=DEFAULT_POSITION_RESIZE,
        family=NAME,
        ignored=frozenset(name for name in tensors.tensors if name.startswith("optimizer/")),
        multi_label=multi_label,
    )


def _object(values: dict, class_name: str, path: Path) -> dict:
    """Return the arguments of an object that keras-hub described in a JSON file."""
    name = values.get("registered_name")
    if name != PACKAGE + class_name:
        raise ValueError(
            f"{path} must describe a {PACKAGE}{class_name}. Received: {name!r}. "
            "Of keras-hub's models keras_vit reads the ViT."
        )
    return values["config"]


def _backbone_fields(values: dict) -> dict:
    """Return the `ViTConfig` fields of a `ViTBackbone`'s arguments."""
    height, width, num_channels = values["image_shape"]
    class_token = values.get("use_class_token", True)
    return {
        **{name: values[name] for name in ("num_layers", "num_heads", "hidden_dim", "mlp_dim")},
        "patch_size": as_pair(values["patch_size"], "patch_size"),
        "image_size": (height, width),
        "num_channels": num_channels,
        "num_classes": 0,
        "class_token": class_token,
        "pool": "token" if class_token else "mean",
        "patch_bias": values.get("use_patch_bias", True),
        "qkv_bias": values.get("use_mha_bias", True),
        "activation": "gelu",
        "layer_norm_epsilon": values.get("layer_norm_epsilon", 1e-6),
        "dropout_rate": values.get("dropout_rate", 0.0),
        "attention_dropout_rate": values.get("attention_dropout", 0.0),
    }


def _head_fields(task: dict, class_token: bool, where: Path) -> dict:
    """Return the `ViTConfig` fields of a `ViTImageClassifier`'s arguments."""
    pooling = task.get("pooling", "token")
    # Its mean is over all tokens, ours over those of patches.
    if pooling not in POOL_OF_POOLING or (pooling == "token") != class_token:
        raise ValueError(
            f"`pooling` of {where / TASK_FILE} must be 'token' with a class token, or 'gap' "
            f"without. Received: pooling={pooling!r}, use_class_token={class_token!r}. "
            f"Without {TASK_FILE} the backbone is read alone."
        )
    return {
        "num_classes": task["num_classes"],
        "representation_size": task.get("intermediate_dim"),
        "pool": POOL_OF_POOLING[pooling],
    }


def _is_multi_label(task: dict, where: Path) -> bool:
    activation = task.get("activation")
    if not isinstance(activation, str | None) or activation not in IS_MULTI_LABEL:
        raise ValueError(
            f"`activation` of {where / TASK_FILE} must be one of {list(IS_MULTI_LABEL)}. "
            f"Received: activation={activation!r}. Without {TASK_FILE} the backbone is read alone."
        )
    return IS_MULTI_LABEL[activation]


def _with_task_weights(tensors: TensorFile) -> TensorFile:
    """Return the file with the head beside the backbone; a missing file is a missing head."""
    path = tensors.directory / TASK_WEIGHTS_NAME
    if not path.is_file():
        return tensors
    return dataclasses.replace(tensors, tensors=open_tensors(path).tensors | tensors.tensors)


def _read_preprocessing(tensors: TensorFile, config: ViTConfig) -> PreprocessingConfig:
    """Return how the preset's `ViTImageConverter` prepares pictures: x * scale + offset.

    Without one, pixels go from -1 to 1, as keras-hub's own presets want them.
    """
    for file_name, find in CONVERTERS.items():
        values = tensors.json(file_name)
        values = values and find(values)
        if not values:
            continue
        path = tensors.directory / file_name
        values = _object(values, "ViTImageConverter", path)
        unknown = sorted(values.keys() - CONVERTER_KEYS)
        if unknown or values.get("pad_to_aspect_ratio", False):
            raise ValueError(
                f"{path} must resize, cut, scale and shift pictures only. Received: "
                f"{', '.join(unknown) or 'pad_to_aspect_ratio=True'}. Remove the file, and "
                "prepare pictures in your own way."
            )
        size = values.get("image_size")
        if size is not None and as_pair(size, "image_size") != config.image_size:
            warnings.warn(
                f"{file_name} prepares pictures of {tuple(size)}, the model takes "
                f"{config.image_size}: they are resized to the model's size.",
                stacklevel=2,
            )
        return _converted(values).for_channels(config.num_channels)
    return PreprocessingConfig().for_channels(config.num_channels)


def _converted(values: dict) -> PreprocessingConfig:
    # x * scale + offset  =  (x / 255 - mean) / std
    scale, offset = values.get("scale"), values.get("offset")
    scale, offset = np.broadcast_arrays(
        np.atleast_1d(np.float64(1.0 if scale is None else scale)),
        np.atleast_1d(np.float64(0.0 if offset is None else offset)),
    )
    if not scale.all():
        raise ValueError(f"`scale` of an image converter must not be 0. Received: {scale}.")
    return PreprocessingConfig(
        mean=-offset / scale / 255,
        std=1 / scale / 255,
        interpolation=values.get("interpolation", "bilinear"),
        antialias=values.get("antialias", False),
        resize="crop" if values.get("crop_to_aspect_ratio", True) else "squash",
    )


def _rules(config: ViTConfig, backbone: dict) -> tuple[Rule, ...]:
    """Return the key table. Missing biases are zeros, which no tensor gives."""
    heads, mlp_bias = config.num_heads, backbone.get("use_mlp_bias", True)
    block, mha = BLOCK + "_{i}", BLOCK + "_{i}/mha"
    queries = [f"{mha}/{name}_dense/vars" for name in ("query", "key", "value")]
    rules = [
        *_layer("patch_embedding/projection", f"{EMBEDDING}/patch_embedding", config.patch_bias),
        Rule("position_embedding/embeddings", (f"{EMBEDDING}/position_embedding/vars/0",)),
        *_norm("block_{i}/norm1", f"{block}/layer_norm_1"),
        Rule(
            "block_{i}/attention/qkv/kernel",
            tuple(f"{name}/0" for name in queries),
            heads_qkv_kernel(heads),
        ),
        *_layer(
            *("block_{i}/attention/proj", f"{mha}/output_dense", config.qkv_bias),
            *(config.hidden_dim, heads_out_kernel(heads)),
        ),
        *_norm("block_{i}/norm2", f"{block}/layer_norm_2"),
        *_layer("block_{i}/mlp/fc1", f"{block}/mlp/dense_1", mlp_bias, config.mlp_dim),
        *_layer("block_{i}/mlp/fc2", f"{block}/mlp/dense_2", mlp_bias, config.hidden_dim),
        *_norm("encoder_norm", f"{ENCODER}/layer_norm"),
    ]
    if config.qkv_bias:
        biases = tuple(f"{name}/1" for name in queries)
        rules.append(Rule("block_{i}/attention/qkv/bias", biases, heads_qkv_bias(heads)))
    if config.class_token:
        rules.append(Rule("prefix_tokens/class_token", (f"{EMBEDDING}/vars/0",), DROP_BATCH_AXIS))
    dense = ["layers/dense", "layers/dense_1"]
    if config.representation_size:
        rules += _layer("pre_logits", dense.pop(0))
    if config.num_classes:
        rules += _layer("head", dense.pop(0))
    expanded = expand(rules, config.num_layers)
    return rename_theirs(expanded, lambda name: name.replace(f"{BLOCK}_0/", f"{BLOCK}/"))


def _norm(ours: str, theirs: str) -> list[Rule]:
    return [
        Rule(f"{ours}/gamma", (f"{theirs}/vars/0",)),
        Rule(f"{ours}/beta", (f"{theirs}/vars/1",)),
    ]


def _layer(
    ours: str,
    theirs: str,
    bias: bool = True,
    width: int | None = None,
    kernel: Transform = IDENTITY,
) -> list[Rule]:
    """Return the rules of a kernel and a bias; of a missing one `width` zeros, or no rule."""
    rules = [Rule(f"{ours}/kernel", (f"{theirs}/vars/0",), kernel)]
    if bias:
        rules.append(Rule(f"{ours}/bias", (f"{theirs}/vars/1",)))
    elif width:
        rules.append(Rule(f"{ours}/bias", (), _zeros(width)))
    return rules


def _zeros(width: int) -> Transform:
    return Transform(lambda: np.zeros(width, np.float32), lambda bias: ())
