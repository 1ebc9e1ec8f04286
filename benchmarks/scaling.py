"""How the time grows with tokens and with depth: fitted, compared with operations, drawn."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.drawing import Axes, text
from benchmarks.flops import attention_flops, depth_and_width, model_flops, num_tokens
from benchmarks.rows import Case, Group


@dataclasses.dataclass(frozen=True)
class Curve:
    """The time of one call over one property of the case.

    Args:
        name: `"scaling/..."`.
        axis: The property, in words.
        position: Its value for a case.
        cases: In the order of the property.
    """

    name: str
    axis: str
    position: Callable[[Case], int]
    cases: tuple[Case, ...]
    subject: str = "model_call"

    @property
    def entries(self) -> tuple[tuple[str, Case], ...]:
        return tuple((self.subject, case) for case in self.cases)

    @property
    def group(self) -> Group:
        return Group(self.name, self.entries)

    @property
    def expected_share(self) -> float:
        """The quadratic part of the operations at the end of the curve: attention over tokens."""
        last = self.cases[-1]
        return attention_flops(last) / model_flops(last) if self.axis == "tokens" else 0.0


def _case(**changes: int) -> Case:
    return Case("inference", "S/16", 8, "float32", **changes)


SIZES = (112, 160, 224, 288, 352, 448)
DEPTHS = (3, 6, 9, 12, 18, 24)
CURVES = (
    Curve(
        "scaling/tokens",
        "tokens",
        num_tokens,
        tuple(_case(image_size=size, num_layers=12) for size in SIZES),
    ),
    Curve(
        "scaling/depth",
        "layers",
        lambda case: depth_and_width(case)[0],
        tuple(_case(num_layers=depth) for depth in DEPTHS),
    ),
)


@dataclasses.dataclass(frozen=True)
class Fit:
    """`seconds = constant + linear x + quadratic x**2`, least squares of relative errors."""

    constant: float
    linear: float
    quadratic: float

    def __call__(self, x: float) -> float:
        return self.constant + self.linear * x + self.quadratic * x * x

    def quadratic_share(self, x: float) -> float:
        """Return the part of the time at `x` that is quadratic."""
        return self.quadratic * x * x / self(x)


def fit(positions: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Return the parabola through at least three points."""
    x, y = np.asarray(positions, "float64"), np.asarray(seconds, "float64")
    powers = np.stack([np.ones_like(x), x, x * x], axis=1) / y[:, None]
    return Fit(*map(float, np.linalg.lstsq(powers, np.ones_like(y), rcond=None)[0]))


def draw(curve: Curve, seconds: Sequence[float], fitted: Fit) -> str:
    """Return points and parabola as SVG."""
    positions = [curve.position(case) for case in curve.cases]
    axes = Axes(1.05 * max(positions), 1.1 * max(seconds))
    steps = [axes.right * step / 60 for step in range(61)]
    parts = axes.ticks(positions)
    parts.append(axes.line([(x, max(0.0, fitted(x))) for x in steps], "steelblue"))
    for x, y in zip(positions, seconds, strict=True):
        across, up = axes.point(x, y)
        parts.append(f'<circle cx="{across}" cy="{up}" r="3" fill="firebrick"/>')
        parts.append(text(across, up - 7, f"{1e3 * y:.0f}", "end"))
    case = curve.cases[0]
    what = f"ms a call of {case.model}, batch {case.batch}, {case.dtype}; line: fitted parabola"
    return axes.svg(curve.axis, what, parts)
