"""Curves as SVG, on two scales that begin at 0."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

WIDTH, HEIGHT, MARGIN = 480, 320, 56


@dataclasses.dataclass(frozen=True)
class Axes:
    """Where numbers lie in the picture.

    Args:
        right: The greatest number across.
        top: The greatest number upwards.
    """

    right: float
    top: float

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of two numbers, in pixels from the upper left corner."""
        across = MARGIN + x / self.right * (WIDTH - 2 * MARGIN)
        return round(across, 1), round(HEIGHT - MARGIN - y / self.top * (HEIGHT - 2 * MARGIN), 1)

    def line(self, points: Iterable[tuple[float, float]], colour: str) -> str:
        """Return a line through points."""
        path = " ".join("{},{}".format(*self.point(x, y)) for x, y in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}"/>'

    def ticks(self, across: Iterable[float], up: Iterable[float] = ()) -> list[str]:
        """Return numbers at the axes, those upwards with a line through the picture."""
        (left, base), (end, _) = self.point(0, 0), self.point(self.right, 0)
        parts = [text(self.point(x, 0)[0], base + 14, f"{x:g}", "middle") for x in across]
        for y in up:
            height = self.point(0, y)[1]
            parts.append(f'<path d="M{left},{height} H{end}" stroke="lightgrey"/>')
            parts.append(text(left - 6, height + 4, f"{y:g}", "end"))
        return parts

    def svg(self, across: str, up: str, parts: Sequence[str]) -> str:
        """Return the picture: axes with what they show, in words, and the parts on top."""
        (left, base), (end, ceiling) = self.point(0, 0), self.point(self.right, self.top)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                'font-family="sans-serif" font-size="11">',
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
                text(WIDTH / 2, HEIGHT - 12, across, "middle"),
                text(left, ceiling - 10, up),
                *parts,
                f'<path d="M{left},{ceiling} V{base} H{end}" fill="none" stroke="black"/>',
                "</svg>",
                "",
            ]
        )


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = "black") -> str:
    """Return words at a place in pixels, which begin, end or have their middle there."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{content}</text>'


def round_numbers(end: float) -> list[float]:
    """Return 3 to 7 round numbers from 0, in equal steps, none above `end`."""
    power = 10.0 ** math.floor(math.log10(end))
    step = next(power * part for part in (0.2, 0.5, 1.0, 2.0) if end < 7 * power * part)
    return [round(step * number, 12) for number in range(int(end / step) + 1)]
