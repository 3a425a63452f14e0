"""Threads that run the CPU kernel side by side.

They are our own: OpenMP's do not survive a fork, and numba's other layers do not survive being
called from two threads at once. The kernel lets go of Python's lock, so plain threads will do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_pools: dict[int, ThreadPoolExecutor] = {}


def run_together(work: Callable[[], None], threads: int) -> None:
    """Run the same work in so many threads at once, this one included; return when all have.

    The work must share itself out. Where all threads of the pool are taken by other calls,
    this thread does more of it, rather than wait.

    >>> marks = []
    >>> run_together(lambda: marks.append(1), 1)
    >>> marks
    [1]
    """
    helpers = []
    # While Python shuts down no pool takes work, and this thread does it all.
    with contextlib.suppress(RuntimeError):
        for _ in range(threads - 1):
            helpers.append(_pool(threads - 1).submit(work))
    try:
        work()
    finally:
        # One that has not begun has nothing left to do; an error in one that has is raised.
        for helper in helpers:
            if not helper.cancel():
                helper.result()


def _pool(size: int) -> ThreadPoolExecutor:
    if size not in _pools:
        _pools[size] = ThreadPoolExecutor(size, thread_name_prefix="spen-kernel")
    return _pools[size]


# The threads of the parent do not exist in a forked child; its first call makes new ones.
os.register_at_fork(after_in_child=_pools.clear)
