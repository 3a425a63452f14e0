"""More rows than memory: what a streamed fit takes, and what it costs beside rows in memory.

    python paper/scripts/large.py fit [--gib 5] [--epochs 1] [--folder DIR]
    python paper/scripts/large.py ratio [--rows 60000] [--turns 9] [--sparse]

With `--out FOLDER` what is measured is kept in FOLDER/records.jsonl, and where it is there already
it is printed again; `paper/records/large` has what the texts show.

fit: a CSV file of so many GiB is generated (200 numbers and 20 labels a row, which depend on each
other), and `spen fit --stream` trains on it in a process of its own with the default network: rows,
seconds, CPU seconds, the peak of its memory, and its score on rows that it has not seen. ratio:
rows per second of single epochs of the same network and energy on the same rows, from a store and
in memory, in turns in one process, on one thread; CPU seconds, as others may share the machine.
--sparse: rows of 60 numbers in 20,000 columns.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
from spen_paper.records import kept

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


def fit(
    *, gib: float = 5.0, epochs: int = 1, folder: Path | None = None, out: Path | None = None
) -> None:
    """Generate a file, and train on it."""
    settings = {"gib": gib, "epochs": epochs}
    record = kept(out, "fit", settings, partial(fit_of, gib, epochs, folder))
    found, cores = record["found"], record["machine"]["cores"]
    print(f"{found['file_gib']:.2f} GiB, {found['rows']:,} rows")
    print(
        f"{found['seconds']:,.0f} s, {found['cpu']:,.0f} s of CPU time on {cores} cores; "
        f"peak memory {found['peak_gib']:.2f} GiB"
    )
    print(f"F1 of {AT_ONCE:,} new rows: {found['f1']:.1f}")
    print("\n".join(found["said"]))


def fit_of(gib: float, epochs: int, folder: Path | None) -> dict[str, Any]:
    """Return what a fit takes, and what it said last."""
    rows = round(gib * 2**30 / (7 * FEATURES + 2 * LABELS))
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path, model = Path(name) / "rows.csv", Path(name) / "model.spen"
        write(path, rows)
        settings = ["--stream", "--labels", f"-{LABELS}", "--epochs", str(epochs)]
        settings += ["--device", "cpu", "--checkpoint", str(Path(name) / "run")]
        command = [sys.executable, "-m", "spen", "fit", str(path), *settings, "--out", str(model)]
        began = time.perf_counter()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        unit = 1 if sys.platform == "darwin" else 1024
        clf: Any = spen.load(model)
        [(X, Y)] = drawn(AT_ONCE, seed=2)
        return {
            "rows": rows,
            "file_gib": path.stat().st_size / 2**30,
            "seconds": seconds,
            "cpu": used.ru_utime + used.ru_stime,
            "peak_gib": used.ru_maxrss * unit / 2**30,
            "f1": 100 * clf.score(X / 1000, Y),
            "said": [line for line in done.stdout.splitlines() if name not in line],
        }


def ratio(
    *, rows: int = 60_000, turns: int = 9, sparse: bool = False, out: Path | None = None
) -> None:
    """Train single epochs on rows in memory and from a store, in turns."""
    settings = {"rows": rows, "turns": turns, "sparse": sparse}
    found = kept(out, "ratio", settings, partial(ratio_of, rows, turns, sparse))["found"]
    seconds = {name: statistics.median(each) for name, each in found["taken"].items()}
    print(f"{rows:,} rows of {found['width']:,} columns, {LABELS} labels, layers {found['layers']}")
    for name, each in seconds.items():
        print(f"{name:>8}: {rows / each:9,.0f} rows a second")
    print(f"   ratio: {seconds['memory'] / seconds['store']:.2f}")


def ratio_of(rows: int, turns: int, sparse: bool) -> dict[str, Any]:
    """Return the CPU seconds of epochs, in memory and from a store."""
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
            spans = np.array([end - first for first, end in store.spans()])
            scaling = Scaling.of(X)
            streamed = StreamedRows(model, store, scaling.transform, Held(0.0), spans)
            memory = TrainingRows.of(model, (scaling.transform(X), Y), "rows")
            taken: dict[str, list[float]] = {"memory": [], "store": []}
            for _ in range(turns):
                for name, given in (("memory", memory), ("store", streamed)):
                    began = time.process_time()
                    train_on(model, [replace(stage, epochs=1)], given)
                    taken[name].append(time.process_time() - began)
    return {"width": width, "layers": list(plan.chosen.hidden), "taken": taken}


if __name__ == "__main__":
    main((fit, ratio), "large.py", __doc__)
