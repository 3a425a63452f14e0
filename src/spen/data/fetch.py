"""Downloads that are whole, verified and resumable, with the standard library alone."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import spen
from spen.data.catalog import RemoteFile, by_hand, data_folders, entry_of
from spen.errors import InputError, SpenError

TIMEOUT = 30.0
"""Seconds that a server may be silent."""
PAUSE = 0.5
"""Seconds before the second attempt; each further one waits twice as long."""
FUTILE = 3
"""Attempts in a row that may bring nothing."""
ATTEMPTS = 20
"""Attempts in all for one file, so that a server which drips bytes is given up on."""
CHUNK = 1 << 16
LARGEST_UNKNOWN = 1 << 26
"""The most that is taken of a file whose size is not known beforehand."""

Progress = Callable[[RemoteFile, int], None]


class FetchError(SpenError, OSError):
    """A file that could not be downloaded, or is not what was expected."""


@dataclass(frozen=True)
class Fetched:
    """A file that is in place.

    Attributes:
        path: where it is.
        size: its length in bytes.
        verified: whether its checksum is known and right.
        downloaded: False where it was there already.
    """

    path: Path
    size: int
    verified: bool
    downloaded: bool


class _CutOffError(Exception):
    """The connection failed or ended early: another attempt may bring the rest."""


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    base_url: str | None = None,
    progress: Progress | None = None,
) -> tuple[Fetched, ...]:
    """Download the files of a data set that are not there yet, and return where they are.

    A file is verified before it gets its name; what a cut-off leaves behind ends in
    ``.partial``, and the next attempt goes on from there.

    Args:
        name: a data set of the catalogue.
        folder: where the files go; ``$SPEN_DATA/name``, else the user's cache, by default.
        base_url: another address that holds the folders of the data sets, such as a mirror.
        progress: called with a file and how many of its bytes are here.
    """
    entry = entry_of(name)
    if base_url is not None and not re.match(r"https?://[^/]", base_url):
        raise InputError(f"The address must start with http:// or https://; received {base_url!r}.")
    folder = Path(folder) if folder is not None else data_folders()[0] / name
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    for file in entry.files:
        path = folder / file.name
        downloaded = not (path.is_file() and difference(path, file) is None)
        if downloaded:
            try:
                _download(entry.address(file, base_url), file, path, progress)
            except FetchError as problem:
                raise FetchError(f"{problem} To do it by hand, {by_hand(name, folder)}") from None
        done.append(Fetched(path, path.stat().st_size, file.sha256 is not None, downloaded))
    return tuple(done)


def difference(path: Path, file: RemoteFile) -> str | None:
    """Return in words how a file on disk differs from what it should be; None if it does not."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"{file.name} must have {file.size} bytes; received {size}"
    if file.sha256 is None:
        return None
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != file.sha256:
        return f"{file.name} must have the sha256 {file.sha256}; received {digest}"
    return None


def _download(url: str, file: RemoteFile, path: Path, progress: Progress | None) -> None:
    """Put the file at ``url`` into place, whole and verified, or leave nothing there."""
    partial = path.with_name(f"{path.name}.partial")
    with _own(partial) as content:
        resumed = partial.stat().st_size > 0
        _receive_all(url, file, content, progress)
        problem = difference(partial, file)
        if problem and resumed:
            # What an earlier run left behind may be at fault.
            content.truncate(0)
            _receive_all(url, file, content, progress)
            problem = difference(partial, file)
        if problem:
            partial.unlink()
            raise FetchError(
                f"{problem}. What {url} serves is not the file that this version of spen knows, "
                "so it was deleted. Try again later or from another address."
            )
        os.fsync(content.fileno())
        partial.replace(path)


@contextmanager
def _own(partial: Path) -> Iterator[BinaryIO]:
    """Open a partial file for this process alone; writes go to its end."""
    while True:
        with partial.open("ab") as content:
            try:
                fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FetchError(f"Another process is writing {partial}. Wait for it.") from None
            # Between opening and locking, its former owner may have moved it into place.
            if partial.exists() and os.path.samestat(partial.stat(), os.fstat(content.fileno())):
                try:
                    yield content
                finally:
                    content.flush()
                    if not os.fstat(content.fileno()).st_size:
                        partial.unlink(missing_ok=True)
                return


