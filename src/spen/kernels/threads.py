"""Threads: how many a piece of work gets, how they wait for one another, and how they end.

Torch shares every operation out among the threads of OpenMP, which meet after each one, and wait
awake ("spin") for some milliseconds before they sleep. On a quiet machine nothing is quicker.
Beside a busy process it is ruinous: where one thread has lost its core the others burn theirs
until it is back, a hundred times in a training step. So small work stays in its caller's thread,
and threads of large work sleep rather than spin while they have to wait for cores.

How many threads some work gets follows from its size alone, never from how busy a machine is. So
results do not depend on that either.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

SMALL = 2**25
"""Work that one thread does alone: rows × weights of a prediction, or of a training step, which
counts OPTIMISER_ROWS more. Milliseconds of such a step on two cores, by how threads wait, and in
brackets beside a busy process (two layers of 512 units; the largest is that of Bibtex, with its
energy):

    work         one thread   two, spinning   two, sleeping
     22 · 10⁶     1.2          1.1 (106)       2.0
     41 · 10⁶     2.3          2.0 (92)        3.0
     62 · 10⁶     3.8 (4.4)    2.8 (9.3)       4.5 (5.1)
    246 · 10⁶    18 (18)      13 (48)         26 (27)
"""

OPTIMISER_ROWS = 64
"""An optimiser goes through all weights once a step, which takes as long as so many rows do."""

LOOK_EVERY, STARVED = 0.2, 0.2
"""Seconds between looks at how long threads have waited for a core, and the share of that time
which is too long. On a quiet machine it is below 0.04, beside a busy process above 0.3."""

LONGEST_END = 10.0
"""Seconds, at most, that the end of Python waits for a call by a daemon thread, and the thread for
that end."""


class _Here(threading.local):
    """What a thread knows of itself."""

    usual = 1  # threads that its caller has set, while it works alone
    in_call = False  # it is a daemon, in a call of ours


_here = _Here()


# How many -----------------------------------------------------------------------------------


def _find_openmp() -> Any:
    """Return the library through which torch's own OpenMP is reached, or None."""
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    try:
        library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / name))
    except OSError:
        return None
    return library if hasattr(library, "omp_set_num_threads") else None


_openmp = _find_openmp()


@contextlib.contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Do what is inside in this thread alone where it is small, else in as many as torch has.

    Args:
        work: rows × weights, of one batch.

    >>> before = torch.get_num_threads()
    >>> with threads_for(work=1e3):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    usual = torch.get_num_threads()
    if usual == 1:
        yield
    elif work >= SMALL:
        with _crowd.kept_away(usual):
            yield
    else:
        give_back = _work_alone(usual)
        _here.usual = usual
        try:
            yield
        finally:
            # Else this is a forked child, or somebody has set a number of their own.
            if _here.usual == usual and torch.get_num_threads() == 1:
                give_back()
            del _here.usual


def _work_alone(usual: int) -> Callable[[], None]:
    """Let operations that this thread calls run in it alone; what is returned undoes that."""
    if _openmp is None:
        torch.set_num_threads(1)
        return functools.partial(torch.set_num_threads, usual)
    # torch.set_num_threads also says what threads begin with that meet torch for the first time
    # meanwhile, and they would keep that.
    _openmp.omp_set_num_threads(1)
    set_mkl = getattr(_openmp, "MKL_Set_Num_Threads_Local", lambda count: None)
    before = set_mkl(1)

    def give_back() -> None:
        _openmp.omp_set_num_threads(usual)
        set_mkl(before)

    return give_back


def threads_allowed() -> int:
    """Return how many threads the caller allows, also where ``threads_for`` has set one."""
    return max(torch.get_num_threads(), _here.usual)


# How they wait ------------------------------------------------------------------------------


