"""The harness of `make bench`: statistics by hand, the table of bounds, processes that fail."""

import ast
import dataclasses
import json
import math
import os
import time
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import cpu_time, drawing, flops, loss, memory, report, scaling, statistics
from benchmarks.coordinator import ROOT, Measured, Measurement, Settings
from benchmarks.peers import PEERS, Peer
from benchmarks.rows import MOST_PROCESSES, ROWS, Case, Group, Row, groups

# Peers that cost nothing. Each call is noted in a file, by the process's number and name.
FAKES = """
import os, time
from pathlib import Path
from benchmarks.peers import Call

def _note(text):
    with Path("notes").open("a") as file:
        file.write(f"{os.getpid()} {text}\\n")

def _peer(name, seconds=0.0, figure=1.0):
    def run():
        print("what libraries print")
        _note(name)
        time.sleep(seconds)
        return {"figure": figure}
    return Call(run, {"hint": name})

def write(case):
    Path("written").write_text(case.name)

def fast(case):
    return _peer("fast", 0.01, 2.0)

def slow(case):
    return _peer("slow", 0.05)

def raising(case):
    raise RuntimeError("cannot be built")

def reading(case):
    return _peer(Path("written").read_text())

def dying(case):
    _note("dying")
    os._exit(3)

def dying_later(case):
    calls = []
    def run():
        calls.append(1)
        if len(calls) > 3:
            os._exit(4)
    return Call(run)

def curved(case):
    notes = {}
    def run():
        _note("curved")
        notes.update(curves={"one": [2.0, 1.0], "other": [2.0, 1.5]}, steps=[10, 20])
        return {"gap": 0.5}
    return Call(run, notes)

def silent(case):
    _note("silent")
    time.sleep(600)
"""
CASE = Case("inference", "Ti/16", 1, "float32")
# Whatever else the machine does.
SETTINGS = Settings(rounds=4, min_seconds=0.0, most_foreign=math.inf, retakes=0, patience=60.0)


@pytest.fixture
def peers(tmp_path, monkeypatch):
    """The table with the peers above in it, and with one for the matrix products."""
    (tmp_path / "fakes.py").write_text(FAKES, encoding="utf-8")
    names = [node.name for node in ast.parse(FAKES).body if isinstance(node, ast.FunctionDef)]
    for name in names:
        peer = Peer(f"fakes:{name}", {"PYTHONPATH": str(tmp_path)})
        monkeypatch.setitem(PEERS, name, peer)
    monkeypatch.setitem(PEERS, "gemm", Peer("fakes:fast", {"PYTHONPATH": str(tmp_path)}))
    return PEERS


def _measure(tmp_path, *names, case=CASE, settings=SETTINGS, **arguments):
    group = Group("test", tuple((name, case) for name in names))
    return Measurement(group, settings, tmp_path, **arguments).run()


def _notes(tmp_path) -> list[list[str]]:
    return [line.split() for line in (tmp_path / "notes").read_text().splitlines()]


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


# Statistics.


def test_interval_is_the_second_to_the_eighth_of_nine():
    values = [9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]
    assert statistics.median_interval(values) == (2.0, 8.0)
    assert statistics.median_interval(values[:7]) == (1.0, 9.0)
    assert statistics.median_interval(values[:5]) is None
    assert statistics.median_interval([]) is None


@pytest.mark.parametrize("count", range(6, 30))
def test_interval_is_the_narrowest_that_holds_95_percent(count):
    low, high = statistics.median_interval([float(value) for value in range(1, count + 1)])
    assert low + high == count + 1

    def coverage(k: int) -> float:  # of the k-th to the k-th from the end
        return 1.0 - 2.0 * sum(math.comb(count, heads) for heads in range(k)) / 2**count

    assert coverage(int(low)) >= 0.95 > coverage(int(low) + 1)


