import datetime
import os

import pytest
from hub_server import HubServer, PlainFile, etag_of

from keras_vit.zoo.cache import (
    DAMAGED,
    NOT_VERIFIABLE,
    OK,
    clear,
    delete_file,
    find_cached,
    list_cached,
    verify_files,
)
from keras_vit.zoo.catalogue import find
from keras_vit.zoo.https import DownloadError, fetch_url
from keras_vit.zoo.hub_blobs import blob_of, is_sound

COMMIT = "c" * 40
KNOWN = "google/vit-base-patch16-224"
FILES = {"config.json": b"{}", "model.safetensors": b"weights"}
CONTENT = b"numpy" * 1000
FILE = "/models/vit.npz"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def hub(tmp_path):
    """Return a function that makes a repository in a Hub cache, as the client lays it out."""

    def make(repository, files=FILES):
        folder = tmp_path / "hub" / f"models--{repository.replace('/', '--')}"
        snapshot = folder / "snapshots" / COMMIT
        for path in (folder / "blobs", folder / "refs", snapshot):
            path.mkdir(parents=True)
        (folder / "refs/main").write_text(COMMIT)
        for name, content in files.items():
            blob = folder / "blobs" / etag_of(name, content)
            blob.write_bytes(content)
            (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
        return snapshot

    return make


@pytest.fixture
def items(tmp_path):
    """Return a function that lists both caches."""
    return lambda: list_cached(hub_cache_dir=tmp_path / "hub")


@pytest.fixture
def url():
    """The address of a file that is cached."""
    with HubServer() as server:
        server.files[FILE] = PlainFile(CONTENT)
        fetch_url(f"{server.url}{FILE}?key=secret")
        yield server.url + FILE


def test_nothing_is_cached(items):
    assert items() == []


def test_a_repository_of_the_zoo(hub, items, tmp_path):
    hub(KNOWN)
    (item,) = items()
    assert item.source == f"hf://{KNOWN}"
    assert item.path == tmp_path / "hub/models--google--vit-base-patch16-224"
    assert find(item.names[0]).repository == KNOWN
    assert item.size_bytes >= sum(len(content) for content in FILES.values())
    for name in (KNOWN, f"hf://{KNOWN}", find(KNOWN).id):
        assert find_cached(name, [item]) is item


def test_other_repositories_are_listed_once_they_were_used_here(hub, items):
    snapshot = hub("org/flowers")
    hub("org/texts", {"config.json": b"of another kind"})
    assert items() == []
    assert is_sound((snapshot / "model.safetensors").resolve())
    (item,) = items()
    assert item.names == ["org/flowers", "hf://org/flowers"]
    age = datetime.datetime.now().astimezone() - item.last_used
    assert age < datetime.timedelta(minutes=1)


def test_a_repository_with_the_blobs_of_a_used_one_is_not_listed(hub, items):
    snapshot = hub("org/flowers")
    hub("org/copy")
    assert is_sound(blob_of(snapshot / "config.json"))
    assert [item.source for item in items()] == ["hf://org/flowers"]


def test_what_an_interrupted_download_left_counts(hub, items):
    snapshot = hub(KNOWN)
    (before,) = items()
    (snapshot.parents[1] / "blobs" / f"{'a' * 64}.0a1b2c3d.incomplete").write_bytes(bytes(1000))
    (after,) = items()
    assert after.size_bytes == before.size_bytes + 1000
    assert {file.state for file in verify_files(after)} == {OK}


def test_a_file_of_a_url(url, items, tmp_path):
    (item,) = items()
    assert item.source == url  # without its query
    assert item.path.parent == tmp_path / "own"
    assert item.size_bytes > len(CONTENT)
    for name in (url, "vit.npz", "vit"):
        assert find_cached(name, [item]) is item
    record = next(item.path.glob("*.json"))
    os.utime(record, (10**9, 10**9))
    assert items()[0].last_used.timestamp() == 10**9


def test_names_that_do_not_do(url, hub, items):
    hub(KNOWN)
    with pytest.raises(ValueError, match="Unknown cached model. Received: 'vot'. Did you mean"):
        find_cached("vot", items())
    with pytest.raises(ValueError, match=r"No models are cached\. Received: 'vit'"):
        find_cached("vit", [])
    secret = "https://user:secret@example.org/x.npz?key=secret"
    with pytest.raises(ValueError, match="Received: 'https://example.org/x.npz'"):
        find_cached(secret, items())
    twice = items() + items()
    with pytest.raises(ValueError, match="must name one cached model.*'vit', which may be http"):
        find_cached("vit", twice)


def test_verify_a_repository(hub, items):
    snapshot = hub(KNOWN, FILES | {"pytorch_model.bin": b"pickle"})
    (item,) = items()
    assert [(file.path, file.state) for file in verify_files(item)] == [
        (snapshot / name, OK) for name in ("config.json", "model.safetensors", "pytorch_model.bin")
    ]
    weights = (snapshot / "model.safetensors").resolve()
    assert is_sound(weights)
    time = weights.stat().st_mtime_ns
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=(time, time))
    assert is_sound(weights)  # nobody has looked
    _, found, _ = verify_files(item)
    assert (found.path.name, found.state, found.size_bytes) == ("model.safetensors", DAMAGED, 7)
    assert not is_sound(weights)
    delete_file(item, found)
    assert not weights.exists() and not found.path.is_symlink()


def test_verify_a_repository_whose_content_is_gone_or_without_links(hub, items):
    snapshot = hub(KNOWN)
    (snapshot / "config.json").resolve().unlink()
    (snapshot / "README.md").write_text("copied, since there are no links")
    assert {file.path.name: file.state for file in verify_files(items()[0])} == {
        "README.md": NOT_VERIFIABLE,
        "config.json": DAMAGED,
        "model.safetensors": OK,
    }


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[:10]])
def test_verify_a_file_of_a_url(url, items, content):
    (item,) = items()
    (file,) = verify_files(item)
    assert (file.state, file.size_bytes) == (OK, len(CONTENT))
    file.path.write_bytes(content)
    assert [found.state for found in verify_files(item)] == [DAMAGED]
    with pytest.raises(DownloadError, match="damaged"):
        fetch_url(f"{url}?key=secret", offline=True)
    delete_file(item, file)
    assert fetch_url(f"{url}?key=secret").read_bytes() == CONTENT
    assert [found.state for found in verify_files(item)] == [OK]


def test_a_file_without_a_checksum_is_not_verifiable(url, items):
    (item,) = items()
    record = next(item.path.glob("*.json"))
    record.write_text(f'{{"url": "{url}", "size_bytes": {len(CONTENT)}}}')
    assert [file.state for file in verify_files(item)] == [NOT_VERIFIABLE]


def test_clear(url, hub, items, tmp_path):
    snapshot = hub(KNOWN)
    hub("google/vit-large-patch16-224")
    is_sound((snapshot / "config.json").resolve())
    locks = tmp_path / "hub/.locks/models--google--vit-base-patch16-224"
    locks.mkdir(parents=True)
    for name in (KNOWN, url):
        clear(find_cached(name, items()))
    assert [item.source for item in items()] == ["hf://google/vit-large-patch16-224"]
    assert not locks.exists()
    assert not [path for path in (tmp_path / "own/checked").rglob("*") if path.is_file()]
    assert (tmp_path / "hub/models--google--vit-large-patch16-224/refs/main").exists()
