"""How long reading Delicious takes, beside scikit-learn's reader of LIBSVM text.

    SPEN_DATA=FOLDER python benchmarks/parsing.py [--json] [--repeats 7]

Ours reads the training part as Mulan's ARFF file with its XML; theirs reads the training file
of the extreme-classification format, without its first line. Both have 12,920 rows. The two
take turns, and the best time of each counts, so that a busy machine disturbs the ratio less.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sklearn.datasets import load_svmlight_file

from spen.data.load import load_dataset

LIMIT = 4.0
"""The ratio that reading may not exceed."""


def seconds(job: Callable[[], object]) -> float:
    """Return how long a job takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def measure(folder: Path, repeats: int) -> dict[str, float]:
    """Return the best time of each reader, in seconds, and their ratio."""
    arff = folder / "delicious-train.arff"
    text = (folder / "xmc" / "train.txt").read_bytes().partition(b"\n")[2]
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(seconds(lambda: load_dataset(arff)))
        theirs.append(seconds(lambda: load_svmlight_file(io.BytesIO(text), multilabel=True)))
    return {
        "spen_arff_seconds": min(ours),
        "sklearn_svmlight_seconds": min(theirs),
        "ratio": min(ours) / min(theirs),
        "limit": LIMIT,
    }


def main() -> None:
    """Print the times and their ratio; the exit code says whether it is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=7, help="how often each reader runs")
    options = parser.parse_args()
    folder = Path(os.environ.get("SPEN_DATA", "data")) / "delicious"
    if not (folder / "xmc" / "train.txt").is_file():
        sys.exit(f"There is no {folder / 'xmc' / 'train.txt'}. Set SPEN_DATA to the data folder.")
    figures = measure(folder, options.repeats)
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"spen, ARFF              {figures['spen_arff_seconds']:.3f} s\n"
            f"scikit-learn, svmlight  {figures['sklearn_svmlight_seconds']:.3f} s\n"
            f"ratio                   {figures['ratio']:.2f} (at most {LIMIT:g})"
        )
    sys.exit(figures["ratio"] > LIMIT)


if __name__ == "__main__":
    main()
