"""A process that measures one peer: commands as lines of JSON in, answers as lines of JSON out."""

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cpu_time import Stamp
from benchmarks.peers import Call
from benchmarks.rows import EXACT_TASKS, FRESH_TASKS, Case

# The first call compiles; some compile once more on the second.
WARM_UPS = 2


class Worker:
    """The peer of this process, and the commands that it takes."""

    def __init__(self):
        self.call: Call | None = None
        self.start: Stamp | None = None

    def write(self, target: str, case: Mapping[str, Any]) -> dict:
        """Let the peer write the files that it reads later, if it has any."""
        module = importlib.import_module(target.split(":")[0])
        if hasattr(module, "write"):
            module.write(Case(**case))
        return {}

    def prepare(self, target: str, case: Mapping[str, Any]) -> dict:
        """Build the peer and warm it up, but for one that makes a single call."""
        start = Stamp.now()
        module, function = target.split(":")
        self.call = getattr(importlib.import_module(module), function)(Case(**case))
        if case["task"] in FRESH_TASKS:
            self.start = start
        elif case["task"] not in EXACT_TASKS:
            for _ in range(WARM_UPS):
                self.call.run()
        return {"seconds": time.perf_counter() - start.wall}

    def sample(self, min_seconds: float) -> dict:
        """Call until that many seconds passed, and at least once.

        Returns:
            `seconds` a call, number of `calls`, `cpu_seconds` of all threads, the `foreign` share
            of the machine, and the means of `figures` that the calls returned. Of a new process
            `foreign` counts from the start of its preparation, which is long enough to be told
            in ticks of 10 ms.
        """
        start = Stamp.now()
        figures: dict[str, float] = {}
        calls = 0
        while not calls or time.perf_counter() - start.wall < min_seconds:
            for name, value in (self.call.run() or {}).items():
                figures[name] = figures.get(name, 0.0) + value
            calls += 1
        seconds = time.perf_counter() - start.wall
        end = Stamp.now()
        return {
            "seconds": seconds / calls,
            "calls": calls,
            "cpu_seconds": end.own - start.own,
            "foreign": end.foreign_since(self.start or start),
            "figures": {name: value / calls for name, value in figures.items()},
        }

    def describe(self) -> dict:
        """Return the peer's notes, and threads and peak memory of the process."""
        status = dict(
            line.split(":", 1)
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        )
        return {
            **self.call.notes,
            "process_threads": int(status["Threads"]),
            "peak_megabytes": int(status["VmHWM"].split()[0]) / 1024,
        }


def main():
    # Libraries print on standard output, which is for answers alone.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            answer = getattr(worker, arguments.pop("command"))(**arguments)
        except Exception as error:
            traceback.print_exc()  # on the terminal; results name no path of a machine
            answer = {"error": "".join(traceback.format_exception_only(error))}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
