"""Energies trained together with their features, and apart: what SPENClassifier's defaults go by.

    SPEN_DATA=FOLDER python benchmarks/defaults.py [--sets slashdot-400,yeast-500] [--seeds 2]
        [--keep runs.jsonl] [--json]

The sets are those of versus_sklearn.py: parts of training data, and generated. "Together" is
``cross_fit=False``; "apart" is ``cross_fit=True``, where inputs are mostly zero with
``linear_member=True``. A star marks what ``cross_fit="auto"`` takes. F1 x 100 on rows that were
held out of all training, by expected F1 and by one threshold, mean over seeds; ``--json`` has the
seconds of CPU time, too. ``--keep`` names a file of finished runs, which are not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from versus_sklearn import SETS, Task

import spen
from spen.cli.show import text_table
from spen.estimators.plan import Shape
from spen.estimators.recipe import make_plan
from spen.estimators.scaling import Scaling

WAYS = ("together", "apart")
DECODINGS = ("expected_f1", "threshold")


def shape_of(task: Task) -> Shape:
    """Return what defaults look at."""
    rows, features = task.train.X.shape
    sparse = Scaling.of(task.train.X).sparse
    return Shape(rows, features, task.train.Y.shape[1], sparse, exclusive=False)


def default_of(shape: Shape) -> str:
    """Return which way ``SPENClassifier()`` takes."""
    plan = make_plan(spen.SPENClassifier().get_params(deep=False), shape)
    return WAYS[plan.cross_fit]


def measure(name: str, seed: int, way: str) -> dict[str, Any]:
    """Return the record of one fit."""
    task = SETS[name](seed)
    shape = shape_of(task)
    apart = way == "apart"
    classifier = spen.SPENClassifier(
        cross_fit=apart, linear_member=apart and shape.sparse, device="cpu", random_state=seed
    )
    began = time.process_time()
    classifier.fit(task.train.X, task.train.Y)
    seconds = time.process_time() - began
    soft = classifier.predict_proba(task.test.X)
    scores = {
        decoding: 100 * spen.example_f1(task.test.Y, classifier.decode(soft, decoding))
        for decoding in DECODINGS
    }
    record = {"set": name, "seed": seed, "way": way, "default": default_of(shape)}
    return record | scores | {"seconds": seconds}


def row_of(name: str, records: list[dict[str, Any]]) -> list[str]:
    """Return a line of the table: both ways, and what "apart" gains."""
    mine = [record for record in records if record["set"] == name]

    def mean(way: str, column: str) -> float:
        return float(np.mean([record[column] for record in mine if record["way"] == way]))

    gains = [mean("apart", column) - mean("together", column) for column in DECODINGS]
    cells = [name + (" *" if mine[0]["default"] == "apart" else "")]
    for column, gain in zip(DECODINGS, gains, strict=True):
        cells += [f"{mean(way, column):.1f}" for way in WAYS] + [f"{gain:+.1f}"]
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", default=",".join(SETS), help="names, joined by commas")
    parser.add_argument("--seeds", type=int, default=2, help="how many splits of each set")
    parser.add_argument("--keep", type=Path, help="a file of finished runs, one JSON object a line")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    keep: Path | None = options.keep
    names = options.sets.split(",")
    if unknown := [name for name in names if name not in SETS]:
        sys.exit(f"There is no set {unknown[0]!r}. There are: {', '.join(SETS)}.")
    torch.set_num_threads(1)
    kept: list[dict[str, Any]] = []
    if keep is not None and keep.exists():
        kept = [json.loads(line) for line in keep.read_text().splitlines()]
    made = {(record["set"], record["seed"], record["way"]): record for record in kept}
    records = []
    for key in [(n, s, w) for n in names for s in range(options.seeds) for w in WAYS]:
        if key not in made:
            made[key] = measure(*key)
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(made[key]) + "\n")
        records.append(made[key])
        if options.json:
            print(json.dumps(made[key]), flush=True)
    if not options.json:
        head = ["set (* apart by default)", "expected F1: together", "apart", "gain"]
        head += ["threshold: together", "apart", "gain"]
        print(text_table(head, [row_of(name, records) for name in names]))


if __name__ == "__main__":
    main()
