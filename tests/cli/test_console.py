import errno
import logging

import pytest
import typer

import keras_vit
from keras_vit.cli.console import (
    guarded,
    percent,
    print_tabbed,
    printable,
    remark,
    replacing_file,
    show_notices,
)
from keras_vit.data import index_table


def ends_with(capsys, error: BaseException) -> tuple[int, str]:
    def verb():
        raise error

    with pytest.raises(typer.Exit) as ended:
        guarded(verb)()
    return ended.value.exit_code, capsys.readouterr().err


def test_a_users_fault_is_one_line_and_code_1(capsys):
    with pytest.raises(typer.Exit) as ended:
        guarded(lambda: keras_vit.recipe("paper_sdg"))()
    assert ended.value.exit_code == 1
    line = capsys.readouterr().err
    assert line == "error: Unknown recipe. Received: 'paper_sdg'. Did you mean: paper_sgd?\n"


def test_faults_of_the_machine_have_their_text(capsys):
    full = OSError(errno.ENOSPC, "`directory` needs room", "[red]runs")
    assert ends_with(capsys, full) == (1, "error: `directory` needs room: [red]runs\n")
    assert ends_with(capsys, OSError("own words")) == (1, "error: own words\n")
    assert ends_with(capsys, MemoryError()) == (1, "error: out of memory\n")
    assert ends_with(capsys, FloatingPointError("loss")) == (1, "error: loss\n")


def test_ctrl_c_is_code_130(capsys):
    assert ends_with(capsys, KeyboardInterrupt()) == (130, "interrupted\n")
    assert ends_with(capsys, KeyboardInterrupt("go on so")) == (130, "go on so\n")


def test_faults_of_the_program_keep_their_traceback():
    for error in (ValueError("of another package"), TypeError("bug"), BrokenPipeError()):

        def verb(error=error):
            raise error

        with pytest.raises(type(error)):
            guarded(verb)()


def test_traceback_on_demand(monkeypatch):
    monkeypatch.setenv("KERAS_VIT_TRACEBACK", "1")
    with pytest.raises(ValueError, match="Unknown recipe"):
        guarded(lambda: keras_vit.recipe("paper_sdg"))()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("`validation_fraction=0` `resume=True`", "`--validation-fraction 0` `--resume`"),
        ("Leave `validation` or `augmentation` out.", "Leave `--validation` or `--augment` out."),
        ("Then pass `token=` or run `hf auth login`", "Then set HF_TOKEN or run `hf auth login`"),
        (
            "Call once without `local_files_only` and without HF_HUB_OFFLINE=1",
            "Call once without HF_HUB_OFFLINE=1",
        ),
        ("`layout` must be one. Received: layout='x'", "`--to` must be one. Received: --to 'x'"),
    ],
)
def test_arguments_are_named_as_options(capsys, text, said):
    assert ends_with(capsys, OSError(text))[1].startswith(f"error: {said}")


@pytest.mark.parametrize("header", ["file,label", "path,label,splits"])
def test_columns_of_a_table_are_no_arguments(capsys, tmp_path, header):
    (tmp_path / "table.csv").write_text(f"{header}\n1.png,cat,train\n")
    with pytest.raises(typer.Exit):
        guarded(lambda: index_table(tmp_path / "table.csv"))()
    said = capsys.readouterr().err
    assert "Name th" in said and "index_table" not in said and "_column" not in said


def test_names_of_files_may_be_any_bytes(capsys):
    print(printable("caf\udce9.png"))
    assert capsys.readouterr().out == "caf\N{REPLACEMENT CHARACTER}.png\n"


def test_tabs_in_a_cell_stay_in_it(capsys):
    print_tabbed(("file", "label"), [("a\tb", 1), ("c", None)])
    assert capsys.readouterr().out == 'file\tlabel\n"a\tb"\t1\nc\t\n'


def test_percent():
    assert percent(0.9345) == "93.5 %"


def test_notices_of_the_package_are_shown_once(capsys):
    show_notices()
    show_notices()
    logging.getLogger("keras_vit.pretrained").warning("The head [bold] is new.")
    assert capsys.readouterr().err.strip() == "The head [bold] is new."


def test_a_remark_never_lies_among_rows_for_another_program(capsys, monkeypatch):
    remark("12 pictures")
    assert capsys.readouterr() == ("", "12 pictures\n")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    remark("12 pictures")
    assert capsys.readouterr() == ("12 pictures\n", "")


def test_files_are_named_by_their_option(tmp_path):
    with replacing_file(None, "--csv") as temporary:
        assert temporary is None
    for path, error, said in (
        (tmp_path, ValueError, "`--confusion` must be a file"),
        (tmp_path / "no" / "a.png", OSError, "`--confusion` cannot be written"),
    ):
        with pytest.raises(error, match=said), replacing_file(path, "--confusion"):
            pytest.fail("not refused")
    with replacing_file(tmp_path / "a.png", "--confusion") as temporary:
        temporary.write_bytes(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
