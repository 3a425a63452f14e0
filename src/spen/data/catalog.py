"""The data sets that have a name: what they are, where they are kept, and their download.

Downloads are whole, verified and resumable, with the standard library alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import io
import os
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import spen
from spen.errors import InputError, SpenError, choose

MULAN = (
    "https://raw.githubusercontent.com/tsoumakas/mulan/"
    "43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label"
)
"""The Mulan project's folder of data sets, at one commit, so that the bytes never change."""

TIMEOUT = 30.0
"""Seconds that a server may be silent."""
PAUSE = 0.5
"""Seconds before the second attempt; each further one waits twice as long."""
FUTILE = 3
"""Attempts in a row that may bring nothing."""
ATTEMPTS = 20
"""Attempts in all for one file, so that a server which cuts off again and again is given up on."""
WINDOW, SLOWEST = 60.0, 1000.0
"""Seconds over which a server must bring so many bytes a second, or is given up on."""
CHUNK = 1 << 16
LARGEST_UNKNOWN = 1 << 26
"""The most that is taken of a file whose size is not known beforehand."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at the public address.

    Attributes:
        name: the file's name.
        size: its length in bytes; None where it is not known.
        sha256: its checksum; None where it is not known, so that it cannot be verified.
        place: where it is below the entry's base, if it is not there by its name.
        part: of the data set, of files that hold sequences.
    """

    name: str
    size: int | None = None
    sha256: str | None = None
    place: str | None = None
    part: str | None = None


