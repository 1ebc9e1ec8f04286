"""timm's models in PyTorch."""

from typing import Any

import timm
import torch

from benchmarks.memory import forget_peak, resident
from benchmarks.peers import Call
from benchmarks.peers.inputs import channels_first, labels, randomize_torch
from benchmarks.rows import Case

NAMES = {
    "Ti/16": "vit_tiny_patch16_224",
    "S/16": "vit_small_patch16_224",
    "B/16": "vit_base_patch16_224",
}


def make_model(case: Case) -> torch.nn.Module:
    """The model in float32 with random weights, in inference mode."""
    torch.manual_seed(0)
    model = timm.create_model(NAMES[case.model], pretrained=False, img_size=case.image_size)
    return randomize_torch(model.eval())


def notes() -> dict[str, Any]:
    """What PyTorch says about how it computes."""
    return {
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "onednn": torch.backends.mkldnn.is_available(),
    }


def inference(model: torch.nn.Module, case: Case) -> Call:
    """A call without gradients; bfloat16 converts weights and pixels beforehand."""
    dtype = getattr(torch, case.dtype)
    model = model.to(dtype)
    images = torch.from_numpy(channels_first(case)).to(dtype)

    def run():
        with torch.inference_mode():
            model(images)

    return Call(run, notes())


def eager(case: Case) -> Call:
    """As timm's own evaluation."""
    return inference(make_model(case), case)


def compiled(case: Case) -> Call:
    """`torch.compile` with its defaults."""
    return inference(torch.compile(make_model(case)), case)


def train(case: Case) -> Call:
    """One step of SGD with momentum; bfloat16 is autocast, weights stay float32."""
    before = forget_peak()
    model = make_model(case).train()
    images = torch.from_numpy(channels_first(case))
    targets = torch.from_numpy(labels(case))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    is_half = case.dtype == "mixed_bfloat16"

    def run():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            loss = torch.nn.functional.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        loss.item()
        return {"peak_memory": (resident("VmHWM") - before) / 2**20}

    return Call(run, notes() | {"autocast": is_half})
