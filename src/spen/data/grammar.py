"""A quick look at a block of text: where its separators are and whether they fit.

The readers try this first. Whatever it does not know (a comment, a quote, a mistake) makes
it give up, and the block is read again line by line by code that can say what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from spen.data.digits import numbers

Between = Literal["nothing", "token", "either"]
_CODES: dict[str, int] = {"nothing": 1, "token": 2, "either": 3}


@dataclass(frozen=True)
class Marks:
    """The separators of a block in order.

    Attributes:
        data: (bytes,) the block as uint8.
        at: (marks,) the position of each separator.
        kind: (marks,) which separator, as a number of the grammar's.
        length: (marks,) the length of the token that ends at each separator; it may be 0.
    """

    data: np.ndarray
    at: np.ndarray
    kind: np.ndarray
    length: np.ndarray

    def tokens(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (data, start, stop) of the tokens that end at some of the separators."""
        stop = self.at[which]
        return self.data, stop - self.length[which], stop


class Grammar:
    """Which separator may follow which, and what may stand between them.

    Args:
        separators: the separators; their order gives them their numbers. The last is the
            end of line, after which the text starts.
        rules: from (separator, next separator) to what stands between them. A pair that is
            not there is a mistake.
    """

    def __init__(self, separators: bytes, rules: dict[bytes, Between]) -> None:
        self._newline = len(separators) - 1
        self._is_mark = bytes(int(byte in separators) for byte in range(256))
        self._kind = np.zeros(256, np.uint8)
        self._kind[list(separators)] = np.arange(len(separators))
        self._rule = np.zeros((len(separators), len(separators)), np.uint8)
        for pair, between in rules.items():
            self._rule[self._kind[pair[0]], self._kind[pair[1]]] = _CODES[between]

    def scan(self, text: bytes) -> Marks | None:
        """Return the separators of a text that ends with a line end; None if it breaks a rule."""
        data = np.frombuffer(text, np.uint8)
        at = np.flatnonzero(np.frombuffer(text.translate(self._is_mark), np.bool_))
        kind = self._kind[data[at]]
        length = np.diff(at, prepend=-1) - 1
        before = np.empty_like(kind)
        before[0], before[1:] = self._newline, kind[:-1]
        rule = self._rule[before, kind]
        # A rule is two bits: 1 allows that nothing stands between, 2 allows a token.
        if not (rule & np.where(length > 0, np.uint8(2), np.uint8(1))).all():
            return None
        return Marks(data, at, kind, length)


def tidy(block: bytes) -> bytes:
    """Return the block with one kind of line end and one kind of blank."""
    for other, usual in ((b"\r\n", b"\n"), (b"\t", b" ")):
        if other in block:
            block = block.replace(other, usual)
    return block


def number_table(block: bytes, delimiter: bytes, columns: int) -> np.ndarray | None:
    """Return the (rows, columns) numbers of a block, or None unless it is just that.

    >>> number_table(b"1,2\\n.5,-3\\n", b",", 2).tolist()
    [[1.0, 2.0], [0.5, -3.0]]
    """
    text = block.replace(b"\r\n", b"\n") if b"\r\n" in block else block
    if b" " in text:
        text = text.replace(delimiter + b" ", delimiter)
    while b"\n\n" in text:
        text = text.replace(b"\n\n", b"\n")
    text = text.lstrip(b"\n")
    if not text:
        return np.zeros((0, columns))
    is_mark = bytearray(256)
    is_mark[ord(delimiter)] = is_mark[ord("\n")] = 1
    data = np.frombuffer(text, np.uint8)
    at = np.flatnonzero(np.frombuffer(text.translate(bytes(is_mark)), np.bool_))
    if len(at) % columns:
        return None
    ends = (data[at] == ord("\n")).reshape(-1, columns)
    if ends[:, :-1].any() or not ends[:, -1].all():
        return None
    start = np.concatenate(([0], at[:-1] + 1))
    if (at == start).any():
        return None
    values = numbers(data, start, at)
    return None if values is None else values.reshape(-1, columns)
