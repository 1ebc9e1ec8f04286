"""The real Hub client against a server on this machine, in processes of its own."""

import errno
import subprocess
import sys

import pytest
from fetch_process import FetchProcess, summary
from hub_server import FIRST_FILES, FOREIGN, GOOD_TOKEN, READ_TOKEN, HubServer, Repository

from keras_vit.zoo import hub
from keras_vit.zoo.https import DownloadError

OLD, NEW, ONLY = "a" * 40, "b" * 40, "c" * 40
LARGE = "google/vit-large-patch16-224"
WEIGHTS = "model.safetensors"
MODEL = {"config.json": b"{}", "preprocessor_config.json": b"{}", WEIGHTS: b"weights"}
PICKLED = {"config.json": b"{}", "pytorch_model.bin": b"pickle", "tf_model.h5": b"hdf5"}
ENTIRE = MODEL | PICKLED | {"onnx/model.safetensors": b"not wanted", "README.md": b"# card"}


def repository(files, **options):
    return Repository({ONLY: files}, {"main": ONLY}, **options)


@pytest.fixture(scope="module")
def server():
    with HubServer() as server:
        server.repositories |= {
            "org/good": Repository(
                {OLD: ENTIRE | {"model.safetensors": b"old weights"}, NEW: ENTIRE},
                {"main": NEW, "v1": OLD, "refs/pr/1": OLD},
            ),
            "org/sharded": repository(
                {
                    "config.json": b"{}",
                    "model-00001-of-00002.safetensors": b"one",
                    "model-00002-of-00002.safetensors": b"two",
                    "model.safetensors.index.json": b"{}",
                }
            ),
            LARGE: Repository(
                {OLD: PICKLED, NEW: PICKLED | MODEL}, {"main": OLD, "refs/pr/2": NEW}
            ),
            "org/pickled": repository(PICKLED),
            "org/card": repository({"README.md": b"# card"}),
            "google/vit-large-patch32-224-in21k": repository(PICKLED),
            "org/private": repository(ENTIRE, access="private"),
            "org/gated": repository(ENTIRE, access="gated"),
            "org/forbidden": repository(ENTIRE, access="forbidden"),
            "org/broken": repository(ENTIRE, access="broken"),
            "org/lost": repository(ENTIRE, lost=("config.json",)),
        }
        yield server


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("hf_home")


@pytest.fixture(scope="module")
def client(server, home):
    with FetchProcess(server, home) as client:
        yield client


@pytest.fixture(scope="module")
def offline_client(server, home):
    with FetchProcess(server, home, sockets=False, HF_HUB_OFFLINE="1") as client:
        yield client


def test_fetches_configurations_and_safetensors_only(client, server):
    fetched = client.fetch("org/good")
    assert fetched["files"] == summary(MODEL)
    assert fetched["origin"] == {
        "source": "hf://org/good",
        "revision": NEW,
        "family": None,
        "licence": None,
    }
    prefix = f"/org/good/resolve/{NEW}/"
    asked = {path for _, path, _ in server.requests if path.startswith(prefix)}
    assert asked == {prefix + name for name in MODEL}
    assert fetched["heavy"] == []


def test_sharded(client):
    assert len(client.fetch("hf://org/sharded")["files"]) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": "org/good@v1"},
        {"source": "hf://org/good", "revision": "refs/pr/1"},
        {"source": "org/good", "revision": OLD},
    ],
)
def test_revision_pins_the_snapshot(client, arguments):
    """FAULTS K2."""
    fetched = client.fetch(**arguments)
    assert fetched["files"] == summary(MODEL | {WEIGHTS: b"old weights"})
    assert fetched["origin"]["revision"] == OLD


def test_zoo_id_takes_the_revision_of_its_row(client):
    fetched = client.fetch("vit_large_patch16_224.orig_in21k_ft_in1k_hub")
    assert fetched["id"] == "vit_large_patch16_224.orig_in21k_ft_in1k_hub"
    assert fetched["origin"] == {
        "source": f"hf://{LARGE}",
        "revision": NEW,
        "family": "google_hub",
        "licence": "Apache-2.0",
    }


