"""Every transform against a worked shape, and back to the same bits."""

import numpy as np
import pytest

from keras_vit.zoo import transforms

HEADS, HEAD_DIM, DIM = 3, 4, 12
CASES = {
    # name: (transform, their shapes, our shape)
    "identity": (transforms.IDENTITY, [(5,)], (5,)),
    "linear": (transforms.LINEAR_KERNEL, [(7, DIM)], (DIM, 7)),
    "conv": (transforms.CONV_KERNEL, [(DIM, 2, 4, 5)], (4, 5, 2, DIM)),
    "batch axis": (transforms.DROP_BATCH_AXIS, [(1, 9, DIM)], (9, DIM)),
    "linear qkv": (transforms.LINEAR_QKV_KERNEL, [(DIM, DIM)] * 3, (DIM, 3 * DIM)),
    "qkv bias": (transforms.QKV_BIAS, [(DIM,)] * 3, (3 * DIM,)),
    "heads qkv": (
        transforms.heads_qkv_kernel(HEADS),
        [(DIM, HEADS, HEAD_DIM)] * 3,
        (DIM, 3 * DIM),
    ),
    "heads qkv bias": (transforms.heads_qkv_bias(HEADS), [(HEADS, HEAD_DIM)] * 3, (3 * DIM,)),
    "heads query": (transforms.heads_qkv_kernel(HEADS, 1), [(DIM, HEADS, HEAD_DIM)], (DIM, DIM)),
    "heads key value": (
        transforms.heads_qkv_kernel(HEADS, 2),
        [(DIM, HEADS, HEAD_DIM)] * 2,
        (DIM, 2 * DIM),
    ),
    "heads key value bias": (
        transforms.heads_qkv_bias(HEADS, 2),
        [(HEADS, HEAD_DIM)] * 2,
        (2 * DIM,),
    ),
    "unit axes": (transforms.drop_unit_axes(3), [(1, 1, 1, DIM)], (DIM,)),
    "no unit axes": (transforms.drop_unit_axes(0), [(DIM,)], (DIM,)),
    "heads out": (transforms.heads_out_kernel(HEADS), [(HEADS, HEAD_DIM, DIM)], (DIM, DIM)),
}


@pytest.mark.parametrize("name", CASES)
def test_round_trip_is_exact(name):
    transform, their_shapes, our_shape = CASES[name]
    random = np.random.default_rng(0)
    theirs = [random.normal(size=shape).astype(np.float32) for shape in their_shapes]
    ours = transform.forward(*theirs)
    assert ours.shape == our_shape
    back = transform.inverse(ours)
    assert len(back) == len(theirs)
    for restored, original in zip(back, theirs, strict=True):
        np.testing.assert_array_equal(restored, original)


def test_all_transforms_are_tested():
    named = [
        value for value in vars(transforms).values() if isinstance(value, transforms.Transform)
    ]
    tested = [transform for transform, *_ in CASES.values()]
    assert all(transform in tested for transform in named)


def test_qkv_columns_are_query_key_value_each_head_major():
    x = np.random.default_rng(1).normal(size=DIM)
    flax = [np.random.default_rng(i).normal(size=(DIM, HEADS, HEAD_DIM)) for i in range(3)]
    product = x @ transforms.heads_qkv_kernel(HEADS).forward(*flax)
    expected = [np.einsum("d,dhk->hk", x, kernel) for kernel in flax]
    np.testing.assert_allclose(product.reshape(3, HEADS, HEAD_DIM), np.stack(expected))
    torch = [np.random.default_rng(i).normal(size=(DIM, DIM)) for i in range(3)]
    product = x @ transforms.LINEAR_QKV_KERNEL.forward(*torch)
    np.testing.assert_allclose(product.reshape(3, DIM), np.stack([kernel @ x for kernel in torch]))


def test_out_kernel_sums_over_heads():
    attended = np.random.default_rng(2).normal(size=(HEADS, HEAD_DIM))
    kernel = np.random.default_rng(3).normal(size=(HEADS, HEAD_DIM, DIM))
    ours = transforms.heads_out_kernel(HEADS).forward(kernel)
    np.testing.assert_allclose(
        attended.reshape(-1) @ ours, np.einsum("hk,hkd->d", attended, kernel)
    )