def test_the_whole_interval_clears_the_bound():
    assert statistics.clears((1.15, 1.3), 1.15, "higher")
    assert not statistics.clears((1.14, 1.3), 1.15, "higher")
    assert statistics.clears((10.0, 50.0), 50.0, "lower")
    assert not statistics.clears((10.0, 50.1), 50.0, "lower")
    assert not statistics.clears(None, 1.0, "higher")
    assert not statistics.clears((math.nan, math.nan), 1.0, "higher")


def test_ratios_are_of_rounds_with_both_samples():
    assert statistics.round_ratios([2.0, None, 3.0, 4.0], [1.0, 1.0, None, 8.0]) == [2.0, 0.5]


STAT = """cpu  100 20 30 4000 50 6 7 80 90 10
cpu0 50 10 15 2000 25 3 3 40 45 5
cpu1 50 10 15 2000 25 3 4 40 45 5
intr 1
"""


def test_foreign_load_is_what_was_busy_or_stolen_and_not_ours():
    assert cpu_time.busy_seconds(STAT, ticks=100) == pytest.approx(2.43)
    assert cpu_time.count_cores(STAT) == 2
    assert cpu_time.foreign_share(busy=3.0, own=2.8, wall=2.0, cores=2) == pytest.approx(0.05)
    assert cpu_time.foreign_share(busy=2.7, own=2.8, wall=2.0, cores=2) == 0.0
    start = cpu_time.Stamp(wall=1.0, own=1.0, busy=10.0, cores=2)
    end = cpu_time.Stamp(wall=2.0, own=2.0, busy=11.5, cores=2)
    assert end.foreign_since(start) == pytest.approx(0.25)


def test_operations_are_those_of_the_published_sizes():
    per_image = {
        name: flops.model_flops(Case("inference", name, 1, "float32")) / 1e9 for name in flops.SIZES
    }
    assert per_image["B/16"] == pytest.approx(35.1, abs=0.1)
    assert per_image["S/16"] == pytest.approx(9.2, abs=0.1)
    case = Case("train", "B/16", 8, "float32")
    assert flops.block_products(case)[0] == (1576, 768, 2304)
    assert report.gemm_scale(case) == 3 * flops.model_flops(case) / flops.block_flops(case)


def test_memory_has_a_peak_that_can_be_forgotten():
    before = memory.forget_peak()
    held = np.ones(8_000_000)  # 64 MB
    del held
    assert memory.resident("VmHWM") - before > 50e6
    assert memory.forget_peak() <= memory.resident("VmHWM") < before + 50e6
    with pytest.raises(ValueError, match="`field` must be in /proc/self/status"):
        memory.resident("VmNothing")


# The table.


def _goals() -> dict[str, float]:
    """Bounds of the goal, written out once more."""
    goals = {}
    for case, bounds in {
        "inference/float32/B16/batch8/cpu_saved_model": dict(keras_hub=1.15, timm=1.0, gemm=0.85),
        "inference/float32/B16/batch32/cpu_saved_model": dict(keras_hub=1.15, timm=1.0, gemm=0.85),
        "inference/float32/S16/batch8/cpu_saved_model": dict(keras_hub=1.15, timm=1.0),
        **{
            f"inference/bfloat16/{model}/batch{batch}/cpu_saved_model": dict(
                keras_hub=2.0, timm=1.0
            )
            for model in ("S16", "B16")
            for batch in (1, 8, 32)
        },
        "agreement/bfloat16/agreement": dict(top1_agreement=0.99),
        **{
            f"inference/{dtype}/{model}/batch{batch}/openvino": dict(openvino_timm=1.0)
            | (dict(timm=1.15) if batch == 1 else {})
            for dtype in ("float32", "bfloat16")
            for model in ("S16", "B16")
            for batch in (1, 8)
        },
        **{
            f"train/{dtype}/{shape}/ours_train": {
                "keras_hub_train": bound,
                "timm_train": 1.0,
                "timm_train/peak_memory": 1.0,
            }
            for dtype, bound in (("float32", 1.15), ("mixed_bfloat16", 1.25))
            for shape in ("S16/batch8", "S16/batch16", "B16/batch8")
        },
        "loss/mixed_bfloat16/loss": dict(final_gap=0.05),
        "load/B16/load": dict(load_keras_hub=1.5, growth=1.1),
        "import/import": dict(milliseconds=50.0),
        "pipeline/pipeline_training": dict(decode=0.9),
        "pipeline/pipeline_training_cached": dict(decode=0.9),
        "pipeline/pipeline_evaluation": dict(decode=0.9),
    }.items():
        goals |= {f"{case}/{peer}": bound for peer, bound in bounds.items()}
    return goals