@dataclass(frozen=True)
class Entry:
    """A data set that has a name.

    Attributes:
        name: the name, which is also the folder's.
        sentence: what it is about.
        n_train, n_test: rows for training (validation included) and for testing.
        n_features, n_labels: columns; features are None where rows are sentences of words.
        files: what loading it needs.
        row_split: (train, validation, test) rows in file order, for a set that comes as
            one file; None where the files are split already.
        base: the address of the folder of its files; None for Mulan's.
        by_hand: how to get it, in words, where its files have no address of their own.
    """

    name: str
    sentence: str
    n_train: int
    n_test: int
    n_labels: int
    files: tuple[RemoteFile, ...]
    n_features: int | None = None
    row_split: tuple[int, int, int] | None = None
    base: str | None = None
    by_hand: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a set of sequences; () of all others."""
        return tuple(dict.fromkeys(file.part for file in self.files if file.part is not None))

    def files_of(self, part: str) -> list[RemoteFile]:
        """Return the files that make one part."""
        return [file for file in self.files if file.part == part]

    def address(self, file: RemoteFile, base_url: str | None = None) -> str:
        """Return the address of one of the files, where it comes from or at a mirror.

        >>> ENTRIES["yeast"].address(ENTRIES["yeast"].files[2], "https://example.org/sets/")
        'https://example.org/sets/yeast/yeast.xml'
        """
        if base_url is None and self.base is not None:
            return f"{self.base}/{file.place or file.name}"
        return f"{(base_url or MULAN).rstrip('/')}/{self.name}/{file.name}"


def _read_entries() -> dict[str, Entry]:
    table = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text("utf-8"))
    entries = {}
    for name, fields in table.items():
        fields["files"] = tuple(RemoteFile(**file) for file in fields["files"])
        fields["row_split"] = tuple(fields.get("row_split", ())) or None
        entries[name] = Entry(name, **fields)
    return entries


ENTRIES = _read_entries()
"""The data sets that have a name."""


def entry_of(name: str) -> Entry:
    """Return the entry of a name, or raise an error that suggests the nearest one.

    >>> entry_of("yeast").n_labels
    14
    """
    return choose(name, ENTRIES, "data set")


def cache_folder() -> Path:
    """Return the user's cache folder for data sets.

    >>> cache_folder().name
    'spen'
    """
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "spen"
    # The XDG rules: an empty or relative path counts as not set.
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "spen"


def data_folders() -> list[Path]:
    """Return where data sets are looked for, in order: ``$SPEN_DATA``, then the cache."""
    named = os.environ.get("SPEN_DATA", "").strip()
    first = [Path(named).expanduser()] if named else []
    return [*first, cache_folder()]


def find(name: str) -> Path | None:
    """Return the folder that holds all files of a data set, or None where none does."""
    files = entry_of(name).files
    folders = (folder / name for folder in data_folders())
    return next((f for f in folders if all((f / file.name).is_file() for file in files)), None)


def locate(name: str) -> Path:
    """Return the folder that holds all files of a data set, or say how to get them.

    >>> locate("yaest")
    Traceback (most recent call last):
    ...
    spen.errors.UnknownNameError: Unknown data set 'yaest'. Did you mean 'yeast'? Choose from: ...
    """
    folder = find(name)
    if folder is None:
        searched = " or ".join(str(place / name) for place in data_folders())
        with_command = (
            "" if entry_of(name).by_hand else f"Get it with: spen data fetch {name} — or "
        )
        how = f"{with_command}{by_hand(name)}"
        raise InputError(f"The data set {name!r} is not in {searched}. {how[:1].upper()}{how[1:]}")
    return folder


def by_hand(name: str, folder: Path | None = None) -> str:
    """Return a sentence that says what to download and where to put it.

    Only the files that are missing from the folder are named.
    """
    entry = entry_of(name)
    folder = folder or data_folders()[0] / name
    missing = [file for file in entry.files if not (folder / file.name).is_file()]
    if entry.by_hand is not None:
        names = " and ".join(file.name for file in missing)
        return f"put {names} into the folder {folder}. {entry.by_hand}"
    addresses = " and ".join(entry.address(file) for file in missing)
    return f"download {addresses} into the folder {folder}."


Progress = Callable[[RemoteFile, int], None]


class FetchError(SpenError, OSError):
    """A file that could not be downloaded, or is not what was expected."""


class _TooSlowError(OSError):
    """A server that drips."""


class _Paced(io.RawIOBase):
    """What a server sends, from the first line of its answer on, as long as it is fast enough.

    A timeout ends a silence; a byte a second is none.
    """

    def __init__(self, source: io.RawIOBase) -> None:
        self.source, self.began, self.received = source, time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self.source.readinto(buffer)
        self.received += count or 0
        seconds = time.monotonic() - self.began
        if count and seconds > WINDOW:
            if self.received < SLOWEST * seconds:
                said = f"{self.received} bytes in {seconds:.0f} s"
                raise _TooSlowError(f"the server is too slow, it sent {said}")
            self.began, self.received = time.monotonic(), 0
        return count

    def close(self) -> None:
        self.source.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fp = io.BufferedReader(_Paced(self.fp.detach()))


class _Connection(http.client.HTTPConnection):
    response_class = _Response


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Connection, req)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_SecureConnection, req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to where a file may be: on the web, and not from https to what anyone may change."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str):
        kinds = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in kinds:
            fp.close()
            raise FetchError(
                f"{req.full_url} leads to {newurl!r}; only {' and '.join(kinds)} are followed."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(request: urllib.request.Request) -> Any:
    """Open an address as urllib does, with the handlers above."""
    return urllib.request.build_opener(_Handler, _Redirects).open(request, timeout=TIMEOUT)


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not address.isprintable() or " " in address:
        raise InputError(
            "The address must start with http:// or https:// and name a host, as in "
            f"https://example.org/sets; received {address!r}."
        )


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
    if base_url is not None:
        _check_address(base_url)
    folder = Path(folder) if folder is not None else data_folders()[0] / name
    if entry.by_hand is not None and base_url is None and find(name) is None:
        raise FetchError(f"{name} has no files that can be fetched; {by_hand(name, folder)}")
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
    problem = None
    with _own(partial) as content:
        transfer = _Transfer(url, file, content, progress)
        # What an earlier run left behind may be at fault: then all is received anew.
        for _ in range(2 if transfer.have else 1):
            transfer.receive_all()
            problem = difference(partial, file)
            if problem is None:
                os.fsync(content.fileno())
                partial.replace(path)
                return
            content.truncate(0)
    raise FetchError(
        f"{problem}. What {url} serves is not the file that this version of spen knows, "
        "so it was deleted. Try again later or from another address."
    )


@contextmanager
def _own(partial: Path) -> Iterator[FileIO]:
    """Open a partial file for this process alone; writes go to its end."""
    while True:
        with partial.open("ab", buffering=0) as content:
            try:
                fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FetchError(f"Another process is writing {partial}. Wait for it.") from None
            # Between opening and locking, its former owner may have moved it into place.
            if partial.exists() and os.path.samestat(partial.stat(), os.fstat(content.fileno())):
                try:
                    yield content
                finally:
                    if not os.fstat(content.fileno()).st_size:
                        partial.unlink(missing_ok=True)
                return


@dataclass(frozen=True)
class _Transfer:
    """What is received of a file, at the end of what is here already."""

    url: str
    file: RemoteFile
    content: FileIO
    progress: Progress | None

    @property
    def have(self) -> int:
        """The bytes that are here."""
        return os.fstat(self.content.fileno()).st_size

    def receive_all(self) -> None:
        """Receive what is missing, in as many attempts as it takes."""
        futile, problem = 0, None
        for _ in range(ATTEMPTS):
            begin = self.have
            try:
                problem = self._receive()
            except _TooSlowError as slow:
                problem = str(slow)
                break
            if problem is None:
                return
            futile = 0 if self.have > begin else futile + 1
            if futile == FUTILE:
                break
            time.sleep(PAUSE * 2**futile)
        can_go_on = self.have and self.file.sha256
        rest = f" Call again to go on from byte {self.have}." if can_go_on else ""
        raise FetchError(f"Could not get {self.url}: {problem}.{rest}")

    def _receive(self) -> str | None:
        """Receive what is missing, in one attempt.

        Returns:
            why it was cut off, so that another attempt may bring the rest; None: all is here.
        """
        # Pieces are put together only where a checksum says whether they fit.
        if self.file.sha256 is None or self.have > (self.file.size or 0):
            self.content.truncate(0)
        begin = self.have
        if begin == self.file.size:
            return None
        headers = {"User-Agent": f"spen/{spen.__version__}"}
        if begin:
            headers["Range"] = f"bytes={begin}-"
        try:
            request = urllib.request.Request(self.url, headers=headers)
            response = _open(request)
        except urllib.error.HTTPError as problem:
            problem.close()
            words = f"HTTP {problem.code} {problem.reason}"
            if problem.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.content.truncate(0)
            elif problem.code < 500 and problem.code not in (408, 429):
                raise FetchError(f"{self.url} answers {words}.") from None
            return words
        except (FetchError, _TooSlowError):
            raise
        except (OSError, http.client.HTTPException, ValueError) as problem:
            return f"no connection, {getattr(problem, 'reason', problem)}"
        with response:
            is_rest = response.headers.get("Content-Range", "").startswith(f"bytes {begin}-")
            if not (response.status == http.client.PARTIAL_CONTENT and begin and is_rest):
                # It must be the whole, for which the next attempt asks where it is not.
                self.content.truncate(0)
                if response.status != http.client.OK:
                    return f"the server answers a request from byte {begin} with another part"
            return self._store(response)

    def _store(self, response: http.client.HTTPResponse) -> str | None:
        """Write what a server sends to the end of a file; return why it was cut off, if it was."""
        url, file, have = self.url, self.file, self.have
        announced = None if response.length is None else have + response.length
        if file.size is not None and announced not in (None, file.size):
            raise FetchError(
                f"{file.name} must have {file.size} bytes, but {url} announces {announced}: "
                "it is not the file that this version of spen knows."
            )
        if file.size is None and announced is None and not response.chunked:
            raise FetchError(f"{url} does not say how long it is, so a cut-off would go unnoticed.")
        if file.size is None and (announced or 0) >= LARGEST_UNKNOWN:
            raise FetchError(f"{url} announces {announced} bytes, which cannot be right.")
        whole = announced if file.size is None else file.size
        limit = LARGEST_UNKNOWN if whole is None else whole
        while True:
            if self.progress:
                self.progress(file, have)
            try:
                block = response.read1(min(CHUNK, limit - have)) if have < limit else b""
            except _TooSlowError:
                raise
            except (OSError, http.client.HTTPException) as problem:
                return f"the connection broke after {have} bytes, {problem}"
            if not block:
                break
            self.content.write(block)
            have += len(block)
        if whole is None and have == limit:
            self.content.truncate(0)
            raise FetchError(f"{url} has {have} bytes or more, which cannot be right.")
        is_whole = whole is None or have == whole
        return None if is_whole else f"the connection ended after {have} of {whole} bytes"
