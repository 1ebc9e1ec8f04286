"""What lies in the caches: files of URLs in our own, repositories in the Hub client's."""

import dataclasses
import datetime
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants

from keras_vit.checks import unknown_name
from keras_vit.files import local_path
from keras_vit.zoo.catalogue import catalogue
from keras_vit.zoo.https import (
    cache_folder,
    disown,
    file_checksum,
    public_name,
    read_record,
)
from keras_vit.zoo.hub_blobs import (
    blob_of,
    delete_blob,
    has_right_content,
    is_checksum,
    marks_of,
    repository_folder,
)

OK, DAMAGED, NOT_VERIFIABLE = "ok", "damaged", "not verifiable"


@dataclasses.dataclass(frozen=True)
class Cached:
    """One checkpoint that is cached, or was begun to be.

    Args:
        source: `https://...` without secrets, or `hf://org/name`.
        path: The folder that holds it and nothing else.
        size_bytes: On disk, with what interrupted downloads left.
        last_used: When it was last fetched or found here, in local time.
    """

    source: str
    path: Path
    size_bytes: int
    last_used: datetime.datetime

    @property
    def names(self) -> list[str]:
        """What it may be called by, the id of its row in the zoo first, if it has one."""
        rows = [row for row in catalogue().values() if row.source.partition("@")[0] == self.source]
        names = [row.id for row in rows] + [alias for row in rows for alias in row.aliases]
        if self.is_repository:
            return [*names, self.source.removeprefix("hf://"), self.source]
        file = self.source.rpartition("/")[2]
        return [*names, self.source, file, file.removesuffix(".npz")]

    @property
    def is_repository(self) -> bool:
        return self.source.startswith("hf://")


@dataclasses.dataclass(frozen=True)
class CachedFile:
    """A file that was hashed.

    Args:
        path: Where it lies; of a repository, in its snapshot.
        size_bytes: As it is now.
        state: `"ok"`, `"damaged"`, or `"not verifiable"` where no checksum is known.
    """

    path: Path
    size_bytes: int
    state: str


def list_cached(
    cache_dir: str | os.PathLike | None = None, hub_cache_dir: str | os.PathLike | None = None
) -> list[Cached]:
    """Return what is cached, in the order of names.

    Of the Hub client's cache, which other libraries use too, only repositories of the zoo and those
    that were loaded by this library.

    Args:
        cache_dir: Our own cache. None: `$KERAS_VIT_CACHE`, or else `~/.cache/keras_vit`.
        hub_cache_dir: That of the Hub's client. None: where it keeps it.
    """
    root = cache_folder(cache_dir)
    hub = local_path(hub_cache_dir or constants.HF_HUB_CACHE)
    items = [*_files_of_urls(root), *_repositories(hub)]
    return sorted(items, key=lambda item: item.names[0])


def find_cached(name: str, items: list[Cached]) -> Cached:
    """Return the one that has a name.

    Args:
        name: A zoo id, a Hub id, an official file name or a URL.
        items: From `list_cached`.

    Raises:
        ValueError: If none has it, or several.
    """
    name = public_name(name)
    if not items:
        raise ValueError(f"No models are cached. Received: {name!r}.")
    found = [item for item in items if name in item.names]
    if not found:
        raise unknown_name("cached model", name, [name for item in items for name in item.names])
    if len(found) > 1:
        raise ValueError(
            f"`name` must name one cached model. Received: name={name!r}, which may be "
            f"{' or '.join(item.source for item in found)}."
        )
    return found[0]


def verify_files(item: Cached) -> list[CachedFile]:
    """Hash the files of a checkpoint and compare with their checksums.

    A damaged file is not used any more: its next use fetches it again.
    """
    if item.is_repository:
        return [_verify_blob(path) for path in _snapshot_files(item.path)]
    return [_verify_file(path) for path in _downloaded_files(item.path)]


def delete_file(item: Cached, file: CachedFile) -> None:
    """Delete one file of a checkpoint; the next use fetches it again."""
    if item.is_repository:
        delete_blob(file.path)
    else:
        file.path.unlink(missing_ok=True)


def clear(item: Cached) -> None:
    """Delete a checkpoint from its cache."""
    if item.is_repository:
        for blob in item.path.glob("blobs/*"):
            for mark in marks_of(blob):
                mark.unlink(missing_ok=True)
        shutil.rmtree(item.path.parent / ".locks" / item.path.name, ignore_errors=True)
    shutil.rmtree(item.path)


def _files_of_urls(root: Path) -> Iterator[Cached]:
    for record in sorted(root.glob("*/*.json")):
        target = record.with_suffix("")
        if url := read_record(target).get("url"):
            yield _cached(url, record.parent, record.stat().st_mtime)


def _repositories(hub: Path) -> Iterator[Cached]:
    known = {row.repository for row in catalogue().values()}
    for folder in sorted(hub.glob("models--*--*")):
        repository = folder.name.removeprefix("models--").replace("--", "/", 1)
        blobs = [blob for blob in folder.glob("blobs/*") if blob.exists()]
        ours = [mark.stat().st_mtime for blob in blobs for mark in marks_of(blob)]
        if ours or repository in known:
            read = [blob.stat().st_atime for blob in blobs]
            used = max(ours or read or [folder.stat().st_mtime])
            yield _cached(f"hf://{repository}", repository_folder(repository, hub), used)


def _cached(source: str, path: Path, used: float) -> Cached:
    size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
    return Cached(source, path, size, datetime.datetime.fromtimestamp(used).astimezone())


def _downloaded_files(folder: Path) -> list[Path]:
    """Return the downloaded files in a folder of ours."""
    targets = [record.with_suffix("") for record in sorted(folder.glob("*.json"))]
    return [target for target in targets if target.is_file()]


def _snapshot_files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("snapshots/*/**/*"))
    return [path for path in paths if path.is_symlink() or path.is_file()]


def _verify_file(path: Path) -> CachedFile:
    record = read_record(path)
    size = path.stat().st_size
    sound = size == record.get("size_bytes")
    algorithm = next((name for name in ("sha256", "md5") if record.get(name)), None)
    if sound and algorithm:
        sound = file_checksum(path, algorithm) == record[algorithm]
    if not sound:
        disown(path)
    return CachedFile(path, size, (OK if algorithm else NOT_VERIFIABLE) if sound else DAMAGED)


def _verify_blob(path: Path) -> CachedFile:
    blob = blob_of(path)
    if not blob.is_file():
        return CachedFile(path, 0, DAMAGED)
    size = blob.stat().st_size
    if not is_checksum(blob.name):
        return CachedFile(path, size, NOT_VERIFIABLE)
    if has_right_content(blob, blob.name):
        return CachedFile(path, size, OK)
    for mark in marks_of(blob):
        mark.unlink(missing_ok=True)
    return CachedFile(path, size, DAMAGED)
