"""The files in the Hub client's cache: checked against their checksums, resumed after a kill.

The client keeps contents in `blobs/`, each under the name of its checksum (a sha256 of large files,
a git sha1 of others), and compares only sizes. Here each is hashed once, before its first use; an
empty file in our own cache, named by checksum, size and time, tells that this was done. The client
leaves `blobs/CHECKSUM.RANDOM.incomplete` behind when it is killed, and does not come back to it.
"""

import contextlib
import hashlib
import os
import re
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub import (
    HfFileMetadata,
    constants,
    get_hf_file_metadata,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import RemoteEntryNotFoundError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers

from keras_vit.zoo.https import cache_folder, file_checksum, mark_used

CHUNK_BYTES = 1 << 20


def repository_folder(repository: str, cache: Path) -> Path:
    """Return where the client keeps a repository `org/name`."""
    return cache / f"models--{repository.replace('/', '--')}"


def blob_of(path: Path) -> Path:
    """Return the blob that a file of a snapshot stands for: the file itself without links."""
    if not path.is_symlink():
        return path
    # One hop: the blob may be a link too, into a store that repositories share.
    blob = path.parent / path.readlink()
    return blob.parent.resolve() / blob.name


def is_checksum(name: str) -> bool:
    """Whether a blob is named by what its content can be compared with."""
    return re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", name) is not None


def has_right_content(blob: Path, checksum: str) -> bool:
    """Hash a file and compare.

    Args:
        blob: The file.
        checksum: Hexadecimal: 64 digits of sha256, or 40 of git's sha1.
    """
    if len(checksum) == 64:
        return file_checksum(blob, "sha256") == checksum
    digest = hashlib.sha1(b"blob %d\0" % blob.stat().st_size)
    with blob.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == checksum


def is_sound(blob: Path) -> bool:
    """Whether a blob has the content that its name says; hashed once, unless it changes."""
    mark = mark_of(blob)
    if mark.exists():
        mark_used(mark)
        return True
    if not has_right_content(blob, blob.name):
        return False
    with contextlib.suppress(OSError):  # Without the mark it is hashed again next time.
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return True


def mark_of(blob: Path) -> Path:
    """Return the file that tells that a blob, as it is, was hashed; its time is the last use."""
    status = blob.stat()
    return _marks(blob) / f"{blob.name}-{status.st_size}-{status.st_mtime_ns}"


def marks_of(blob: Path) -> list[Path]:
    """Return all marks of a blob: of this one, of the same in other caches, of earlier ones."""
    return list(_marks(blob).glob(f"{blob.name}-*"))


def _marks(blob: Path) -> Path:
    """Return the folder of a repository's marks. Other repositories may have the same blobs."""
    return cache_folder() / "checked" / blob.parent.parent.name


def delete_blob(path: Path) -> None:
    """Delete a file of a snapshot and its blob, so that the client fetches it anew.

    What links lead to outside of the repository's folder is somebody else's, and stays.
    """
    blob = blob_of(path)
    snapshots = blob.parent.with_name("snapshots")
    if blob.parent.name == "blobs" and snapshots in path.parent.resolve().parents:
        blob.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def resume(
    repository: str, files: list[str], revision: str | None, token: str | bool | None, cache: Path
) -> None:
    """Finish the downloads that a killed process left behind.

    Args:
        repository: `org/name`.
        files: The names that are wanted.
        revision: As for the client.
        token: As for the client.
        cache: The client's cache.
    """
    folder = repository_folder(repository, cache)
    if not any(folder.glob("blobs/*.incomplete")):
        return
    for name in files:
        if isinstance(try_to_load_from_cache(repository, name, cache, revision), str):
            continue
        url = hf_hub_url(repository, name, revision=revision)
        try:
            metadata = get_hf_file_metadata(url, token=token, library_name="keras_vit")
        except RemoteEntryNotFoundError:  # The revision has moved on.
            continue
        left = sorted(folder.glob(f"blobs/{metadata.etag}.*.incomplete"), key=os.path.getsize)
        lock = cache / ".locks" / folder.name / f"{metadata.etag}.lock"
        if not left or not lock.parent.is_dir():
            continue
        # The client holds this lock while it downloads; then the file is no leftover. Where the
        # system has no such locks, the client starts anew.
        with contextlib.suppress(Timeout, NotImplementedError), FileLock(lock, timeout=0):
            for smaller in left[:-1]:
                smaller.unlink()
            _finish(left[-1], url, metadata, token)


def _finish(partial: Path, url: str, metadata: HfFileMetadata, token: str | bool | None) -> None:
    """Fetch the rest of a file, and give it its name if it is then right."""
    start = partial.stat().st_size
    # The chunks of Xet, the Hub's other protocol, arrive in any order: the length tells nothing.
    in_chunks = metadata.xet_file_data is not None and not constants.HF_HUB_DISABLE_XET
    if in_chunks or metadata.size is None or start > metadata.size:
        partial.unlink()
        return
    headers = build_hf_headers(token=token, library_name="keras_vit")
    with partial.open("rb+") as file:
        file.seek(start)
        http_get(url, file, resume_size=start, headers=headers, expected_size=metadata.size)
        file.flush()
        os.fsync(file.fileno())
    if has_right_content(partial, metadata.etag):
        partial.rename(partial.with_name(metadata.etag))
    else:
        partial.unlink()
