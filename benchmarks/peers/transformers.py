"""transformers' ViT in PyTorch."""

import torch
from transformers import ViTConfig, ViTForImageClassification

from benchmarks.flops import NUM_CLASSES, depth_and_width
from benchmarks.peers import Call
from benchmarks.peers.inputs import randomize_torch
from benchmarks.peers.timm import inference
from benchmarks.rows import Case


def sdpa(case: Case) -> Call:
    """With torch's fused attention, its default."""
    num_layers, width = depth_and_width(case)
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=num_layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        image_size=case.image_size,
        num_labels=NUM_CLASSES,
        attn_implementation="sdpa",
    )
    call = inference(randomize_torch(ViTForImageClassification(config).eval()), case)
    return Call(call.run, {**call.notes, "attention": config._attn_implementation})
