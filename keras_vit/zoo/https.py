"""Files over https: streamed, resumed, checked, renamed into place, and cached by their whole URL.

A cached file lies in a folder of its own, named by the hash of its URL: one base name in several
directories is several files. Beside it lies a record of what the server said, so that a file that
was cut short later is found out before it is read.
"""

import base64
import contextlib
import errno
import hashlib
import http.client
import json
import os
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from keras_vit.files import local_path, replacing

TRIES = 5
FIRST_WAIT_SECONDS = 1.0
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 20
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# What a connection raises when it breaks half-way.
BROKEN_CONNECTION = (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException)
# Of a connection that could not be made, those that another try may mend.
PASSING_REASONS = (ConnectionResetError, BrokenPipeError)
# What a system answers when a file cannot grow: no space, a quota, a limit on sizes of files.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DownloadError(OSError):
    """A file could not be had. The message says which, why, and what to do."""


class NotCachedError(DownloadError):
    """There is no whole copy here, and the network was not to be used."""


class _TryAgainError(Exception):
    """This try failed; the next one may not."""


def fetch_url(
    url: str,
    cache_dir: str | os.PathLike | None = None,
    sha256: str | None = None,
    offline: bool = False,
) -> Path:
    """Return the local copy of a file on the web, downloading it the first time only.

    The server is not asked again whether the file has changed: weights have fixed addresses.

    Args:
        url: `https://...` or `http://...`.
        cache_dir: Where copies are kept. None: `$KERAS_VIT_CACHE`, or else `~/.cache/keras_vit`.
        sha256: Hexadecimal checksum that a download must have. None: the MD5 that the server
            states in `x-goog-hash`, if it does.
        offline: Touch no network.

    Raises:
        DownloadError: If there is no whole copy and none can be made.
        ValueError: If `url` cannot be one.
    """
    target = cache_path(url, cache_dir)
    if is_whole(target):
        mark_used(record_path(target))
        return target
    if offline:
        state = "The copy there is damaged" if target.exists() else "There is no copy"
        raise NotCachedError(
            f"{public_url(url)} is not in the cache, and the network is switched off. {state}: "
            f"{target}. Call once without `local_files_only` and without HF_HUB_OFFLINE=1, or "
            "give the path of a file that you fetched yourself."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not is_whole(target):  # Another process may have fetched it meanwhile.
                target.unlink(missing_ok=True)
                _download(url, target, sha256)
    except DownloadError:
        raise
    except OSError as error:
        raise disk_error(error, public_url(url), target.parent) from error
    return target


def cache_path(url: str, cache_dir: str | os.PathLike | None = None) -> Path:
    """Return where the copy of `url` lies, whether or not it is there."""
    name = PurePosixPath(urllib.parse.unquote(split_url(url).path)).name
    key = hashlib.sha256(url.encode()).hexdigest()[:16]
    return cache_folder(cache_dir) / key / (name or "download")


def cache_folder(cache_dir: str | os.PathLike | None = None) -> Path:
    """Return the folder of our own cache.

    Args:
        cache_dir: The folder itself. None: `$KERAS_VIT_CACHE`, or else `~/.cache/keras_vit`.
    """
    return local_path(cache_dir or os.environ.get("KERAS_VIT_CACHE") or "~/.cache/keras_vit")


def mark_used(path: Path) -> None:
    """Note that what `path` records was used now; a cache that cannot be written notes nothing."""
    with contextlib.suppress(OSError):
        os.utime(path)


def public_url(url: str) -> str:
    """Return `url` without user name, password, query and fragment: they may hold secrets."""
    parts = split_url(url)
    return urllib.parse.urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")
    )


def public_name(source: str) -> str:
    """Return what a user called a model, without secrets where it is a URL."""
    return public_url(source) if "://" in source else source


def split_url(url: str) -> urllib.parse.SplitResult:
    """Return the parts of a URL; raise if its host cannot be read."""
    try:
        return urllib.parse.urlsplit(url)
    except ValueError:  # The cause may quote a password.
        raise ValueError(
            "`source` must be a valid URL. Received: one that begins with "
            f"'{url.partition('://')[0]}://', whose host cannot be read (the rest is not shown)."
        ) from None


