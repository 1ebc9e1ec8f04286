import pathlib

import hub_server
import pytest

from keras_vit.zoo import augreg, download
from keras_vit.zoo.download import NotCachedError, fetch, forget

BUCKET = "https://storage.googleapis.com/vit_models"
TINY = "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
OTHER = "S_32-i1k-300ep-lr_0.001-aug_strong2-wd_0.03-do_0.1-sd_0.1--kitti-steps_0k-lr_0.01-res_384"


@pytest.fixture
def asked(monkeypatch):
    """What would have been fetched: (URL, checksum) or (repository, revision, token)."""
    calls = []

    def fetch_url(url, cache_dir, sha256, offline):
        calls.append((url, sha256))
        return pathlib.Path("cache/file.npz")

    def fetch_repository(repository, revision, token, cache_dir, offline, row):
        calls.append((repository, revision, token))
        return pathlib.Path("cache/commit"), "commit"

    monkeypatch.setattr(download, "fetch_url", fetch_url)
    monkeypatch.setattr(download, "fetch_repository", fetch_repository)
    return calls


@pytest.mark.parametrize(
    ("source", "url", "id"),
    [
        (
            "vit_base_patch16_224.orig_in21k",
            f"{BUCKET}/imagenet21k/ViT-B_16.npz",
            "vit_base_patch16_224.orig_in21k",
        ),
        (
            "imagenet21k+imagenet2012/ViT-B_16",
            f"{BUCKET}/imagenet21k+imagenet2012/ViT-B_16.npz",
            "vit_base_patch16_384.orig_in21k_ft_in1k",
        ),
        (
            "gs://vit_models/imagenet21k/ViT-H_14.npz",
            f"{BUCKET}/imagenet21k/ViT-H_14.npz",
            "vit_huge_patch14_224.orig_in21k",
        ),
        (TINY, f"{BUCKET}/augreg/{TINY}.npz", "vit_tiny_patch16_224.augreg_in21k"),
        (f"augreg/{OTHER}.npz", f"{BUCKET}/augreg/{OTHER}.npz", f"augreg/{OTHER}"),
        (f"gs://vit_models/augreg/{OTHER}.npz", f"{BUCKET}/augreg/{OTHER}.npz", f"augreg/{OTHER}"),
        ("http://example.org/a.npz?version=1", "http://example.org/a.npz?version=1", None),
    ],
)
def test_names_of_bucket_files(asked, source, url, id):
    fetched = fetch(source)
    assert asked == [(url, None)]
    assert (fetched.row and fetched.row.id) == id
    assert fetched.origin == {
        "source": url.partition("?")[0],
        "revision": None,
        "family": fetched.row and fetched.row.family,
        "licence": fetched.row and "Apache-2.0",
    }


@pytest.mark.parametrize(
    ("arguments", "repository", "revision"),
    [
        ({"source": "org/name"}, "org/name", None),
        ({"source": "hf://org/name"}, "org/name", None),
        ({"source": "org/name@refs/pr/3"}, "org/name", "refs/pr/3"),
        ({"source": "org/name@v1", "revision": "v1"}, "org/name", "v1"),
        ({"source": "https://huggingface.co/org/name"}, "org/name", None),
        ({"source": "https://huggingface.co/org/name/tree/v1/"}, "org/name", "v1"),
        ({"source": "google/vit-large-patch16-224"}, "google/vit-large-patch16-224", None),
        (
            {"source": "vit_large_patch16_224.orig_in21k_ft_in1k_hub"},
            "google/vit-large-patch16-224",
            "refs/pr/2",
        ),
        (
            {"source": "vit_large_patch16_224.orig_in21k_ft_in1k_hub", "revision": "main"},
            "google/vit-large-patch16-224",
            "main",
        ),
    ],
)
def test_names_of_repositories(asked, arguments, repository, revision):
    fetched = fetch(token="hf_token", **arguments)
    assert asked == [(repository, revision, "hf_token")]
    assert fetched.origin["source"] == f"hf://{repository}"
    assert fetched.origin["revision"] == "commit"


