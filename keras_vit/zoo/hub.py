"""Repositories of the Hugging Face Hub, through its own client and into its own cache."""

import difflib
import errno
import os
import time
import urllib.parse
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import httpx2
from huggingface_hub import constants, get_cached_repo_tree, snapshot_download
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from keras_vit.files import local_path
from keras_vit.zoo import https
from keras_vit.zoo.catalogue import close_candidates
from keras_vit.zoo.https import (
    FULL_DISK,
    RETRIED_STATUSES,
    DownloadError,
    NotCachedError,
    disk_error,
)
from keras_vit.zoo.hub_blobs import blob_of, delete_blob, is_checksum, is_sound, resume
from keras_vit.zoo.rows import ModelRow

# Configurations and safetensors of the top folder; pickled and other weights never.
WANTED = ["config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json"]
UNWANTED = ["*/*"]
NOT_WRITABLE = (errno.EACCES, errno.EROFS, errno.EPERM)
# The client itself goes on after a cut that it notices, and asks again for the head of a file.
BROKEN_CONNECTION = (
    httpx2.ReadError,
    httpx2.WriteError,
    httpx2.ReadTimeout,
    httpx2.RemoteProtocolError,
)


def fetch_repository(
    repository: str,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike | None = None,
    offline: bool = False,
    row: ModelRow | None = None,
) -> tuple[Path, str]:
    """Return the local folder of a repository's weights and its commit.

    Each file's content is compared with its checksum before it is first used.

    Args:
        repository: `org/name`.
        revision: Branch, tag, commit or `refs/pr/1`. None: `main`.
        token: Access token; None or True: the one that the client finds; False: none.
        cache_dir: The cache. None: the client's own, which other libraries share.
        offline: Touch no network.
        row: What the zoo knows about the repository, for the error messages.

    Raises:
        DownloadError: If the files cannot be had; tells apart why.
        ValueError: If `token` cannot be one.
    """
    cache = local_path(cache_dir or constants.HF_HUB_CACHE)
    token = checked_token(token)
    what = f"{repository!r} at revision {revision or 'main'!r}"

    def download() -> Path:
        if not offline:
            names = [name for name in _listed_sizes(repository, revision, cache) if _wanted(name)]
            resume(repository, names, revision, token, cache)
        folder = snapshot_download(
            repository,
            revision=revision,
            token=token,
            cache_dir=cache,
            local_files_only=offline,
            allow_patterns=WANTED,
            ignore_patterns=UNWANTED,
            library_name="keras_vit",
        )
        return Path(folder)

    try:
        folder = _patiently(download)
        damaged = _damaged_files(repository, folder, cache)
        if damaged and not offline:
            for path in damaged:
                delete_blob(path)
            folder = _patiently(download)
            damaged = _damaged_files(repository, folder, cache)
        if damaged:
            raise _damaged_error(damaged, what, offline)
    except DownloadError:
        raise
    except (OSError, httpx2.HTTPError, ValueError, RuntimeError) as error:
        # The client's own chain is four tracebacks long and says no more.
        there = list(_listed_sizes(repository, revision, cache))
        raise _explained(error, what, repository, cache, row, there) from None
    if not any(folder.glob("*.safetensors")):
        there = _listed_sizes(repository, folder.name, cache) or [p.name for p in folder.glob("*")]
        raise _no_safetensors(what, sorted(there), row, revision)
    return folder, folder.name


def _wanted(name: str) -> bool:
    return "/" not in name and any(fnmatch(name, pattern) for pattern in WANTED)


