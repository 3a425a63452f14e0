"""Which format a file is in, by its first lines."""

from __future__ import annotations

import re
from pathlib import Path

from spen.data.lines import open_file, text_start
from spen.data.table import DELIMITERS
from spen.data.text import SIZES
from spen.errors import InputError

FORMATS = ("mulan", "meka", "xmc", "libsvm", "csv", "npz")
_LOOK = 1 << 16
_PAIRS = re.compile(
    r"([0-9]+(,[0-9]+)*)?([ \t]+|^)[0-9]+:[^ \t:]+([ \t]+[0-9]+:[^ \t:]+)*[ \t]*(#.*)?"
)


def looks_like(path: Path) -> str | None:
    """Return "arff", "xmc", "libsvm", "csv" or "npz", or None if it cannot be told."""
    with open_file(path) as file:
        start = text_start(path, file)
        file.seek(0)
        content = file.read(_LOOK)[start:]
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "npz"
    lines = [line.rstrip("\r") for line in content.decode("latin-1").split("\n")]
    if len(content) == _LOOK - start and len(lines) > 1:
        lines.pop()
    lines = [line for line in lines if line.strip()]
    first = next((line.strip() for line in lines if not line.lstrip().startswith("%")), "")
    if first.startswith("@"):
        return "arff"
    if lines and SIZES.fullmatch(lines[0]):
        return "xmc"
    # A row may have no features; the first that has some tells.
    rows = [line for line in lines[:100] if not line.startswith("#")]
    telling = next((line for line in rows if ":" in line), "")
    if telling and _PAIRS.match(telling[:1000]):
        return "libsvm"
    header = lines[0] if lines else ""
    is_table = any(delimiter in header for delimiter in DELIMITERS)
    return "csv" if is_table and _as_text(header).replace("\t", " ").isprintable() else None


def _as_text(line: str) -> str:
    """Return a line that was read as Latin-1 as the UTF-8 that it mostly is."""
    try:
        return line.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return line


def recognise(path: Path) -> str:
    """Return the format of a file, or raise an error that names the choices.

    ARFF counts as "mulan" here; the reader tells whether it is MEKA's.
    """
    found = looks_like(path)
    if found is not None:
        return "mulan" if found == "arff" else found
    if not path.stat().st_size:
        raise InputError(f"{path} is empty.")
    with open_file(path) as file:
        start = file.read(2)
    if start == b"\x1f\x8b":
        raise InputError(f"{path} is compressed. Unpack it first, with gunzip.")
    raise InputError(
        f"{path} is in no format that can be told from its first lines. Name it with format=: "
        f"{', '.join(FORMATS)}."
    )
