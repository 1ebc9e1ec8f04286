import os
import subprocess
import sys

import pytest


def _run(code_or_module: list[str], **environment: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, *code_or_module],
        capture_output=True,
        text=True,
        env={**clean, **environment},
        check=True,
    )


def test_command_starts_without_chatter():
    process = _run(["-m", "keras_vit", "--version"])
    assert process.stdout.startswith("keras-vit ") and process.stderr == ""


def test_errors_are_heard_after_the_import():
    process = subprocess.run(
        [sys.executable, "-m", "keras_vit", "list", "no-such-model-at-all"],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1 and process.stderr


@pytest.mark.parametrize("name", ["keras-vit", "something-else"])
def test_only_the_command_is_touched(name, monkeypatch, capfd):
    from keras_vit import startup

    monkeypatch.setattr(sys, "argv", [f"/usr/bin/{name}"])
    monkeypatch.setattr(sys, "orig_argv", ["python", name])
    with startup.silent_import():
        os.write(2, b"chatter\n")
    os.write(2, b"after\n")
    heard = capfd.readouterr().err
    assert heard == ("after\n" if name == "keras-vit" else "chatter\nafter\n")