def test_pickled_repository_of_the_zoo_names_the_revision_with_safetensors(client):
    """FAULTS E2."""
    message = client.fetch(LARGE)["message"]
    assert "It has: config.json, pytorch_model.bin, tf_model.h5." in message
    assert "`revision='refs/pr/2'`" in message
    assert "vit_large_patch16_224.orig_in21k_ft_in1k_hub" in message


def test_pickled_repository_says_how_to_convert(client):
    """FAULTS E2."""
    failed = client.fetch("org/pickled")
    assert failed["error"] == "DownloadError"
    assert "It has: config.json, pytorch_model.bin, tf_model.h5." in failed["message"]
    assert "save_pretrained(folder)" in failed["message"]
    assert "It has: README.md." in client.fetch("org/card")["message"]
    failed = client.fetch("vit_large_patch32_224.orig_in21k_hub")
    assert "vit_large_patch32_224.orig_in21k is Google's own file" in failed["message"]


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        (
            {"source": "google/vit-base-patch16-225"},
            (
                "no such repository",
                "no such folder",
                "status 401",
                "Did you mean: google/vit-base-patch16-224",
            ),
        ),
        ({"source": "org/none", "token": GOOD_TOKEN}, ("no such repository", "status 404")),
        ({"source": "org/private"}, ("a private one", "`token=`", "hf auth login")),
        ({"source": "org/private", "token": "hf_bad"}, ("rejects the token (status 401)",)),
        ({"source": "org/gated"}, ("gated (status 401)", "Accept its terms at", "/org/gated")),
        ({"source": "org/gated", "token": GOOD_TOKEN}, ("gated (status 403)",)),
        ({"source": "org/forbidden", "token": GOOD_TOKEN}, ("status 403", "settings/tokens")),
        ({"source": "org/good@v2"}, ("'v2': no such revision", "/org/good/tree/main")),
        ({"source": f"{LARGE}@v2"}, ("no such revision", "Known to the zoo: 'refs/pr/2'")),
        (
            {"source": "org/lost"},
            ("a listed file is gone (status 404): config.json.", "README.md, config.json, model."),
        ),
        ({"source": "org/broken"}, ("out of order (status 503)",)),
        ({"source": "hf://org/..name"}, ("`source` is no repository of the Hub",)),
    ],
)
def test_failures_are_told_apart(client, arguments, phrases):
    failed = client.fetch(**arguments)
    assert failed["error"] == ("ValueError" if ".." in arguments["source"] else "DownloadError")
    for phrase in phrases:
        assert phrase in failed["message"]
    assert client.fetch("org/good")["files"] == summary(MODEL)


def test_private_repository_with_its_token(client, tmp_path):
    fetched = client.fetch("org/private", token=f"{GOOD_TOKEN}\n", cache_dir=str(tmp_path))
    assert fetched["files"] == summary(MODEL)
    assert GOOD_TOKEN not in str(fetched)


@pytest.mark.parametrize(
    "token", ["hf_secret", "hf_secret\nhf_secret", "hf_secret secret", "hf_sécret"]
)
def test_a_token_is_never_shown(client, tmp_path, token):
    """FAULTS K2."""
    for source in ("org/private", "org/gated", "org/forbidden", "org/broken"):
        failed = client.fetch(source, token=token, cache_dir=str(tmp_path))
        assert failed["message"] in failed["traceback"]
        assert "cret" not in failed["traceback"]


def test_cut_cached_file_is_fetched_again(client, offline_client, home):
    """FAULTS K1."""
    fetched = client.fetch("org/good")
    weights = f"{fetched['path']}/model.safetensors"
    for content in ("wei", ""):
        with open(weights, "w") as file:  # noqa: PTH123
            file.write(content)
        failed = offline_client.fetch("org/good")
        assert "is damaged" in failed["message"]
        assert weights in failed["message"]
        assert client.fetch("org/good")["files"] == summary(MODEL)


