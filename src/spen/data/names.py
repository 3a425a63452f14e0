"""Names for columns that have none in their file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class Numbered(Sequence[str]):
    """The names ``x0``, ``x1``, … (or from another number on), made when asked for.

    A text file may declare billions of columns in its first line, and that must not cost
    memory; in all else this is the tuple of those names.

    >>> names = Numbered("x", 3)
    >>> names[-1], list(names), names == ("x0", "x1", "x2")
    ('x2', ['x0', 'x1', 'x2'], True)
    """

    def __init__(self, prefix: str, count: int, start: int = 0) -> None:
        self.prefix = prefix
        self._range = range(start, start + count)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(f"{self.prefix}{i}" for i in self._range[index])
        return f"{self.prefix}{self._range[index]}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered):
            mine, theirs = ((n.prefix, n._range) for n in (self, other))
            return mine == theirs or len(self) == len(other) == 0
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    # Equal to a tuple, so it would have to hash like one, which means making all names.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Numbered({self.prefix!r}, {len(self)}, {self._range.start})"
