"""From samples to rows, and rows to files."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import flops, statistics
from benchmarks.coordinator import Entry, Measured
from benchmarks.rows import COMPUTING_TASKS, Case, Group, Row
from benchmarks.scaling import Curve, fit

# The least number of rounds whose range holds the median with 95 %; 5 reach 93.8 %.
LEAST_ROUNDS = 6


def rows_of(group: Group, measured: Measured, rounds: int, counts: bool) -> list[dict[str, Any]]:
    """Return a group's finished rows.

    Args:
        group: The group.
        measured: Its samples.
        rounds: That were asked for.
        counts: Whether this is a measurement; a quick try passes nothing.
    """
    rounds = 1 if group.is_exact else rounds
    return [_finish(row, group, measured, rounds, counts) for row in group.rows]


def _finish(
    row: Row, group: Group, measured: Measured, rounds: int, counts: bool
) -> dict[str, Any]:
    subject = (row.subject, row.case)
    ours = measured.by_round(subject, rounds, row.quantity)
    if row.peer:
        theirs = measured.by_round((row.peer, row.case), rounds, row.quantity)
        scale = gemm_scale(row.case) if row.peer == "gemm" else 1.0
        values = [scale * ratio for ratio in statistics.round_ratios(theirs, ours)]
    else:
        values = [value for value in ours if value is not None]
    interval = statistics.median_interval(values)
    if group.is_exact and values:
        interval = (values[0], values[0])
    failed = [measured.errors.get((name, row.case)) for name in row.names]
    errors = [error for error in failed if error]
    finished = _row(row.name, values, interval, row.bound, row.better)
    if row.bound is not None:
        finished["passed"] = (
            counts and not errors and statistics.clears(interval, row.bound, row.better)
        )
    seconds = _seconds(measured, subject, rounds)
    finished |= {
        "seconds": seconds,
        "peer_seconds": _seconds(measured, (row.peer, row.case), rounds),
        **gemm_beside(row.case, measured, rounds, seconds),
    }
    if errors:
        finished["note"] = f"failed: {errors[0].strip().splitlines()[-1]}"
    elif not counts:
        finished["note"] = "quick: no measurement"
    elif interval is None:
        finished["note"] = f"only {len(values)} of {rounds} rounds undisturbed"
    return finished


def _seconds(measured: Measured, entry: Entry, rounds: int) -> float | None:
    found = measured.by_round(entry, rounds)
    return statistics.median([value for value in found if value is not None])


def _row(name: str, values: list, interval: Any, bound: float | None, better: str) -> dict:
    return {
        "row": name,
        "value": statistics.median(values),
        "interval": interval and list(interval),
        "bound": bound,
        "better": better,
        "passed": None,
        "rounds": len(values),
    }


def gemm_scale(case: Case) -> float:
    """Return how many times a block's products the whole of a case's operations is."""
    times = 3.0 if case.task == "train" else 1.0
    return times * flops.model_flops(case) / flops.block_flops(case)


def gemm_beside(
    case: Case, measured: Measured, rounds: int, seconds: float | None
) -> dict[str, float]:
    """Return the rate of matrix products of the same rounds, and the subject's share of it."""
    if case.task not in COMPUTING_TASKS:
        return {}
    block = _seconds(measured, ("gemm", case), rounds)
    if block is None:
        return {}
    beside = {"gemm_gflops": flops.block_flops(case) / block / 1e9}
    if seconds:
        beside["gemm_share"] = gemm_scale(case) * block / seconds
    return beside


