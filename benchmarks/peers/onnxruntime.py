"""onnxruntime with its defaults, which let idle threads spin."""

import onnxruntime
import torch

from benchmarks.peers import Call
from benchmarks.peers.inputs import channels_first
from benchmarks.peers.timm import make_model
from benchmarks.rows import Case


def from_timm(case: Case) -> Call:
    """timm's model as ONNX, in float32."""
    if case.dtype != "float32":
        raise ValueError(f"`dtype` must be 'float32'. Received: dtype={case.dtype!r}.")
    images = channels_first(case)
    torch.onnx.export(
        make_model(case),
        (torch.from_numpy(images),),
        "timm.onnx",
        input_names=["images"],
        opset_version=17,
        dynamo=False,
    )
    session = onnxruntime.InferenceSession("timm.onnx", providers=["CPUExecutionProvider"])

    def run():
        session.run(None, {"images": images})

    options = session.get_session_options()
    return Call(run, {"intra_op_num_threads": options.intra_op_num_threads, "spinning": "default"})
