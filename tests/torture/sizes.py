"""Many labels: what a fit and its predictions take in memory and time, with the smallest settings.

Each is measured in a process of its own, because a process knows no more than its highest peak.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

ROWS, FEATURES, LABELS = 1000, 5000, 100_000
GIGABYTES, MINUTES, CORES = 3, 5, 2


def figures(scale: float) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the peaks and the time of a fit, and what each prediction needs beside its answer.

    Args:
        scale: of the number of labels, and of the rows that are fitted.
    """
    labels, fitted = round(LABELS * scale), round(ROWS * scale)
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model.spen")
        fit = _measure("fit", model, labels, fitted)
        what = f"fit of {labels:,} labels × {fitted:,} rows, "
        peak, minutes = fit["peak"] / 1e9, fit["seconds"] / 60
        yield what + "peak", f"{GIGABYTES} GB", f"{peak:.2f} GB", peak <= GIGABYTES
        if scale == 1:  # a test has no clock
            found = f"{minutes:.1f} minutes, {fit['cpu'] / 60:.1f} of one core"
            yield f"{what}on {CORES} cores", f"{MINUTES} minutes", found, minutes <= MINUTES
        # The limit shrinks with the rows × labels that there are, and so does what is measured.
        chunk = round(2**26 * scale)
        for name, found in _measure("predict", model, labels, ROWS, chunk).items():
            most = 16 * chunk + found["answer"] + 2**26
            yield (
                f"{name} of {labels:,} labels × {ROWS:,} rows, beside the model",
                f"{most / 1e6:.0f} MB",
                f"{found['growth'] / 1e6:.0f} MB, {found['seconds']:.0f} s",
                found["growth"] <= most,
            )


def _measure(*arguments: Any) -> Any:
    command = [sys.executable, __file__, *map(str, arguments)]
    # As many threads as the goal has cores, whatever the machine has.
    environment = {"OMP_NUM_THREADS": str(CORES)} | os.environ
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


# In the process that is measured ------------------------------------------------------------


def _rows(rows: int, labels: int) -> tuple[Any, Any]:
    """50 features and 5 labels a row."""
    rng = np.random.default_rng(0)

    def some(columns: int, each: int) -> Any:
        picked = [np.sort(rng.choice(columns, each, replace=False)) for _ in range(rows)]
        parts = np.ones(rows * each), np.concatenate(picked), np.arange(rows + 1) * each
        return sparse.csr_array(parts, shape=(rows, columns))

    return some(FEATURES, 50), some(labels, 5)


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _fit(model: str, labels: int, rows: int) -> dict[str, float]:
    import spen

    settings: dict[str, Any] = {"hidden": (16,), "dropout": 0.0, "epochs": 1, "batch_size": 16}
    X, Y = _rows(rows, labels)
    began = time.perf_counter()
    clf = spen.SPENClassifier(**settings, folds=1, random_state=0, device="cpu").fit(X, Y)
    seconds = time.perf_counter() - began
    clf.save(model)
    return {"seconds": seconds, "cpu": time.process_time(), "peak": _peak()}


def _predict(model: str, labels: int, rows: int, chunk: int) -> dict[str, dict[str, float]]:
    import spen

    spen.limits.chunk = chunk
    clf, (X, Y) = spen.load(model), _rows(rows, labels)
    clf.predict_proba(X[:1])  # compiles
    clf.diagnose(X[:1], Y[:1])
    few = min(rows, 2 * spen.limits.rows_at_once(labels))
    # What gives back a matrix comes last, for the peak is never lowered.
    asked: dict[str, Callable[[], Any]] = {
        "predict(sparse=True)": lambda: clf.predict(X, sparse=True).data,
        "predict_labels": lambda: clf.predict_labels(X),
        "energy": lambda: clf.energy(X, Y),
        "diagnose": lambda: clf.diagnose(X[:few], Y[:few]).steps,
        "predict_proba": lambda: clf.predict_proba(X),
        "decision_function": lambda: clf.decision_function(X),
    }
    found = {}
    for name, ask in asked.items():
        before, began = _peak(), time.perf_counter()
        size = getattr(ask(), "nbytes", 0)
        growth = {"growth": _peak() - before, "answer": size}
        found[name] = {"seconds": time.perf_counter() - began, **growth}
    return found


if __name__ == "__main__":
    run = {"fit": _fit, "predict": _predict}[sys.argv[1]]
    print(json.dumps(run(sys.argv[2], *map(int, sys.argv[3:]))))
