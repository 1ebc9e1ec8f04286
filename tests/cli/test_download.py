import csv
import pathlib
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "zoo"))
from hub_server import GOOD_TOKEN, HubServer, PlainFile, Repository

from keras_vit import assets

CONTENT = b"numpy" * 1000
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 4096}
# The Hub's client reads its address when it is imported: a process for all that is asked.
SEVERAL_COMMANDS = """
import contextlib, sys
from keras_vit.cli import main
for arguments in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main(arguments.split())
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    with HubServer() as server:
        for name in ("a", "b"):
            server.files[f"/{name}.npz"] = PlainFile(CONTENT)
        yield server


def test_download_prints_sizes_and_paths(command, server):
    urls = [f"{server.url}/{name}.npz" for name in "ab"]
    result = command("download", *urls)
    assert result.code == 0
    rows = list(csv.DictReader(result.out.splitlines(), delimiter="\t"))
    assert [row["id"] for row in rows] == urls
    for row in rows:
        assert pathlib.Path(row["path"]).read_bytes() == CONTENT
        assert row["size_bytes"] == str(len(CONTENT))
    assert command("download", *urls).out == result.out
    assert server.count("GET", "/a.npz") == 1


def test_download_on_a_terminal(command, server, terminal, tmp_path):
    result = command("download", f"{server.url}/a.npz")
    assert result.code == 0
    line = next(line for line in result.out.splitlines() if "MiB" in line)
    assert line.startswith(f"{server.url}/a.npz  0.0 MiB  {tmp_path}")
    assert "\t" not in result.out


def test_download_tells_what_came_before_it_failed(command, server):
    result = command("download", f"{server.url}/a.npz", f"{server.url}/none.npz")
    assert result.code == 1
    assert result.out.count("\n") == 2
    assert result.err.startswith(f"error: There is no file at {server.url}/none.npz (status 404)")


def test_what_the_package_carries_is_not_fetched(command):
    result = command("download", "bundled")
    assert (result.code, result.err) == (
        0,
        "'bundled' is in the package already: nothing to fetch\n",
    )
    (row,) = csv.DictReader(result.out.splitlines(), delimiter="\t")
    assert pathlib.Path(row["path"]) == assets.checkpoint() and int(row["size_bytes"]) > 10_000


def test_no_secrets_of_a_url_are_shown(command, server):
    secret = server.url.replace("//", "//user:hunter2@") + "/a.npz"
    for arguments in (["show"], ["download"], ["cache", "--clear"], ["verify"]):
        result = command(*arguments, secret)
        assert result.code == 1 and "hunter2" not in result.out + result.err
    assert command("download", f"{server.url}/a.npz?key=hunter2").out.count("hunter2") == 0


def test_download_wants_an_id(command):
    assert command("download").code == 2
    unknown = command("download", "vit_bsae_patch16_224.orig")
    assert unknown.code == 1
    assert "vit_base_patch16_224.orig" in unknown.err


def test_a_repository_from_download_to_deletion(server, tmp_path):
    """Through the real client, with a token that is shown nowhere (FAULTS K2)."""
    commit = "c" * 40
    server.repositories["org/name"] = Repository({commit: FILES}, {"main": commit}, "private")
    commands = ("download org/name", "cache", "verify", "cache --clear org/name --yes", "cache")
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL_COMMANDS, *commands, "download org/none"],
        env=server.environment(tmp_path / "home", HF_TOKEN=GOOD_TOKEN, TF_CPP_MIN_LOG_LEVEL="3"),
        capture_output=True,
        text=True,
    )
    folder = tmp_path / "home/hub/models--org--name"
    size = sum(len(content) for content in FILES.values())
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    snapshot = folder / "snapshots" / commit
    assert lines[1] == ["org/name", str(size), str(snapshot)]
    assert lines[3][:2] == ["org/name", "hf://org/name"]
    assert lines[3][4] == str(folder)
    assert [line[:2] for line in lines[5:7]] == [["org/name", "ok"]] * 2
    assert lines[8] == ["deleted 1.0 MiB"]
    assert lines[9:] == [["id", "source", "size_bytes", "last_used", "path"]] + [lines[0]]
    assert not folder.exists()
    assert "error: 'org/none' at revision 'main': no such folder here" in done.stderr
    assert GOOD_TOKEN not in done.stdout + done.stderr
