"""Machine code that is made once and kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spen.domains import DUAL_LIMIT


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
