"""Peak memory of a fit and a prediction on wide sparse data: 100,000 × 200,000 by default.

    python benchmarks/memory.py [--rows N] [--features D] [--entries K] [--labels L] [--json]

Prints the peak resident memory of the whole process, the data included.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import numpy as np
from scipy import sparse


def wide_rows(rows: int, features: int, entries: int, labels: int, seed: int = 0):
    """Draw sparse rows whose labels depend on which features are there."""
    rng = np.random.default_rng(seed)
    # Frequent and rare features, as words are.
    columns = (features * rng.random((rows, entries)) ** 3).astype(np.int32)
    columns.sort(axis=1)
    offsets = np.arange(0, rows * entries + 1, entries)
    values = rng.random(rows * entries).astype(np.float32) + 0.5
    X = sparse.csr_matrix((values, columns.ravel(), offsets), shape=(rows, features))
    X.sum_duplicates()
    topics = rng.integers(0, labels, features)
    votes = sparse.csr_matrix(
        (np.ones(features, np.float32), (np.arange(features), topics)), shape=(features, labels)
    )
    scores = (X @ votes).toarray()
    Y = scores >= np.partition(scores, -3, axis=1)[:, -3:-2]
    return X, sparse.csr_matrix(Y.astype(np.int8))


def peak_gib() -> float:
    """Return the most memory that this process has held, in GiB."""
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> None:
    """Fit, predict, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("rows", 100_000),
        ("features", 200_000),
        ("entries", 50),
        ("labels", 50),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    import spen

    X, Y = wide_rows(options.rows, options.features, options.entries, options.labels)
    figures = {"data_gib": peak_gib()}
    began = time.perf_counter()
    classifier = spen.SPENClassifier(random_state=0, verbose=not options.json).fit(X, Y)
    figures |= {"fit_gib": peak_gib(), "fit_seconds": time.perf_counter() - began}
    began = time.perf_counter()
    labels = classifier.predict(X, sparse=True)
    figures |= {"predict_gib": peak_gib(), "predict_seconds": time.perf_counter() - began}
    figures["training_f1"] = spen.example_f1(Y, labels)
    if options.json:
        print(json.dumps(vars(options) | figures))
        return
    print(f"{options.rows:,} rows, {options.features:,} features, {X.nnz / X.shape[0]:.0f} a row")
    print(
        f"peak memory: data {figures['data_gib']:.2f} GiB, fit {figures['fit_gib']:.2f} GiB, "
        f"predict {figures['predict_gib']:.2f} GiB"
    )
    print(f"seconds: fit {figures['fit_seconds']:.0f}, predict {figures['predict_seconds']:.0f}")
    print(f"F1 of the training rows: {100 * figures['training_f1']:.1f}")


if __name__ == "__main__":
    main()
