"""Growth with the number of rows, and rows that come one by one."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from spen.bench.effort import Effort
from spen.bench.subject import Subject
from spen.bench.timing import timed
from spen.inference.descent import Descent

QUICK, REPEATS = 1.0, 5
"""A size that takes fewer seconds is timed so often."""


def measure_rows(subject: Subject, effort: Effort) -> dict[str, Any]:
    """Time inference alone, by the default rule, on more and more rows.

    The timed rows are taken over and over again. More than ``effort.chunk`` rows are solved
    chunk after chunk; sizes that would take too long are left out.
    """
    descent, last = subject.descent(), 0.0
    sizes: list[int] = []
    times: list[float] = []
    for n in effort.rows:
        if sizes and last * n / sizes[-1] > effort.longest:
            break
        run = row_call(subject, descent, n, effort.chunk)
        last = timed(run, subject.device)
        if last < QUICK:
            last = statistics.median(timed(run, subject.device) for _ in range(REPEATS))
        sizes.append(n)
        times.append(1e3 * last)
    steps = float(subject.solve(descent).steps.double().mean())
    return {
        "rows": sizes,
        "milliseconds": times,
        "chunk": effort.chunk,
        "steps": steps,
        "ns_per_row_and_step": 1e6 * times[-1] / sizes[-1] / steps,
        "million": million(sizes, times, effort.chunk),
    }


def million(sizes: list[int], times: list[float], chunk: int) -> dict[str, Any]:
    """Return the time of a million rows, and how it is known.

    >>> million([1000, 10_000], [5.0, 40.0], 65_536)
    {'milliseconds': 4000.0, 'how': 'extrapolated from 10,000 rows'}
    """
    if sizes[-1] < 1_000_000:
        how = f"extrapolated from {sizes[-1]:,} rows"
    elif sizes[-1] > chunk:
        how = f"measured in chunks of {chunk:,} rows"
    else:
        how = "measured at once"
    return {"milliseconds": times[-1] * 1_000_000 / sizes[-1], "how": how}


def measure_single_rows(subject: Subject, effort: Effort) -> dict[str, Any]:
    """Time ``SPENClassifier.predict`` of one row after the other, dense and sparse."""
    classifier = subject.default_classifier
    kinds = single_rows(subject, effort.single_rows)
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with warnings.catch_warnings():
        # What a warning says is in the table of rules; here only the time counts.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for i in range(effort.single_rows):
            for kind, rows in kinds.items():
                classifier.predict(rows[i])
                seconds = timed(lambda row=rows[i]: classifier.predict(row), subject.device)
                found[kind].append(1e3 * seconds)
    return {
        "rows": effort.single_rows,
        "milliseconds": {kind: statistics.median(times) for kind, times in found.items()},
    }


def row_call(subject: Subject, descent: Descent, n: int, chunk: int) -> Callable[[], None]:
    """Return a function that solves n rows, ``chunk`` at a time at most; it has run once."""
    count = math.ceil(n / chunk)
    problem, start = subject.bound
    rows = torch.arange(math.ceil(n / count), device=subject.device) % len(subject.timed)
    problem, start = problem.select(rows), None if start is None else start[rows]

    @torch.no_grad()
    def run(times: int = count) -> None:
        for _ in range(times):
            descent.solve(problem, subject.model.domain, start)

    run(1)
    return run


def single_rows(subject: Subject, count: int) -> dict[str, list[Any]]:
    """Return some of the timed rows, each by itself, as CSR matrices and as arrays."""
    picked = np.linspace(0, len(subject.timed) - 1, count).astype(int)
    sparse_rows = [sparse.csr_matrix(subject.timed.X[[i]]) for i in picked]
    return {"csr": sparse_rows, "ndarray": [row.toarray() for row in sparse_rows]}