def test_offline_loads_what_is_cached(client, offline_client):
    """FAULTS K2: sockets raise in this process."""
    for source in ("org/good", "org/good@v1", "vit_large_patch16_224.orig_in21k_ft_in1k_hub"):
        assert client.fetch(source) == offline_client.fetch(source)


def test_offline_message_names_the_cache_and_how_to_fill_it(offline_client, home):
    """FAULTS K2."""
    message = offline_client.fetch("org/none")["message"]
    assert str(home / "hub") in message
    assert "hf download org/none" in message
    assert "HF_HUB_OFFLINE=1" in message


def test_local_files_only_asks_the_server_nothing(client, server, tmp_path):
    client.fetch("org/good")
    before = len(server.requests)
    message = client.fetch("org/good", local_files_only=True, cache_dir=str(tmp_path))["message"]
    assert str(tmp_path) in message
    assert client.fetch("org/good", local_files_only=True)["origin"]["revision"] == NEW
    assert len(server.requests) == before


def test_cache_dir(client, tmp_path):
    fetched = client.fetch("org/good", cache_dir=str(tmp_path))
    assert fetched["path"].startswith(str(tmp_path))


def test_no_connection(home):
    with HubServer() as server:
        closed = server.url
    with FetchProcess(server, home) as client:
        message = client.fetch("org/none")["message"]
        assert "no folder 'org/none' here" in message
        assert f"no connection to {closed} (ConnectError)" in message
        assert str(home / "hub") in message


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "No space left"), (errno.EACCES, "Cannot write"), (errno.EIO, "could not be")],
)
def test_disk_failures(monkeypatch, tmp_path, number, message):
    def fail(*arguments, **keywords):
        raise OSError(number, "as the system says")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(DownloadError, match=f"{message}.*as the system says"):
        hub.fetch_repository("org/good", cache_dir=tmp_path)


# What the server needs for uploads is checked here with the bare client.
UPLOAD = """
import sys
import huggingface_hub as hub
folder, *tokens = sys.argv[1:]
api = hub.HfApi()
api.create_repo("org/new", private=True)
api.create_repo("org/new", private=True, exist_ok=True)
api.upload_folder(repo_id="org/new", folder_path=folder)
api.create_branch("org/new", branch="tests/b")
api.upload_file(
    repo_id="org/new", path_or_fileobj=b"{}", path_in_repo="preprocessor_config.json",
    revision="tests/b",
)
print(api.upload_folder(repo_id="org/new", folder_path=folder).oid)
print(api.upload_file(
    repo_id="org/new", path_or_fileobj=b"new", path_in_repo="README.md", create_pr=True
).pr_revision)
for name, token in [("org/more", token) for token in tokens] + [("foreign/more", None)]:
    try:
        api.create_repo(name, token=token)
    except hub.errors.HfHubHTTPError as error:
        print(error.response.status_code)
"""


def test_upload_then_load(server, client, tmp_path):
    """The real client creates a private repository, a branch and a pull request."""
    folder = tmp_path / "model"
    folder.mkdir()
    files = {"config.json": b"{}", WEIGHTS: bytes(range(256)) * 100, "README.md": b"# card"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", UPLOAD, folder, READ_TOKEN, "hf_wrong"],
        env=server.environment(tmp_path / "home", HF_TOKEN=GOOD_TOKEN),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    uploaded = server.repositories["org/new"]
    assert done.stdout.split() == [uploaded.references["main"], "refs/pr/1", "403", "401", "403"]
    assert not {"org/more", f"{FOREIGN}/more"} & server.repositories.keys()
    assert uploaded.access == "private"
    assert server.files_of("org/new") == FIRST_FILES | files
    assert server.files_of("org/new", "refs/pr/1")["README.md"] == b"new"

    assert "a private one" in client.fetch("org/new")["message"]
    wanted = {name: files[name] for name in ("config.json", WEIGHTS)}
    fetched = client.fetch("org/new", token=GOOD_TOKEN)
    assert fetched["files"] == summary(wanted)
    branch = client.fetch("org/new@tests/b", token=GOOD_TOKEN)
    assert branch["files"] == summary(wanted | {"preprocessor_config.json": b"{}"})
