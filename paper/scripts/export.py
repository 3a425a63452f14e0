"""Exported models beside ``predict``: answers on the official test rows, and the time of one row.

    SPEN_DATA=FOLDER python paper/scripts/export.py yeast bibtex delicious [--models DIR]
        [--out FOLDER]

Each model is fitted to the training part and kept in the folder; a model file NAME.spen that is
there already is taken as it is. It is exported to ONNX, compared with ``predict`` on all test rows
(with nothing known, and with a part of the labels known), and one row is timed in onnxruntime on
one thread, in turns with a plain MLP of the same widths that is exported alike: the feature network
of one member and its label scores. Needs the extra "onnx". With --out what is measured is kept in
FOLDER/records.jsonl, and where it is there already it is printed again; `paper/records/export` has
what the texts show.

Delicious is fitted by ``preset="fast"`` with few epochs and folds: what is looked at is the way
through the model, not how good it is.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import spen
from spen.batch.arrays import densified
from spen.cli.show import text_table
from spen.features import MLP, LabelScores
from spen_paper.records import kept

SETTINGS: dict[str, dict[str, Any]] = {
    "delicious": {"preset": "fast", "epochs": 2, "hidden": (256,), "folds": 2, "cross_fit": True}
}
ROUNDS, ROWS = 20, 200
HEADER = ["", "rows", "labels differ", "probabilities differ by", "MB"]
HEADER += ["one row, ms", "half of its labels known, ms", "the MLP, ms"]


def session(content: bytes | str) -> Any:
    """Return a session on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def plain_mlp(model: Any) -> bytes:
    """Return the label-wise network of a model, exported by itself: an MLP and nothing else."""
    scores = model.features
    network = scores.networks[0] if isinstance(scores, LabelScores) else scores
    assert isinstance(network, MLP)
    widths = (*network.widths, model.domain.size)
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(widths):
        layers += [nn.Linear(narrow, wide), nn.ReLU()]
    layers[-1] = nn.Sigmoid()
    rows = torch.export.Dim("rows")
    example, shapes = (torch.zeros(2, widths[0]),), ({0: rows},)
    program = torch.onnx.export(
        nn.Sequential(*layers).eval(),
        example,
        input_names=["X"],
        dynamo=True,
        dynamic_shapes=shapes,
        verbose=False,
    )
    assert program is not None
    return program.model_proto.SerializeToString()


def calls(whole: Any, model: Any, rows: Any) -> dict[str, Any]:
    """Return what is timed: functions of the number of a row."""
    plain = session(plain_mlp(model))
    singles = np.asarray(rows, np.float64)[:, None, :]
    halves = singles.astype(np.float32)
    known = np.full((1, model.domain.size), np.nan, np.float32)
    known[0, ::2] = 0
    return {
        "the whole way": lambda row: whole.run(None, {"X": singles[row]}),
        "half of the labels known": lambda row: whole.run(
            None, {"X": singles[row], "known": known}
        ),
        "a plain MLP": lambda row: plain.run(None, {"X": halves[row]}),
    }


def times(calls: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the median and the 90th percentile of each call, in milliseconds, taken in turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for row in range(ROWS):
                began = time.perf_counter()
                call(row)
                found[name].append(1e3 * (time.perf_counter() - began))
    return {
        name: (statistics.median(each), float(np.percentile(each, 90)))
        for name, each in found.items()
    }


def measure(name: str, models: Path) -> dict[str, Any]:
    """Return how far the exports of a data set's model are from it, and what a row takes."""
    torch.set_num_threads(1)
    models.mkdir(parents=True, exist_ok=True)
    data, path = spen.load_dataset(name), models / f"{name}.spen"
    assert data.test is not None
    if not path.exists():
        clf = spen.SPENClassifier(random_state=0, **SETTINGS.get(name, {}))
        clf.fit(data.train.X, data.train.Y).save(path)
    clf = spen.load(path)
    found: dict[str, Any] = {"onnxruntime": importlib.metadata.version("onnxruntime")}
    with tempfile.TemporaryDirectory() as folder:
        for to in ("onnx", "torch"):
            exported = clf.export(Path(folder) / to, data.test.X, to=to)
            found[to] = {
                "rows": exported.rows,
                "different": exported.different,
                "apart": exported.apart,
                "megabytes": exported.bytes / 1e6,
            }
        whole = session(str(Path(folder) / "onnx"))
    found["milliseconds"] = times(calls(whole, clf.model_, densified(data.test.X[:ROWS])))
    return found


def main(arguments: list[str]) -> None:
    """Print a line for each data set."""
    parser = argparse.ArgumentParser(description="Exported models beside predict.")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--models", type=Path, default=Path("export-models"))
    parser.add_argument("--out", type=Path, help="keeps what was measured")
    asked = parser.parse_args(arguments)
    rows = []
    for name in asked.sets:
        settings = {"dataset": name, "fitted by": SETTINGS.get(name, {})}
        found = kept(asked.out, "export", settings, partial(measure, name, asked.models))["found"]
        taken = found["milliseconds"]
        least = taken["a plain MLP"][0]
        for to in ("onnx", "torch"):
            of = found[to]
            cells = [f"{name}, {to}", f"{of['rows']:,}", f"{of['different'] or 'none'}"]
            cells += [f"{of['apart']:.1e}", f"{of['megabytes']:.1f}"]
            # What runs a program of torch.export is not timed.
            timed = taken.values() if to == "onnx" else ()
            cells += [f"{middle:.2f} ({middle / least:.1f} ×)" for middle, _ in timed]
            rows.append(cells + [""] * (len(HEADER) - len(cells)))
    print(text_table(HEADER, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
