"""For the download tests: a loopback server, and processes that fetch from it.

The server has plain files, and enough of the Hub's HTTP interface.

The Hub part is what the real `huggingface_hub` client asks for: model information, the tree of a
commit, and files by HEAD and GET with `ETag` and `X-Repo-Commit`; errors carry `X-Error-Code`.
"""

import base64
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GOOD_TOKEN = "hf_goodtoken"
PACKAGE = Path(__file__).parents[2] / "keras_vit"
# Calls `fetch` once for every line of JSON. The package's own __init__ would import Keras.
FETCH_LOOP = """
import json, pathlib, socket, sys, traceback, types

def no_network(*arguments, **keywords):
    raise AssertionError("the network was touched")

package = types.ModuleType("keras_vit")
package.__path__ = [sys.argv[1]]
sys.modules["keras_vit"] = package
from keras_vit.zoo.download import DownloadError, fetch

if sys.argv[2] == "without sockets":
    socket.socket = socket.create_connection = socket.getaddrinfo = no_network
for line in sys.stdin:
    try:
        fetched = fetch(**json.loads(line))
        files = {path.name: path.read_text() for path in pathlib.Path(fetched.path).iterdir()}
        answer = {"path": str(fetched.path), "origin": fetched.origin, "files": files}
        answer["id"] = fetched.row and fetched.row.id
    except (DownloadError, ValueError) as error:
        answer = {"error": type(error).__name__, "message": str(error)}
        answer["traceback"] = traceback.format_exc()
    answer["heavy"] = [name for name in ("keras", "tensorflow", "torch") if name in sys.modules]
    print(json.dumps(answer), flush=True)
"""


@dataclasses.dataclass
class PlainFile:
    """A file at a path, and how the server misbehaves with it.

    Args:
        content: The bytes.
        cuts: Of the next answers, how many bytes arrive before the connection ends.
        statuses: What the next requests are answered with instead.
        resumable: Whether there is an ETag, and Range is honoured.
        states_md5: Whether `x-goog-hash` is sent.
        content_type: As sent.
        hangs: Whether a cut answer stays open instead of ending.
        delay: Seconds before an answer.
    """

    content: bytes
    cuts: list[int] = dataclasses.field(default_factory=list)
    statuses: list[int] = dataclasses.field(default_factory=list)
    resumable: bool = True
    states_md5: bool = True
    content_type: str = "application/octet-stream"
    hangs: bool = False
    delay: float = 0.0


@dataclasses.dataclass
class Repository:
    """A repository of the Hub.

    Args:
        commits: Files by path, by commit hash.
        references: Commit hash by branch name or other reference.
        access: `"public"`, `"private"`, `"gated"`, `"forbidden"` (403) or `"broken"` (503).
        lost: Paths that the tree lists and nobody can fetch.
    """

    commits: dict[str, dict[str, bytes]]
    references: dict[str, str]
    access: str = "public"
    lost: tuple[str, ...] = ()


class HubServer(ThreadingHTTPServer):
    """Serves until the end of its `with` block; `requests` holds (method, path, headers)."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, PlainFile] = {}
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exception):
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Say nothing: clients that hang up half-way are part of the tests."""

    def count(self, method: str, path: str) -> int:
        return sum((method, path) == request[:2] for request in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def do_HEAD(self):
        self.handle_request()

    def do_GET(self):
        self.handle_request()

    def log_message(self, *arguments):
        pass

    def handle_request(self):
        path = urllib.parse.urlsplit(self.path).path
        self.server.requests.append((self.command, path, dict(self.headers)))
        if path in self.server.files:
            self.send_plain(self.server.files[path])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path):
            repository, kind, revision = match.groups()
            self.send_api(repository, kind, urllib.parse.unquote(revision or "main"))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repository, revision, name = match.groups()
            self.send_repository_file(repository, urllib.parse.unquote(revision), name)
        else:
            self.answer(404, b"nothing here")

    def answer(self, status: int, body: bytes = b"", **headers: str):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_plain(self, file: PlainFile):
        time.sleep(file.delay)
        if file.statuses:
            self.answer(file.statuses.pop(0))
            return
        content, status = file.content, 200
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        headers = {"Content-Type": file.content_type}
        if file.resumable:
            headers["ETag"] = etag
        if file.states_md5:
            md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
            headers["x-goog-hash"] = f"crc32c=AAAAAA==,md5={md5}"
        if file.resumable and asked and self.headers.get("If-Range", etag) == etag:
            start, status = int(asked[1]), 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            content = content[start:]
        if not file.cuts:
            self.answer(status, content, **headers)
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: file.cuts.pop(0)])
        self.wfile.flush()
        if file.hangs:
            self.server.closing.wait(60)
        self.close_connection = True

    def refuse(self, status: int, code: str = "", message: str = ""):
        self.answer(status, X_Error_Code=code, X_Error_Message=message)

    def repository(self, name: str) -> Repository | None:
        """Return a repository that this request may see; answer the request if there is none."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.server.repositories.get(name)
        if given and given != GOOD_TOKEN:
            self.refuse(401, message="Invalid credentials in Authorization header")
        elif repository is None or (repository.access == "private" and not given):
            self.refuse(404 if given else 401, "RepoNotFound", "Repository not found")
        elif repository.access == "forbidden":
            self.refuse(403, message="Forbidden: pass a token with the correct permissions")
        elif repository.access == "broken":
            self.refuse(503)
        else:
            return repository
        return None

    def send_api(self, name: str, kind: str | None, revision: str):
        repository = self.repository(name)
        if repository is None:
            return
        commit = repository.references.get(revision, revision)
        if commit not in repository.commits:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        files = repository.commits[commit]
        if kind == "tree":
            body = [
                {"type": "file", "path": path, "size": len(content), "oid": _etag(content)}
                for path, content in files.items()
            ]
        else:
            body = {"id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]}
        self.answer(200, json.dumps(body).encode(), Content_Type="application/json")

    def send_repository_file(self, name: str, revision: str, path: str):
        repository = self.repository(name)
        if repository is None:
            return
        if repository.access == "gated":
            status = 403 if self.headers.get("Authorization") else 401
            self.refuse(status, "GatedRepo", "Access to model is restricted")
            return
        commit = repository.references.get(revision, revision)
        files = repository.commits.get(commit)
        if files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif path not in files or path in repository.lost:
            self.refuse(404, "EntryNotFound", "Entry not found")
        else:
            etag = f'"{_etag(files[path])}"'
            self.answer(200, files[path], X_Repo_Commit=commit, X_Linked_Etag=etag, ETag=etag)


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class FetchProcess:
    """A process with its own environment that calls `fetch`; the Hub's client reads it at import.

    Args:
        endpoint: Address of the Hub (TRAPS 12: read when the client is imported).
        home: HF_HOME, the client's cache and stored token.
        sockets: False makes any use of the network an error.
        environment: Further variables.
    """

    def __init__(self, endpoint: str, home: Path, sockets: bool = True, **environment: str):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        settings = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", FETCH_LOOP, str(PACKAGE), "" if sockets else "without sockets"],
            env=kept | settings | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()

    def fetch(self, source: str, **arguments) -> dict:
        """Return `path`, `files`, `origin` and `id`, or `error`, `message` and `traceback`."""
        self.process.stdin.write(json.dumps({"source": source} | arguments) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())
