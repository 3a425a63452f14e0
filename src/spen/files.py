"""Files that are whole or not there at all: atomic writes, tensors without pickle."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from spen.batch.arrays import object_array
from spen.energies.unsized import UnsizedEnergy, UnsizedTerm
from spen.errors import CheckpointError, InputError


@contextmanager
def open_atomically(path: Path | str) -> Iterator[BinaryIO]:
    """Open a file so that a reader sees the old one or the new one, never a part.

    It takes its place when the block ends; if the block fails, the old one stays.
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
    # One name per file: what a killed process left behind is overwritten by the next.
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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


_PLAIN = (str, int, float, bool, type(None))


def to_json(value: Any, where: str) -> Any:
    """Describe a setting, or refuse a class that cannot be rebuilt, naming it.

    >>> import spen
    >>> to_json(spen.Hinge(margin=2.0), "objective")["class"]
    'Hinge'
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return {"array": to_json(value.tolist(), where), "dtype": value.dtype.str}
    if isinstance(value, list | tuple):
        items = [to_json(item, where) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        return {"dict": [[to_json(k, where), to_json(v, where)] for k, v in value.items()]}
    if isinstance(value, UnsizedEnergy):
        return {
            "energy": [
                {"class": _name(term.kind, where), "settings": to_json(term.settings, where)}
                for term in value.terms
            ]
        }
    if is_dataclass(value) and not isinstance(value, type):
        settings = {f.name: to_json(getattr(value, f.name), where) for f in fields(value)}
        return {"class": _name(type(value), where), "settings": settings}
    raise InputError(
        f"{where} holds a {type(value).__module__}.{type(value).__qualname__}, which a model file "
        "cannot hold: it could not be rebuilt without running code from the file. Use a name or "
        "one of spen's own classes, or keep the classifier with pickle at your own risk."
    )


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
        return UnsizedEnergy(
            tuple(
                UnsizedTerm(_class(term["class"], where), from_json(term["settings"], where))
                for term in value["energy"]
            )
        )
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
