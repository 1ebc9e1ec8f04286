"""How much of the machine others used during a sample, from `/proc/stat`."""

import dataclasses
import os
import time
from pathlib import Path

# Columns of the line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal. Guests' time is
# part of user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)


def busy_seconds(stat: str, ticks: int) -> float:
    """Return the seconds that all processors were busy or stolen, of the text of `/proc/stat`."""
    columns = stat.split("\n", 1)[0].split()[1:]
    return sum(int(columns[index]) for index in _BUSY) / ticks


def count_cores(stat: str) -> int:
    """Return the number of processors that `/proc/stat` counts."""
    return sum(line.startswith("cpu") for line in stat.splitlines()) - 1


def foreign_share(busy: float, own: float, wall: float, cores: int) -> float:
    """Return the share of the machine's time, 0..1, that others used.

    Args:
        busy: Seconds that all processors were busy or stolen.
        own: Seconds of processor time of this process, all threads.
        wall: Seconds that passed.
        cores: Number of processors.
    """
    return max(0.0, busy - own) / (cores * wall) if wall > 0.0 else 0.0


@dataclasses.dataclass(frozen=True)
class Stamp:
    """The clocks at one moment."""

    wall: float
    own: float
    busy: float
    cores: int

    @classmethod
    def now(cls) -> "Stamp":
        stat = Path("/proc/stat").read_text(encoding="ascii")
        busy = busy_seconds(stat, os.sysconf("SC_CLK_TCK"))
        return cls(time.perf_counter(), time.process_time(), busy, count_cores(stat))

    def foreign_since(self, start: "Stamp") -> float:
        """Return `foreign_share` from `start` to this moment."""
        return foreign_share(
            self.busy - start.busy, self.own - start.own, self.wall - start.wall, self.cores
        )
