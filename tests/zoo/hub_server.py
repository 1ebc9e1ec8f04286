"""A server on this machine for the download and upload tests: plain files, and enough of the Hub.

The Hub part speaks to the real `huggingface_hub` client: information, tree and files of a commit,
and uploads. As on the Hub, files of `LFS_SUFFIXES` have a sha256 for an ETag and are redirected to
another host (`localhost` instead of `127.0.0.1`), others have a git sha1 and come at once; errors
carry `X-Error-Code`. Every file may have `Faults`.

The client reads its address when it is imported (TRAPS 12), so it runs in a process of its own:

    with HubServer() as server:
        script = "import huggingface_hub as hub; hub.create_repo('org/new', private=True); ..."
        subprocess.run([sys.executable, "-c", script], env=server.environment(tmp_path), check=True)
        files = server.files_of("org/new")  # {"config.json": b"...", ...}, at any revision
        assert server.repositories["org/new"].access == "private"

For an upload the process needs a token: `HF_TOKEN` among the variables of `environment`, or
`token=` in its calls. `GOOD_TOKEN` may do all, `READ_TOKEN` may not write (403), any other is
rejected (401). Repositories in the namespace `FOREIGN` may be written by nobody. `tests/zoo` is put
on the path by its conftest; elsewhere: `sys.path.append(".../tests/zoo")`.
"""

import base64
import dataclasses
import hashlib
import json
import os
import re
import socket
import struct
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GOOD_TOKEN = "hf_goodtoken"
READ_TOKEN = "hf_readtoken"
USER = "tester"  # whose tokens they are; namespace of repositories created without one
FOREIGN = "foreign"
LFS_SUFFIXES = (".safetensors", ".h5", ".bin", ".npz", ".keras")
FIRST_FILES = {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}


@dataclasses.dataclass(kw_only=True)
class Faults:
    """How the server misbehaves with one file.

    Args:
        statuses: What the next GETs are answered with instead.
        cuts: Of the next answers, how many bytes arrive before the connection ends.
        wrong: What the next answers hold instead of the content.
        hangs: Whether a cut answer stays open instead of ending.
        resets: Whether a cut is a reset of the connection instead of an end.
        delay: Seconds before an answer.
        pause: Seconds between the halves of an answer.
    """

    statuses: list[int] = dataclasses.field(default_factory=list)
    cuts: list[int] = dataclasses.field(default_factory=list)
    wrong: list[bytes] = dataclasses.field(default_factory=list)
    hangs: bool = False
    resets: bool = False
    delay: float = 0.0
    pause: float = 0.0


@dataclasses.dataclass
class PlainFile(Faults):
    """A file at a path.

    Args:
        content: The bytes.
        resumable: Whether there is an ETag, and Range is honoured.
        states_md5: Whether `x-goog-hash` is sent.
        content_type: As sent.
    """

    content: bytes
    resumable: bool = True
    states_md5: bool = True
    content_type: str = "application/octet-stream"


@dataclasses.dataclass
class Repository:
    """A repository of the Hub.

    Args:
        commits: Files by path, by commit hash.
        references: Commit hash by branch name or other reference.
        access: `"public"`, `"private"`, `"gated"`, `"forbidden"` (403) or `"broken"` (503).
        lost: Paths that the tree lists and nobody can fetch.
        faults: Of files, by path.
        statuses: What the next questions about the repository itself are answered with.
    """

    commits: dict[str, dict[str, bytes]]
    references: dict[str, str]
    access: str = "public"
    lost: tuple[str, ...] = ()
    faults: dict[str, Faults] = dataclasses.field(default_factory=dict)
    statuses: list[int] = dataclasses.field(default_factory=list)

    def files(self, revision: str) -> dict[str, bytes] | None:
        return self.commits.get(self.references.get(revision, revision))


