"""Whether a model that is 80 % sure is right four times in five.

Reference: Guo et al., On Calibration of Modern Neural Networks (arXiv 1706.04599), section 2,
equation 3; 15 bins as in its Table 1.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

NUM_BINS = 15


@dataclasses.dataclass(frozen=True)
class ReliabilityBin:
    """Pictures whose highest probability is above `low` and at most `high`.

    Args:
        low: From 0.
        high: To 1.
        pictures: How many.
        confidence: Mean of their highest probabilities; None without pictures.
        accuracy: Share of them that is named rightly; None without pictures.
    """

    low: float
    high: float
    pictures: int
    confidence: float | None
    accuracy: float | None


def reliability(confidences: np.ndarray, are_right: np.ndarray) -> list[ReliabilityBin]:
    """Sort pictures into bins of equal width, those without pictures too.

    Args:
        confidences: `(pictures,)`, the highest probability of each, 0..1.
        are_right: `(pictures,)`, bool, whether that class is the right one.
    """
    confidences = np.asarray(confidences, np.float64)
    indices = np.clip(np.ceil(confidences * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)
    counts = np.bincount(indices, minlength=NUM_BINS).tolist()
    sums = np.bincount(indices, confidences, NUM_BINS).tolist()
    hits = np.bincount(indices, are_right, NUM_BINS).tolist()
    return [
        ReliabilityBin(
            low=index / NUM_BINS,
            high=(index + 1) / NUM_BINS,
            pictures=count,
            confidence=total / count if count else None,
            accuracy=right / count if count else None,
        )
        for index, (count, total, right) in enumerate(zip(counts, sums, hits, strict=True))
    ]


def calibration_error(bins: Iterable[ReliabilityBin]) -> float:
    """Mean distance of accuracy and confidence, each bin by its pictures: the expected one."""
    filled = [part for part in bins if part.pictures]
    distances = [part.pictures * abs(part.accuracy - part.confidence) for part in filled]
    return sum(distances) / sum(part.pictures for part in filled)