def curve_of(curve: Curve, measured: Measured, rounds: int) -> tuple[dict, list[float], Any]:
    """Return a curve's row, its median seconds, and the parabola; without all points, no parabola.

    The value is the quadratic part of the time at the end of the curve.
    """
    columns = [measured.by_round(entry, rounds) for entry in curve.entries]
    positions = [curve.position(case) for case in curve.cases]
    whole = [row for row in zip(*columns, strict=True) if None not in row]
    shares = [fit(positions, row).quadratic_share(positions[-1]) for row in whole]
    interval = statistics.median_interval(shares)
    row = _row(f"{curve.name}/quadratic_share", shares, interval, None, "lower")
    row["expected"] = curve.expected_share
    if not whole:
        return row | {"note": "no round with all points"}, [], None
    seconds = [statistics.median(column) for column in zip(*whole, strict=True)]
    fitted = fit(positions, seconds)
    row |= {
        curve.axis: positions,
        "seconds_each": seconds,
        "fit": [fitted.constant, fitted.linear, fitted.quadratic],
        "largest_residual": max(
            abs(fitted(x) / y - 1.0) for x, y in zip(positions, seconds, strict=True)
        ),
    }
    return row, seconds, fitted


def raw(group: Group, measured: Measured) -> dict[str, Any]:
    """Return all samples, dropped ones too, as JSON values."""

    def of(entry: Entry) -> dict[str, Any]:
        return {
            "peer": entry[0],
            "case": entry[1].name,
            "describe": measured.descriptions.get(entry),
            "error": measured.errors.get(entry),
            "samples": measured.samples[entry],
        }

    return {"group": group.name, "entries": [of(entry) for entry in group.entries]}


def gemm_rates(groups: Iterable[Mapping[str, Any]], cases: Mapping[str, Case]) -> dict[str, float]:
    """Return the median rate of matrix products over a run, in 1e9 operations a second, by type."""
    rates: dict[str, list[float]] = {}
    for group in groups:
        for entry in group["entries"]:
            if entry["peer"] != "gemm":
                continue
            case = cases[entry["case"]]
            dtype = "float32" if case.dtype == "float32" else "bfloat16"
            rates.setdefault(dtype, []).extend(
                flops.block_flops(case) / sample["seconds"] / 1e9
                for sample in entry["samples"]
                if sample["clean"]
            )
    return {dtype: statistics.median(values) for dtype, values in rates.items() if values}


def markdown(result: Mapping[str, Any]) -> str:
    """Return the table of a result."""
    machine = result["machine"]
    rates = ", ".join(f"{rate:.0f} in {dtype}" for dtype, rate in result["gemm_gflops"].items())
    flags = " ".join(name for name, found in machine["flags"].items() if found)
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items() if found)
    lines = [
        f"# {result['name']}",
        "",
        *([] if result["is_measurement"] else ["**A quick try, no measurement.**", ""]),
        *([] if result["is_complete"] else ["**The run did not end.**", ""]),
        f"{machine['date']}, commit {machine['commit']}. {machine['cpu']} ({flags}), "
        f"{machine['threads']} threads, oneDNN in TensorFlow: {machine['tensorflow_onednn']}. "
        f"Matrix products of the same run, GFLOP/s: {rates or 'not measured'}. "
        f"Python {machine['python']}, {versions}.",
        "",
        "| row | value | 95 % interval | bound | passed | ms | peer's ms | share of GEMM | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        sign = "≥" if row["better"] == "higher" else "≤"
        cells = [
            row["row"],
            _number(row["value"]),
            " – ".join(map(_number, row["interval"])) if row["interval"] else "",
            "" if row["bound"] is None else f"{sign} {row['bound']:g}",
            {None: "", True: "yes", False: "**no**"}[row["passed"]],
            _number(row.get("seconds"), 1e3),
            _number(row.get("peer_seconds"), 1e3),
            _number(row.get("gemm_share")),
            row.get("note", "").replace("|", "/")[:120],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _number(value: float | None, scale: float = 1.0) -> str:
    if value is None:
        return ""
    value *= scale
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def save(result: Mapping[str, Any], folder: Path) -> None:
    """Write `NAME.json` and `NAME.md`."""
    write_text(folder / f"{result['name']}.json", json.dumps(result, indent=1) + "\n")
    write_text(folder / f"{result['name']}.md", markdown(result))


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, and rename it; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
