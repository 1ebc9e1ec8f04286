import base64
import hashlib
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request

import pytest
from fetch_process import PACKAGE, FetchProcess, summary
from hub_server import HubServer, PlainFile

from keras_vit.zoo import https
from keras_vit.zoo.https import (
    DownloadError,
    cache_path,
    disown,
    fetch_url,
    public_url,
    read_record,
)

CONTENT = bytes(range(256)) * 4096  # 1 MiB
PATH = "/models/weights.npz"
# A process with nothing but the module: the package itself takes seconds to import.
FETCH_ALONE = """
import sys, types
package = types.ModuleType("keras_vit")
package.__path__ = [sys.argv[1]]
sys.modules["keras_vit"] = package
from keras_vit.zoo import https
https.CHUNK_BYTES = 1 << 16
print(https.fetch_url(sys.argv[2], sys.argv[3]))
"""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(https, "FIRST_WAIT_SECONDS", 0.01)
    with HubServer() as server:
        yield server


def serve(server, **behaviour):
    server.files[PATH] = PlainFile(CONTENT, **behaviour)
    return server.url + PATH


def fetch_in_process(url, cache):
    return subprocess.Popen(
        [sys.executable, "-c", FETCH_ALONE, str(PACKAGE), url, str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranges(server):
    return [headers.get("Range") for method, _, headers in server.requests if method == "GET"]


def test_download_once_then_from_the_cache(server, tmp_path):
    url = serve(server)
    path = fetch_url(url, tmp_path)
    assert path.name == "weights.npz"
    assert path.read_bytes() == CONTENT
    assert fetch_url(url, tmp_path, offline=True) == path
    assert server.count("GET", PATH) == 1
    assert not list(path.parent.glob("*.incomplete"))


def test_one_base_name_in_two_directories_is_two_files(server, tmp_path):
    for folder in ("imagenet21k", "imagenet21k+imagenet2012"):
        server.files[f"/{folder}/ViT-B_16.npz"] = PlainFile(folder.encode())
    first = fetch_url(f"{server.url}/imagenet21k/ViT-B_16.npz", tmp_path)
    second = fetch_url(f"{server.url}/imagenet21k+imagenet2012/ViT-B_16.npz", tmp_path)
    assert first.name == second.name
    assert (first.read_text(), second.read_text()) == ("imagenet21k", "imagenet21k+imagenet2012")


def test_default_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "chosen"))
    assert cache_path("https://example.org/a.npz").is_relative_to(tmp_path / "chosen")
    monkeypatch.delenv("KERAS_VIT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path("https://example.org/a.npz").is_relative_to(tmp_path / ".cache/keras_vit")


@pytest.mark.parametrize("length", [len(CONTENT) // 2, 0])
def test_a_cached_file_that_was_cut_short_is_fetched_again(server, tmp_path, length):
    """FAULTS K1."""
    url = serve(server)
    path = fetch_url(url, tmp_path)
    path.write_bytes(CONTENT[:length])
    with pytest.raises(DownloadError, match=f"(?s)damaged: .*{path.name}"):
        fetch_url(url, tmp_path, offline=True)
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT


def test_a_cut_connection_is_resumed(server, tmp_path):
    url = serve(server, cuts=[300_000])
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=300000-"]


def test_without_an_etag_a_cut_download_starts_anew(server, tmp_path):
    url = serve(server, cuts=[300_000], resumable=False)
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT
    assert ranges(server) == [None, None]


def test_a_file_that_changed_meanwhile_is_not_mixed(server, tmp_path, monkeypatch):
    url = serve(server, cuts=[300_000])
    monkeypatch.setattr(https, "TRIES", 1)
    with pytest.raises(DownloadError, match="300000 of 1048576 bytes"):
        fetch_url(url, tmp_path)
    server.files[PATH] = PlainFile(CONTENT[::-1], states_md5=False)
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT[::-1]


def test_a_server_that_is_busy_is_asked_again(server, tmp_path):
    url = serve(server, statuses=[503, 429])
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT


def test_giving_up_leaves_nothing_under_the_final_name(server, tmp_path):
    url = serve(server, statuses=[500] * https.TRIES)
    with pytest.raises(DownloadError, match="after 5 tries: the server answered 500"):
        fetch_url(url, tmp_path)
    assert not cache_path(url, tmp_path).exists()


def test_checksum_of_the_row_wins(server, tmp_path):
    url = serve(server)
    good = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(DownloadError, match=f"its sha256 should be {'0' * 64} and is {good}"):
        fetch_url(url, tmp_path, sha256="0" * 64)
    assert not cache_path(url, tmp_path).exists()
    assert not list(tmp_path.glob("*/*.incomplete"))
    assert fetch_url(url, tmp_path, sha256=good).read_bytes() == CONTENT


def test_checksum_of_the_server(server, tmp_path, monkeypatch):
    url = serve(server)
    wrong = base64.b64encode(bytes(16)).decode()
    monkeypatch.setattr(base64, "b64encode", lambda digest: wrong.encode())
    with pytest.raises(DownloadError, match=f"its md5 should be {'0' * 32}"):
        fetch_url(url, tmp_path)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"statuses": [404]}, "There is no file at .*weights.npz.*list_models"),
        ({"statuses": [403]}, "may not be read without permission.*give its path"),
        ({"statuses": [418]}, "cannot be fetched.*418"),
        ({"content_type": "text/html"}, "is a web page, not a weights file"),
    ],
)
def test_refusals_are_told_apart_and_not_repeated(server, tmp_path, behaviour, message):
    with pytest.raises(DownloadError, match=message):
        fetch_url(serve(server, **behaviour), tmp_path)
    assert server.count("GET", PATH) == 1


