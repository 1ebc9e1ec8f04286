"""What a model made of pictures, and the figures that follow from it."""

import dataclasses
from typing import Any

import numpy as np

from keras_vit.evaluation.calibration import ReliabilityBin, calibration_error, reliability
from keras_vit.evaluation.throughput import Throughput

# Best classes kept of each picture. Where there are no more than these, top-5 says nothing.
TOP_K = 5


@dataclasses.dataclass(frozen=True)
class ClassScore:
    """How one class fares, where every picture shows one.

    Args:
        name: The class.
        pictures: Pictures that show it.
        top1: Share of those that are named so, its recall; None without pictures.
        top5: Share of those with this name among the five best; None also where
            `Evaluation.top5` is.
        precision: Share of the pictures named so that show it; None if none is named so.
        confused_with: What its pictures are most often called instead; None if never.
        confusions: How many are called that.
    """

    name: str
    pictures: int
    top1: float | None
    top5: float | None
    precision: float | None
    confused_with: str | None
    confusions: int


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """What a model made of pictures that show one class each.

    Args:
        class_names: One name a logit of the model.
        data_classes: Those that the data know, as indices of `class_names`.
        labels: `(pictures,)`, what each shows, as an index of `class_names`.
        predictions: `(pictures, k)`, the model's best classes, best first; k is 5, or all
            classes if there are fewer. Of equal logits the class of lower index comes first.
        probabilities: `(pictures, k)`, float32, their softmax probabilities.
        loss: Mean cross-entropy, in nats.
        throughput: How fast that was; None where too few batches came to tell.
    """

    class_names: tuple[str, ...]
    data_classes: tuple[int, ...]
    labels: np.ndarray
    predictions: np.ndarray
    probabilities: np.ndarray
    loss: float
    throughput: Throughput | None = None

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self.labels)

    @property
    def top1(self) -> float:
        """Share of the pictures whose best class is the right one."""
        return float(np.mean(self._is_hit(1)))

    @property
    def top5(self) -> float | None:
        """Share of those with the right class among the best five; None below six classes."""
        return float(np.mean(self._is_hit(TOP_K))) if self._has_top5 else None

    @property
    def calibration_error(self) -> float:
        """Expected distance of accuracy and confidence, 0..1, over the bins of `reliability`."""
        return calibration_error(self.reliability())

    def reliability(self) -> list[ReliabilityBin]:
        """Pictures by their highest probability, in 15 bins of equal width."""
        return reliability(self.probabilities[:, 0], self._is_hit(1))

    @property
    def confusion(self) -> np.ndarray:
        """`(classes, classes)`: pictures by what they show (row) and are named (column)."""
        size = len(self.class_names)
        pairs = self.labels.astype(np.int64) * size + self.predictions[:, 0]
        return np.bincount(pairs, minlength=size * size).reshape(size, size)

    def confused_pairs(self) -> list[tuple[str, str, int]]:
        """What is shown, what it is called instead and how often, most often first."""
        names = self.class_names
        return [(names[shown], names[named], count) for shown, named, count in self._mistakes()]

    def class_scores(self) -> list[ClassScore]:
        """One score for each class of the data, in their order."""
        size = len(self.class_names)
        shown, named, top1, top5 = (
            np.bincount(classes, minlength=size)
            for classes in (
                self.labels,
                self.predictions[:, 0],
                self.labels[self._is_hit(1)],
                self.labels[self._is_hit(TOP_K)],
            )
        )
        worst: dict[int, tuple[int, int]] = {}
        for label, mistaken, count in self._mistakes():
            worst.setdefault(label, (mistaken, count))
        scores = []
        for index in self.data_classes:
            mistaken, count = worst.get(index, (None, 0))
            scores.append(
                ClassScore(
                    name=self.class_names[index],
                    pictures=int(shown[index]),
                    top1=_share(top1[index], shown[index]),
                    top5=_share(top5[index], shown[index]) if self._has_top5 else None,
                    precision=_share(top1[index], named[index]),
                    confused_with=None if mistaken is None else self.class_names[mistaken],
                    confusions=count,
                )
            )
        return scores

    @property
    def _has_top5(self) -> bool:
        return len(self.class_names) > TOP_K

    def _is_hit(self, k: int) -> np.ndarray:
        return (self.predictions[:, :k] == self.labels[:, None]).any(axis=1)

    def _mistakes(self) -> list[tuple[int, int, int]]:
        """Shown, named, how often; a whole matrix of 21843 classes would take 3.8 GB."""
        pairs = np.stack([self.labels, self.predictions[:, 0]], axis=1)[~self._is_hit(1)]
        unique, counts = np.unique(pairs, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [(*map(int, unique[i]), int(counts[i])) for i in order]


@dataclasses.dataclass(frozen=True)
class LabelScore:
    """How one class fares, where a picture may show several.

    Args:
        name: The class.
        pictures: Pictures that show it.
        average_precision: Mean precision over the pictures that show it, each counted with all
            that score at least as high; None without such pictures.
        precision: Share of the pictures named so that show it; None if none is named so.
        recall: Share of those that show it that are named so; None without such pictures.
        f1: Harmonic mean of the two; None if no picture shows it or is named so.
    """

    name: str
    pictures: int
    average_precision: float | None
    precision: float | None
    recall: float | None
    f1: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class MultiLabelEvaluation:
    """What a model made of pictures that may show several classes, or none.

    A picture is named by each class whose sigmoid is above 0.5, that is, whose logit is above 0.

    Args:
        class_names: One name a class of the data.
        labels: `(pictures, classes)`, bool, what each shows.
        logits: `(pictures, classes)`, float32.
        loss: Binary cross-entropy in nats, summed over classes as in training, mean of pictures.
        throughput: As of `Evaluation`.
    """

    class_names: tuple[str, ...]
    labels: np.ndarray
    logits: np.ndarray
    loss: float
    throughput: Throughput | None = None

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self.labels)

    @property
    def probabilities(self) -> np.ndarray:
        """`(pictures, classes)`, float32: the sigmoid of the logits."""
        # By tanh, which does not overflow.
        return (0.5 + 0.5 * np.tanh(0.5 * self.logits.astype(np.float64))).astype(np.float32)

    @property
    def mean_average_precision(self) -> float | None:
        """Mean over the classes that some picture shows; None if none does."""
        values = [score.average_precision for score in self.label_scores()]
        values = [value for value in values if value is not None]
        return float(np.mean(values)) if values else None

    @property
    def f1(self) -> float | None:
        """F1 of all decisions together, whatever their class ("micro")."""
        named = self.logits > 0
        return _share(2 * np.sum(named & self.labels), np.sum(named) + np.sum(self.labels))

    def label_scores(self) -> list[LabelScore]:
        """One score for each class of the data, in their order."""
        scores = []
        for name, truth, logits in zip(self.class_names, self.labels.T, self.logits.T, strict=True):
            named, shown, hits = np.sum(logits > 0), np.sum(truth), np.sum(truth & (logits > 0))
            scores.append(
                LabelScore(
                    name=name,
                    pictures=int(shown),
                    average_precision=_average_precision(truth, logits),
                    precision=_share(hits, named),
                    recall=_share(hits, shown),
                    f1=_share(2 * hits, named + shown),
                )
            )
        return scores


def _average_precision(truth: np.ndarray, scores: np.ndarray) -> float | None:
    if not truth.any():
        return None
    order = np.argsort(-scores, kind="stable")
    # Pictures of one score are found together.
    is_last = np.append(np.diff(scores[order]) != 0, True)
    hits, found = np.cumsum(truth[order])[is_last], np.flatnonzero(is_last) + 1
    return float(np.sum(np.diff(hits, prepend=0) * hits / found) / hits[-1])


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None
