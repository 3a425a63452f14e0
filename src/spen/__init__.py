"""Structured Prediction Energy Networks.

An energy, a domain and an inference method are independent choices; everything
else is built from them. Names are loaded on first use, so that ``spen --help``
does not wait for torch; ``__init__.pyi`` beside this file lists them, for people, for
type checkers and for the loading itself.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_PUBLIC = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The module of each public name; a module such as spen.metrics is one of spen itself."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spen' has no attribute {name!r}")
    if _PUBLIC[name] == "spen":
        return importlib.import_module(f"spen.{name}")
    return getattr(importlib.import_module(_PUBLIC[name] or ""), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])
