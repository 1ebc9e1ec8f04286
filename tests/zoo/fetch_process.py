"""A process of its own that calls `fetch`; the Hub's client reads its address at import."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from hub_server import HubServer

PACKAGE = Path(__file__).parents[2] / "keras_vit"
# Calls `fetch` once for every line of JSON. The package's own __init__ would import Keras.
FETCH_LOOP = """
import hashlib, json, pathlib, resource, signal, socket, sys, traceback, types

def no_network(*arguments, **keywords):
    raise AssertionError("the network was touched")

package = types.ModuleType("keras_vit")
package.__path__ = [sys.argv[1]]
sys.modules["keras_vit"] = package
from huggingface_hub import constants
from keras_vit.zoo import https
from keras_vit.zoo.download import DownloadError, fetch

https.FIRST_WAIT_SECONDS = 0.01
https.CHUNK_BYTES = constants.DOWNLOAD_CHUNK_SIZE = 1 << 14  # files here are small

if sys.argv[2] == "without sockets":
    socket.socket = socket.create_connection = socket.getaddrinfo = no_network
for line in sys.stdin:
    arguments = json.loads(line)
    largest = arguments.pop("largest_file", resource.RLIM_INFINITY)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails with EFBIG
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    try:
        fetched = fetch(**arguments)
        root = pathlib.Path(fetched.path)
        paths = root.iterdir() if root.is_dir() else [root]
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        answer = {"path": str(fetched.path), "origin": fetched.origin, "files": files}
        answer["id"] = fetched.row and fetched.row.id
    except (DownloadError, ValueError) as error:
        answer = {"error": type(error).__name__, "message": str(error)}
        answer["traceback"] = traceback.format_exc()
    answer["heavy"] = [name for name in ("keras", "tensorflow", "torch") if name in sys.modules]
    print(json.dumps(answer), flush=True)
"""


class FetchProcess:
    """Fetches, one call after the other, until the end of its `with` block.

    Args:
        server: The Hub.
        home: HF_HOME; KERAS_VIT_CACHE is a folder in it.
        sockets: False makes any use of the network an error.
        log: File that gets what the process writes to stderr.
        environment: Further variables.
    """

    def __init__(
        self,
        server: HubServer,
        home: Path,
        sockets: bool = True,
        log: Path | None = None,
        **environment: str,
    ):
        own = {"KERAS_VIT_CACHE": str(home / "keras_vit")}
        self.log = log.open("wb") if log else None
        self.process = subprocess.Popen(
            [sys.executable, "-c", FETCH_LOOP, str(PACKAGE), "" if sockets else "without sockets"],
            env=server.environment(home, **own | environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log or subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        if self.log:
            self.log.close()

    def ask(self, source: str, **arguments):
        """Begin to fetch; `largest_file` limits the size of files that may be written."""
        self.process.stdin.write(json.dumps({"source": source} | arguments) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict:
        """Return `path`, `files`, `origin` and `id`, or `error`, `message` and `traceback`.

        `files` are as `summary` makes them.
        """
        return json.loads(self.process.stdout.readline())

    def fetch(self, source: str, **arguments) -> dict:
        self.ask(source, **arguments)
        return self.answer()


def summary(files: dict[str, bytes]) -> dict[str, str]:
    """Return the sha256 of each file."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
