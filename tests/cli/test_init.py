import pytest

import keras_vit
from keras_vit.cli import COMMANDS, main


def test_version(command):
    result = command("--version")
    assert result.code == 0
    assert result.out.startswith(f"keras-vit {keras_vit.__version__} (Keras 3.")


def test_help_names_every_verb(command):
    result = command("--help")
    assert result.code == 0
    assert all(f" {name} " in result.out for name in COMMANDS)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_examples(command, verb):
    result = command(verb, "--help")
    assert result.code == 0
    assert result.out.count(f"\n   keras-vit {verb}") >= 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "keras-vit finetune"),
        (("finetun",), "finetune"),
        (("list", "--wrong"), "--wrong"),
        (("predict", "bundled"), "pictures"),
    ],
)
def test_wrong_usage_is_code_2(command, arguments, said):
    result = command(*arguments)
    assert result.code == 2
    assert said in (result.out + result.err).lower()


@pytest.mark.parametrize("arguments", [["--version"], ["list"]])
def test_a_closed_stdout_is_no_fault(monkeypatch, capsys, arguments):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().err == ""
