"""`python -m benchmarks`: measure rows, and write `results/NAME.json` and `results/NAME.md`."""

import argparse
import fnmatch
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import loss, machine, report, scaling
from benchmarks.coordinator import QUICK, ROOT, Measurement, Settings
from benchmarks.rows import ROWS, Case, Group, Row, groups

RESULTS = Path(__file__).parent / "results"
LEAST_ROUNDS = 7
# The rate of matrix products in both types, whatever rows are asked for.
RATES = Group(
    "gemm",
    tuple(("gemm", Case("inference", "B/16", 8, dtype)) for dtype in ("float32", "bfloat16")),
)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rows", nargs="+", metavar="PATTERN", help="names, with * and ?")
    which.add_argument("--all", action="store_true", help="rows without a bound, too")
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--quick", action="store_true", help="two rounds: a try, no measurement")
    parser.add_argument("--name", default="cpu", help="of the files of results")
    parser.add_argument("--list", action="store_true", help="name the rows, and end")
    options = parser.parse_args(arguments)
    if options.rounds < LEAST_ROUNDS and not options.quick:
        parser.error(f"--rounds must be at least {LEAST_ROUNDS}, or --quick for a try")
    if options.name in ("", "..") or Path(options.name).name != options.name:
        parser.error("--name must be a name without a folder")
    return options


def select(options: argparse.Namespace) -> tuple[list[Row], list[scaling.Curve]]:
    """Return the rows and curves that are asked for: by default those with a bound."""
    if options.all:
        return list(ROWS), list(scaling.CURVES)
    if not options.rows:
        return [row for row in ROWS if row.bound is not None], list(scaling.CURVES)

    def wanted(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in options.rows)

    rows = [row for row in ROWS if wanted(row.name)]
    return rows, [curve for curve in scaling.CURVES if wanted(curve.name)]


class Progress:
    """Lines on standard error: where the run is, and how long it will take."""

    def __init__(self, total: int):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.group = ""

    def enter(self, name: str) -> None:
        self.group = name

    def leave(self) -> None:
        self.done += 1

    def __call__(self, text: str) -> None:
        passed = time.monotonic() - self.start
        left = ""
        if self.done:
            minutes = passed / self.done * (self.total - self.done) / 60
            left = f", about {minutes:.0f} min left"
        print(
            f"[{self.done + 1}/{self.total}] {self.group}: {text} ({passed:.0f} s{left})",
            file=sys.stderr,
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    rows, curves = select(options)
    if not rows and not curves:
        print("no such row; --list names them", file=sys.stderr)
        return 2
    if options.list:
        for row in rows:
            bound = "" if row.bound is None else f"  {row.better} than {row.bound:g}"
            print(row.name + bound)
        print("\n".join(curve.name for curve in curves))
        return 0
    settings = QUICK if options.quick else Settings(rounds=options.rounds)
    # A polite end, too, leaves no process behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory(prefix="keras_vit-bench-") as folder:
            run(options.name, rows, curves, settings, not options.quick, Path(folder))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def run(
    name: str,
    rows: Sequence[Row],
    curves: Sequence[scaling.Curve],
    settings: Settings,
    is_measurement: bool,
    folder: Path,
    results: Path = RESULTS,
) -> dict:
    """Measure, and save what there is after each group."""
    result = {
        "name": name,
        "is_measurement": is_measurement,
        "is_complete": False,
        "machine": machine.describe(ROOT),
        "gemm_gflops": {},
        "rows": [],
        "groups": [],
    }
    work = [(RATES, None), *((group, None) for group in groups(rows))]
    work += [(curve.group, curve) for curve in curves]
    cases = {case.name: case for group, _ in work for _, case in group.entries}
    progress = Progress(len(work))
    for group, curve in work:
        progress.enter(group.name)
        measured = Measurement(group, settings, folder, progress).run()
        progress.leave()
        result["rows"] += report.rows_of(group, measured, settings.rounds, is_measurement)
        if curve is not None:
            row, seconds, fitted = report.curve_of(curve, measured, settings.rounds)
            result["rows"].append(row)
            if fitted is not None:
                path = results / f"{name}-{curve.axis}.svg"
                report.write_text(path, scaling.draw(curve, seconds, fitted))
        for (_, case), notes in measured.descriptions.items():
            if "curves" in notes:
                path = results / f"{name}-{case.task}.svg"
                report.write_text(path, loss.draw(notes["curves"], notes["steps"]))
        result["groups"].append(report.raw(group, measured))
        result["gemm_gflops"] = report.gemm_rates(result["groups"], cases)
        report.save(result, results)
    result["is_complete"] = True
    report.save(result, results)
    print(results / f"{name}.md")
    return result


if __name__ == "__main__":
    sys.exit(main())
