"""Floating-point operations of a forward pass; a multiplication and an addition are two."""

from benchmarks.rows import Case

# Layers and width of the sizes that are measured (paper Table 1; DeiT for Ti and S). Heads are
# width / 64, and the MLP is four times as wide.
SIZES = {"Ti/16": (12, 192), "S/16": (12, 384), "B/16": (12, 768)}
PATCH_SIZE = 16
NUM_CLASSES = 1000


def num_tokens(case: Case) -> int:
    """Return patches and class token."""
    return (case.image_size // PATCH_SIZE) ** 2 + 1


def depth_and_width(case: Case) -> tuple[int, int]:
    """Return layers and width of the case's model."""
    num_layers, hidden_dim = SIZES[case.model]
    return case.num_layers or num_layers, hidden_dim


def block_products(case: Case) -> tuple[tuple[int, int, int], ...]:
    """Return rows, inner and columns of one block's dense layers: qkv, projection, MLP."""
    _, width = depth_and_width(case)
    rows = case.batch * num_tokens(case)
    shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    return tuple((rows, inner, columns) for inner, columns in shapes)


def block_flops(case: Case) -> float:
    """Return operations of `block_products`."""
    return sum(2.0 * rows * inner * columns for rows, inner, columns in block_products(case))


def attention_flops(case: Case) -> float:
    """Return operations of the products of queries, keys and values, all blocks."""
    num_layers, width = depth_and_width(case)
    return 4.0 * case.batch * num_tokens(case) ** 2 * width * num_layers


def model_flops(case: Case) -> float:
    """Return operations of a forward pass: matrix products only. A training step has 3 times."""
    num_layers, width = depth_and_width(case)
    patches = 2.0 * case.batch * (num_tokens(case) - 1) * 3 * PATCH_SIZE**2 * width
    head = 2.0 * case.batch * width * NUM_CLASSES
    return num_layers * block_flops(case) + attention_flops(case) + patches + head
