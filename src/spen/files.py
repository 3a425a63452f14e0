"""Files that are whole or not there at all: tensors and settings, without pickle."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from spen.batch.arrays import object_array
from spen.errors import CheckpointError, InputError


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
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.replace(path)
        _sync_folder(path.parent)
    except OSError as problem:
        if problem.errno not in _NO_ROOM or problem.filename:
            raise
        raise OSError(
            problem.errno,
            f"{problem.strerror}. What was there before stays; make room, or name another place",
            str(path),
        ) from None
    finally:
        partial.unlink(missing_ok=True)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _partial_name(path: Path, middle: str) -> str:
    # The beginning of a long name will do: it says whose it may be, and its lock if it is alive.
    return f".{path.name[:50]}.{middle}.partial"


def _open_partial(path: Path) -> tuple[Path, BinaryIO]:
    """Open a new file beside another, by a name that nobody can guess, and lock it.

    The lock says that its writer is alive; it ends with the process.
    """
    old = path.stat() if path.exists() else None
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
    while True:
        partial = path.with_name(_partial_name(path, secrets.token_hex(8)))
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
    pattern = re.compile(re.escape(_partial_name(path, "X")).replace("X", "[0-9a-f]{16}"))
    with suppress(OSError):  # such as a folder that can be written but not listed
        for name in filter(pattern.fullmatch, (each.name for each in path.parent.iterdir())):
            leftover = path.with_name(name)
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
    """Write tensors and a JSON header as one safetensors file, atomically."""
    # Tensors may share storage (a frozen copy of a weight), which safetensors refuses.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    write_atomically(path, save(plain, metadata={"spen": json.dumps(header)}))


def read_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write_tensors`` wrote, or say what is wrong with the file."""
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["spen"])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except KeyError:
        raise CheckpointError(
            f"{path} is a safetensors file, but not one that spen wrote. Name another file."
        ) from None
    except (SafetensorError, OSError, ValueError) as problem:
        raise CheckpointError(
            f"{path} cannot be read; it is cut short or not a file of this kind ({problem}). "
            "Name a file that spen wrote."
        ) from None
    return tensors, header


def to_json(value: Any, where: str = "settings", *, brief: bool = False) -> Any:
    """Describe a setting as plain data: for a file that rebuilds it, or in brief.

    Args:
        value: plain values, arrays, lists, dicts, descriptions of energies, dataclasses. A class
            that cannot be rebuilt is refused, by name; in brief anything is described.
        where: the value is, for errors.
        brief: for records and comparisons. Classes come with what is not as they have it anyway,
            so that a setting which is added later, with a default that changes nothing, changes no
            description.

    >>> import spen
    >>> to_json(spen.Hinge(margin=2.0), "objective")["class"]
    'Hinge'
    >>> to_json(spen.Descent(stopping=spen.Stopping(max_steps=20)), brief=True)
    {'class': 'Descent', 'stopping': {'class': 'Stopping', 'max_steps': 20}}
    """
    import spen

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | float | bool | None):
        return value
    plain = partial(to_json, where=where, brief=brief)
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        return items if brief or isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        if brief:
            return {str(name): plain(item) for name, item in value.items()}
        return {"dict": [[plain(name), plain(item)] for name, item in value.items()]}
    if isinstance(value, np.ndarray):
        items = plain(value.tolist())
        return items if brief else {"array": items, "dtype": value.dtype.str}
    if isinstance(value, spen.UnsizedEnergy) and not brief:
        return {
            "energy": [
                {"class": _name(term.kind, where), "settings": plain(term.settings)}
                for term in value.terms
            ]
        }
    if is_dataclass(value) and not isinstance(value, type):
        settings = {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        if not brief:
            return {"class": _name(type(value), where), "settings": settings}
        own = {f.name: settings[f.name] for f in fields(value) if settings[f.name] != _default(f)}
        return {"class": type(value).__name__} | own
    if brief:
        return _in_words(value)
    raise InputError(
        f"{where} holds a {type(value).__module__}.{type(value).__qualname__}, which a model file "
        "cannot hold: it could not be rebuilt without running code from the file. Use a name or "
        "one of spen's own classes, or keep the classifier with pickle at your own risk."
    )


def _default(field: Field[Any]) -> Any:
    """Return what a field is by default, in brief."""
    if field.default is not MISSING:
        return to_json(field.default, brief=True)
    if field.default_factory is not MISSING:
        return to_json(field.default_factory(), brief=True)
    return MISSING


def _in_words(thing: Any) -> Any:
    """Describe what is no plain data, in brief: classes and functions by name."""
    if isinstance(thing, Tensor):
        return thing.tolist()
    if hasattr(thing, "__qualname__"):
        return thing.__name__ if isinstance(thing, type) else thing.__qualname__
    if not hasattr(thing, "__dict__"):
        return repr(thing)
    return {"class": type(thing).__name__} | to_json(dict(sorted(vars(thing).items())), brief=True)


def from_json(value: Any, where: str) -> Any:
    """Rebuild what ``to_json`` described."""
    if isinstance(value, list):
        return [from_json(item, where) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(from_json(item, where) for item in value["tuple"])
    if "array" in value:
        items, dtype = from_json(value["array"], where), np.dtype(value["dtype"])
        return object_array(items) if dtype.kind == "O" else np.array(items, dtype=dtype)
    if "dict" in value:
        return {from_json(k, where): from_json(v, where) for k, v in value["dict"]}
    if "energy" in value:
        terms = [
            _class(term["class"], where).unsized(**from_json(term["settings"], where))
            for term in value["energy"]
        ]
        return reduce(add, terms)
    settings = {key: from_json(item, where) for key, item in value["settings"].items()}
    return _class(value["class"], where)(**settings)


def _name(kind: type, where: str) -> str:
    import spen

    if getattr(spen, kind.__name__, None) is not kind:
        raise InputError(
            f"{where} holds a {kind.__module__}.{kind.__qualname__}, a class that is not spen's "
            "own, so a model file could not rebuild it. Save its weights yourself (state_dict), or "
            "keep the classifier with pickle at your own risk."
        )
    return kind.__name__


def _class(name: Any, where: str) -> Any:
    import spen

    # The public names only: a file cannot name any other code.
    kind = getattr(spen, name, None) if isinstance(name, str) and name in dir(spen) else None
    if not isinstance(kind, type):
        raise CheckpointError(
            f"The model file names a class {name!r} in {where}, which this version of spen does "
            "not have. It was written by another version, or is damaged."
        )
    return kind


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
