"""Adapters of a model: put in, kept through Keras' own files, merged and taken out.

An adapted layer computes with the kernel W + alpha / rank * A B. W keeps its value; A and B learn.
"""

import math
import types
from collections.abc import Iterable, MutableMapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_integer, is_real, unknown_name
from keras_vit.layers.initializers import ReadWeights

ADAPTERS = ("lora_kernel_a", "lora_kernel_b")
HEAD_LAYERS = ("pre_logits", "head")


def add_lora(
    model: keras.Model,
    rank: int,
    targets: str | Iterable[str] = ("qkv",),
    alpha: float | None = None,
) -> None:
    """Put adapters on dense layers of the blocks and freeze all else but the head.

    A begins random and B at zero, so the outputs stay as they are, bit for bit. The model has to
    be compiled again before `fit`.

    Args:
        model: A model whose blocks are layers `block_0`, `block_1` ...
        rank: Columns of A and rows of B.
        targets: Which layers to adapt, by the last part of their path: `"qkv"`, `"proj"`,
            `"fc1"`, `"fc2"`.
        alpha: The adapters count `alpha / rank` times. None: as `rank`, once.

    Raises:
        ValueError: If the model has adapters, or an argument does not fit it.
    """
    if lora_settings(model):
        raise ValueError(
            f"The model has adapters already. Received: {in_words(lora_settings(model))}. Go on "
            "with a model without: `model.merge_lora()` keeps what they learned, "
            "`model.remove_lora()` drops it."
        )
    layers = target_layers(model, targets)
    rank = check_integer("rank", rank, 1)
    for layer in layers:
        _check_adaptable(layer, rank)
    if alpha is not None:
        if not is_real(alpha) or not math.isfinite(alpha) or alpha <= 0.0:
            raise ValueError(
                f"`alpha` must be a positive number, or None for `rank`. Received: alpha={alpha!r}."
            )
        alpha = float(alpha)
    for layer in layers:
        layer.enable_lora(rank, lora_alpha=alpha)
        layer.save_own_variables = types.MethodType(_save_with_adapters, layer)
        layer.load_own_variables = types.MethodType(_load_with_adapters, layer)
    for layer in model._flatten_layers():  # a head that was frozen before learns again
        layer.trainable = True  # each, as TensorFlow passes over a model that is trainable already
    freeze_base(model)
    # What `fit` and `predict` compiled would go on without adapters, and train what is frozen.
    model.train_function = model.test_function = model.predict_function = None
    model.compiled = False


def lora_settings(model: keras.Model) -> dict[str, Any] | None:
    """Return the arguments of `add_lora` that the model's adapters come from, or None.

    Returns:
        `{"rank": ..., "targets": [...], "alpha": ...}`, JSON values; None without adapters.
    """
    layers = _adapted_layers(model)
    if not layers:
        return None
    return {
        "rank": layers[0].lora_rank,
        "targets": sorted({_last_part(layer.path) for layer in layers}),
        "alpha": layers[0].lora_alpha,
    }


def freeze_base(model: keras.Model) -> None:
    """Make every variable untrainable that is neither an adapter nor the head's.

    To repeat after setting `trainable` of a layer, which thaws its kernels too.
    """
    for variable in model.weights:
        if not (is_adapter(variable.path) or is_head(variable.path)):
            variable.trainable = False


def merged_reader(model: keras.Model) -> ReadWeights:
    """Return what gives a model without adapters the kernels W + alpha / rank * A B.

    Args:
        model: A model with adapters on float kernels.

    Returns:
        Takes path and shape of a variable of the new model and returns its value, or None for
        a variable that `model` lacks.

    Raises:
        ValueError: If there is nothing to merge, or the kernels are quantized.
    """
    read_original = original_reader(model)
    adapted = {f"{layer.path}/kernel": layer for layer in _adapted_layers(model)}
    modes = sorted({layer.quantization_mode for layer in adapted.values()} - {None})
    if modes:
        raise ValueError(
            "Adapters merge into float kernels only: rounded to integers again, the sum would "
            f"give other outputs. Received: a model quantized to {', '.join(modes)}. "
            "`model.save_lora(path)`, then on the float model `load_lora(path)`, `merge_lora()` "
            "and `quantize`."
        )

    def read(path: str, shape: tuple[int, ...]) -> np.ndarray | None:
        value = read_original(path, shape)
        if path not in adapted:
            return value
        layer = adapted[path]
        a, b = (ops.convert_to_numpy(getattr(layer, name)) for name in ADAPTERS)
        return value.astype("float32") + layer.lora_alpha / layer.lora_rank * (a @ b)

    return read


