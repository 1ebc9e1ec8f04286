"""Whoever can be measured: a table of functions that are imported in their own process."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Call:
    """What `prepare(case)` of a peer returns.

    Args:
        run: Makes one call and waits for its result. May return figures by name, of which a
            sample keeps the mean.
        notes: What the results file shall say: precision hints, threads, signature, ... Asked
            for after the last call, which may add to it.
    """

    run: Callable[[], Mapping[str, float] | None]
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Peer:
    """Where a peer is found.

    Args:
        target: `"module:function"`; the function takes a `Case` and returns a `Call`. A function
            `write` in that module, where there is one, is called with the case in an earlier
            process: it leaves files in the working directory, which all peers of a run share.
        environment: Variables of the process.
    """

    target: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _keras(target: str, backend: str = "tensorflow") -> Peer:
    return Peer(f"benchmarks.peers.{target}", {"KERAS_BACKEND": backend})


def _other(target: str) -> Peer:
    return Peer(f"benchmarks.peers.{target}")


PEERS = {
    "model_call": _keras("ours:model_call"),
    "predict": _keras("ours:predict"),
    "saved_model": _keras("ours:saved_model"),
    "cpu_saved_model": Peer(
        "benchmarks.peers.ours:cpu_saved_model",
        {"KERAS_BACKEND": "tensorflow", "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1"},
    ),
    "openvino": _keras("ours:openvino"),
    "ours_jax": _keras("ours:model_call", "jax"),
    "ours_torch": _keras("ours:model_call", "torch"),
    "ours_train": _keras("ours:train"),
    "keras_hub": _keras("keras_hub:model_call"),
    "keras_hub_frozen": Peer(
        "benchmarks.peers.keras_hub:model_call",
        {"KERAS_BACKEND": "tensorflow", "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1"},
    ),
    "keras_hub_jax": _keras("keras_hub:model_call", "jax"),
    "keras_hub_torch": _keras("keras_hub:model_call", "torch"),
    "keras_hub_train": _keras("keras_hub:train"),
    "timm": _other("timm:eager"),
    "timm_compiled": _other("timm:compiled"),
    "timm_train": _other("timm:train"),
    "transformers": _other("transformers:sdpa"),
    "onnxruntime": _other("onnxruntime:from_timm"),
    "openvino_timm": _other("openvino:from_timm"),
    "gemm": _other("gemm:one_block"),
    "load": _keras("loading:ours"),
    "load_keras_hub": _keras("loading:keras_hub"),
    "import": _keras("importing:ours"),
    "pipeline_training": _keras("pipeline:training"),
    "pipeline_training_cached": _keras("pipeline:cached_training"),
    "pipeline_evaluation": _keras("pipeline:evaluation"),
    "decode": _keras("pipeline:decode"),
    "agreement": _keras("agreement:bfloat16"),
    "loss": _keras("loss:from_random"),
}
