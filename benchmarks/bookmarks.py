"""One epoch of a SPEN and a prediction on rows of Bookmarks' shape: seconds and memory.

    python benchmarks/bookmarks.py [--rows 87856] [--method spen-paper,spen-best] [--out DIR]

The rows are generated: 87,856 of them, 2,150 sparse features of which 5.9 % are on, 208 labels,
2.03 of them on in a row. Labels depend on the features through planted weights. The methods
have the settings of `spen reproduce table1 --dataset bookmarks`, but every stage of training
has one epoch. Each runs in a process of its own, whose peak memory is reported, the rows
included; times are of an epoch over all training rows, of the whole fit with what is done on
held-out rows, and of predicting the test rows. CPU seconds say more where others compute too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

ROWS, TEST_ROWS = 87_856, 27_856
FEATURES, LABELS = 2150, 208
DENSITY, CARDINALITY = 0.059, 2.03


def rows_like_bookmarks(rows: int = ROWS, seed: int = 0) -> tuple[sparse.csr_matrix, Any]:
    """Draw X (rows, 2150) of 0 and 1 and Y (rows, 208), as sparse matrices.

    A label has a few words that speak for it, and its score is what those that are there say,
    with noise. In each row the label with the highest score is on, and so are all others whose
    score is among the highest of all rows.
    """
    rng = np.random.default_rng(seed)
    # Frequent and rare words; the probabilities average to the density.
    chance = rng.permutation((1 + np.arange(FEATURES)) ** -0.5)
    chance = np.minimum(chance * DENSITY / chance.mean(), 0.9)
    parts = [
        sparse.csr_matrix(rng.random((min(4096, rows - at), FEATURES)) < chance, dtype=np.float32)
        for at in range(0, rows, 4096)
    ]
    X = sparse.csr_matrix(sparse.vstack(parts, format="csr"))
    weights = rng.exponential(1.0, (FEATURES, LABELS)) * (rng.random((FEATURES, LABELS)) < 0.01)
    scores = X @ weights.astype(np.float32)
    scores = (scores - scores.mean(0)) / scores.std(0)
    # Some labels are frequent and most are rare.
    scores *= rng.uniform(0.7, 1.3, LABELS).astype(np.float32)
    scores += 0.2 * rng.standard_normal(scores.shape, dtype=np.float32)
    first = np.arange(LABELS) == scores.argmax(1)[:, None]
    limit = np.quantile(scores[~first], 1 - (CARDINALITY - 1) / (LABELS - 1))
    return X, sparse.csr_matrix((first | (scores > limit)).astype(np.int8))


def measure(method: str, rows: int) -> dict[str, Any]:
    """Fit with one epoch a stage, predict, and return the figures of this process."""
    import torch

    from spen.metrics import example_f1
    from spen.reproduce.classifiers import classifier, settings_of

    X, Y = rows_like_bookmarks(rows)
    cut = rows - round(rows * TEST_ROWS / ROWS)
    figures: dict[str, Any] = {"method": method, "rows": rows, "n_train": cut}
    figures |= {"density": X.nnz / np.prod(X.shape), "cardinality": Y.nnz / rows}
    figures["data_gib"] = peak_gib()
    made = classifier(settings_of("bookmarks")[method], seed=0, device="cpu", where=method)
    given = made.get_params()
    settings: dict[str, Any] = {}
    if given["epochs"] != "auto" or given["stages"] == "auto":
        settings["epochs"] = 1
    if given["stages"] != "auto":
        settings["stages"] = tuple(replace(stage, epochs=1) for stage in given["stages"])
    made.set_params(**settings)
    began, cpu = time.perf_counter(), time.process_time()
    made.fit(X[:cut], Y[:cut])
    figures |= {"fit_seconds": time.perf_counter() - began, "fit_gib": peak_gib()}
    figures["fit_cpu_seconds"] = time.process_time() - cpu
    # Without cross-fitting the first history is that of a run on fewer rows.
    histories = [made.history_] if made.plan_.cross_fit else []
    histories += [made.refit_history_] if made.refit_history_ else []
    figures["epoch_seconds"] = {
        epoch.stage: epoch.seconds for history in histories for epoch in history.epochs
    }
    began, cpu = time.perf_counter(), time.process_time()
    labels = made.predict(X[cut:], sparse=True)
    figures |= {"predict_seconds": time.perf_counter() - began, "predict_gib": peak_gib()}
    figures["predict_cpu_seconds"] = time.process_time() - cpu
    figures |= {"test_f1": 100 * example_f1(Y[cut:], labels), "threads": torch.get_num_threads()}
    return figures


def peak_gib() -> float:
    """Return the most memory that this process has held, in GiB."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def in_a_process_of_its_own(method: str, rows: int) -> dict[str, Any]:
    """Return the figures of a method, whose peak memory is then nobody else's."""
    command = [sys.executable, __file__, "--child"]
    command += ["--method", method, "--rows", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Print the figures of each method, and record them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--method", default="spen-paper,spen-best")
    parser.add_argument("--out", help="a folder; figures are added to its records.jsonl")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.method, options.rows)))
        return
    for method in options.method.split(","):
        figures = in_a_process_of_its_own(method, options.rows)
        if options.out:
            from spen.reproduce.records import Records, versions

            Records(options.out).add(
                {"experiment": "bookmarks-shape", "dataset": "generated", "seed": 0}
                | figures
                | {"versions": versions()}
            )
        print(in_words(figures))


def in_words(figures: dict[str, Any]) -> str:
    """Lay the figures of a method out."""
    of = {name: f"{value:.2f}" for name, value in figures.items() if isinstance(value, float)}
    epochs = ", ".join(f"{name} {s:.1f}" for name, s in figures["epoch_seconds"].items())
    lines = [
        f"{figures['method']}: {figures['n_train']:,} training rows, density {of['density']}, "
        f"{of['cardinality']} labels a row; threads: {figures['threads']}",
        f"seconds of an epoch: {epochs}",
    ]
    lines += [
        f"{what}: {of[f'{what}_seconds']} s ({of[f'{what}_cpu_seconds']} s of CPU time), "
        f"peak memory {of[f'{what}_gib']} GiB"
        for what in ("fit", "predict")
    ]
    lines.append(f"the rows alone: {of['data_gib']} GiB; test F1: {of['test_f1']}")
    return "\n  ".join(lines)


if __name__ == "__main__":
    main()