def original_reader(model: keras.Model) -> ReadWeights:
    """Return what gives a model without adapters the kernels from before, bit for bit.

    Args:
        model: A model with adapters, quantized or not.

    Returns:
        As `merged_reader` does.

    Raises:
        ValueError: If the model has no adapters.
    """
    if not _adapted_layers(model):
        raise ValueError("The model has no adapters. `model.add_lora(rank)` adds them.")
    variables = {variable.path: variable for variable in model.weights}

    def read(path: str, shape: tuple[int, ...]) -> np.ndarray | None:
        del shape  # that of the same variable
        return ops.convert_to_numpy(variables[path]) if path in variables else None

    return read


def target_layers(model: keras.Model, targets: str | Iterable[str]) -> list[keras.layers.Dense]:
    """Return the dense layers of the blocks whose path ends in one of `targets`.

    Raises:
        ValueError: If `targets` is empty, or one of them is in no block.
    """
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    layers = _dense_layers(model)
    known = sorted({_last_part(layer.path) for layer in layers})
    if not targets:
        raise ValueError(f"`targets` must not be empty. Known: {', '.join(known)}.")
    for target in targets:
        if target not in known:
            raise unknown_name("target of LoRA", target, known)
    return [layer for layer in layers if _last_part(layer.path) in targets]


def is_adapter(path: str) -> bool:
    """Whether the variable of this path is A or B of an adapter."""
    return _last_part(path) in ADAPTERS


def is_head(path: str) -> bool:
    """Whether the variable of this path belongs to the layers that train beside the adapters."""
    return path.split("/", 1)[0] in HEAD_LAYERS


def in_words(settings: dict[str, Any]) -> str:
    """Return arguments as an error message lists them."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _dense_layers(model: keras.Model) -> list[keras.layers.Dense]:
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Dense) and layer.path.startswith("block_")
    ]


def _adapted_layers(model: keras.Model) -> list[keras.layers.Dense]:
    return [layer for layer in _dense_layers(model) if layer.lora_enabled]


def _last_part(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _check_adaptable(layer: keras.layers.Dense, rank: int) -> None:
    if layer.quantization_mode not in (None, "int8", "int4"):
        raise ValueError(
            "Keras adapts float, int8 and int4 kernels only. "
            f"Received: {layer.path} quantized to {layer.quantization_mode!r}."
        )
    smaller = min(layer.kernel.shape)
    if rank >= smaller:
        raise ValueError(
            "`rank` must be below the smaller side of every kernel; usual are 4 to 16. "
            f"Received: rank={rank}, and a smaller side of {smaller} in {layer.path}."
        )


def _save_with_adapters(layer: keras.layers.Dense, store: MutableMapping[str, Any]) -> None:
    """Stands in for `layer.save_own_variables`, which stores the merged kernel without A and B.

    Keras rounds that sum to the compute dtype, or to int8, and so the `.keras` file would have
    lost W, and the model that it gives could not go on learning.
    """
    layer.lora_enabled = False
    try:
        type(layer).save_own_variables(layer, store)
    finally:
        layer.lora_enabled = True
    for name in ADAPTERS:
        store[name] = getattr(layer, name)


def _load_with_adapters(layer: keras.layers.Dense, store: MutableMapping[str, Any]) -> None:
    """Stands in for `layer.load_own_variables`, which sets A and B to zero; neither could learn.

    Of a file without adapters only B becomes zero.
    """
    a = ops.convert_to_numpy(layer.lora_kernel_a)
    type(layer).load_own_variables(layer, store)
    if all(name in store for name in ADAPTERS):
        for name in ADAPTERS:
            getattr(layer, name).assign(store[name])
    else:
        layer.lora_kernel_a.assign(a)