def test_every_goal_is_a_row_with_its_bound():
    assert {row.name: row.bound for row in ROWS if row.bound is not None} == _goals()
    lower = {row.name for row in ROWS if row.better == "lower" and row.bound is not None}
    assert lower == {
        "loss/mixed_bfloat16/loss/final_gap",
        "load/B16/load/growth",
        "import/import/milliseconds",
    }
    assert len({row.name for row in ROWS}) == len(ROWS) > len(_goals())


def test_every_peer_of_a_row_is_a_function_that_exists():
    used = {name for row in ROWS for name in row.names} | {
        curve.subject for curve in scaling.CURVES
    }
    assert used == PEERS.keys()
    for peer in PEERS.values():
        module, function = peer.target.split(":")
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        assert function in {getattr(node, "name", None) for node in tree.body}, peer.target


def test_groups_hold_each_row_once_and_fit_into_memory():
    made = groups(ROWS)
    assert sorted(row.name for group in made for row in group.rows) == sorted(
        row.name for row in ROWS
    )
    for group in made:
        names = [name for name, _ in group.entries]
        assert len(set(names)) == len(names) <= MOST_PROCESSES
        assert {name for row in group.rows for name in row.names} <= set(names)
        assert ("gemm" in names) == (group.entries[0][1].task in ("inference", "train"))


# Processes.


def test_rounds_go_forth_and_back_and_no_process_stays(peers, tmp_path):
    measured = _measure(tmp_path, "fast", "slow")
    notes = _notes(tmp_path)
    names = [name for _, name in notes]
    assert names[:4] == ["fast", "fast", "slow", "slow"]  # warming up
    assert names[4:] == ["fast", "slow", "slow", "fast", "fast", "slow", "slow", "fast"]
    assert len({pid for pid, _ in notes}) == 2 and not any(_lives(pid) for pid, _ in notes)
    assert measured.errors == {}
    fast, slow = (measured.by_round((name, CASE), 4) for name in ("fast", "slow"))
    assert min(fast) >= 0.01 and min(slow) >= 0.05
    assert measured.by_round(("fast", CASE), 4, "figure") == [2.0] * 4
    assert measured.descriptions["fast", CASE]["hint"] == "fast"
    assert measured.descriptions["fast", CASE]["peak_megabytes"] > 1.0


def test_a_sample_lasts_as_long_as_it_shall(peers, tmp_path):
    settings = Settings(rounds=1, min_seconds=0.1, most_foreign=math.inf)
    sample = _measure(tmp_path, "fast", settings=settings).samples["fast", CASE][0]
    assert sample["calls"] * sample["seconds"] >= 0.1 and sample["calls"] >= 2
    assert 0.0 < sample["cpu_seconds"] < 0.1 and sample["foreign"] >= 0.0  # it sleeps


def test_a_peer_that_fails_is_told_of_and_others_go_on(peers, tmp_path):
    lines = []
    names = ("raising", "dying", "fast", "dying_later")
    measured = _measure(tmp_path, *names, report=lines.append)
    errors = {name: error for (name, _), error in measured.errors.items()}
    assert errors.keys() == {"raising", "dying", "dying_later"}
    assert "cannot be built" in errors["raising"]
    assert errors["dying"].endswith("status 3") and errors["dying_later"].endswith("status 4")
    assert None not in measured.by_round(("fast", CASE), 4)
    assert len(measured.samples["dying_later", CASE]) == 1
    assert any("raising failed: RuntimeError" in line for line in lines)


