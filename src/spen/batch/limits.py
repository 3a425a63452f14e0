"""Limits on memory: what a small file cannot talk its way past, and how much is done at a time."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields

from spen.errors import InputError

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass
class Limits:
    """Bytes; ``spen.limits`` is the one that counts.

    Each can be set in Python, or in the environment as SPEN_LIMIT_TABLE=8GiB and the like.

    Attributes:
        table: the most that the matrices of one file of rows may take.
        growth: the most that reading a file of rows may take beyond ten times the file.
        model: the most that a model file's tensors may take.
        chunk: the most that one matrix of soft labels takes while rows are predicted: so many
            rows are predicted at a time, but 32 at least.

    >>> from spen.batch.limits import Limits
    >>> Limits(table=2**20).check(2**21, "table", "rows.npz holds matrices")
    Traceback (most recent call last):
    ...
    spen.errors.InputError: rows.npz holds matrices of 2 MiB, and 1 MiB is the most that is
    allowed. If that is right, set spen.limits.table, or SPEN_LIMIT_TABLE=2MiB. Or fit without
    loading it: spen.open_rows, spen fit --stream.
    """

    table: int = 2**33
    growth: int = 2**27
    model: int = 2**34
    chunk: int = 2**26

    @classmethod
    def of_environment(cls) -> Limits:
        """Return the limits that the environment sets, the others as they are by default."""
        names = {field.name: f"SPEN_LIMIT_{field.name.upper()}" for field in fields(cls)}
        return cls(
            **{name: _bytes(os.environ[v], v) for name, v in names.items() if os.environ.get(v)}
        )

    def check(self, size: int, name: str, what: str, beside: int = 0) -> None:
        """Raise if a size is above the limit of this name; ``what`` begins the sentence.

        So many bytes ``beside`` the limit are allowed in any case.
        """
        most = getattr(self, name) + beside
        if size > most:
            instead = " Or fit without loading it: spen.open_rows, spen fit --stream."
            raise InputError(
                f"{what} of {in_words(size)}, and {in_words(most)} is the most that is allowed. "
                f"If that is right, set spen.limits.{name}, or SPEN_LIMIT_{name.upper()}="
                f"{in_words(size - beside).replace(' ', '')}.{instead if name == 'table' else ''}"
            )

    def rows_at_once(self, labels: int) -> int:
        """Return how many rows of so many labels are predicted at a time.

        It is a multiple of what vector units take at a time, and at least once that: they round the
        numbers that are left over at the end in another way, and where rows are cut must not show.

        >>> Limits().rows_at_once(100_000)
        160
        """
        rows = min(MOST_ROWS, self.chunk // (4 * max(labels, 1)))
        return max(VECTOR, rows - rows % VECTOR)


VECTOR = 32
"""Numbers that the widest vector units take at a time."""

MOST_ROWS = 4096
"""Rows that are predicted at a time, however few labels they have."""


def in_words(size: int) -> str:
    """Return a number of bytes, rounded up, in a unit that suits it.

    >>> in_words(2**30 + 1), in_words(100)
    ('1025 MiB', '1 KiB')
    """
    for unit in ("TiB", "GiB", "MiB"):
        if size >= _UNITS[unit.upper()] and size % _UNITS[unit.upper()] == 0:
            return f"{size // _UNITS[unit.upper()]} {unit}"
    unit = "MiB" if size >= 2**20 else "KiB"
    return f"{-(-size // _UNITS[unit.upper()])} {unit}"


def _bytes(text: str, name: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]IB)?", text.strip().upper())
    if not match or not int(match[1]):
        raise InputError(f"{name} must be a size such as 500MiB or 8GiB; received {text!r}.")
    return int(match[1]) * _UNITS[match[2] or ""]


limits = Limits.of_environment()