def disk_error(error: OSError, what: str, folder: Path) -> DownloadError:
    """Return the error for a cache folder that cannot be written."""
    if error.errno in FULL_DISK:
        reason, remedy = f"No space left ({error.strerror})", "Free some"
    else:
        reason, remedy = f"Cannot write ({error.strerror or error})", "Check its permissions"
    return DownloadError(
        f"{reason} in {folder} while fetching {what}. {remedy}, or choose another folder by "
        "`cache_dir=`, KERAS_VIT_CACHE or (for the Hub) HF_HOME."
    )


def disown(target: Path) -> None:
    """Have a cached file that was found to be damaged fetched again at its next use."""
    _write_record(target, read_record(target) | {"size_bytes": None})


def _download(url: str, target: Path, sha256: str | None) -> None:
    partial = target.with_name(f"{target.name}.incomplete")
    for attempt in range(TRIES):
        if attempt:
            time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        try:
            _stream(url, partial, target)
            found = _verify(partial, sha256, read_record(target).get("md5"))
        except _TryAgainError as error:
            reason = error
        else:
            _write_record(target, read_record(target) | {"sha256": found})
            partial.replace(target)
            return
    raise DownloadError(
        f"Gave up on {public_url(url)} after {TRIES} tries: {reason}. Try again later; what has "
        "arrived is kept where the server can resume."
    )


def _stream(url: str, partial: Path, target: Path) -> None:
    """Bring `partial` to its full length, from where an earlier try stopped if that is safe."""
    known = read_record(target)
    # Without a strong ETag the rest could be that of another version of the file.
    start = partial.stat().st_size if known.get("etag") and partial.exists() else 0
    if start and start == known.get("size_bytes"):
        return
    headers = {"Accept-Encoding": "identity", "User-Agent": "keras_vit"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": known["etag"]}
    with _open(urllib.request.Request(url, headers=headers), partial) as answer:
        if answer.status != 206:
            start = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            partial.unlink()
            raise _TryAgainError("the server resumed at another place than asked for")
        _check_answer(answer)
        length = answer.headers.get("Content-Length")
        size = None if length is None else start + int(length)
        record = {
            "url": public_url(url),
            "etag": _strong_etag(answer.headers),
            "size_bytes": size,
            "md5": _stated_md5(answer.headers),
        }
        _write_record(target, record)
        _check_space(partial, size, start)
        with partial.open("ab" if start else "wb") as file:
            with _progress(target.name, size, start) as advance:
                _copy(answer, file, advance)
            file.flush()
            os.fsync(file.fileno())
            arrived = file.tell()
    if size is None:
        _write_record(target, record | {"size_bytes": arrived})
    elif arrived != size:
        raise _TryAgainError(f"the connection ended after {arrived} of {size} bytes")
    if not arrived:
        raise _TryAgainError("the server sent an empty file")


def _check_answer(answer: http.client.HTTPResponse) -> None:
    """Refuse an answer that is not the file as it is."""
    length = answer.headers.get("Content-Length", "0")
    coding = answer.headers.get("Content-Encoding", "identity")
    if answer.status == 204:
        raise _TryAgainError("the server answered 204, without content")
    if coding.strip().lower() not in ("", "identity"):
        raise _TryAgainError(f"the server sent it encoded ({coding}), which was not asked for")
    if not length.strip().isdecimal():
        raise _TryAgainError(f"the server stated a length that is none ({length!r})")


def _open(request: urllib.request.Request, partial: Path) -> http.client.HTTPResponse:
    where = public_url(request.full_url)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # What we hold is longer than the file there.
            partial.unlink(missing_ok=True)
        if error.code == 416 or error.code in RETRIED_STATUSES:
            raise _TryAgainError(f"the server answered {error.code} {error.reason}") from error
        if error.msg.startswith(urllib.request.HTTPRedirectHandler.inf_msg):
            raise DownloadError(
                f"{where} redirects in a loop (status {error.code}). Check the address."
            ) from None  # The cause repeats that, on two lines.
        raise _refusal(error.code, where) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, PASSING_REASONS):
            raise _TryAgainError(f"the connection broke ({error.reason})") from error
        raise DownloadError(
            f"No connection to {split_url(where).netloc}: {error.reason}. Check the "
            "network and HTTPS_PROXY, or give the path of a file that you fetched yourself."
        ) from error
    except (http.client.InvalidURL, ValueError):
        # The cause would quote what `public_url` leaves out.
        raise ValueError(
            f"`source` must be a valid URL, and redirect to none that is not. Received: {where!r}."
        ) from None
    except BROKEN_CONNECTION as error:
        raise _TryAgainError(f"the connection broke ({error})") from error
    if answer.headers.get_content_type() == "text/html":
        answer.close()
        raise DownloadError(
            f"{where} is a web page, not a weights file. Give the address of the file itself; "
            "behind a sign-in page, sign in first."
        )
    return answer