def test_a_row_does_not_pass_whose_peer_failed_at_the_end():
    row = Row(CASE, "fast", "dying_later", bound=0.0)
    group = Group("test", (("fast", CASE), ("dying_later", CASE)), (row,))
    sample = {"clean": True, "seconds": 1.0, "figures": {}}
    samples = [{"round": number, **sample} for number in range(9)]
    measured = Measured(dict.fromkeys(group.entries, samples[:]))
    assert report.rows_of(group, measured, 9, True)[0]["passed"] is True
    measured.errors["dying_later", CASE] = "Traceback\nRuntimeError: late"
    finished = report.rows_of(group, measured, 9, True)[0]
    assert finished["passed"] is False and finished["note"] == "failed: RuntimeError: late"


def test_a_silent_peer_is_given_up(peers, tmp_path):
    start = time.monotonic()
    settings = Settings(rounds=1, patience=3.0)
    measured = _measure(tmp_path, "silent", settings=settings)
    assert "no answer in 3 seconds" in measured.errors["silent", CASE]
    assert time.monotonic() - start < 60.0
    assert not any(_lives(pid) for pid, _ in _notes(tmp_path))


def test_an_interrupt_leaves_no_process(peers, tmp_path):
    def interrupt(text):
        if text == "round 2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _measure(tmp_path, "fast", "slow", report=interrupt)
    pids = {pid for pid, _ in _notes(tmp_path)}
    assert len(pids) == 2 and not any(map(_lives, pids))


def test_fresh_tasks_take_a_process_a_sample_after_writing_their_files(peers, tmp_path):
    case = Case("load", "B/16")
    measured = _measure(tmp_path, "reading", case=case)
    notes = _notes(tmp_path)
    assert measured.errors == {}
    assert [name for _, name in notes] == ["load/B16"] * 4 and len({pid for pid, _ in notes}) == 4


def test_samples_under_foreign_load_are_taken_again_then_dropped(peers, tmp_path):
    settings = Settings(rounds=7, min_seconds=0.0, most_foreign=-1.0, retakes=3)
    row = Row(CASE, "fast", None, bound=0.0, quantity="figure")
    group = Group("test", (("fast", CASE),), (row,))
    measured = Measurement(group, settings, tmp_path).run()
    assert len(measured.samples["fast", CASE]) == 7 * 4
    finished = report.rows_of(group, measured, 7, True)[0]
    assert finished["passed"] is False and finished["value"] is None
    assert finished["note"] == "only 0 of 7 rounds undisturbed"


# Files.


def _run(tmp_path, rounds, is_measurement=True):
    settings = Settings(rounds=rounds, min_seconds=0.0, most_foreign=math.inf)
    exact = Case("agreement", dtype="bfloat16")
    rows = [
        Row(CASE, "fast", "slow", bound=1.5),
        Row(CASE, "slow", "fast", bound=1.5),
        Row(CASE, "fast", "gemm"),
        Row(CASE, "fast", "slow", bound=0.5, quantity="figure"),
        Row(exact, "fast", None, bound=1.9, quantity="figure"),
    ]
    results = tmp_path / "results"
    command.run("try", rows, [], settings, is_measurement, tmp_path, results)
    assert sorted(path.name for path in results.iterdir()) == ["try.json", "try.md"]
    return json.loads((results / "try.json").read_text()), (results / "try.md").read_text()


