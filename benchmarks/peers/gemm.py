"""What the machine multiplies: the dense layers of a block, and nothing else."""

import torch

from benchmarks.flops import block_products
from benchmarks.peers import Call
from benchmarks.peers.timm import notes
from benchmarks.rows import Case


def one_block(case: Case) -> Call:
    """The four products of one block, one after the other; of a training step, as forward.

    All blocks are alike, so that the seconds of one, times the operations of the whole model
    over those of a block, are what the model takes at this rate.
    """
    dtype = torch.float32 if case.dtype == "float32" else torch.bfloat16
    generator = torch.Generator().manual_seed(0)
    products = [
        (
            torch.randn(rows, inner, generator=generator).to(dtype),
            torch.randn(columns, inner, generator=generator).to(dtype),
        )
        for rows, inner, columns in block_products(case)
    ]

    def run():
        with torch.inference_mode():
            for inputs, weights in products:
                torch.nn.functional.linear(inputs, weights)

    return Call(run, notes())
