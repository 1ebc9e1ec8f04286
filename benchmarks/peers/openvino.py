"""OpenVINO on the processor, for latency, in a precision that is stated."""

from typing import Any

import numpy as np
import openvino

from benchmarks.peers import Call
from benchmarks.peers.inputs import channels_first
from benchmarks.rows import Case

# Without the hint it computes in bfloat16 on processors with AMX, whatever the model's type.
HINTS = {"float32": "f32", "bfloat16": "bf16"}


def compiled(model: Any, images: np.ndarray, case: Case, **arguments: Any) -> Call:
    """Convert and compile a model, and call it with these images."""
    converted = openvino.convert_model(model, **arguments)
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": HINTS[case.dtype]}
    network = openvino.compile_model(converted, "CPU", hints)
    request = network.create_infer_request()

    def run():
        request.infer([images], share_inputs=True, share_outputs=True)

    found = {name: str(network.get_property(name)) for name in (*hints, "INFERENCE_NUM_THREADS")}
    return Call(run, found)


def from_timm(case: Case) -> Call:
    """timm's float32 model."""
    import torch

    from benchmarks.peers.timm import make_model

    images = channels_first(case)
    example = torch.from_numpy(images)
    return compiled(make_model(case), images, case, example_input=example, input=list(images.shape))
