"""Structured Prediction Energy Networks.

An energy, a domain and an inference method are independent choices; everything
else is built from them. Names are loaded on first use, so that ``spen --help``
does not wait for torch; ``__init__.pyi`` beside this file lists them, for people, for
type checkers and for the loading itself.
"""

import ast
import importlib
import warnings
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_PUBLIC = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The module of each public name; a module such as spen.metrics is one of spen itself."""


_RENAMED: dict[str, tuple[str, str]] = {}
"""Old names that still work: the new one, and the version that has the old one no more."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        new, gone = _RENAMED[name]
        words = f"spen.{name} is now spen.{new}, and goes in spen {gone}. Change the name."
        warnings.warn(words, FutureWarning, stacklevel=2)
        return __getattr__(new)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'spen' has no attribute {name!r}")
    if _PUBLIC[name] == "spen":
        return importlib.import_module(f"spen.{name}")
    return getattr(importlib.import_module(_PUBLIC[name] or ""), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])