def test_no_connection(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HubServer() as server:
        url = server.url + PATH
    with pytest.raises(DownloadError, match=r"No connection to 127\.0\.0\.1.*HTTPS_PROXY"):
        fetch_url(url, tmp_path)


def test_offline_touches_no_network(tmp_path, monkeypatch):
    """FAULTS K2."""

    def no_network(*arguments, **keywords):
        raise AssertionError("network")

    monkeypatch.setattr("socket.socket", no_network)
    monkeypatch.setattr("socket.getaddrinfo", no_network)
    with pytest.raises(DownloadError, match=f"(?s)There is no copy: {tmp_path}.*HF_HUB_OFFLINE"):
        fetch_url("https://example.org/a.npz", tmp_path, offline=True)


def test_no_space(server, tmp_path, monkeypatch):
    url = serve(server)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DownloadError, match=r"No space left \(1048576 bytes needed, 1000 free\)"):
        fetch_url(url, tmp_path)
    assert not cache_path(url, tmp_path).exists()


def test_a_limit_on_the_size_of_files(server, tmp_path):
    """As a full disk shows itself in the middle of a file; what arrived is gone on with."""
    url = serve(server)
    with FetchProcess(server, tmp_path) as process:
        message = process.fetch(url, largest_file=len(CONTENT) // 2)["message"]
        assert "No space left (File too large)" in message
        assert "choose another folder by `cache_dir=`, KERAS_VIT_CACHE" in message
        assert not cache_path(url, tmp_path / "keras_vit").exists()
        assert process.fetch(url)["files"] == summary({"weights.npz": CONTENT})
    assert ranges(server) == [None, f"bytes={len(CONTENT) // 2}-"]


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match=r"Cannot write \(Not a directory\).*`cache_dir=`"):
        fetch_url("https://example.org/a.npz", tmp_path / "file")


