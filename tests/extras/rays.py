"""Batch prediction by a local Ray with a worker killed in the middle, and what came of it.

    python tests/extras/rays.py [ROWS] [CORES]

Rows with numbers of their own are written as Parquet, predicted by ``spen predict --engine ray``'s
function, and one worker is killed by SIGKILL when the first part of the answer has been written.
Printed: whether each row came back exactly once, in order and with the labels that ``predict``
gives, and the most memory that all of Ray's processes had together (proportional set size, the
shared object store included), for a quarter of the rows and for all of them.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import spen

NAME = b"ray::MapWorker(MapBatches(Worker"
"""How the processes of our workers call themselves."""

FEATURES, PART, STORE = 64, 25_000, 256 * 2**20


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        rows: how many came back.
        once: whether each did so exactly once.
        ordered: whether they came in order.
        right: whether labels are those of ``predict``.
        killed: the processes that were killed.
        peak: bytes.
        seconds: from the first row to the last.
    """

    rows: int
    once: bool
    ordered: bool
    right: bool
    killed: list[int]
    peak: int
    seconds: float


def a_model() -> Any:
    """Return a small classifier with named features and labels."""
    data = spen.exclusive_blocks(n_train=300, n_test=2)
    clf = spen.SPENClassifier(hidden=(8,), epochs=10, random_state=0)
    names = [f"x{i}" for i in range(FEATURES)]
    return clf.fit(data.train.X, data.train.Y, label_names=data.label_names, feature_names=names)


def write_rows(folder: Path, rows: int) -> None:
    """Write Parquet files of drawn rows, each with its number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for first in range(0, rows, PART):
        numbers = np.arange(first, min(first + PART, rows))
        X = rows_of(numbers)
        columns = {"number": numbers} | {f"x{i}": X[:, i] for i in range(FEATURES)}
        pq.write_table(pa.table(columns), folder / f"{first:09}.parquet")


def rows_of(numbers: np.ndarray) -> np.ndarray:
    """Return the rows with these numbers."""
    draw = np.random.default_rng(int(numbers[0]))
    return draw.random((len(numbers), FEATURES), np.float32)


def predict_and_kill(folder: Path, clf: Any, rows: int, kills: int = 1) -> Outcome:
    """Predict drawn rows by Ray, kill workers meanwhile, and look at what comes out.

    Ray must be running, started by this process.
    """
    import pyarrow.dataset as ds

    from spen.ray import predict_files

    model, out = folder / "model.spen", folder / "predicted"
    clf.save(model)
    write_rows(folder / "rows", rows)
    killed, peak, done = [], [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            peak[0] = max(peak[0], memory())
            begun = any(folder.glob(".predicted.*.partial/*.parquet"))
            if len(killed) < kills and begun and (found := workers()):
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    try:
        count = predict_files(model, str(folder / "rows"), out, keep=["number"])
    finally:
        done.set()
        watcher.join()
    seconds = time.monotonic() - began
    right, came = True, []
    for batch in ds.dataset(sorted(map(str, out.glob("*.parquet")))).to_batches():
        numbers = batch.column("number").to_numpy()
        came.append(numbers)
        for start in np.unique(numbers // PART) * PART:
            part = np.flatnonzero(numbers // PART == start // PART)
            whole = rows_of(np.arange(start, min(start + PART, rows)))
            wanted = clf.predict_labels(whole[numbers[part] - start])
            right &= batch.column("labels").take(part.tolist()).to_pylist() == wanted
    numbers, every = np.concatenate(came), np.arange(rows)
    once = count == len(numbers) and np.array_equal(np.sort(numbers), every)
    ordered = np.array_equal(numbers, every)
    return Outcome(count, once, ordered, right, killed, peak[0], seconds)


def descendants() -> list[int]:
    """Return this process and all that it has started."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stat = (path / "stat").read_text()
            except OSError:
                continue  # it has just ended
            parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sorted(ours)


def workers() -> list[int]:
    """Return the processes of our workers."""
    found = []
    for process in descendants():
        try:
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(NAME):
                found.append(process)
        except OSError:
            continue
    return found


def memory() -> int:
    """Return the bytes that this process and all that it has started have together."""
    total = 0
    for process in descendants():
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def main() -> None:
    rows, cores = (int(each) for each in (*sys.argv[1:], 1_000_000, 2)[:2])
    import ray

    clf = a_model()
    for count in (rows // 4, rows):
        ray.init(
            num_cpus=cores,
            object_store_memory=STORE,
            include_dashboard=False,
            logging_level="ERROR",
            log_to_driver=False,
        )
        with tempfile.TemporaryDirectory() as folder:
            found = predict_and_kill(Path(folder), clf, count)
        ray.shutdown()
        print(
            f"{count:,} rows, {len(found.killed)} worker killed: {found.rows:,} came back, "
            f"{'each' if found.once else 'NOT each'} exactly once, "
            f"{'in order' if found.ordered else 'NOT in order'}, "
            f"{'all labels right' if found.right else 'NOT all labels right'}; peak memory "
            f"{found.peak / 2**20:.0f} MiB; {found.seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
