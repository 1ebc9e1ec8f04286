"""FAULTS A1, A2, B2: position tables on other grids, patch kernels of other sizes."""

from pathlib import Path

import numpy as np
import pytest

from keras_vit.resample import (
    POSITION_RESIZE_RULES,
    adapt_patch_kernel,
    resize_patch_kernel,
    resize_position_embeddings,
)

GOLDEN = Path(__file__).parent / "golden"
REFERENCES = np.load(GOLDEN / "posembed_resize_references.npz")
RULE_OF_LABEL = {
    "official zoom": "align_corners_bilinear",
    "timm npz: bilinear ac=F aa=F": "bilinear",
    "bil": "bilinear",
    "timm sd: bicubic aa=T": "bicubic_antialias",
    "timm": "bicubic_antialias",
    "HF: bicubic aa=F": "bicubic",
    "HF": "bicubic",
}
RULES = sorted(POSITION_RESIZE_RULES)


@pytest.mark.parametrize("key", [key for key in REFERENCES.files if "|" in key])
def test_rule_equals_its_source_framework(key):
    data, _, label = key.split("|")
    grid, expected = REFERENCES[{"white": "g", "smooth": "sm"}[data]], REFERENCES[key]
    resized = POSITION_RESIZE_RULES[RULE_OF_LABEL[label]](grid, expected.shape[:2])
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("source", "target"), [(4, 7), (7, 4)])
def test_official_table_with_class_row(source, target):
    file = np.load(GOLDEN / f"posembed_{source}_to_{target}.npz")
    old, new = file["old"][0], file["new"][0]
    resized = resize_position_embeddings(
        old, 1, (source, source), (target, target), "align_corners_bilinear"
    )
    np.testing.assert_allclose(resized, new, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(resized[0], old[0])


@pytest.mark.parametrize("rule", RULES)
def test_same_grid_gives_the_same_array(rule):
    table = np.random.default_rng(0).normal(size=(1 + 6, 3)).astype(np.float32)
    assert resize_position_embeddings(table, 1, (2, 3), (2, 3), rule) is table


@pytest.mark.parametrize("target", [(2, 9), (5, 4), (1, 1), (13, 13)])
@pytest.mark.parametrize("rule", RULES)
def test_constant_stays_constant_and_ramp_stays_monotone(rule, target):
    rows = np.broadcast_to(np.arange(6.0)[:, None], (6, 5))
    grid = np.stack([np.full((6, 5), 3.0), rows], axis=-1).astype(np.float32)
    resized = POSITION_RESIZE_RULES[rule](grid, target)
    assert resized.shape == (*target, 2)
    np.testing.assert_allclose(resized[..., 0], 3.0, atol=1e-6)
    # Cubic kernels with clamped edges overshoot within the outermost cell; the middle rises.
    middle = resized[1:-1] if "bicubic" in rule else resized
    assert (np.diff(middle[..., 1], axis=0) >= -1e-6).all()
    assert resized[..., 1].min() >= -0.3
    assert resized[..., 1].max() <= 5.3


@pytest.mark.parametrize("rule", RULES)
def test_rectangles_treat_the_axes_alike(rule):
    """FAULTS A2: transposing the grid transposes the result."""
    grid = np.random.default_rng(1).normal(size=(4, 7, 3)).astype(np.float32)
    resize = POSITION_RESIZE_RULES[rule]
    across = resize(grid.swapaxes(0, 1), (5, 9)).swapaxes(0, 1)
    np.testing.assert_allclose(across, resize(grid, (9, 5)), atol=1e-6)
    # One axis alone: each column is resized as if it were the only one.
    np.testing.assert_allclose(
        resize(grid, (9, 7))[:, 2:3], resize(grid[:, 2:3], (9, 1)), atol=1e-6
    )


def test_unlike_rules_differ():
    """A rule under another's name would pass the shape checks alone."""
    grid = REFERENCES["g"]
    results = [POSITION_RESIZE_RULES[rule](grid, (9, 9)) for rule in RULES]
    for i, first in enumerate(results):
        for second in results[i + 1 :]:
            assert np.abs(first - second).max() > 0.01


def test_table_errors():
    table = np.zeros((10, 3), np.float32)
    with pytest.raises(ValueError, match=r"`table` must have 17 rows.*table.shape=\(10, 3\)"):
        resize_position_embeddings(table, 1, (4, 4), (2, 2), "bilinear")
    with pytest.raises(ValueError, match="Did you mean: bicubic"):
        resize_position_embeddings(table, 1, (3, 3), (2, 2), "bicubik")


def test_patch_kernel_channels():
    """FAULTS B2: grey through one channel equals grey copied into three."""
    kernel = np.random.default_rng(2).normal(size=(4, 2, 3, 5)).astype(np.float32)
    assert adapt_patch_kernel(kernel, 3) is kernel
    grey = np.random.default_rng(3).normal(size=(4, 2, 1)).astype(np.float32)
    for num_channels in (1, 6):
        adapted = adapt_patch_kernel(kernel, num_channels)
        assert adapted.shape == (4, 2, num_channels, 5)
        assert adapted.dtype == np.float32
        np.testing.assert_allclose(
            np.tensordot(np.repeat(grey, num_channels, axis=2), adapted, axes=3),
            np.tensordot(np.repeat(grey, 3, axis=2), kernel, axes=3),
            atol=1e-5,
        )
    four = adapt_patch_kernel(kernel, 4)
    np.testing.assert_allclose(four[:, :, 3], kernel[:, :, 0] * 0.75, rtol=1e-6)
    np.testing.assert_allclose(four[:, :, 1], kernel[:, :, 1] * 0.75, rtol=1e-6)


def test_an_enlarged_patch_meets_the_enlarged_kernel_as_before():
    """FlexiViT, arXiv 2212.08013, section 3.4."""
    rng = np.random.default_rng(4)
    kernel = rng.normal(size=(4, 3, 2, 5)).astype(np.float32)
    assert resize_patch_kernel(kernel, (4, 3)) is kernel
    patch = rng.normal(size=(4, 3, 2)).astype(np.float32)
    enlarged = POSITION_RESIZE_RULES["bilinear"](patch, (9, 6))
    resized = resize_patch_kernel(kernel, (9, 6))
    assert resized.shape == (9, 6, 2, 5) and resized.dtype == np.float32
    expected = np.tensordot(patch, kernel, axes=3)
    np.testing.assert_allclose(np.tensordot(enlarged, resized, axes=3), expected, atol=1e-5)
    # The other way nothing is exact: the mean of a constant kernel is kept.
    flat = resize_patch_kernel(np.ones((8, 8, 1, 1), np.float32), (4, 4))
    np.testing.assert_allclose(flat.sum(), 64.0, rtol=1e-4)
