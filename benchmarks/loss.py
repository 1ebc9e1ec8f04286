"""Losses of trainings that differ in one thing: smoothed, compared, drawn."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.drawing import Axes, round_numbers, text

COLOURS = ("darkgrey", "steelblue", "firebrick")


def smooth(losses: Sequence[float], window: int) -> np.ndarray:
    """Return the mean of each `window` successive losses."""
    return np.convolve(losses, np.full(window, 1.0 / window), "valid")


def gaps(losses: Sequence[float], reference: Sequence[float]) -> tuple[float, float]:
    """Return by how much of the reference two curves differ: at the end, and at most."""
    apart = np.abs(np.asarray(losses) / np.asarray(reference) - 1.0)
    return float(apart[-1]), float(apart.max())


def draw(curves: Mapping[str, Sequence[float]], steps: Sequence[int]) -> str:
    """Return smoothed curves as SVG.

    Args:
        curves: Losses, each the mean of the same number of steps, by what is trained.
        steps: Of each loss the last step in that mean.
    """
    axes = Axes(1.05 * steps[-1], 1.05 * max(map(max, curves.values())))
    parts = axes.ticks(round_numbers(axes.right), round_numbers(axes.top))
    right, top = axes.point(axes.right, axes.top)
    height = 16 * len(curves)
    parts.append(f'<rect x="{right - 130}" y="{top}" width="130" height="{height}" fill="white"/>')
    for number, (name, losses) in enumerate(curves.items()):
        colour = COLOURS[number]
        parts.append(axes.line(zip(steps, losses, strict=True), colour))
        parts.append(text(right, top + 12 + 16 * number, name, "end", colour))
    return axes.svg("step", f"training loss, mean of {steps[0]} steps", parts)
