"""Files that are whole or not there at all: tensors and settings, without pickle."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from spen.batch.limits import limits
from spen.errors import CheckpointError


@contextmanager
def open_atomically(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file so that a reader sees the old one or the new one, never a part.

    It takes its place when the block ends; if the block fails, the old one stays. Of several
    writers the last one wins, whole. The mode and the group of the old file are kept.
    """
    # The file that a link points to is replaced, not the link.
    path = Path(path).resolve()
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file.")
    if path.exists() and not path.is_file():
        # A pipe or a device is written to; it must not become a file.
        with path.open("wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    partial, file = _open_partial(path)
    try:
        with full_disk_named(path), file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.replace(path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Say in the error of a disk that is full which file it is about, and what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or problem.filename:
            raise
        raise OSError(
            problem.errno,
            f"{problem.strerror}. What was there before stays. Make room, or name another place",
            str(path),
        ) from None


def _prefix(path: Path) -> str:
    # The beginning of a long name will do: a partial file's lock says whether it is alive.
    return f".{path.name[:50]}."


def _open_partial(path: Path) -> tuple[Path, BinaryIO]:
    """Open a new file beside another, by a name that nobody can guess, and lock it.

    The lock says that its writer is alive; it ends with the process.
    """
    old = path.stat() if path.exists() else None
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
    while True:
        partial = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.fdopen(os.open(partial, flags, mode), "wb")
        if old is not None:
            with suppress(OSError):  # not everyone may give files to every group
                os.fchown(file.fileno(), -1, old.st_gid)
            os.fchmod(file.fileno(), mode)
        try:
            if _lock(file.fileno(), partial):
                return partial, file
        except BlockingIOError:
            pass  # Another writer has just taken it for a leftover.
        except OSError:
            return partial, file  # Without locks here, nobody removes it either.
        file.close()
        partial.unlink(missing_ok=True)


def _lock(opened: int, path: Path) -> bool:
    """Lock an open file, or raise BlockingIOError; False if it is no longer the one at its path."""
    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        return os.path.samestat(os.fstat(opened), path.lstat())
    except FileNotFoundError:
        return False


def _remove_leftovers(path: Path) -> None:
    """Remove what killed writers of this file left behind, but nothing that a live one writes."""
    name = re.compile(re.escape(_prefix(path)) + r"[0-9a-f]{16}\.partial")
    with suppress(OSError):  # such as a folder that can be written but not listed
        for leftover in path.parent.iterdir():
            if not name.fullmatch(leftover.name):
                continue
            with suppress(OSError):
                opened = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _lock(opened, leftover):
                        leftover.unlink()
                finally:
                    os.close(opened)


def _sync_folder(folder: Path) -> None:
    """Wait until a rename is on the disk. The file is whole even where that cannot be done."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@contextmanager
def locked(path: Path | str) -> Iterator[None]:
    """Hold a file, or a folder, for as long as a block runs: no other process or thread has it.

    The lock is a small file beside it, ``.NAME.lock``. It ends with the process, even a killed one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.ckpt"
    >>> with locked(path), locked(path):
    ...     pass
    Traceback (most recent call last):
    ...
    spen.errors.CheckpointError: ...run.ckpt is in use: process ... holds it. Wait until that has
    ended, or stop it, or name another checkpoint.
    """
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    opened = _open_lock(lock, path)
    try:
        with suppress(OSError):  # the number is for people; a full disk has no room for it
            os.truncate(opened, 0)
            os.write(opened, str(os.getpid()).encode())
        yield
    finally:
        # In this order: what is unlocked may be another's already.
        lock.unlink(missing_ok=True)
        os.close(opened)


def _open_lock(lock: Path, path: Path) -> int:
    """Return the open lock file of a path, locked."""
    while True:
        opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            if _lock(opened, lock):
                return opened
        except BlockingIOError:
            holder = os.pread(opened, 20, 0).decode(errors="replace") or "another one"
            os.close(opened)
            raise CheckpointError(
                f"{path} is in use: process {holder} holds it. Wait until that has ended, or stop "
                "it, or name another checkpoint."
            ) from None
        # Its former holder removed it between opening and locking.
        os.close(opened)


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write a file at once: it is whole, or not there at all."""
    with open_atomically(path) as file:
        file.write(content)


def write_tensors(path: Path | str, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a JSON header as one safetensors file with a checksum, atomically."""
    import spen

    # Tensors may share storage (a frozen copy of a weight), which safetensors refuses.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    text = json.dumps({"format": FORMAT, "spen": spen.__version__} | header)
    table, data = _parts(save(plain, metadata={"spen": text}))
    # By hand, because safetensors writes two entries of metadata in any order.
    table["__metadata__"]["digest"] = _digest(table, data)
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    with open_atomically(path) as file:
        for part in (len(head).to_bytes(8, "little"), head, data):
            file.write(part)


def read_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write_tensors`` wrote, or say what is wrong with the file.

    The tensors are in memory of their own: what becomes of the file later does not matter.
    """
    import spen

    path = Path(path)
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is a folder, a pipe or a device. Name a regular file.")
    limits.check(path.stat().st_size, "model", f"{path} holds tensors")
    try:
        content = path.read_bytes()
        tensors = load(content)
        table, data = _parts(content)
        metadata = table.get("__metadata__", {})
        given = metadata.pop("digest", None)
        if set(metadata) != {"spen"}:
            raise CheckpointError(
                f"{path} is a safetensors file, but not one that spen wrote. Name another file."
            )
        whole = given is None or given == _digest(table, data)
        header = json.loads(metadata["spen"])
    except CheckpointError:
        raise
    except (SafetensorError, OSError, *DAMAGE) as problem:
        raise CheckpointError(
            f"{path} cannot be read; it is cut short or not a file of this kind ({problem}). "
            "Name a file that spen wrote."
        ) from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is damaged: its header is no table.")
    form = header.get("format", UNCHECKED)
    if form not in (UNCHECKED, FORMAT):
        raise CheckpointError(
            f"{path} was written by spen {header.get('spen')}, in another form than spen "
            f"{spen.__version__} reads. Use that version, or fit the model again with this one."
        )
    if not whole or (given is None and form != UNCHECKED):
        raise CheckpointError(
            f"{path} is damaged: it is not what was written, by its checksum. Use a copy of it, or "
            "make it again."
        )
    # Copies, where torch wants them: a sum is rounded by where in memory its numbers lie.
    del content, data
    return {name: tensors.pop(name).clone() for name in list(tensors)}, header


FORMAT, UNCHECKED = 3, 2
"""The form of files, which counts up when older versions cannot read them; the last one that had
no checksum, and is still read."""

DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError)
DAMAGE += (AssertionError, SyntaxError)
"""What a header that does not fit may lead to; none of it is the caller's mistake."""


def _parts(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the table and the tensors of a safetensors file."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), memoryview(content)[end:]


def _digest(table: dict[str, Any], data: memoryview) -> str:
    """Return a checksum of a safetensors file, whose table has none yet."""
    hasher = hashlib.sha256(json.dumps(table, sort_keys=True).encode())
    hasher.update(data)
    return hasher.hexdigest()


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Raise unless all weights are finite."""
    for name, tensor in tensors.items():
        # A sum is finite only where all its terms are; where it overflows, they may still be.
        if not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise CheckpointError(f"The model holds weights that are not finite: {name}.")


def digest(tensors: Iterable[Tensor | None]) -> str:
    """Return a checksum of tensors: their shapes and bytes."""
    hasher = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            hasher.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
            # As bytes, because numpy does not have all types.
            hasher.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name starts with a prefix, without it."""
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def versions() -> dict[str, str]:
    """Return the versions that records and model files name."""
    import numpy
    import torch

    import spen

    return {
        "spen": spen.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