def test_local_files_and_folders(asked, tmp_path, monkeypatch):
    file = tmp_path / "weights 1.npz"
    file.touch()
    for source in (file, str(file), file.as_uri()):
        fetched = fetch(source)
        assert fetched.path == file
        assert fetched.origin["source"] == "weights 1.npz"
    assert fetch(tmp_path).path == tmp_path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org/name").mkdir(parents=True)
    assert fetch("org/name").path == pathlib.Path("org/name")
    assert asked == []


@pytest.mark.parametrize(
    "source", ["./nothing", "weights.npz", "~/nothing", "~nouser/x", pathlib.Path("a/b")]
)
def test_missing_file(asked, source):
    with pytest.raises(FileNotFoundError, match="`source` must be a file or folder that exists"):
        fetch(source)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "vit_base_patch16_224.orig"}, "Unknown pretrained model.*Did you mean"),
        ({"source": ""}, "Unknown pretrained model. Received: ''"),
        ({"source": "ViT-B_16"}, "must name one checkpoint.*imagenet21k/ViT-B_16"),
        ({"source": "augreg/S_16-i1k-300ep.npz"}, "augreg must have a known learning_rate"),
        ({"source": TINY.replace("0.03", "low")}, "augreg must have a known weight_decay"),
        ({"source": "s3://bucket/file"}, "URL of https, http, gs, hf or file"),
        ({"source": "file://[bad/x"}, "whose host cannot be read"),
        ({"source": "org/name@v1", "revision": "v2"}, "`revision` must be given once"),
        ({"source": "ViT-H_14", "revision": "v2"}, "`revision` must be None"),
        ({"source": pathlib.Path(), "revision": "v2"}, "`revision` must be None"),
    ],
)
def test_what_cannot_be_meant(asked, arguments, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        fetch(**arguments)
    assert asked == []


def test_the_best_file_of_a_model_is_fetched(tmp_path, monkeypatch):
    """The index and the file come by the same door."""
    with hub_server.HubServer() as server:
        monkeypatch.setattr(augreg, "INDEX_URL", f"{server.url}/index.csv")
        monkeypatch.setattr(augreg, "FOLDER_URL", f"{server.url}/")
        index = f"filename,ds,final_val\n{TINY},i21k,0.5\n{TINY}0,i21k,0.6\n"
        server.files["/index.csv"] = hub_server.PlainFile(index.encode())
        server.files[f"/{TINY}0.npz"] = hub_server.PlainFile(b"weights")
        fetched = fetch("augreg/Ti_16", cache_dir=tmp_path)
        fetch("augreg/Ti_16", cache_dir=tmp_path, local_files_only=True)
        assert server.count("GET", "/index.csv") == server.count("GET", f"/{TINY}0.npz") == 1
    assert fetched.path.read_bytes() == b"weights"
    assert fetched.row.id == f"augreg/{TINY}0" and fetched.row.variant == "Ti/16"


def test_offline_reaches_the_downloader(tmp_path):
    with pytest.raises(NotCachedError, match=f"(?s)network is switched off.*{tmp_path}"):
        fetch("ViT-H_14", cache_dir=tmp_path, local_files_only=True)


def test_secrets_of_a_url_are_not_in_messages():
    for source in ("s3://user:secret@host/x", "https://user:secret@host/x.npz"):
        with pytest.raises(ValueError, match="host/x") as error:
            fetch(source, revision="v1")
        assert "secret" not in str(error.value)


def test_forget(tmp_path, monkeypatch):
    """What a server first answered need not stay; local files are nobody's to change."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with hub_server.HubServer() as server:
        url = f"{server.url}/vit.npz"
        server.files["/vit.npz"] = hub_server.PlainFile(b"weights", wrong=[b"nothing"])
        server.files["/vit.npz"].states_md5 = False
        fetched = fetch(url, cache_dir=tmp_path / "cache")
        assert fetched.path.read_bytes() == b"nothing"
        forget(fetched)
        assert fetch(url, cache_dir=tmp_path / "cache").path.read_bytes() == b"weights"
    beside = tmp_path / "vit.npz.json"
    beside.write_text("{}")
    (tmp_path / "vit.npz").touch()
    forget(fetch(tmp_path / "vit.npz"))
    assert beside.read_text() == "{}"
