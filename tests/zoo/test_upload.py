"""The real Hub client sends files to a server on this machine, in processes of its own."""

import json
import subprocess
import sys

import pytest
from hub_server import FOREIGN, GOOD_TOKEN, READ_TOKEN, HubServer

from keras_vit.zoo import upload

# Each line of input is one call; each line of output the commit's URL, or the error.
LOOP = """
import json, sys
from keras_vit.zoo.upload import upload_folder
for line in sys.stdin:
    try:
        answer = {"url": upload_folder(**json.loads(line))}
    except (ValueError, OSError) as error:
        import traceback
        answer = {"error": type(error).__name__, "message": str(error)}
        answer["traceback"] = traceback.format_exc()
    print(json.dumps(answer), flush=True)
"""


class Client:
    """A process whose Hub is the server."""

    def __init__(self, server, home, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOOP],
            env=server.environment(home, **environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()

    def upload(self, folder, repository, **arguments):
        call = {"folder": str(folder), "repository": repository, **arguments}
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server():
    with HubServer() as server:
        yield server


@pytest.fixture(scope="module")
def client(server, tmp_path_factory):
    with Client(server, tmp_path_factory.mktemp("home"), HF_TOKEN=GOOD_TOKEN) as client:
        yield client


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    return tmp_path


def test_a_new_repository(client, server, folder):
    answer = client.upload(folder, "org/new", message="First")
    assert answer["url"].startswith(f"{server.url}/org/new/commit/")
    files = server.files_of("org/new")
    assert {name: files[name] for name in ("config.json", "model.safetensors", "README.md")} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    assert server.repositories["org/new"].access == "public"


def test_a_private_one(client, server, folder):
    assert "url" in client.upload(folder, "org/secret", private=True)
    assert server.repositories["org/secret"].access == "private"
    assert "url" in client.upload(folder, "org/secret", private=True)
    message = client.upload(folder, "org/secret", private=False)["message"]
    assert "'org/secret' exists and is private. Received: private=False." in message


def test_what_was_meant_to_be_private_is_not_published(client, server, folder):
    client.upload(folder, "org/open")
    before = dict(server.files_of("org/open"))
    (folder / "config.json").write_text('{"secret": 1}')
    answer = client.upload(folder, "org/open", private=True)
    assert answer["error"] == "UploadError" and "is public" in answer["message"]
    assert server.files_of("org/open") == before


def test_a_branch_is_made_from_main_and_kept(client, server, folder):
    client.upload(folder, "org/branches")
    main = dict(server.files_of("org/branches"))
    (folder / "config.json").write_text('{"new": 1}')
    for _ in range(2):
        assert "url" in client.upload(folder, "org/branches", revision="v2")
    assert server.files_of("org/branches") == main
    assert server.files_of("org/branches", "v2")["config.json"] == b'{"new": 1}'


def test_files_of_another_layout_go(client, server, folder):
    (folder / "preprocessor_config.json").write_text("{}")
    client.upload(folder, "org/layouts", replaces=["preprocessor_config.json"])
    assert "preprocessor_config.json" in server.files_of("org/layouts")
    (folder / "preprocessor_config.json").unlink()
    client.upload(folder, "org/layouts", replaces=["preprocessor_config.json"])
    assert "preprocessor_config.json" not in server.files_of("org/layouts")
    assert "config.json" in server.files_of("org/layouts")


@pytest.mark.parametrize(
    ("repository", "token", "said"),
    [
        ("org/x", "hf_expired", "the Hub rejects the token (status 401). It may have expired"),
        (f"{FOREIGN}/x", None, f"there is no namespace '{FOREIGN}' that this token may write to"),
        ("tester/x", READ_TOKEN, "the token may only read (status 403). Make one with the role"),
        ("org/x", False, "needs a token that may write. There is none"),
        ("name", None, "`repo_id` must be 'namespace/name'"),
        ("org/a b", None, "`repo_id` is no name of a repository"),
        ("org/x", "two words", "`token` must be one word of ASCII characters"),
    ],
)
def test_refusals_say_why_and_what_to_do_without_the_token(client, folder, repository, token, said):
    """FAULTS K2: no token in any text."""
    answer = client.upload(folder, repository, token=token)
    assert said in answer["message"], answer
    for secret in (GOOD_TOKEN, token):
        assert not isinstance(secret, str) or secret not in answer["traceback"]


def test_writing_to_what_one_may_only_read(client, server, folder):
    client.upload(folder, "org/shared")
    message = client.upload(folder, "org/shared", token=READ_TOKEN)["message"]
    assert "status 403" in message and "hf auth login" in message


def test_a_server_out_of_order(client, server, folder):
    client.upload(folder, "org/broken")
    server.repositories["org/broken"].statuses = [507]  # the client itself tries 503 again
    assert "out of order (status 507)" in client.upload(folder, "org/broken")["message"]


def test_no_token_and_no_connection(server, folder, tmp_path):
    nowhere = "http://127.0.0.1:1"
    with Client(server, tmp_path / "home", HF_ENDPOINT=nowhere) as client:
        message = client.upload(folder, "org/x")["message"]
        assert f"make one at {nowhere}/settings/tokens" in message
        message = client.upload(folder, "org/x", token=GOOD_TOKEN)["message"]
        assert f"no connection to {nowhere} (ConnectError)" in message


def test_network_switched_off(server, folder, tmp_path):
    asked = len(server.requests)
    with Client(server, tmp_path / "home", HF_TOKEN=GOOD_TOKEN, HF_HUB_OFFLINE="1") as client:
        assert "The network is switched off" in client.upload(folder, "org/x")["message"]
    assert len(server.requests) == asked


@pytest.mark.parametrize("name", ["a", "a/b/c", ""])
def test_a_namespace_is_needed(name):
    with pytest.raises(ValueError, match="`repo_id` must be 'namespace/name'"):
        upload.check_repository(name, GOOD_TOKEN)