def test_the_files_say_what_passed(peers, tmp_path):
    result, table = _run(tmp_path, rounds=7)
    assert result["is_complete"] and result["is_measurement"]
    assert result["machine"].keys() >= {"date", "commit", "cpu", "flags", "threads", "versions"}
    assert result["machine"]["versions"]["keras"]
    assert result["gemm_gflops"].keys() == {"float32", "bfloat16"}
    rows = {row["row"]: row for row in result["rows"]}
    better, worse, gemm, figures, exact = rows.values()
    for row in rows.values():
        assert row.keys() >= {"row", "value", "interval", "bound", "passed"}
        low, high = row["interval"]
        assert low <= row["value"] <= high
    assert better["row"] == "inference/float32/Ti16/batch1/fast/slow"
    assert better["passed"] is True and worse["passed"] is False
    assert better["value"] == pytest.approx(1 / worse["value"], rel=0.3)
    assert gemm["passed"] is None
    scale = report.gemm_scale(CASE)
    assert gemm["value"] == pytest.approx(scale * gemm["peer_seconds"] / gemm["seconds"], rel=0.3)
    assert figures["row"] == "inference/float32/Ti16/batch1/fast/slow/figure"
    assert figures["interval"] == [0.5, 0.5] and figures["passed"] is True  # 1.0 over 2.0
    assert figures["seconds"] == better["seconds"]
    assert figures["peer_seconds"] == better["peer_seconds"]
    assert better["gemm_gflops"] > 0.0 and better["gemm_share"] > 0.0
    assert exact["interval"] == [2.0, 2.0] and exact["passed"] is True
    samples = result["groups"][1]["entries"][0]["samples"]
    assert len(samples) == 7 and samples[0].keys() >= {"seconds", "calls", "cpu_seconds", "foreign"}
    assert "| inference/float32/Ti16/batch1/slow/fast |" in table and "**no**" in table
    assert "quick" not in table


def test_a_quick_try_passes_nothing(peers, tmp_path):
    result, table = _run(tmp_path, rounds=2, is_measurement=False)
    assert not result["is_measurement"] and "no measurement" in table
    assert {row["passed"] for row in result["rows"]} == {None, False}


def test_a_failing_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.md"
    report.write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        report.write_text(path, "half of a character \ud800")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# What is trained.


def test_a_training_step_tells_its_memory():
    from benchmarks.peers import ours

    call = ours.train(Case("train", "Ti/16", 1, "float32", image_size=32, num_layers=1))
    assert call.run()["peak_memory"] > 0.0
    memory.forget_peak()  # what compiling took
    small = call.run()["peak_memory"]
    held = np.ones(8_000_000)  # 61 MiB
    assert 50.0 < call.run()["peak_memory"] - small < 80.0 and held.size


def test_gaps_are_of_the_end_and_the_largest():
    assert loss.smooth([1.0, 3.0, 5.0, 1.0], 2).tolist() == [2.0, 4.0, 3.0]
    assert loss.gaps([1.0, 3.0, 4.4], [1.0, 2.0, 4.0]) == pytest.approx((0.1, 0.5))
    assert loss.gaps([0.5, 1.0], [1.0, 1.0]) == (0.0, 0.5)


def test_two_seeds_and_two_types_are_trained(monkeypatch):
    from benchmarks.peers import loss as peer

    monkeypatch.setattr(peer, "PASSES", 3)
    monkeypatch.setattr(peer, "WINDOW", 2)
    call = peer.from_random(Case("loss", dtype="mixed_bfloat16"))
    figures = call.run()
    used = {row.quantity for row in ROWS if row.subject == "loss"}
    assert figures.keys() == used
    assert call.notes["pictures"] == 100 and call.notes["steps"] == [4, 6]
    other, float32, half = call.notes["curves"].values()
    assert list(call.notes["curves"])[1:] == ["float32", "mixed_bfloat16"]
    assert all(1.0 < value < 2.0 for value in (*other, *float32, *half))
    assert 0.0 < figures["largest_gap"] < 0.01 < figures["other_order_largest_gap"]


def test_a_loss_is_measured_once_and_drawn(peers, tmp_path):
    rows = [Row(Case("loss", dtype="mixed_bfloat16"), "curved", None, 0.6, "gap", "lower")]
    result = command.run("try", rows, [], SETTINGS, True, tmp_path, tmp_path / "results")
    assert [name for _, name in _notes(tmp_path) if name == "curved"] == ["curved"]
    assert result["rows"][0]["value"] == 0.5 and result["rows"][0]["passed"] is True
    drawn = ElementTree.parse(tmp_path / "results" / "try-loss.svg").getroot()
    lines = [node.get("points").split() for node in drawn if node.tag.endswith("polyline")]
    (begin, low), (same, high) = lines
    assert begin == same and float(low.split(",")[1]) > float(high.split(",")[1])
    words = {node.text for node in drawn if node.tag.endswith("text")}
    assert words >= {"one", "other", "step", "training loss, mean of 10 steps", "0", "20"}


