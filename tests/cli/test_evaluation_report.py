"""What is printed of answers made by hand."""

import csv
import dataclasses

import numpy as np
import pytest

from keras_vit.cli.evaluation_report import print_report, write_answers
from keras_vit.evaluation import Evaluation, MultiLabelEvaluation, Throughput


@pytest.fixture
def result(monkeypatch):
    """Four pictures of three classes: one dog is taken for a cat; no cow is shown."""
    monkeypatch.setenv("COLUMNS", "200")
    best = np.array([0.9, 0.9, 0.7, 0.5], "float32")
    return Evaluation(
        class_names=("cat", "dog", "cow"),
        data_classes=(0, 1, 2),
        labels=np.array([0, 0, 1, 1]),
        predictions=np.array([[0, 1], [0, 2], [0, 1], [1, 0]]),
        probabilities=np.stack([best, 1 - best], axis=1),
        loss=0.25,
        throughput=Throughput(pictures=100, seconds=8.0, waiting=2.0),
    )


def test_rows_for_another_program(result, capsys):
    """Calibration by hand: 2 at 0.9 are right, 1 at 0.7 is not, 1 at 0.5 is."""
    print_report(result, 1)
    printed = capsys.readouterr()
    rows = list(csv.reader(printed.out.splitlines(), "excel-tab"))
    columns = "class pictures top1 top5 precision confused_with confusions calibration_error"
    assert rows[0] == columns.split()
    assert rows[1] == ["(all)", "4", "0.7500", "", "", "", "1", f"{(0.2 + 0.7 + 0.5) / 4:.4f}"]
    assert rows[2] == ["dog", "2", "0.5000", "", "1.0000", "cat", "1", ""]
    assert [row[0] for row in rows[3:]] == ["cat", "cow"]
    speed = "12.5 pictures a second, 25.0 % of the time waiting for pictures: the input is the"
    assert printed.err == f"{speed} bottleneck.\n"


def test_reassessed_labels_have_a_column(result, capsys):
    print_report(dataclasses.replace(result, throughput=None), None, [[0], [], [0, 2], [0]])
    printed = capsys.readouterr()
    rows = list(csv.DictReader(printed.out.splitlines(), dialect="excel-tab"))
    assert [row["real_top1"] for row in rows] == ["0.6667", "", "", ""]
    assert printed.err == ""


def test_tables_for_people(result, capsys, terminal):
    print_report(result, 1, [[0], [], [0, 2], [0]])
    printed = capsys.readouterr()
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert "4 75.0 % 0.250 35.0 %" in lines
    assert "The worst 1 of 3 classes; --per-class shows all." in lines
    assert "46.7 % to 53.3 % 1 50.0 % 100.0 %" in lines
    assert "86.7 % to 93.3 % 2 90.0 % 100.0 %" in lines
    # Of the pictures' own labels the first alone is among the reassessed.
    assert "ReaL top-1: 66.7 % of 3 pictures; 1 without a ReaL label left out." in printed.out
    assert "The labels of DATA themselves reach 33.3 %." in printed.out
    assert "12.5 pictures a second" in printed.out and printed.err == ""


def test_several_classes_a_picture(capsys, terminal):
    logits = np.array([[2.0, -2.0], [-2.0, -2.0]], "float32")
    several = MultiLabelEvaluation(("cat", "dog"), logits > 0, logits, 0.5, Throughput(9, 3.0, 0.0))
    print_report(several, None)
    printed = capsys.readouterr()
    assert "mean average precision" in printed.out and "calibration" not in printed.out
    assert "3.0 pictures a second, 0.0 % of the time" in printed.out
    assert "the model is the bottleneck." in printed.out


def test_answers(result, tmp_path):
    write_answers(tmp_path / "answers.csv", ["a.png", "b.png", "c.png", "d.png"], result)
    lines = (tmp_path / "answers.csv").read_text().splitlines()
    assert lines[0] == "file,label,predicted,probability,predicted_2,probability_2"
    assert lines[3] == "c.png,dog,cat,0.700000,dog,0.300000"
