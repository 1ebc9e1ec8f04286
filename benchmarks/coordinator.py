"""Peers in turn, a process each, and the order reversed every other round."""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import PEERS, Peer
from benchmarks.rows import WRITING_TASKS, Case, Group

ROOT = Path(__file__).resolve().parent.parent
Entry = tuple[str, Case]


class WorkerError(Exception):
    """A peer that failed, died or kept silent; the text says how."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How samples are taken.

    Args:
        rounds: Samples of each peer.
        min_seconds: That a sample lasts, unless one call lasts longer.
        most_foreign: Share of the machine, 0..1, above which a sample is taken again.
        retakes: How often.
        patience: Seconds after which a silent process is given up.
    """

    rounds: int = 9
    min_seconds: float = 1.0
    most_foreign: float = 0.05
    retakes: int = 3
    patience: float = 900.0


QUICK = Settings(rounds=2, min_seconds=0.0, most_foreign=float("inf"), retakes=0)


@dataclasses.dataclass
class Measured:
    """What came of a group.

    Args:
        samples: Of each entry: what `Worker.sample` answers, with `round` and `clean`.
        descriptions: Of each entry: what `Worker.describe` answers.
        errors: Of entries that failed.
    """

    samples: dict[Entry, list[dict]]
    descriptions: dict[Entry, dict] = dataclasses.field(default_factory=dict)
    errors: dict[Entry, str] = dataclasses.field(default_factory=dict)

    def by_round(self, entry: Entry, rounds: int, figure: str | None = None) -> list[float | None]:
        """Return the clean seconds a call, or another figure, of each round; None without."""
        values: list[float | None] = [None] * rounds
        for sample in self.samples.get(entry, ()):
            if sample["clean"]:
                found = sample["seconds"] if figure is None else sample["figures"].get(figure)
                values[sample["round"]] = found
        return values


class Process:
    """A worker, from this side."""

    def __init__(self, peer: Peer, case: Case, log: Path, patience: float):
        self.peer, self.case, self.patience = peer, dataclasses.asdict(case), patience
        paths = [str(ROOT), os.environ.get("PYTHONPATH"), peer.environment.get("PYTHONPATH")]
        environment = {
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **os.environ,
            **peer.environment,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                cwd=log.parent,
                env=environment,
                start_new_session=True,  # so that what it starts can be ended with it
            )

    def close(self) -> None:
        """End it and what it started. It has nothing to lose: its files are in a scratch folder."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def ask(self, command: str, **arguments: Any) -> dict:
        """Return the answer to a command."""
        line = json.dumps({"command": command, **arguments}).encode() + b"\n"
        try:
            self.process.stdin.write(line)
        except BrokenPipeError:
            raise WorkerError(self._death()) from None
        answer = json.loads(self._read_line(time.monotonic() + self.patience))
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def write(self) -> dict:
        return self.ask("write", target=self.peer.target, case=self.case)

    def prepare(self) -> dict:
        return self.ask("prepare", target=self.peer.target, case=self.case)

    def _read_line(self, deadline: float) -> bytes:
        line, output = b"", self.process.stdout
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([output], [], [], left)[0]:
                raise WorkerError(f"no answer in {self.patience:.0f} seconds")
            part = os.read(output.fileno(), 1 << 16)
            if not part:
                raise WorkerError(self._death())
            line += part
        return line

    def _death(self) -> str:
        self.process.wait()
        last = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        return "\n".join([*last, f"the process ended with status {self.process.returncode}"])


class Measurement:
    """One group, from the start of its processes to their end.

    Args:
        group: What to measure.
        settings: How.
        folder: Working directory of the processes.
        report: Takes a line of progress.
        peers: The table in which names are found.
    """

    def __init__(
        self,
        group: Group,
        settings: Settings,
        folder: Path,
        report: Callable[[str], None] = lambda text: None,
        peers: Mapping[str, Peer] = PEERS,
    ):
        self.group, self.settings, self.folder = group, settings, folder
        self.report, self.peers = report, peers
        self.measured = Measured({entry: [] for entry in group.entries})
        self.running: dict[Entry, Process] = {}

    def run(self) -> Measured:
        """Sample all entries, round by round. A peer that fails is left out; others go on."""
        try:
            for entry in self.group.entries:
                self.report(f"preparing {entry[0]}")
                with self._failures(entry):
                    self._prepare(entry)
            for number in range(1 if self.group.is_exact else self.settings.rounds):
                self.report(f"round {number + 1}")
                for entry in self.group.entries[:: -1 if number % 2 else 1]:
                    if entry not in self.measured.errors:
                        with self._failures(entry):
                            self._take(entry, number)
            for entry in list(self.running):
                with self._failures(entry):
                    self.measured.descriptions[entry] = self.running[entry].ask("describe")
        finally:
            while self.running:
                self.running.popitem()[1].close()
        return self.measured

    @contextlib.contextmanager
    def _failures(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except WorkerError as error:
            self.measured.errors[entry] = str(error)
            self.report(f"{entry[0]} failed: {str(error).strip().splitlines()[-1]}")
            if entry in self.running:
                self.running.pop(entry).close()

    def _process(self, entry: Entry) -> Process:
        name, case = entry
        log = self.folder / f"{name}-{case.name.replace('/', '-')}.log"
        return Process(self.peers[name], case, log, self.settings.patience)

    def _prepare(self, entry: Entry) -> None:
        if entry[1].task in WRITING_TASKS:
            with contextlib.closing(self._process(entry)) as process:
                process.write()
        if not self.group.is_fresh:
            self.running[entry] = self._process(entry)
            self.running[entry].prepare()

    def _take(self, entry: Entry, number: int) -> None:
        """Take the sample of a round, again where others used the machine."""
        for _ in range(self.settings.retakes + 1):
            sample = self._sample(entry)
            clean = self.group.is_exact or sample["foreign"] <= self.settings.most_foreign
            self.measured.samples[entry].append({"round": number, "clean": clean, **sample})
            if clean:
                return

    def _sample(self, entry: Entry) -> dict:
        if not self.group.is_fresh:
            return self.running[entry].ask("sample", min_seconds=self.settings.min_seconds)
        with contextlib.closing(self._process(entry)) as process:
            process.prepare()
            sample = process.ask("sample", min_seconds=0.0)
            self.measured.descriptions[entry] = process.ask("describe")
        return sample
