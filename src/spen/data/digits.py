"""From digits in bytes to numbers, many at a time."""

from __future__ import annotations

import re

import numpy as np

LARGEST_COLUMN = 2**31 - 2
"""The largest column number: sparse matrices count columns in 32 bits."""

LARGEST_VALUE = float(np.finfo(np.float32).max)

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 400
# Up to 2**53 a float holds every whole number, and up to 10**22 every power of ten: the
# quotient of two exact numbers is rounded once, as float() does.
_EXACT = 2**53
_POWERS = 10.0 ** np.arange(23)
_LONGEST_QUICK = 18


def number(text: str) -> float | None:
    """Return the number that text spells, or None. Strict: no nan, no inf, no ``1_000``.

    >>> number("-1.5e2"), number("1_000"), number("nan")
    (-150.0, None, None)
    """
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return float(text)


def whole_numbers(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray | None:
    """Return what the tokens ``data[start:stop]`` spell, or None unless all are just digits.

    Args:
        data: (bytes,) the text as uint8.
        start, stop: (tokens,) where each token begins and ends; none is empty.

    >>> text = np.frombuffer(b"7 120", np.uint8)
    >>> whole_numbers(text, np.array([0, 2]), np.array([1, 5])).tolist()
    [7, 120]
    """
    length = stop - start
    if not length.size:
        return np.zeros(0, np.int64)
    if length.max() > 10:
        return None
    value = np.zeros(len(start), np.int64)
    for place, some in _places(length):
        digit = data[start[some] + place] - np.uint8(48)
        if digit.size and digit.max() > 9:
            return None
        value[some] = 10 * value[some] + digit
    return value


def numbers(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray | None:
    """Return what the tokens spell, each rounded as ``float`` rounds it.

    None unless all are numbers that single precision can hold. Arguments as above.

    >>> text = np.frombuffer(b"-.5 1e3", np.uint8)
    >>> numbers(text, np.array([0, 4]), np.array([3, 7])).tolist()
    [-0.5, 1000.0]
    """
    length = stop - start
    if not length.size:
        return np.zeros(0)
    if length.max() == 1:
        digit = data[start] - np.uint8(48)
        return None if digit.max() > 9 else digit.astype(np.float64)
    first = data[start]
    signed = (first == ord("-")) | (first == ord("+"))
    start, length = start + signed, length - signed
    hard = (length < 1) | (length > _LONGEST_QUICK)
    length[hard] = 0
    mantissa = np.zeros(len(start), np.int64)
    digits = np.zeros(len(start), np.int64)
    decimals = np.zeros(len(start), np.int64)
    dotted = np.zeros(len(start), bool)
    for place, some in _places(length):
        byte = data[start[some] + place]
        digit = byte - np.uint8(48)
        is_digit = digit <= 9
        is_dot = (byte == ord(".")) & ~dotted[some]
        hard[some] |= ~(is_digit | is_dot)
        mantissa[some] = np.where(is_digit, 10 * mantissa[some] + digit, mantissa[some])
        digits[some] += is_digit
        decimals[some] += is_digit & dotted[some]
        dotted[some] |= is_dot
    hard |= (digits == 0) | (mantissa > _EXACT)
    value = mantissa / _POWERS[decimals]
    np.negative(value, out=value, where=first == ord("-"))
    for i in np.flatnonzero(hard):
        begin = start[i] - signed[i]
        exact = number(data[begin : stop[i]].tobytes().decode("latin-1"))
        if exact is None:
            return None
        value[i] = exact
    return None if np.abs(value).max() > LARGEST_VALUE else value


def _places(length: np.ndarray):
    """Yield (place, the tokens that reach so far), for each place in the longest token."""
    some: np.ndarray | slice = slice(None)
    for place in range(length.max()):
        if place >= length.min():
            some = np.flatnonzero(length > place)
        yield place, some
