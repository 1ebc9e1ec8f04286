import csv
import os
import pathlib
import sys

import pytest
from huggingface_hub import constants

sys.path.append(str(pathlib.Path(__file__).parents[1] / "zoo"))
from hub_server import HubServer, PlainFile, etag_of

from keras_vit.zoo.https import fetch_url

KNOWN = "google/vit-base-patch16-224"
FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    """A repository of the zoo in a Hub cache, and a file of a URL."""
    folder = tmp_path / "hub" / f"models--{KNOWN.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    for name, content in FILES.items():
        blob = folder / "blobs" / etag_of(name, content)
        blob.write_bytes(content)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HubServer() as server:
        server.files["/vit.npz"] = PlainFile(b"numpy", states_md5=False)
        fetch_url(f"{server.url}/vit.npz")
        yield snapshot


def states(result) -> dict[str, str]:
    rows = csv.DictReader(result.out.splitlines(), delimiter="\t")
    return {pathlib.Path(row["path"]).name: row["state"] for row in rows}


def test_all_is_well(command, snapshot):
    result = command("verify")
    assert (result.code, result.err) == (0, "")
    assert states(result) == {"config.json": "ok", "model.safetensors": "ok", "vit.npz": "ok"}


def test_one_model(command, snapshot):
    assert states(command("verify", "vit.npz")) == {"vit.npz": "ok"}
    assert states(command("verify", KNOWN)).keys() == FILES.keys()
    unknown = command("verify", "vot.npz")
    assert unknown.code == 1
    assert "Unknown cached model. Received: 'vot.npz'. Did you mean: vit.npz" in unknown.err


def test_damage_is_told_and_deleted_on_demand(command, snapshot):
    weights = (snapshot / "model.safetensors").resolve()
    weights.write_bytes(b"WEIGHTS")
    for _ in range(2):
        result = command("verify")
        assert result.code == 1
        assert states(result)["model.safetensors"] == "damaged"
        assert result.err == "damaged files: 1; `keras-vit verify --delete` deletes them\n"
        assert weights.exists()
    result = command("verify", KNOWN, "--delete")
    assert result.code == 1
    assert result.err == "damaged files deleted: 1; their next use fetches them again\n"
    assert not weights.exists()
    result = command("verify")
    assert (result.code, states(result)) == (0, {"config.json": "ok", "vit.npz": "ok"})


def test_without_a_checksum(command, snapshot, tmp_path):
    (record,) = (tmp_path / "own").glob("*/*.json")
    record.write_text('{"url": "https://example.org/vit.npz", "size_bytes": 5}')
    result = command("verify", "vit.npz")
    assert (result.code, states(result)) == (0, {"vit.npz": "not verifiable"})


def test_a_terminal_gets_a_table(command, snapshot, terminal, tmp_path, monkeypatch):
    result = command("verify")
    assert result.code == 0
    assert result.out.count(" ok ") == 3
    assert "\t" not in result.out
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "none"))
    assert command("verify").out == "no models are cached\n"