def _refusal(status: int, where: str) -> DownloadError:
    if status in (404, 410):
        return DownloadError(
            f"There is no file at {where} (status {status}). Check the address; "
            "`keras_vit.list_models()` names the checkpoints known here."
        )
    if status in (401, 403, 407):
        return DownloadError(
            f"{where} may not be read without permission (status {status}). Fetch it yourself and "
            "give its path; `token=` goes to the Hugging Face Hub only."
        )
    return DownloadError(f"{where} cannot be fetched: the server answered with status {status}.")


def _copy(answer: http.client.HTTPResponse, file, advance: Callable[[int], None]) -> None:
    while True:
        try:
            chunk = answer.read(CHUNK_BYTES)
        except BROKEN_CONNECTION as error:
            file.flush()
            raise _TryAgainError(f"the connection broke after {file.tell()} bytes") from error
        if not chunk:
            return
        file.write(chunk)
        advance(len(chunk))


def file_checksum(path: Path, algorithm: str) -> str:
    """Return the hexadecimal checksum of a file by `"sha256"`, `"md5"` or `"sha1"`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _verify(partial: Path, sha256: str | None, md5: str | None) -> str:
    """Compare with what is known of the file, and return its sha256, for later comparisons."""
    found = file_checksum(partial, "sha256")
    expected, algorithm, seen = sha256, "sha256", found
    if md5 and not sha256:
        expected, algorithm, seen = md5, "md5", file_checksum(partial, "md5")
    if expected and seen != expected:
        partial.unlink()
        raise _TryAgainError(f"its {algorithm} should be {expected} and is {seen}")
    return found


def _check_space(partial: Path, size: int | None, start: int) -> None:
    free = shutil.disk_usage(partial.parent).free
    if size is not None and size - start > free:
        raise OSError(errno.ENOSPC, f"{size - start} bytes needed, {free} free")


@contextlib.contextmanager
def _progress(name: str, size: int | None, start: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=size, completed=start)
        yield lambda count: progress.advance(task, count)


def _strong_etag(headers: http.client.HTTPMessage) -> str | None:
    etag = headers.get("ETag")
    return None if etag is None or etag.startswith("W/") else etag


def _stated_md5(headers: http.client.HTTPMessage) -> str | None:
    """Return the hexadecimal MD5 of Google storage's `x-goog-hash`, or None."""
    for item in ",".join(headers.get_all("x-goog-hash", [])).split(","):
        kind, _, value = item.strip().partition("=")
        if kind == "md5":
            return base64.b64decode(value).hex()
    return None


def record_path(target: Path) -> Path:
    """Return where the record of a cached file lies; its time is that of the last use."""
    return target.with_name(f"{target.name}.json")


def read_record(target: Path) -> dict:
    """Return `url` (without secrets), `size_bytes`, `sha256`, `md5`, `etag`: what is known."""
    try:
        record = json.loads(record_path(target).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write_record(target: Path, record: dict) -> None:
    with replacing(record_path(target)) as temporary:
        temporary.write_text(json.dumps(record), encoding="utf-8")


def is_whole(target: Path) -> bool:
    """Whether a cached file is there, as long as it was when it arrived."""
    size = read_record(target).get("size_bytes")
    return size is not None and target.is_file() and target.stat().st_size == size
