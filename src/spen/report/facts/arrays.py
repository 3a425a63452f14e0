"""Arrays of numbers in JSON: short, and exact."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from torch import Tensor


def packed(values: Any, kind: str = "<f4") -> str:
    """Return an array's numbers, row after row, as base64 text that a page can read.

    >>> np.frombuffer(base64.b64decode(packed([1.0, 0.5])), "<f4")
    array([1. , 0.5], dtype=float32)
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def rounded(values: Any, digits: int = 4) -> list[Any]:
    """Return numbers for people: so many decimals, as lists.

    >>> rounded(np.array([0.123456]))
    [0.1235]
    """
    return np.round(np.asarray(values, dtype=float), digits).tolist()
