"""How fast pictures are evaluated, and what they wait for."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The pipeline reads ahead: where the model is the slower of the two, nothing is waited for.
_MOST_WAITING = 0.1


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Time that pictures took.

    Args:
        pictures: How many.
        seconds: From asking for the first to having its answer, summed over batches.
        waiting: Seconds of those until the pictures were there.
    """

    pictures: int
    seconds: float
    waiting: float

    @property
    def pictures_per_second(self) -> float:
        """Of reading, resizing and the model together."""
        return self.pictures / self.seconds

    @property
    def waiting_share(self) -> float:
        """Share of the time spent waiting for pictures, 0..1."""
        return self.waiting / self.seconds

    @property
    def bottleneck(self) -> str:
        """What to make faster: `"input"`, if more than a tenth of the time is waiting for it,
        or `"model"`."""
        return "input" if self.waiting_share > _MOST_WAITING else "model"


class Stopwatch:
    """Times batches while they pass.

    A batch of a size that came for the first time is not counted, since the backend compiles for
    it: neither is the first batch, nor a last one that is not full. What the pipeline read ahead
    during that compilation is not waited for later, which makes a short evaluation look faster.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._sizes = set()
        self._pictures, self._seconds, self._waiting = 0, 0.0, 0.0

    def watch(self, batches: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """The same batches, (images, labels); a batch takes until the next one is asked for."""
        asked = self._clock()
        for batch in batches:
            came = self._clock()
            yield batch
            done, size = self._clock(), len(batch[1])
            if size in self._sizes:
                self._pictures += size
                self._seconds += done - asked
                self._waiting += came - asked
            self._sizes.add(size)
            asked = done

    @property
    def throughput(self) -> Throughput | None:
        """What was counted; None if no batch was."""
        if not self._pictures:
            return None
        return Throughput(self._pictures, self._seconds, self._waiting)