def _receive_all(url: str, file: RemoteFile, content: BinaryIO, progress: Progress | None) -> None:
    """Receive what is missing, in as many attempts as it takes."""
    futile, problem, have = 0, "", 0
    for _ in range(ATTEMPTS):
        begin = have = os.fstat(content.fileno()).st_size
        try:
            _receive(url, file, content, begin, progress)
            return
        except _CutOffError as cut:
            problem = str(cut)
        finally:
            content.flush()
            have = os.fstat(content.fileno()).st_size
        futile = 0 if have > begin else futile + 1
        if futile == FUTILE:
            break
        time.sleep(PAUSE * 2**futile)
    rest = f" Call again to go on from byte {have}." if have and file.sha256 else ""
    raise FetchError(f"Could not get {url}: {problem}.{rest}")


def _receive(
    url: str, file: RemoteFile, content: BinaryIO, begin: int, progress: Progress | None
) -> None:
    """Append the bytes from ``begin`` on, or raise; never write more than the file has."""
    if begin and (file.sha256 is None or begin > (file.size or 0)):
        # Pieces are put together only where a checksum says whether they fit.
        content.truncate(0)
        begin = 0
    if begin == file.size:
        return
    with _open(url, begin, content) as response:
        if begin and response.status == http.client.OK:
            # The server does not resume and sends the whole file again.
            content.truncate(0)
            begin = 0
        have, whole = begin, _length(response, url, file, begin)
        limit = LARGEST_UNKNOWN if whole is None else whole
        while have < limit:
            if progress:
                progress(file, have)
            try:
                block = response.read1(min(CHUNK, limit - have))
            except (OSError, http.client.HTTPException) as problem:
                raise _CutOffError(f"the connection broke after {have} bytes, {problem}") from None
            if not block and whole is None:
                break
            if not block:
                raise _CutOffError(f"the connection ended after {have} of {whole} bytes")
            content.write(block)
            have += len(block)
    if whole is None and have >= LARGEST_UNKNOWN:
        content.truncate(0)
        raise FetchError(f"{url} has {have} bytes or more, which cannot be right.")
    if progress:
        progress(file, have)


def _open(url: str, begin: int, content: BinaryIO) -> http.client.HTTPResponse:
    """Ask for the bytes from ``begin`` on and check the kind of the answer."""
    headers = {"User-Agent": f"spen/{spen.__version__}"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as problem:
        problem.close()
        words = f"HTTP {problem.code} {problem.reason}"
        if problem.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            content.truncate(0)
        elif problem.code < 500 and problem.code not in (408, 429):
            raise FetchError(f"{url} answers {words}.") from None
        raise _CutOffError(words) from None
    except urllib.error.URLError as problem:
        raise _CutOffError(f"no connection, {problem.reason}") from None
    except (OSError, http.client.HTTPException, UnicodeError) as problem:
        raise _CutOffError(f"no connection, {problem}") from None
    part = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if response.status == http.client.PARTIAL_CONTENT and part and int(part[1]) == begin > 0:
        return response
    if response.status == http.client.OK:
        return response
    response.close()
    # Where resuming goes wrong, the next attempt asks for the whole file.
    content.truncate(0)
    raise _CutOffError(f"the server answers a request from byte {begin} with another part")


def _length(
    response: http.client.HTTPResponse, url: str, file: RemoteFile, begin: int
) -> int | None:
    """Return the length of the whole file; None where only its end will tell."""
    announced = None if response.length is None else begin + response.length
    if file.size is not None:
        if announced is not None and announced != file.size:
            raise FetchError(
                f"{file.name} must have {file.size} bytes, but {url} announces {announced}: "
                "it is not the file that this version of spen knows."
            )
        return file.size
    if announced is None and not response.chunked:
        raise FetchError(f"{url} does not say how long it is, so a cut-off would go unnoticed.")
    if announced is not None and announced >= LARGEST_UNKNOWN:
        raise FetchError(f"{url} announces {announced} bytes, which cannot be right.")
    return announced
