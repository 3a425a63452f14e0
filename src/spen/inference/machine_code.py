"""Loops as machine code, where numba is installed."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any


@functools.cache
def machine_code(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a function of arrays and numbers as machine code, or None without numba.

    The code is kept on disk, beside the source or in the user's cache directory; where neither
    can be written, it is made in each process.

    Args:
        function: loops that numba understands.
    """
    if importlib.util.find_spec("numba") is None:
        return None
    from numba import njit

    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)
