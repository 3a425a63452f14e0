"""Files that are whole or not there at all: atomic writes, tensors without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from spen.errors import CheckpointError


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
