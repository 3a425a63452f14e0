"""Training runs that several fits have in common, made once."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class SharedRuns:
    """What was trained before, by what decides it.

    Attributes:
        saved: seconds that reused runs took when they were made.

    >>> runs = SharedRuns()
    >>> runs.get("same", lambda: "trained"), runs.get("same", lambda: "again")
    ('trained', 'trained')
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Any, float]] = {}
        self.saved = 0.0

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made for this key, or make it."""
        if key in self._made:
            result, seconds = self._made[key]
            self.saved += seconds
            return result
        began = time.perf_counter()
        result = make()
        self._made[key] = (result, time.perf_counter() - began)
        return result


SHARED: ContextVar[SharedRuns | None] = ContextVar("spen_shared_runs", default=None)


@contextmanager
def sharing_runs() -> Iterator[SharedRuns]:
    """Let all fits inside share the label-wise models that they have in common.

    A feed-forward network, and the energies that are cross-fitted to its scores, train the same
    label-wise models: with the same settings, rows and seed. Models are kept until the end.
    """
    runs = SharedRuns()
    token = SHARED.set(runs)
    try:
        yield runs
    finally:
        SHARED.reset(token)