class _Crowd:
    """Lets threads of large work sleep rather than spin for as long as they wait for cores.

    GNU OpenMP's threads spin unless there are more of them than cores, and so there are then: a
    thread that looks out for it takes some more, which do nothing.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.working = 0
        self.last_work = 0.0
        self.looking = False
        # LLVM's OpenMP answers to GNU's names too, and waits in its own way.
        is_gnu = hasattr(_openmp, "GOMP_parallel") and not hasattr(_openmp, "kmp_get_blocktime")
        # Whoever has said how to wait knows better.
        self.helps = is_gnu and not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}

    @contextlib.contextmanager
    def kept_away(self, threads: int) -> Iterator[None]:
        """Look out while what is inside works in so many threads, and a little longer."""
        if not self.helps:
            yield
            return
        with self.lock:
            self.working += 1
            if not self.looking:
                self._look_out(threads)
        try:
            yield
        finally:
            with self.lock:
                self.working -= 1
                self.last_work = time.monotonic()

    def _look_out(self, threads: int) -> None:
        self.looking = True
        name = "spen-lookout"
        threading.Thread(target=self._look, args=(threads,), name=name, daemon=True).start()

    def _look(self, threads: int) -> None:
        crowded = False
        while True:
            began, waited = time.monotonic(), seconds_without_a_core()
            time.sleep(LOOK_EVERY)
            now = time.monotonic()
            starved = seconds_without_a_core() - waited > STARVED * (now - began)
            with self.lock:
                needed = self.working > 0 or now - self.last_work < 1
                if not needed or (crowded and not starved):
                    # The threads that it took end with this one.
                    self.looking = False
                    if needed:
                        self._look_out(threads)
                    return
            if starved and not crowded:
                crowded = True
                cores = len(os.sched_getaffinity(0))
                # What they do is to free nothing.
                _openmp.GOMP_parallel(_openmp.free, None, max(2, cores - threads + 2), 0)


def seconds_without_a_core() -> float:
    """Return how long all threads of this process have waited for a core; 0 if nobody knows.

    >>> seconds_without_a_core() >= 0
    True
    """
    total = 0
    # Only Linux counts it; and a thread may end while it is asked.
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_bytes().split()[1])
    return total / 1e9


_crowd = _Crowd()


# How they end -------------------------------------------------------------------------------

# When Python ends, it stops daemon threads wherever they ask for its lock. Torch asks for it in the
# midst of C++, where being stopped aborts the process: in every operation, and in letting go of a
# tensor. So the end waits until calls are over, and their threads then stay where they are.


class _End:
    """Whether Python ends, and how many daemon threads are in a call of ours."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.calls = 0
        self.is_near = False


_end = _End()

P = ParamSpec("P")
R = TypeVar("R")


def ends_with_python(function: Callable[P, R]) -> Callable[P, R]:
    """Let the end of Python wait for calls by daemon threads, and let none begin or return then.

    >>> ends_with_python(abs)(-1)
    1
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # For threads that are no daemons Python itself waits.
        if _here.in_call or not threading.current_thread().daemon:
            return function(*args, **kwargs)
        with _end.changed:
            _end.calls += 1
        _here.in_call = True
        try:
            stop_if_python_ends()
            return function(*args, **kwargs)
        finally:
            _here.in_call = False
            with _end.changed:
                _end.calls -= 1
                _end.changed.notify_all()
            if _end.is_near:
                # It will hardly wake again. If it does, somebody waits for this thread to end.
                time.sleep(LONGEST_END)
                raise SystemExit("Python ends.")

    return call


def stop_if_python_ends() -> None:
    """Leave a call that ``ends_with_python``; what takes long asks for it at every step."""
    if _end.is_near and _here.in_call:
        raise SystemExit("Python ends.")


@atexit.register
def _wait_for_calls() -> None:
    with _end.changed:
        _end.is_near = True
        _end.changed.wait_for(lambda: _end.calls <= 0, LONGEST_END)


# Threads of our own -------------------------------------------------------------------------

# OpenMP's do not survive a fork, and numba's other layers do not survive being called from two
# threads at once. Kernels let go of Python's lock, so plain threads will do.

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
        # Of two that are made at once one stays, and the other never has a thread.
        _pools.setdefault(size, ThreadPoolExecutor(size, thread_name_prefix="spen-kernel"))
    return _pools[size]


def _start_over_in_a_forked_child() -> None:
    # The threads of the parent do not exist here; the first call makes new ones.
    global _crowd, _end
    _pools.clear()
    _crowd, _end = _Crowd(), _End()
    _here.usual = 1
    # Nor do GNU OpenMP's, and torch, where it waits for them, waits for ever.
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_start_over_in_a_forked_child)
