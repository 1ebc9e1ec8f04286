import csv

import pytest

from keras_vit.cli.console import console
from keras_vit.zoo.catalogue import catalogue, find


def rows_of(result) -> list[dict[str, str]]:
    return list(csv.DictReader(result.out.splitlines(), delimiter="\t"))


def test_a_pipe_gets_every_model_tab_separated(command):
    result = command("list")
    rows = {row["id"]: row for row in rows_of(result)}
    assert result.code == 0
    assert list(rows) == sorted(catalogue())
    row = rows["vit_base_patch16_224.orig_in21k_hub"]
    assert row["other_name"] == "google/vit-base-patch16-224-in21k"
    assert int(row["parameters"]) == find(row["id"]).parameters
    assert (row["pixels"], row["classes"], row["top1"]) == ("224", "0", "")
    assert (row["licence"], row["family"]) == ("Apache-2.0", "google_hub")
    assert all(int(row["parameters"]) > 3e6 for row in rows.values())


def test_top1_says_who_measured_it(command):
    for row in rows_of(command("list")):
        assert bool(row["top1"]) == bool(row["measured_by"])


def test_a_pattern_fits_any_name(command):
    google = rows_of(command("list", "google/*"))
    assert google and all(row["other_name"].startswith("google/") for row in google)
    assert len(rows_of(command("list", "large"))) == len(rows_of(command("list", "*large*"))) > 0


def test_no_match_is_code_1_with_close_matches(command):
    result = command("list", "vit_bsae_patch16_224*")
    assert result.code == 1
    assert result.out == ""
    assert result.err.startswith("error: Unknown model.")
    assert "vit_base_patch16_224." in result.err


def test_a_terminal_gets_a_table(command, terminal):
    result = command("list", "vit_base_patch16_*")
    assert result.code == 0
    assert "params" in result.out and "86." in result.out and " M" in result.out
    assert "[1] measured by: " in result.out
    assert "\t" not in result.out


def test_a_terminal_shows_the_name_that_was_asked_for(command, terminal):
    result = command("list", "google/vit-base*")
    assert "google/vit-base-patch16-224-in21k" in result.out
    assert "vit_base_patch16_224.orig_in21k_hub" not in result.out


def test_all_columns_and_the_licence_fit_a_hundred(command, terminal, monkeypatch):
    monkeypatch.setattr(console, "_width", 100)
    result = command("list")
    assert "classes" in result.out and "CC-BY-NC-4.0 (" in result.out
    assert "`keras-vit show ID`" in result.out
    assert max(map(len, result.out.splitlines())) <= 100
    assert all(any(row in line.split() for line in result.out.splitlines()) for row in catalogue())
    one = command("list", "--family", "sam")
    assert one.out.endswith("Licence: Apache-2.0.\n")


def test_filters_leave_what_passes_all(command):
    rows = rows_of(
        command(
            *("list", "vit_*", "--max-params", 30, "--pixels", 384, "--min-top1", 79),
            *("--licence", "apache-2.0", "--family", "augreg"),
        )
    )
    assert {row["id"] for row in rows} == {
        row.id
        for row in catalogue().values()
        if row.family == "augreg" and row.image_size == 384 and row.parameters <= 30e6
        if (row.top1 or 0) >= 79
    }
    assert len(rows) >= 4


@pytest.mark.parametrize(
    ("order", "column", "sign"), [("top1", "top1", -1), ("parameters", "parameters", 1)]
)
def test_sorted_by(command, order, column, sign):
    rows = rows_of(command("list", "deit*", "--sort", order))
    figures = [sign * float(row[column] or 0) for row in rows]
    assert figures == sorted(figures) and len(set(figures)) > 5


def test_filters_that_nothing_passes(command):
    result = command("list", "deit*", "--max-params", 1)
    assert (result.code, result.out) == (1, "")
    assert "No model passes all filters. Received: 'deit*', of 32 models" in result.err.replace(
        "\n", " "
    )
    for number in ("inf", "1e400", "1e308"):
        result = command("list", "--max-params", number)
        assert result.code == 1 and "`--max-params` must be a number of millions" in result.err
    result = command("list", "--licence", "gpl")
    assert result.code == 1 and "Unknown `licence`" in result.err