class HubServer(ThreadingHTTPServer):
    """Serves until the end of its `with` block; `requests` holds (method, path, headers)."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, PlainFile] = {}
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.uploads: dict[str, bytes] = {}  # by sha256, until a commit names them and after
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

    def files_of(self, repository: str, revision: str = "main") -> dict[str, bytes]:
        return self.repositories[repository].files(revision)

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Return the variables of a process whose Hub this is.

        Args:
            home: HF_HOME, the client's cache and stored token.
            more: Further variables.
        """
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        return kept | {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",  # a second protocol, which this server does not speak
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **more,
        }


def etag_of(path: str, content: bytes) -> str:
    """Return the checksum by which the Hub calls a file's content."""
    if path.endswith(LFS_SUFFIXES):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def do_HEAD(self):
        self.handle_request()

    def do_GET(self):
        self.handle_request()

    def do_POST(self):
        self.handle_request()

    def do_PUT(self):
        self.handle_request()

    def log_message(self, *arguments):
        pass

    def handle_request(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.server.requests.append((self.command, path, dict(self.headers)))
        self.body = self._read_body()
        if path in self.server.files:
            self.send_plain(self.server.files[path])
            return
        for method, pattern, action in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method:
                action(self, *match.groups())
                return
        self.answer(404, b"nothing here")

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, status: int, body: bytes = b"", **headers: str):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, status: int = 200):
        self.answer(status, json.dumps(value).encode(), Content_Type="application/json")

    def refuse(self, status: int, code: str = "", message: str = ""):
        self.answer(status, X_Error_Code=code, X_Error_Message=message)

    def send_plain(self, file: PlainFile):
        etag = hashlib.sha256(file.content).hexdigest() if file.resumable else None
        headers = {"Content-Type": file.content_type}
        if file.states_md5:
            md5 = base64.b64encode(hashlib.md5(file.content).digest()).decode()
            headers["x-goog-hash"] = f"crc32c=AAAAAA==,md5={md5}"
        self.send_content(file.content, etag, headers, file)

    def send_content(self, content: bytes, etag: str | None, headers: dict, faults: Faults):
        """Send a file, from the place asked for if there is an ETag, with its faults."""
        reading = self.command == "GET"
        time.sleep(faults.delay if reading else 0)
        if reading and faults.statuses:
            self.answer(faults.statuses.pop(0))
            return
        if reading and faults.wrong:
            content = faults.wrong.pop(0)
        status = 200
        if etag:
            headers = headers | {"ETag": f'"{etag}"'}
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if asked and self.headers.get("If-Range", f'"{etag}"') == f'"{etag}"':
                start, status = int(asked[1]), 206
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
                content = content[start:]
        if not reading or not (faults.cuts or faults.pause):
            self.answer(status, content, **headers)
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        arriving = faults.cuts.pop(0) if faults.cuts else len(content) // 2
        self.wfile.write(content[:arriving])
        self.wfile.flush()
        if faults.pause:
            time.sleep(faults.pause)
            self.wfile.write(content[arriving:])
            return
        if faults.hangs:
            self.server.closing.wait(60)
        if faults.resets:
            time.sleep(0.1)  # a reset overtakes what was sent
            at_once = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            self.rfile.close()
            self.connection.close()
        self.close_connection = True

    def repository(self, name: str, writing: bool = False) -> Repository | None:
        """Return a repository that this request may see; answer the request if there is none."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.server.repositories.get(name)
        if given not in ("", GOOD_TOKEN, READ_TOKEN):
            self.refuse(401, message="Invalid credentials in Authorization header")
        elif repository is None or (repository.access == "private" and not given):
            self.refuse(404 if given else 401, "RepoNotFound", "Repository not found")
        elif repository.access == "forbidden" or (writing and not self.may_write(name)):
            self.refuse(403, message="Forbidden: pass a token with the correct permissions")
        elif repository.access == "broken":
            self.refuse(503)
        elif repository.statuses:
            self.refuse(repository.statuses.pop(0))
        else:
            return repository
        return None

    def may_write(self, name: str) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return given == GOOD_TOKEN and not name.startswith(f"{FOREIGN}/")

    # Downloads

    def send_information(self, name: str, revision: str | None = None):
        repository = self.repository(name)
        if repository is None:
            return
        revision = revision or "main"
        files = repository.files(revision)
        if files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        siblings = [{"rfilename": path} for path in files]
        commit = repository.references.get(revision, revision)
        private = repository.access == "private"
        self.answer_json({"id": name, "sha": commit, "private": private, "siblings": siblings})

    def send_tree(self, name: str, commit: str):
        repository = self.repository(name)
        if repository is None:
            return
        entries = []
        for path, content in (repository.files(commit) or {}).items():
            etag = etag_of(path, content)
            entry = {"type": "file", "path": path, "size": len(content), "oid": etag[:40]}
            if path.endswith(LFS_SUFFIXES):
                entry["lfs"] = {"oid": etag, "size": len(content), "pointerSize": 134}
            entries.append(entry)
        self.answer_json(entries)

    def send_repository_file(self, name: str, revision: str, path: str):
        repository = self.repository(name)
        if repository is None:
            return
        if repository.access == "gated":
            status = 403 if self.headers.get("Authorization") else 401
            self.refuse(status, "GatedRepo", "Access to model is restricted")
            return
        files = repository.files(revision)
        if files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif path not in files or path in repository.lost:
            self.refuse(404, "EntryNotFound", "Entry not found")
        else:
            etag = etag_of(path, files[path])
            commit = repository.references.get(revision, revision)
            headers = {"X-Repo-Commit": commit, "X-Linked-Etag": f'"{etag}"'}
            if not path.endswith(LFS_SUFFIXES):
                faults = repository.faults.get(path, Faults())
                self.send_content(files[path], etag, headers, faults)
                return
            elsewhere = f"http://localhost:{self.server.server_port}/cdn/{name}/{commit}/{path}"
            size = str(len(files[path]))
            self.answer(302, Location=elsewhere, **headers | {"X-Linked-Size": size})

    def send_stored_file(self, name: str, commit: str, path: str):
        """The other host: it wants no token, and answers one with an error as real ones do."""
        repository = self.server.repositories[name]
        if self.headers.get("Authorization"):
            self.refuse(400, message="Only one auth mechanism allowed")
            return
        content = repository.commits[commit][path]
        faults = repository.faults.get(path, Faults())
        self.send_content(content, etag_of(path, content), {}, faults)

    # Uploads

    def send_user(self):
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given in (GOOD_TOKEN, READ_TOKEN):
            self.answer_json({"type": "user", "name": USER, "orgs": [], "auth": {}})
        else:
            self.refuse(401, message="Invalid credentials in Authorization header")

    def create_repository(self):
        asked = json.loads(self.body)
        name = f"{asked['organization'] or USER}/{asked['name']}"
        if not self.headers.get("Authorization"):
            self.refuse(401, message="Invalid username or password.")
            return
        if not self.may_write(name):
            given = self.headers["Authorization"].removeprefix("Bearer ")
            known = given in (GOOD_TOKEN, READ_TOKEN)
            self.refuse(403 if known else 401, message="You don't have the rights to create it")
            return
        exists = name in self.server.repositories
        if not exists:
            access = "private" if asked.get("visibility") == "private" else "public"
            first = hashlib.sha1(name.encode()).hexdigest()
            self.server.repositories[name] = Repository(
                {first: dict(FIRST_FILES)}, {"main": first}, access
            )
        self.answer_json({"url": f"{self.server.url}/{name}"}, 409 if exists else 200)

    def validate_card(self):
        self.answer_json({"errors": [], "warnings": []})

    def say_how_to_upload(self, name: str, revision: str):
        """Which files are to be sent as LFS, and what of them is there already."""
        repository = self.repository(name, writing=True)
        if repository is None:
            return
        files = repository.files(revision)
        if files is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        self.answer_json(
            {
                "files": [
                    {
                        "path": path,
                        "uploadMode": "lfs" if path.endswith(LFS_SUFFIXES) else "regular",
                        "shouldIgnore": False,
                        "oid": etag_of(path, files[path]) if path in files else None,
                    }
                    for path in (file["path"] for file in json.loads(self.body)["files"])
                ]
            }
        )

    def say_where_to_upload(self, name: str):
        if self.repository(name, writing=True) is None:
            return
        objects = json.loads(self.body)["objects"]
        for entry in objects:
            if entry["oid"] not in self.server.uploads:
                entry["actions"] = {"upload": {"href": f"{self.server.url}/lfs/{entry['oid']}"}}
        self.answer_json({"transfer": "basic", "objects": objects})

    def take_upload(self, oid: str):
        if hashlib.sha256(self.body).hexdigest() != oid:
            self.refuse(400, message="not the content of that checksum")
            return
        self.server.uploads[oid] = self.body
        self.answer(200)

    def commit(self, name: str, revision: str):
        repository = self.repository(name, writing=True)
        if repository is None:
            return
        lines = [json.loads(line) for line in self.body.splitlines()]
        parent = repository.references.get(revision)
        files = dict(repository.files(revision) or {})
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.server.uploads:
                    self.refuse(400, message="that LFS object was never uploaded")
                    return
                files[value["path"]] = self.server.uploads[value["oid"]]
            elif line["key"] == "deletedFile":
                files.pop(value["path"], None)
        if parent is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        if lines[0]["value"].get("parentCommit") not in (None, parent):
            self.refuse(412, message="A commit has happened since. Please refresh and try again.")
            return
        commit = hashlib.sha1(parent.encode() + self.body).hexdigest()
        repository.commits[commit] = files
        answer = {"commitUrl": f"{self.server.url}/{name}/commit/{commit}", "commitOid": commit}
        if "create_pr=1" in self.path:
            number = 1 + sum(key.startswith("refs/pr/") for key in repository.references)
            revision = f"refs/pr/{number}"
            answer["pullRequestUrl"] = f"{self.server.url}/{name}/discussions/{number}"
        repository.references[revision] = commit
        self.answer_json(answer)

    def create_branch(self, name: str, branch: str):
        repository = self.repository(name, writing=True)
        if repository is None:
            return
        start = json.loads(self.body or b"{}").get("startingPoint", "main")
        if branch in repository.references:
            self.refuse(409, message=f"Reference already exists: {branch}")
        elif repository.files(start) is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {start}")
        else:
            repository.references[branch] = repository.references.get(start, start)
            self.answer_json({})


_API = r"/api/models/([^/]+/[^/]+)"
_ROUTES = (
    (("GET",), _API, _Handler.send_information),
    (("GET",), _API + "/revision/(.+)", _Handler.send_information),
    (("GET",), _API + "/tree/(.+)", _Handler.send_tree),
    (("GET", "HEAD"), "/cdn/([^/]+/[^/]+)/([^/]+)/(.+)", _Handler.send_stored_file),
    (("GET",), "/api/whoami-v2", _Handler.send_user),
    (("POST",), "/api/repos/create", _Handler.create_repository),
    (("POST",), "/api/validate-yaml", _Handler.validate_card),
    (("POST",), _API + "/preupload/(.+)", _Handler.say_how_to_upload),
    (("POST",), r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", _Handler.say_where_to_upload),
    (("PUT",), "/lfs/([0-9a-f]{64})", _Handler.take_upload),
    (("POST",), _API + "/commit/(.+)", _Handler.commit),
    (("POST",), _API + "/branch/(.+)", _Handler.create_branch),
    # Last: a revision such as refs/pr/1 has slashes once it is unquoted.
    (
        ("GET", "HEAD"),
        r"/([^/]+/[^/]+)/resolve/(refs/pr/\d+|[^/]+)/(.+)",
        _Handler.send_repository_file,
    ),
)