def test_a_killed_download_is_resumed_by_the_next(server, tmp_path):
    """FAULTS K1: killed half-way, nothing lies under the final name."""
    url = serve(server, cuts=[524_288], hangs=True)
    process = fetch_in_process(url, tmp_path)
    target = cache_path(url, tmp_path)
    partial = target.with_name(target.name + ".incomplete")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not (
        partial.exists() and partial.stat().st_size >= 400_000
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not target.exists()
    arrived = partial.stat().st_size
    assert 400_000 <= arrived <= 524_288
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT
    assert ranges(server) == [None, f"bytes={arrived}-"]


def test_two_processes_at_once_download_once(server, tmp_path):
    """FAULTS K1."""
    url = serve(server, delay=0.5)
    processes = [fetch_in_process(url, tmp_path) for _ in range(2)]
    outputs = [process.communicate(timeout=30) for process in processes]
    assert [output.strip() for output, _ in outputs] == [str(cache_path(url, tmp_path))] * 2, (
        outputs
    )
    assert server.count("GET", PATH) == 1
    assert cache_path(url, tmp_path).read_bytes() == CONTENT


def test_secrets_of_a_url_are_never_shown(server, tmp_path, monkeypatch):
    """FAULTS K2: nor are they written beside the file."""
    secret = f"{server.url.replace('//', '//user:pass@')}{PATH}?signature=secret"
    assert public_url(secret) == server.url + PATH
    serve(server, statuses=[404])
    with pytest.raises(DownloadError) as error:
        fetch_url(f"{server.url}{PATH}?signature=secret", tmp_path)
    assert "secret" not in str(error.value)
    path = fetch_url(f"{server.url}{PATH}?signature=secret", tmp_path)
    assert "secret" not in path.with_name(path.name + ".json").read_text()


@pytest.mark.parametrize("url", ["https://user:secret@example.org", "https://x.org/a?b= secret"])
def test_what_is_no_url_is_not_quoted_by_the_cause(tmp_path, url):
    """FAULTS K2: the whole traceback has no secrets."""
    with pytest.raises(ValueError, match="`source` must be a valid URL") as error:
        fetch_url(url, tmp_path)
    assert "secret" not in "".join(traceback.format_exception(error.value))


def test_record_keeps_the_checksum_of_what_arrived(server, tmp_path):
    path = fetch_url(serve(server, states_md5=False), tmp_path)
    record = read_record(path)
    assert record["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert (record["size_bytes"], record["url"]) == (len(CONTENT), server.url + PATH)
    used = path.with_name("weights.npz.json")
    os.utime(used, (0, 0))
    fetch_url(server.url + PATH, tmp_path)
    assert time.time() - used.stat().st_mtime < 60


def test_a_disowned_file_is_fetched_again(server, tmp_path):
    path = fetch_url(serve(server), tmp_path)
    path.write_bytes(CONTENT[::-1])
    disown(path)
    with pytest.raises(DownloadError, match="damaged"):
        fetch_url(server.url + PATH, tmp_path, offline=True)
    assert fetch_url(server.url + PATH, tmp_path).read_bytes() == CONTENT


def test_a_connection_that_is_reset_at_once_is_tried_again(server, tmp_path, monkeypatch):
    url, real, failures = (
        serve(server),
        urllib.request.urlopen,
        [ConnectionResetError(104, "reset")],
    )

    def urlopen(*arguments, **keywords):
        if failures:
            raise urllib.error.URLError(failures.pop())
        return real(*arguments, **keywords)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert fetch_url(url, tmp_path).read_bytes() == CONTENT


@pytest.fixture
def answering(monkeypatch):
    """Return a function that starts a server with one literal answer a request, and its URL."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(https, "FIRST_WAIT_SECONDS", 0.01)
    servers = []

    def start(*answers):
        left = list(answers)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                while self.rfile.readline().strip():
                    pass
                self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

        servers.append(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/vit.npz"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


GOOD_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nweights"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answered 204"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "an empty file"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "an empty file"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "sent it encoded .gzip.",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nabc", "a length that is none .'abc'."),
    ],
)
def test_an_answer_that_is_not_the_file_is_a_failed_try(answering, tmp_path, wrong, reason):
    assert fetch_url(answering(wrong, GOOD_ANSWER), tmp_path).read_bytes() == b"weights"
    url = answering(wrong)
    with pytest.raises(DownloadError, match=f"after 5 tries: .*{reason}"):
        fetch_url(url, tmp_path)
    assert not cache_path(url, tmp_path).exists()


def test_a_redirect_loop_says_so(answering, tmp_path):
    url = answering(b"HTTP/1.1 302 Found\r\nLocation: /vit.npz\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(DownloadError, match=r"vit.npz redirects in a loop \(status 302\)\. Check"):
        fetch_url(url, tmp_path)


@pytest.mark.parametrize("url", ["http://[::1", "http://[bad/x?secret", "https://u:secret@[bad]/x"])
def test_a_host_that_cannot_be_read(answering, tmp_path, url):
    with pytest.raises(ValueError, match=r"valid URL. Received: .* host cannot be read") as error:
        fetch_url(url, tmp_path)
    redirect = f"HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()
    with pytest.raises(
        ValueError, match=r"redirect to none that is not. Received: .*vit.npz"
    ) as to:
        fetch_url(answering(redirect), tmp_path)
    for each in (error, to):
        assert "secret" not in "".join(traceback.format_exception(each.value))
