"""Predict with an exported model: onnxruntime and NumPy, without spen and without PyTorch.

Install it with: pip install onnxruntime numpy
Export it with: spen export model.spen --out model.onnx
Run it with: python examples/predict_onnx.py model.onnx < rows.jsonl

Each line of the input is a row: a list of all numbers, or an object such as
{"row": [...], "known": {"beach": 1}}. Of a table a row is an object of cells, {"row": {"age": 31}}.
For each of them the names of its labels are printed, as JSON.
"""

from __future__ import annotations

import datetime
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingImports]

AT_ONCE = 256


class Model:
    """An exported model, and what it says of itself."""

    def __init__(self, path: str) -> None:
        # One thread: for single rows more of them only wait for each other.
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session: Any = onnxruntime.InferenceSession(path, options)
        about = json.loads(self.session.get_modelmeta().custom_metadata_map["spen"])
        self.labels: list[str] = about["labels"]
        self.columns: list[dict[str, Any]] = about.get("columns", [])

    def predict(self, rows: Any, known: Any = None) -> tuple[list[list[str]], np.ndarray]:
        """Return the names of each row's labels, and the probability of every label.

        Args:
            rows: (n, d) numbers.
            known: (n, L) or (1, L) of 1, 0, and nan where a label is to be found; or None.
        """
        given: dict[str, Any] = {"X": np.asarray(rows, np.float64)}
        if known is not None:
            given["known"] = np.asarray(known, np.float32)
        soft, labels = self.session.run(None, given)
        return [[self.labels[i] for i in row.nonzero()[0]] for row in labels], soft

    def numbers(self, row: Any) -> list[float]:
        """Return a row as the model takes it: of a table, a number for each cell."""
        if not self.columns:
            return row
        return [_cell(column, row.get(column["name"])) for column in self.columns]

    def known(self, told: dict[str, int]) -> list[float]:
        """Return what is known of a row's labels, by their names."""
        return [told.get(name, float("nan")) for name in self.labels]


def _cell(column: dict[str, Any], value: Any) -> float:
    if value is None:
        return float("nan")
    if column["kind"] == "category":
        return column["values"].index(value) if value in column["values"] else -1
    if column["kind"] == "number":
        return float(value)
    day = datetime.datetime.fromisoformat(value)
    return (day - datetime.datetime(1970, 1, 1)).total_seconds()


def answers(model: Model, lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the labels of each line, some lines at a time."""
    for some in batched(filter(str.strip, lines)):
        asked = [json.loads(line) for line in some]
        asked = [each if isinstance(each, dict) else {"row": each} for each in asked]
        rows = [model.numbers(each["row"]) for each in asked]
        known = [model.known(each.get("known", {})) for each in asked]
        yield from model.predict(rows, known)[0]


def batched(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield lists of some lines."""
    while some := list(itertools.islice(lines, AT_ONCE)):
        yield some


if __name__ == "__main__":
    for names in answers(Model(sys.argv[1]), sys.stdin):
        print(json.dumps(names), flush=True)
