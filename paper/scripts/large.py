"""More rows than memory: what a streamed fit takes, and what it costs beside rows in memory.

    python paper/scripts/large.py fit [--gib 5] [--epochs 1] [--folder DIR]
    python paper/scripts/large.py ratio [--rows 60000] [--turns 5] [--sparse]

fit: a CSV file of so many GiB is generated (200 numbers and 20 labels a row, which depend on each
other), and `spen fit --stream` trains on it in a process of its own with the default network: rows,
seconds, CPU seconds, the peak of its memory, and its score on rows that it has not seen. ratio:
rows per second of single epochs of the same network and energy on the same rows, from a store and
in memory, in turns in one process, on one thread; CPU seconds, as others may share the machine.
--sparse: rows of 60 numbers in 20,000 columns.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

import spen
from spen.estimators.plan import Shape
from spen.estimators.scaling import Scaling
from spen.training.loop import train_on
from spen.training.rows import TrainingRows
from spen.training.store import RowStore, StoreWriter, copy_stream
from spen.training.streamed import Held, StreamedRows
from spen_paper.__main__ import main

FEATURES, LABELS, AT_ONCE = 200, 20, 4096
LARGEST = 4999
COLUMNS, ENTRIES = 20_000, 60
NUMBERS = np.array([list(f"{v / 1000:+.3f},".encode()) for v in range(-LARGEST, LARGEST + 1)])
"""The text of each number, in thousandths; all are as long."""


def drawn(rows: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield X in thousandths and Y: each label has a direction, and excludes its neighbour."""
    weights = np.random.default_rng(0).normal(size=(FEATURES, LABELS)) / np.sqrt(FEATURES)
    rng = np.random.default_rng(seed)
    for first in range(0, rows, AT_ONCE):
        X = np.rint(1000 * rng.normal(size=(min(AT_ONCE, rows - first), FEATURES)))
        X = X.clip(-LARGEST, LARGEST).astype(np.int64)
        scores = X @ weights / 1000 + 0.5 * rng.normal(size=(len(X), LABELS))
        stronger = scores.reshape(len(X), -1, 2).max(2).repeat(2, axis=1) == scores
        yield X, ((scores > 0.6) & stronger).astype(np.int8)


def write(path: Path, rows: int) -> None:
    """Write drawn rows as CSV."""
    numbers = NUMBERS.astype(np.uint8)
    names = [f"x{i}" for i in range(FEATURES)] + [f"label{i}" for i in range(LABELS)]
    with path.open("wb") as file:
        file.write(",".join(names).encode() + b"\n")
        for X, Y in drawn(rows, seed=1):
            marks = np.full((len(Y), LABELS, 2), ord(","), np.uint8)
            marks[:, :, 0] = Y + ord("0")
            marks[:, -1, 1] = ord("\n")
            cells = numbers[X + LARGEST].reshape(len(X), -1)
            file.write(np.hstack([cells, marks.reshape(len(Y), -1)]).tobytes())


def fit(*, gib: float = 5.0, epochs: int = 1, folder: Path | None = None) -> None:
    """Generate a file, and train on it."""
    rows = round(gib * 2**30 / (7 * FEATURES + 2 * LABELS))
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path, model = Path(name) / "rows.csv", Path(name) / "model.spen"
        write(path, rows)
        print(f"{path.stat().st_size / 2**30:.2f} GiB, {rows:,} rows", flush=True)
        settings = ["--stream", "--labels", f"-{LABELS}", "--epochs", str(epochs)]
        settings += ["--device", "cpu", "--checkpoint", str(Path(name) / "run")]
        command = [sys.executable, "-m", "spen", "fit", str(path), *settings, "--out", str(model)]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cores, unit = len(os.sched_getaffinity(0)), 1 if sys.platform == "darwin" else 1024
        print(
            f"{seconds:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU time on "
            f"{cores} cores; peak memory {used.ru_maxrss * unit / 2**30:.2f} GiB"
        )
        clf: Any = spen.load(model)
        [(X, Y)] = drawn(AT_ONCE, seed=2)
        print(f"F1 of {AT_ONCE:,} new rows: {100 * clf.score(X / 1000, Y):.1f}")


def ratio(*, rows: int = 60_000, turns: int = 5, sparse: bool = False) -> None:
    """Train single epochs on rows in memory and from a store, in turns."""
    torch.set_num_threads(1)
    parts = list(drawn(rows, seed=1))
    X: Any = (np.concatenate([x for x, _ in parts]) / 1000).astype(np.float32)
    Y = np.concatenate([y for _, y in parts])
    if sparse:
        columns = np.random.default_rng(0).integers(0, COLUMNS, (rows, ENTRIES))
        entries = np.abs(X[:, :ENTRIES]).ravel(), columns.ravel(), np.arange(rows + 1) * ENTRIES
        X = csr_array(entries, shape=(rows, COLUMNS))
        X.sum_duplicates()
    # As fits plan it of many rows.
    width = X.shape[1]
    shape = Shape(10**6, width, LABELS, sparse, False, held_given=True, streamed=True)
    plan = spen.SPENClassifier().plan(shape)
    plan = plan.chosen.apply(plan)
    (stage,) = plan.stages
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "rows"
        copy_stream(iter([spen.Split(X, Y)]), StoreWriter(place), lambda count: None)
        with RowStore.open(place) as store:
            model = plan.build(width, spen.UnitBox(LABELS), 0)
            kept = np.array([end - first for first, end in store.spans()])
            scaling = Scaling.of(X)
            streamed = StreamedRows(model, store, scaling.transform, Held(0.0), kept)
            memory = TrainingRows.of(model, (scaling.transform(X), Y), "rows")
            taken: dict[str, list[float]] = {"memory": [], "store": []}
            for _ in range(turns):
                for name, given in (("memory", memory), ("store", streamed)):
                    began = time.process_time()
                    train_on(model, [replace(stage, epochs=1)], given)
                    taken[name].append(time.process_time() - began)
    seconds = {name: statistics.median(each) for name, each in taken.items()}
    print(f"{rows:,} rows of {width:,} columns, {LABELS} labels, layers {plan.chosen.hidden}")
    for name, each in seconds.items():
        print(f"{name:>8}: {rows / each:9,.0f} rows a second")
    print(f"   ratio: {seconds['memory'] / seconds['store']:.2f}")


if __name__ == "__main__":
    main((fit, ratio), "large.py", __doc__)
