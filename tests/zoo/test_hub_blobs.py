"""What may happen to the files of a repository on their way and in the cache.

The real client, in a process of its own, against a server on this machine (FAULTS K1). The
repository is private, so that every request for it needs the token. After each case the same cache
must give the right files again.
"""

import functools
import os
import pathlib
import signal
import time

import pytest
from fetch_process import FetchProcess, summary
from hub_server import GOOD_TOKEN, Faults, HubServer, Repository, etag_of

from keras_vit.zoo.hub_blobs import delete_blob, has_right_content

COMMIT = "c" * 40
WEIGHTS = "model.safetensors"
CONTENT = bytes(range(256)) * 2048  # 512 KiB, 32 chunks
FILES = {"config.json": b'{"model_type": "vit"}', WEIGHTS: CONTENT}
STORED = f"/cdn/org/name/{COMMIT}/{WEIGHTS}"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The server, and a process that has imported the client: that takes a second."""
    home = tmp_path_factory.mktemp("home")
    with HubServer() as server, process(server, home) as client:
        yield server, client


@pytest.fixture
def server(running):
    server, _ = running
    private = Repository({COMMIT: FILES}, {"main": COMMIT}, access="private")
    server.repositories["org/name"] = private
    server.requests.clear()
    return server


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "hub"


@pytest.fixture
def fetch(running, server, cache):
    """Return a function that fetches the repository into a cache of the test's own."""
    return functools.partial(running[1].fetch, "org/name", cache_dir=str(cache))


@pytest.fixture
def misbehave(server):
    """Return a function that gives one file its faults."""

    def give(name: str = WEIGHTS, **faults):
        server.repositories["org/name"].faults = {name: Faults(**faults)}

    return give


def process(server, home, **environment):
    return FetchProcess(server, home, HF_TOKEN=GOOD_TOKEN, **environment)


def blobs(cache):
    return cache / "models--org--name/blobs"


def names_in(cache) -> set[str]:
    return {path.name for path in blobs(cache).iterdir()}


def check_cache(fetch, cache, spoiled: bool = False):
    """Everything under a final name is whole, unless a test spoiled it; the next load is right."""
    for path in blobs(cache).glob("*"):
        if path.suffix != ".incomplete":
            assert has_right_content(path, path.name) or spoiled, path
    assert fetch()["files"] == summary(FILES)
    assert names_in(cache) == {etag_of(name, content) for name, content in FILES.items()}
    assert fetch(local_files_only=True)["files"] == summary(FILES)


def ranges(server):
    return [
        headers.get("Range")
        for method, path, headers in server.requests
        if (method, path) == ("GET", STORED)
    ]


def test_fresh_then_cached(fetch, server, cache):
    assert fetch()["files"] == summary(FILES)
    assert fetch()["files"] == summary(FILES)
    assert server.count("GET", STORED) == 1
    check_cache(fetch, cache)


def test_a_token_is_sent_to_the_hub_alone(fetch, server):
    """FAULTS K2: not to the host that stores the files."""
    assert fetch()["files"] == summary(FILES)
    for _, path, headers in server.requests:
        with_token = "authorization" in {name.lower() for name in headers}
        host = "127.0.0.1" if with_token else "localhost"
        assert headers["Host"] == f"{host}:{server.server_port}", path
    assert server.count("GET", STORED) == 1