def _patiently(download: Callable[[], Path]) -> Path:
    """Try a few times, with growing pauses, while the reason for a failure may pass."""
    for attempt in range(1, https.TRIES):
        try:
            return download()
        except (OSError, httpx2.HTTPError) as error:
            if not any(_may_pass(cause) for cause in causes(error)):
                raise
        time.sleep(https.FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
    return download()


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in RETRIED_STATUSES
    return isinstance(error, BROKEN_CONNECTION) or _has_wrong_length(error)


def _has_wrong_length(error: BaseException) -> bool:
    """Whether the client says so; it has no class for it."""
    return isinstance(error, OSError) and str(error).startswith("Consistency check failed")


def _no_safetensors(
    what: str, there: list[str], row: ModelRow | None, revision: str | None
) -> DownloadError:
    """Return the error for a repository without safetensors: what it has, and what to do."""
    known = row.source.partition("@")[2] if row else ""
    if known and known != revision:
        remedy = (
            f"Its revision {known!r} is known to hold safetensors: give `revision={known!r}`, or "
            f"load {row.id!r}."
        )
    else:
        remedy = (
            "Convert it once where torch and transformers are installed: "
            "`AutoModelForImageClassification.from_pretrained(...).save_pretrained(folder)`, and "
            "give that folder."
        )
        if row and row.note:
            remedy = f"{row.note} {remedy}"
    return DownloadError(
        f"{what} holds no safetensors file, and pickled weights are never read. "
        f"It has: {', '.join(there) or 'nothing'}. {remedy}"
    )


def checked_token(token: str | bool | None) -> str | bool | None:
    """Return a token without space around it; raise, without showing it, if it can be none."""
    if not isinstance(token, str):
        return token
    token = token.strip()
    # An illegal header would be quoted, token and all, by the HTTP client.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("`token` must be one word of ASCII characters. Received: (not shown).")
    return token or None


def _listed_sizes(repository: str, revision: str | None, cache: Path) -> dict[str, int]:
    """Return the sizes of a revision's files as the Hub listed them; empty if never listed."""
    try:
        tree = get_cached_repo_tree(repository, revision=revision, cache_dir=cache)
    except (CachedRepoTreeNotFoundError, ValueError):  # or a name that is none
        return {}
    return {file.path: file.size for file in tree}


def _damaged_files(repository: str, folder: Path, cache: Path) -> list[Path]:
    """Return the wanted files of a snapshot whose content is not what it should be."""
    sizes = _listed_sizes(repository, folder.name, cache)
    damaged = []
    for path in sorted(folder.glob("*")):
        blob = blob_of(path)
        if not _wanted(path.name) or not blob.exists():
            continue
        if is_checksum(blob.name):
            sound = is_sound(blob)
        else:  # A cache without links, as on some systems: only sizes can be compared.
            sound = blob.stat().st_size == sizes.get(path.name, blob.stat().st_size)
        if not sound:
            damaged.append(path)
    return damaged


def _damaged_error(damaged: list[Path], what: str, offline: bool) -> DownloadError:
    """Return the error for files that are still not what the Hub says; they do not stay."""
    if offline:
        paths = ", ".join(str(path) for path in damaged)
        return NotCachedError(
            f"The cached copy of {what} is damaged, and the network is switched off: {paths}. "
            "Call once online; it is then fetched again."
        )
    lines = [f"{path.name}, which should have checksum {blob_of(path).name}" for path in damaged]
    for path in damaged:
        delete_blob(path)
    return DownloadError(
        f"{what} arrived damaged, twice: {'; '.join(lines)}. What came was deleted. Try again "
        "later; if it stays so, a proxy on the way, or the repository itself, is at fault."
    )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what caused it, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def _explained(
    error: Exception,
    what: str,
    repository: str,
    cache: Path,
    row: ModelRow | None,
    there: list[str],
) -> Exception:
    """Return our error, with a remedy, for one of the client's."""
    for cause in causes(error):
        if isinstance(cause, HfHubHTTPError):
            return DownloadError(_answered(cause, what, repository, row, there))
        if isinstance(cause, httpx2.HTTPError):
            return DownloadError(
                f"There is no folder {repository!r} here, so it was taken for a repository of the "
                f"Hub; no connection to {constants.ENDPOINT} ({type(cause).__name__}), and {what} "
                f"is not whole in the cache, {cache}. Check the name, the network, HTTPS_PROXY and "
                "HF_ENDPOINT, or give the path of files that you fetched yourself."
            )
    if _has_wrong_length(error):
        return DownloadError(
            f"{what}: a file does not have the length that the Hub states, {https.TRIES} times. "
            "What came was deleted. Try again later; if it stays so, a proxy on the way, or the "
            "repository itself, is at fault."
        )
    if isinstance(error, LocalEntryNotFoundError):
        return NotCachedError(
            f"{what} is not whole in the cache, {cache}, and the network is switched off. "
            f"Fetch it once online, without `local_files_only` and without HF_HUB_OFFLINE=1: "
            f"`hf download {repository}`, or the same call. If it lies in another cache, name that "
            "by `cache_dir=` or HF_HOME."
        )
    if isinstance(error, OSError) and error.errno in (*FULL_DISK, *NOT_WRITABLE):
        return disk_error(error, what, cache)
    if isinstance(error, ValueError):
        return ValueError(f"`source` is no repository of the Hub. Received: {what}. {error}")
    return DownloadError(f"{what} could not be fetched: {error}")


def _answered(
    error: HfHubHTTPError, what: str, repository: str, row: ModelRow | None, there: list[str]
) -> str:
    """Return what an answer of the Hub means for the user."""
    page = f"{constants.ENDPOINT}/{repository}"
    status = error.response.status_code
    sign_in = "pass `token=` or run `hf auth login`"
    if isinstance(error, GatedRepoError):
        return (
            f"{what} is gated (status {status}). Accept its terms at {page}, then {sign_in} with "
            "the account that accepted them."
        )
    if isinstance(error, RevisionNotFoundError):
        known = row.source.partition("@")[2] if row else ""
        hint = f" Known to the zoo: {known!r}." if known else ""
        return f"{what}: no such revision. Its branches and tags are at {page}/tree/main.{hint}"
    if isinstance(error, RepositoryNotFoundError):
        close = difflib.get_close_matches(repository, close_candidates(), n=3)
        hint = f" Did you mean: {', '.join(close)}?" if close else ""
        return (
            f"{what}: no such folder here, and no such repository on the Hub, or a private one "
            f"that may not be read so (status {status}; the Hub answers both alike). Check the "
            f"spelling; if it is private, {sign_in}.{hint}"
        )
    if status == 401:
        return f"{what}: the Hub rejects the token (status 401). It may have expired; {sign_in}."
    if status == 403:
        return (
            f"{what}: the token may not read this (status 403). Give it read access to the "
            f"repository at {constants.ENDPOINT}/settings/tokens, or {sign_in} with another."
        )
    if status == 404:
        path = urllib.parse.unquote(error.response.request.url.path)
        return (
            f"{what}: a listed file is gone (status 404): {path.rpartition('/')[2]}. Listed are: "
            f"{', '.join(sorted(there)) or 'none'}. See {page}/tree/main, and try again."
        )
    if status == 429:
        return f"{what}: too many requests (status 429). Wait, or {sign_in} for a higher limit."
    return f"{what}: the Hub is out of order (status {status}). Try again later."