@pytest.mark.parametrize("end", [0.013, 0.3, 0.99, 1.05, 1.4, 252.0, 315.0, 3499.0, 7e5])
def test_ticks_are_few_round_numbers(end):
    numbers = drawing.round_numbers(end)
    assert 3 <= len(numbers) <= 7 and numbers[0] == 0.0
    step = numbers[1]
    assert numbers[-1] <= end < numbers[-1] + step * 1.000001
    assert f"{step:.0e}"[0] in "125" and f"{step:e}"[1:8] == ".000000"


# Scaling.


def test_a_parabola_is_found_and_drawn():
    curve = scaling.CURVES[0]
    tokens = [curve.position(case) for case in curve.cases]
    assert tokens == [50, 101, 197, 325, 485, 785]
    seconds = [0.01 + 2e-4 * x + 1e-7 * x * x for x in tokens]
    fitted = scaling.fit(tokens, seconds)
    np.testing.assert_allclose(
        [fitted.constant, fitted.linear, fitted.quadratic], [0.01, 2e-4, 1e-7], rtol=1e-6
    )
    assert fitted.quadratic_share(785) == pytest.approx(1e-7 * 785**2 / seconds[-1], rel=1e-6)
    drawn = ElementTree.fromstring(scaling.draw(curve, seconds, fitted))
    circles = [node for node in drawn if node.tag.endswith("circle")]
    assert len(circles) == 6
    heights = [float(node.get("cy")) for node in circles]
    assert heights == sorted(heights, reverse=True)


def test_a_curve_becomes_a_row():
    curve = scaling.CURVES[1]
    assert curve.expected_share == 0.0
    # 4 t^2 d operations of 24 t d^2 + 4 t^2 d: 25.4 % of the blocks', a little less of all.
    assert scaling.CURVES[0].expected_share == pytest.approx(785 / (6 * 384 + 785), rel=0.02)
    layers = [curve.position(case) for case in curve.cases]

    class Linear:
        def by_round(self, entry, rounds):
            return [0.5 + 0.1 * curve.position(entry[1])] * rounds

    row, seconds, fitted = report.curve_of(curve, Linear(), 7)
    assert row["value"] == pytest.approx(0.0, abs=1e-9) and row["rounds"] == 7
    assert row["layers"] == layers and row["seconds_each"] == seconds
    assert fitted.linear == pytest.approx(0.1)


def test_a_curve_is_measured_and_saved(peers, tmp_path):
    cases = scaling.CURVES[1].cases[::2]
    curve = dataclasses.replace(scaling.CURVES[1], cases=cases, subject="fast")
    settings = Settings(rounds=6, min_seconds=0.0, most_foreign=math.inf)
    result = command.run("curve", [], [curve], settings, True, tmp_path, tmp_path / "results")
    row = result["rows"][0]
    assert row["row"] == "scaling/depth/quadratic_share" and row["layers"] == [3, 9, 18]
    assert row["rounds"] == 6 and row["passed"] is None and min(row["seconds_each"]) >= 0.01
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names == {"curve.json", "curve.md", "curve-layers.svg"}


# The command.


def test_rows_are_chosen_by_name(capsys):
    assert command.main(["--list", "--rows", "train/*/timm_train"]) == 0
    assert capsys.readouterr().out.split()[:4] == [
        "train/float32/S16/batch8/ours_train/timm_train",
        *("higher", "than", "1"),
    ]
    rows, curves = command.select(command.parse([]))
    assert {row.name for row in rows} == _goals().keys() and len(curves) == 2
    assert len(command.select(command.parse(["--all"]))[0]) == len(ROWS)
    assert command.main(["--rows", "no such row"]) == 2


@pytest.mark.parametrize(
    "arguments", [["--rounds", "6"], ["--name", "a/b"], ["--name", ".."], ["--name", ""]]
)
def test_arguments_without_meaning_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert arguments[0] in capsys.readouterr().err