@pytest.mark.parametrize("token", [GOOD_TOKEN, "hf_wrongtoken"])
def test_a_token_is_in_no_log(server, token, tmp_path):
    """FAULTS K2: not even in the client's most talkative one, for cuts, refusals and successes."""
    server.repositories["org/name"].faults[WEIGHTS] = Faults(cuts=[200_000], statuses=[503])
    log = tmp_path / "log"
    talkative = {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug", "HF_TOKEN": token}
    with FetchProcess(server, tmp_path / "home", log=log, **talkative) as client:
        answers = [client.fetch(f"org/{name}", token=token) for name in ("name", "none")]
        answers.append(client.fetch("org/name", cache_dir=str(tmp_path / "other")))
    assert "Send: curl" in log.read_text()
    assert token not in log.read_text() + str(answers)
    assert [answer.get("error") for answer in answers] == (
        [None, "DownloadError", None] if token == GOOD_TOKEN else ["DownloadError"] * 3
    )


def test_a_cut_at_half_is_resumed(fetch, server, misbehave, cache):
    misbehave(cuts=[len(CONTENT) // 2])
    assert fetch()["files"] == summary(FILES)
    first, second = ranges(server)
    assert first is None
    assert second == f"bytes={len(CONTENT) // 2}-"
    check_cache(fetch, cache)


def test_a_connection_that_is_reset_begins_anew(fetch, server, misbehave, cache):
    """The client itself gives up on these."""
    misbehave(cuts=[len(CONTENT) // 2] * 2, resets=True)
    assert fetch()["files"] == summary(FILES)
    assert ranges(server) == [None] * 3
    check_cache(fetch, cache)


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_busy_twice_then_good(fetch, server, misbehave, name, cache):
    misbehave(name, statuses=[503, 500])
    server.repositories["org/name"].statuses = [503, 502]
    assert fetch()["files"] == summary(FILES)
    check_cache(fetch, cache)


def test_busy_for_ever(fetch, server, misbehave, cache):
    misbehave(statuses=[503] * 5)
    message = fetch()["message"]
    assert "the Hub is out of order (status 503). Try again later" in message
    assert server.count("GET", STORED) == 5
    check_cache(fetch, cache)


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_checksum_is_fetched_once_more(fetch, misbehave, name, cache):
    misbehave(name, wrong=[b"?" * len(FILES[name])])
    assert fetch()["files"] == summary(FILES)
    check_cache(fetch, cache)


def test_a_wrong_checksum_twice_is_an_error_and_is_not_kept(fetch, server, misbehave, cache):
    misbehave(wrong=[b"?" * len(CONTENT)] * 2)
    failed = fetch()
    assert failed["error"] == "DownloadError"
    assert f"damaged, twice: {WEIGHTS}, which should have checksum" in failed["message"]
    assert etag_of(WEIGHTS, CONTENT) in failed["message"]
    assert names_in(cache) == {etag_of("config.json", FILES["config.json"])}
    offline = fetch(local_files_only=True)
    assert "is not whole in the cache" in offline["message"]
    assert server.count("GET", STORED) == 2
    check_cache(fetch, cache)


def test_truncated_content(fetch, misbehave, cache):
    """The server itself says that the file is shorter than the Hub lists it."""
    misbehave(wrong=[CONTENT[:-1]] * 5)
    message = fetch()["message"]
    assert "does not have the length that the Hub states, 5 times" in message
    check_cache(fetch, cache)
    assert "force_download" not in message


@pytest.mark.parametrize("spoiled", [CONTENT[:1000], b"", CONTENT[:-1] + b"?"])
def test_a_cached_file_that_was_spoiled(fetch, server, spoiled, cache):
    fetch()
    blob = blobs(cache) / etag_of(WEIGHTS, CONTENT)
    blob.write_bytes(spoiled)
    asked = len(server.requests)
    message = fetch(local_files_only=True)["message"]
    assert "is damaged, and the network is switched off" in message
    assert f"snapshots/{COMMIT}/{WEIGHTS}" in message
    assert len(server.requests) == asked
    check_cache(fetch, cache, spoiled=True)


def test_a_file_is_hashed_once(server, tmp_path):
    """Later loads compare checksum, size and time of change with what was noted."""
    cache = tmp_path / "hub"
    with process(server, tmp_path) as client:
        fetch = functools.partial(client.fetch, "org/name", cache_dir=str(cache))
        fetch()
        blob = blobs(cache) / etag_of(WEIGHTS, CONTENT)
        time_of_change = blob.stat().st_mtime_ns
        notes = list((tmp_path / "keras_vit/checked/models--org--name").iterdir())
        assert f"{blob.name}-{len(CONTENT)}-{time_of_change}" in {note.name for note in notes}
        assert len(notes) == len(FILES)
        spoiled = b"?" * len(CONTENT)
        blob.write_bytes(spoiled)
        os.utime(blob, ns=(time_of_change, time_of_change))
        # Not seen, since not hashed again.
        assert fetch()["files"] == summary(FILES | {WEIGHTS: spoiled})
        for note in notes:
            note.unlink()
        check_cache(fetch, cache, spoiled=True)


def test_a_note_that_cannot_be_written_does_no_harm(server, tmp_path):
    (tmp_path / "file").touch()
    with process(server, tmp_path, KERAS_VIT_CACHE=str(tmp_path / "file")) as client:
        assert client.fetch("org/name")["files"] == summary(FILES)


def test_where_there_are_no_links_sizes_are_compared(server, tmp_path):
    """As on systems that forbid them: then no file is named by its checksum."""
    with process(server, tmp_path, HF_HUB_DISABLE_SYMLINKS="1") as client:
        path = pathlib.Path(client.fetch("org/name")["path"]) / WEIGHTS
        assert not path.is_symlink()
        path.write_bytes(CONTENT[:1000])
        message = client.fetch("org/name", local_files_only=True)["message"]
        assert "is damaged" in message
        assert client.fetch("org/name")["files"] == summary(FILES)


def wait_for_the_first_bytes(cache):
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size for path in blobs(cache).glob("*.incomplete")):
        assert time.monotonic() < deadline, "nothing arrived"
        time.sleep(0.02)


def kill_in_mid_download(server, misbehave, cache, home):
    misbehave(cuts=[len(CONTENT) // 2], hangs=True)
    with process(server, home) as client:
        client.ask("org/name", cache_dir=str(cache))
        wait_for_the_first_bytes(cache)
        time.sleep(0.2)  # until what the server sent is written
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()


def test_killed_in_mid_download_then_resumed(fetch, server, misbehave, cache, tmp_path):
    kill_in_mid_download(server, misbehave, cache, tmp_path)
    (left,) = blobs(cache).glob("*.incomplete")
    arrived = left.stat().st_size
    assert 0 < arrived <= len(CONTENT) // 2
    assert not (blobs(cache) / etag_of(WEIGHTS, CONTENT)).exists()
    offline = fetch(local_files_only=True)
    assert "is not whole in the cache" in offline["message"]
    check_cache(fetch, cache)
    assert ranges(server) == [None, f"bytes={arrived}-"]


@pytest.mark.parametrize("spoil", ["other content", "too long", "two of them"])
def test_what_a_killed_process_left_is_not_trusted(
    fetch, server, misbehave, spoil, cache, tmp_path
):
    kill_in_mid_download(server, misbehave, cache, tmp_path)
    (left,) = blobs(cache).glob("*.incomplete")
    if spoil == "other content":
        left.write_bytes(b"?" * left.stat().st_size)
    elif spoil == "too long":
        left.write_bytes(CONTENT + b"?")
    else:
        smaller = left.with_name(f"{etag_of(WEIGHTS, CONTENT)}.00000000.incomplete")
        smaller.write_bytes(CONTENT[:10])
    check_cache(fetch, cache)


def test_two_processes_at_once_download_once(fetch, server, misbehave, cache, tmp_path):
    misbehave(delay=1.0)
    with process(server, tmp_path) as first, process(server, tmp_path) as second:
        for client in (first, second):
            client.ask("org/name", cache_dir=str(cache))
        assert first.answer()["files"] == second.answer()["files"] == summary(FILES)
    assert server.count("GET", STORED) == 1
    check_cache(fetch, cache)


def test_a_process_that_comes_in_mid_download_of_another(fetch, server, misbehave, cache, tmp_path):
    """What the other holds the lock of is no leftover to be finished."""
    misbehave(pause=3.0)
    with process(server, tmp_path) as first, process(server, tmp_path) as second:
        first.ask("org/name", cache_dir=str(cache))
        wait_for_the_first_bytes(cache)
        second.ask("org/name", cache_dir=str(cache))
        assert first.answer()["files"] == second.answer()["files"] == summary(FILES)
    assert server.count("GET", STORED) == 1
    check_cache(fetch, cache)


def test_full_disk(fetch, cache, tmp_path):
    message = fetch(largest_file=len(CONTENT) // 2)["message"]
    assert "No space left (File too large)" in message
    assert "Free some, or choose another folder by `cache_dir=`" in message
    assert str(cache) in message
    assert not list(blobs(cache).glob("*.incomplete"))
    check_cache(fetch, cache)


def test_repository_that_changed_while_a_download_was_left(
    fetch, server, misbehave, cache, tmp_path
):
    """The branch is elsewhere now: the leftover and its listing are of no use."""
    kill_in_mid_download(server, misbehave, cache, tmp_path)
    repository = server.repositories["org/name"]
    new = {"config.json": b"{}", "other.safetensors": CONTENT[::-1]}
    repository.commits["d" * 40] = new
    repository.references["main"] = "d" * 40
    assert fetch()["files"] == summary(new)


def test_a_link_out_of_the_cache_is_cut_and_its_target_stays(tmp_path):
    """As the entry of a snapshot, and as a blob; each of a name that the check must not trust."""
    folder = tmp_path / "models--org--name"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (tmp_path / "blobs").mkdir()
    own, linked = folder / "blobs/own", folder / "blobs/linked"
    theirs = [tmp_path / "x/y/theirs", tmp_path / "blobs/theirs", tmp_path / "shared"]
    (tmp_path / "x/y").mkdir(parents=True)
    for file in (own, *theirs):
        file.write_text("content")
    linked.symlink_to(theirs[2])
    entries = dict(a=theirs[0], b=theirs[1], c="../../blobs/linked", d="../../blobs/own")
    for name, target in entries.items():
        (snapshot / name).symlink_to(target)
        delete_blob(snapshot / name)
    assert all(file.read_text() == "content" for file in theirs)
    assert not list(snapshot.iterdir()) and not list((folder / "blobs").iterdir())


def test_a_load_deletes_no_file_outside_of_the_cache(fetch, cache, tmp_path):
    fetch()
    entry = blobs(cache).parent / "snapshots" / COMMIT / WEIGHTS
    (tmp_path / "mine").write_bytes(b"mine")
    entry.unlink()
    entry.symlink_to(tmp_path / "mine")
    assert fetch()["files"] == summary(FILES)
    assert (tmp_path / "mine").read_bytes() == b"mine"
