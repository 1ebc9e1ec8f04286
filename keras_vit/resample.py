"""Fit a position table to another grid, and a patch kernel to other patches and channels.

Every resize here is separable: one small matrix `(target, source)` an axis holds the weights.
The four rules are those of the four places that checkpoints come from; none equals another, so
each source keeps its own. All arithmetic is float64, all results float32.
"""

from collections.abc import Callable

import numpy as np

from keras_vit.checks import Pair, check_choice
from keras_vit.config import ViTConfig

ResizeRule = Callable[[np.ndarray, Pair], np.ndarray]


def _half_pixel_centres(source: int, target: int) -> np.ndarray:
    """Where the centre of each target cell falls, in source cells (cell 0 is centred on 0)."""
    return (np.arange(target) + 0.5) * (source / target) - 0.5


def _sample(
    centres: np.ndarray, taps: np.ndarray, source: int, kernel: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return `(target, source)` weights of `taps` cells around each centre, edge cells repeated."""
    cells = np.floor(centres)[:, None] + taps  # (target, taps)
    weights = kernel(centres[:, None] - cells)  # (target, taps)
    matrix = np.zeros((len(centres), source))
    rows = np.arange(len(centres))[:, None]
    np.add.at(matrix, (rows, np.clip(cells, 0, source - 1).astype(int)), weights)
    return matrix


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - np.abs(distance))


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel; `a` is its slope at distance 1."""
    x = np.abs(distance)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = a * (((x - 5.0) * x + 8.0) * x - 4.0)
    return np.where(x <= 1.0, near, np.where(x < 2.0, far, 0.0))


def _align_corners_bilinear_matrix(source: int, target: int) -> np.ndarray:
    centres = np.linspace(0.0, source - 1.0, target)
    return _sample(centres, np.arange(2), source, _triangle)


def _bilinear_matrix(source: int, target: int) -> np.ndarray:
    return _sample(_half_pixel_centres(source, target), np.arange(2), source, _triangle)


def _bicubic_matrix(source: int, target: int) -> np.ndarray:
    centres = _half_pixel_centres(source, target)
    return _sample(centres, np.arange(-1, 3), source, lambda x: _cubic(x, a=-0.75))


def _bicubic_antialias_matrix(source: int, target: int) -> np.ndarray:
    """The kernel widens when shrinking; weights beyond the edge are dropped and the rest rescaled.

    Cells count by their rounded distance, as PIL and torch do.
    """
    widening = max(source / target, 1.0)
    centres = _half_pixel_centres(source, target) + 0.5
    first = np.floor(np.maximum(centres - 2.0 * widening + 0.5, 0.0))
    last = np.floor(np.minimum(centres + 2.0 * widening + 0.5, source))
    cells = np.arange(source)
    distance = (cells + 0.5 - centres[:, None]) / widening  # (target, source)
    inside = (cells >= first[:, None]) & (cells < last[:, None])
    weights = np.where(inside, _cubic(distance, a=-0.5), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _separable(matrix: Callable[[int, int], np.ndarray]) -> ResizeRule:
    def resize(grid: np.ndarray, size: Pair) -> np.ndarray:
        rows, columns = matrix(grid.shape[0], size[0]), matrix(grid.shape[1], size[1])
        grid = np.tensordot(rows, grid.astype(np.float64), axes=(1, 0))  # (gh', gw, dim)
        grid = np.tensordot(columns, grid, axes=(1, 1))  # (gw', gh', dim)
        return np.ascontiguousarray(grid.swapaxes(0, 1), dtype=np.float32)  # (gh', gw', dim)

    return resize


# Each maps (grid (gh, gw, dim), size (gh', gw')) to (gh', gw', dim).
POSITION_RESIZE_RULES: dict[str, ResizeRule] = {
    # Google's vision_transformer and big_vision: scipy's zoom of order 1, without its rounding
    # slip that leaves the last row and column zero for some sizes.
    "align_corners_bilinear": _separable(_align_corners_bilinear_matrix),
    # timm, when it reads one of Google's .npz files.
    "bilinear": _separable(_bilinear_matrix),
    # timm, for its own files (a=-0.5).
    "bicubic_antialias": _separable(_bicubic_antialias_matrix),
    # transformers (torch's a=-0.75).
    "bicubic": _separable(_bicubic_matrix),
}

# The paper's own, for models that come from nowhere.
DEFAULT_POSITION_RESIZE = "align_corners_bilinear"


def resize_position_embeddings(
    table: np.ndarray,
    num_prefix_tokens: int,
    source_grid: Pair,
    target_grid: Pair,
    rule: str,
) -> np.ndarray:
    """Return the position table for another grid of patches.

    Args:
        table: `(tokens, dim)`: the prefix rows, then the grid row by row.
        num_prefix_tokens: Leading rows that belong to no patch; they are kept as they are.
        source_grid: `(grid_height, grid_width)` of `table`.
        target_grid: `(grid_height, grid_width)` wanted.
        rule: A name of `POSITION_RESIZE_RULES`.

    Returns:
        `(new tokens, dim)`. `table` itself when the grids are equal.

    Raises:
        ValueError: If `rule` is unknown, or the rows do not make `source_grid`.
    """
    check_choice("rule", rule, POSITION_RESIZE_RULES)
    source_grid, target_grid = tuple(source_grid), tuple(target_grid)
    expected = num_prefix_tokens + source_grid[0] * source_grid[1]
    if len(table) != expected:
        raise ValueError(
            f"`table` must have {expected} rows, {num_prefix_tokens} of the prefix and one a cell "
            f"of the {source_grid} grid. Received: table.shape={table.shape}. "
            "Give the `source_grid` that it was made for."
        )
    if source_grid == target_grid:
        return table
    prefix, cells = table[:num_prefix_tokens], table[num_prefix_tokens:]
    grid = cells.reshape(*source_grid, -1)  # (gh, gw, dim)
    resized = POSITION_RESIZE_RULES[rule](grid, target_grid)  # (gh', gw', dim)
    return np.concatenate([prefix, resized.reshape(-1, table.shape[1])])  # (new tokens, dim)


def fit_positions(
    path: str, value: np.ndarray, source: ViTConfig, target: ViTConfig, rule: str
) -> np.ndarray:
    """Return a variable of one model for another that differs in image size alone.

    Args:
        path: The variable's path, such as `"position_embedding/embeddings"`.
        value: Its value in the first model.
        source: The first model's configuration.
        target: The other's.
        rule: A name of `POSITION_RESIZE_RULES`.

    Returns:
        `value` itself where it is no position table, or the grids are equal.

    Raises:
        ValueError: If the positions are relative and the grids differ.
    """
    layer, _, name = path.rpartition("/")
    if name == "relative_keys" and source.grid != target.grid:
        raise ValueError(
            "`image_size` must be the source's, or one of the same grid of patches, with "
            "`position_embedding='relative'`: offsets in a sequence have no place in another grid. "
            f"Received: {target.image_size}, the source has {source.image_size}."
        )
    if not layer.startswith("position_embedding"):
        return value
    if name == "embeddings":
        prefix = source.num_positions - source.grid[0] * source.grid[1]
        return resize_position_embeddings(value, prefix, source.grid, target.grid, rule)
    axis = ("row_embeddings", "column_embeddings").index(name)
    line, other = (source.grid[axis], 1), (target.grid[axis], 1)
    return resize_position_embeddings(value, 0, line, other, rule)


def adapt_patch_kernel(kernel: np.ndarray, num_channels: int) -> np.ndarray:
    """Return the patch kernel for images of another number of channels.

    To one channel the kernel is summed, so a grey picture gives what its copies in every
    channel gave before. To more, the channels repeat in order and are scaled by old / new.

    Args:
        kernel: `(patch_height, patch_width, channels, hidden_dim)`.
        num_channels: Channels wanted.

    Returns:
        `(patch_height, patch_width, num_channels, hidden_dim)`; `kernel` itself when it has
        `num_channels` already.

    Reference: timm's rule for `in_chans`.
    """
    channels = kernel.shape[2]
    if num_channels == channels:
        return kernel
    if num_channels == 1:
        return kernel.sum(axis=2, keepdims=True)
    repeats = -(-num_channels // channels)
    tiled = np.tile(kernel, (1, 1, repeats, 1))[:, :, :num_channels]
    return tiled * np.float32(channels / num_channels)


# The pseudo-inverse of what resizes a patch of pixels bilinearly.
_resize_kernel = _separable(
    lambda source, target: np.linalg.pinv(_bilinear_matrix(source, target).T)
)


def resize_patch_kernel(kernel: np.ndarray, patch_size: Pair) -> np.ndarray:
    """Return the patch kernel for patches of another size.

    A patch that is enlarged bilinearly meets the enlarged kernel as it met the old one.

    Args:
        kernel: `(patch_height, patch_width, channels, hidden_dim)`.
        patch_size: `(height, width)` wanted.

    Returns:
        `(*patch_size, channels, hidden_dim)`; `kernel` itself when it has that size already.

    Reference: "PI-resize", Beyer et al., *FlexiViT*, arXiv 2212.08013, section 3.4.
    """
    height, width, channels, hidden_dim = kernel.shape
    if (height, width) == tuple(patch_size):
        return kernel
    resized = _resize_kernel(kernel.reshape(height, width, -1), patch_size)
    return resized.reshape(*patch_size, channels, hidden_dim)
