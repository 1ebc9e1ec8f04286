import csv
import datetime
import io
import pathlib
import sys

import pytest
from huggingface_hub import constants

sys.path.append(str(pathlib.Path(__file__).parents[1] / "zoo"))
from hub_server import HubServer, PlainFile

from keras_vit.zoo.catalogue import find
from keras_vit.zoo.https import fetch_url

KNOWN = "google/vit-base-patch16-224"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub cache with one repository of the zoo."""
    folder = tmp_path / "hub" / f"models--{KNOWN.replace('/', '--')}"
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / ("a" * 64)).write_bytes(bytes(3 * 2**20))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "own"))
    return folder


@pytest.fixture
def url(hub, monkeypatch):
    """A file that is cached."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HubServer() as server:
        server.files["/vit.npz"] = PlainFile(bytes(2**20))
        fetch_url(f"{server.url}/vit.npz")
        yield f"{server.url}/vit.npz"


def rows_of(result) -> list[dict[str, str]]:
    return list(csv.DictReader(result.out.splitlines(), delimiter="\t"))


def test_a_pipe_gets_what_is_cached(command, hub, url):
    result = command("cache")
    assert result.code == 0
    row = {row["source"]: row for row in rows_of(result)}[f"hf://{KNOWN}"]
    assert row["id"] == find(KNOWN).id
    assert row["path"] == str(hub)
    assert int(row["size_bytes"]) == 3 * 2**20
    age = datetime.datetime.now().astimezone() - datetime.datetime.fromisoformat(row["last_used"])
    assert age < datetime.timedelta(minutes=1)
    assert {row["source"] for row in rows_of(result)} == {f"hf://{KNOWN}", url}


def test_a_terminal_gets_a_table(command, hub, url, terminal):
    result = command("cache")
    assert "3.0 MiB" in result.out and str(hub)[:20] in result.out
    assert datetime.date.today().isoformat() in result.out
    assert "2 models, 4.0 MiB" in result.out
    assert "\t" not in result.out


def test_nothing_is_cached(command, tmp_path, monkeypatch, terminal):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    for arguments in ([], ["--clear-all"]):
        result = command("cache", *arguments)
        assert (result.code, result.out) == (0, "no models are cached\n")
    result = command("cache", "--clear", "vit")
    assert (result.code, result.err) == (1, "error: No models are cached. Received: 'vit'.\n")


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--clear", KNOWN], {"url"}),
        (["--clear", KNOWN, "--clear", find(KNOWN).id], {"url"}),
        (["--clear", "vit.npz"], {"hub"}),
        (["--clear", "vit", "--clear", KNOWN], set()),
        (["--clear-all"], set()),
    ],
)
def test_clear(command, hub, url, arguments, left):
    result = command("cache", *arguments, "--yes")
    assert result.code == 0
    assert "deleted" in result.out
    sources = {"url": url, "hub": f"hf://{KNOWN}"}
    assert {row["source"] for row in rows_of(command("cache"))} == {sources[name] for name in left}


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_clear_asks(command, hub, monkeypatch, typed, code):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    result = command("cache", "--clear-all")
    assert result.code == code
    assert "Delete 1 model? Shared with other libraries: 1." in result.err
    assert hub.exists() == bool(code)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clear", "vot"], "Unknown cached model. Received: 'vot'. Did you mean: vit"),
        (["--clear", "vit", "--clear-all"], "`--clear-all` must not be given together"),
    ],
)
def test_what_cannot_be_meant_deletes_nothing(command, hub, url, arguments, message):
    result = command("cache", *arguments, "--yes")
    assert result.code == 1
    assert message in result.err
    assert len(rows_of(command("cache"))) == 2
