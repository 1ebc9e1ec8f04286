"""The door through which weights come: every way to name a checkpoint becomes a local path."""

import contextlib
import dataclasses
import os
import re
import urllib.request
from pathlib import Path

from huggingface_hub import constants

from keras_vit.files import local_path
from keras_vit.zoo import augreg
from keras_vit.zoo.catalogue import find, find_by_source
from keras_vit.zoo.https import (
    DownloadError,
    NotCachedError,
    disown,
    fetch_url,
    public_name,
    public_url,
    split_url,
)
from keras_vit.zoo.hub import fetch_repository
from keras_vit.zoo.rows import ModelRow

__all__ = ["DownloadError", "Fetched", "NotCachedError", "fetch", "forget"]

BUCKETS_URL = "https://storage.googleapis.com/"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+", re.ASCII)
HUB_PAGE = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+?)(?:/tree/(.+?))?/?", re.ASCII)
FILE_SUFFIXES = (".npz", ".safetensors", ".json", ".keras")


@dataclasses.dataclass(frozen=True)
class Fetched:
    """A checkpoint on this machine.

    Args:
        path: The file, or the folder that holds it.
        origin: JSON values to keep with the model: `"source"`, `"revision"` (of the Hub: the
            commit), `"family"`, `"licence"`; None for what is not known.
        row: The row of the zoo, if there is one.
    """

    path: Path
    origin: dict[str, str | None]
    row: ModelRow | None


def fetch(
    source: str | os.PathLike,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike | None = None,
    local_files_only: bool = False,
) -> Fetched:
    """Return a local copy of a checkpoint, whatever it is named by.

    A file or folder that exists wins over every other reading of `source`.

    Args:
        source: A zoo id; a Hub id `"org/name"` or `"hf://org/name"`, with `"@revision"` at will;
            an official name such as `"ViT-H_14"`, any file name of AugReg's bucket, or
            `"augreg/B_16"` for the best one of a model (see `augreg.choose`); an `https://` or
            `gs://` URL; a file, a folder or a `file://` URL.
        revision: Branch, tag, commit or `"refs/pr/1"` of a Hub repository.
        token: Hub access token; never sent elsewhere. None: the one that `hf auth login` stored.
        cache_dir: Where downloads are kept. None: the Hub client's own cache for repositories,
            `$KERAS_VIT_CACHE` or `~/.cache/keras_vit` for URLs.
        local_files_only: Touch no network; so does the environment variable HF_HUB_OFFLINE=1.

    Raises:
        ValueError: If `source` names nothing known, or more than one thing.
        FileNotFoundError: If `source` is a path and nothing is there.
        DownloadError: If the file cannot be had.
    """
    text = os.fspath(source)
    offline = local_files_only or constants.is_offline_mode()
    if isinstance(source, os.PathLike) or text.startswith("file://") or _exists(text):
        _refuse_revision(text, revision)
        return _local(text)
    if augreg.is_choice(text):
        text = augreg.choose(text, cache_dir, offline).name
    address, revision, row = _resolve(text, revision)
    if not address.startswith("hf://"):
        _refuse_revision(text, revision)
        path = fetch_url(address, cache_dir, sha256=row and row.sha256, offline=offline)
        return _fetched(path, public_url(address), None, row)
    repository = address.removeprefix("hf://").partition("@")[0]
    path, commit = fetch_repository(repository, revision, token, cache_dir, offline, row)
    return _fetched(path, f"hf://{repository}", commit, row)


def forget(fetched: Fetched) -> None:
    """Have the file of a URL that turned out to be unreadable fetched again at its next use.

    What a server first answered may have been no weights at all. Nothing happens to local files,
    nor to repositories of the Hub, whose files were compared with their checksums.
    """
    if (fetched.origin["source"] or "").startswith(("https://", "http://")):
        with contextlib.suppress(OSError):  # A cache that cannot be written stays as it is.
            disown(fetched.path)


def _resolve(text: str, revision: str | None) -> tuple[str, str | None, ModelRow | None]:
    """Return `https://...` or `hf://org/name`, the revision and the zoo's row."""
    page = HUB_PAGE.fullmatch(text)
    if page:
        text = f"hf://{page[1]}" + (f"@{page[2]}" if page[2] else "")
    if text.startswith("gs://"):
        text = BUCKETS_URL + text.removeprefix("gs://")
    if text.startswith(("https://", "http://")):
        return text, revision, find_by_source(text)
    name, _, written = text.partition("@")
    if written and revision not in (None, written):
        raise ValueError(
            "`revision` must be given once. "
            f"Received: source={public_name(text)!r}, revision={revision!r}."
        )
    revision = written or revision
    if name.startswith("hf://"):
        return name, revision, find_by_source(name)
    if "://" in name:
        raise ValueError(
            "`source` must be a name, a path, or a URL of https, http, gs, hf or file. "
            f"Received: source={public_name(text)!r}."
        )
    return _resolve_name(name, revision)


def _resolve_name(name: str, revision: str | None) -> tuple[str, str | None, ModelRow | None]:
    try:
        row = find(name)
    except ValueError:
        is_path = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1
        if is_path or (name.endswith(FILE_SUFFIXES) and not name.startswith("augreg/")):
            raise _nothing_at(name) from None
        if HUB_ID.fullmatch(name) and not name.startswith("augreg/"):
            return f"hf://{name}", revision, None
        raise
    if name == row.repository:  # The Hub id itself stands for main, as everywhere.
        return f"hf://{name}", revision, row
    if row.repository:
        return row.source, revision or row.source.partition("@")[2] or None, row
    return row.source, revision, row


def _exists(text: str) -> bool:
    return bool(text) and "://" not in text and local_path(text).exists()


def _local(text: str) -> Fetched:
    if text.startswith("file://"):
        text = urllib.request.url2pathname(split_url(text).path)
    path = local_path(text)
    if not path.exists():
        raise _nothing_at(text)
    # Only the name: a path tells about the machine, and origins are published with models.
    return _fetched(path, path.resolve().name, None, None)


def _fetched(path: Path, source: str, revision: str | None, row: ModelRow | None) -> Fetched:
    origin = {
        "source": source,
        "revision": revision,
        "family": row.family if row else None,
        "licence": row.licence if row else None,
    }
    return Fetched(path, origin, row)


def _nothing_at(text: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"`source` must be a file or folder that exists. Received: source={text!r}, looked for "
        f"from {Path.cwd()}."
    )


def _refuse_revision(text: str, revision: str | None) -> None:
    if revision is not None:
        raise ValueError(
            "`revision` must be None for what is not a Hub repository. "
            f"Received: source={public_name(text)!r}, revision={revision!r}."
        )
