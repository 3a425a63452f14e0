"""Machine code that is made once and kept on disk, where numba is installed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spen.domains import DUAL_LIMIT


@functools.cache
def trouble_with_numba() -> str | None:
    """Say why numba cannot be used; None where it can."""
    if find_spec("numba") is None:
        return "numba is not installed; pip install 'spen[fast]' brings it"
    try:
        import_module("numba")
    except ImportError as problem:
        # Such as a numpy that is newer than numba knows.
        return f"numba cannot be imported ({problem})"
    return None


@functools.cache
def machine_code(
    function: Callable[..., Any], example: Callable[[], tuple[Any, ...]]
) -> Callable[..., Any] | None:
    """Return a function as machine code, or None where numba cannot be used.

    Args:
        function: loops that numba understands.
        example: makes arguments to call it with, which tell the types.
    """
    return None if trouble_with_numba() else compile_kernel(function, *example())


def compile_kernel(function: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """Compile a kernel for arguments like the example's, or find it on disk.

    Numba keeps the code beside the source or, where that cannot be written, in the user's
    cache directory. Where neither can be, or the disk is full, it is compiled in each process.

    Args:
        function: the kernel.
        example: arguments to call it with, which tell the types.
    """
    from numba import njit

    def compiled(cache: bool) -> Callable[..., Any]:
        kernel = njit(nogil=True, error_model="numpy", cache=cache)(function)
        kernel(*example)
        return kernel

    try:
        return compiled(cache=True)
    except (RuntimeError, OSError):
        # Numba's words for "there is no place for it".
        return compiled(cache=False)


def source_digest() -> str:
    """Return a digest of what a kernel is compiled from, so that old code is not found for it.

    Numba itself looks at the one file in which a kernel stands, not at those it imports.
    """
    digest = hashlib.sha256(str(DUAL_LIMIT).encode())
    here = Path(__file__).parent
    for pattern in ("lane*.py", "packing.py", "interface.py"):
        for path in sorted(here.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
