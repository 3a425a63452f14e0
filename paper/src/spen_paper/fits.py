"""Fits of classifiers of the paper's first table, tested under several decodings.

A classifier holds rows out, chooses on them, and trains on all training rows in the end, all
by itself. ``run`` fits it, and reads the test rows once for all decodings.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from spen.batch.splits import Split
from spen.data.dataset import Dataset, join
from spen.data.load import load_dataset
from spen.estimators.base import LabelClassifier
from spen.estimators.plan import Plan, Shape
from spen.estimators.runs import SHARED
from spen.estimators.scaling import Scaling
from spen.metrics import row_scores, score_all
from spen_paper.records import Record, Records, brief, identity, pack_rows
from spen_paper.settings import classifier

DECODINGS = {"threshold": "threshold", "expected_f1": "expected F1"}
"""Every fit of a study is decoded both ways; what tables call them."""

SHORT_NAMES = {"example_f1": "f1", "hamming_error": "hamming"}
"""Metrics that records call by another name."""


def dataset_of(name: str) -> Dataset:
    """Load a data set with its official split; a validation part belongs to the training rows."""
    data = load_dataset(name)
    if data.valid is None:
        return data
    return replace(data, train=join([data.train, data.valid]), valid=None)


def makers_of(
    tables: dict[str, Any],
    names: Sequence[str],
    data: Dataset,
    device: str,
    file: str,
    **changes: Any,
) -> dict[str, Callable[..., LabelClassifier]]:
    """Return a function for each method that makes its classifier, given a seed.

    Every classifier is made and checked once here, so that a mistake in the last one's settings
    is not found after hours of work on the first.

    Args:
        tables: the settings of each method.
        names: of the methods.
        data: on which they will be fitted.
        device: where to compute.
        file: that has the settings, for errors.
        changes: of the settings of all of them.
    """
    makers = {}
    for name in names:
        where = f"{file}.toml, [{data.name}.{name}]"
        makers[name] = partial(classifier, tables[name], device=device, where=where, **changes)
        describe_plan(makers[name](seed=0), data)
    return makers


def run(
    experiment: str,
    method: str,
    make: Callable[[], LabelClassifier],
    data: Dataset,
    seed: int,
    records: Records,
    *,
    variant: str | None = None,
    progress: bool = False,
    decodings: Sequence[str] = tuple(DECODINGS),
    keep_rows: bool = False,
) -> dict[str, Record]:
    """Return the records of one fit, by decoding; make them if they are not there yet.

    Args:
        experiment: what the run belongs to, such as "table1".
        method: its name there.
        make: returns the classifier, not fitted.
        data: with test rows, which are read once.
        seed: of the classifier.
        records: where the records are kept.
        variant: what a study calls this run; the classifier and the rows decide the result.
        progress: show a bar while it is fitted.
        decodings: by name. What the classifier's own needs is tuned, and what these two need.
        keep_rows: whether the records are to hold the F1 of each test row.
    """
    made = make()
    words = describe_plan(made, data)

    def wanted(experiment: str, settings: Record) -> dict[str, Record]:
        place = (experiment, data.name, method, len(data.train), seed, settings)
        return {name: identity(*place, decoding=name) for name in decodings}

    def measure() -> dict[str, Record]:
        title = f"{method}, {data.name}, {len(data.train):,} rows, seed {seed}" if progress else ""
        common = {
            "seconds": round(timed_fit(made, data, title), 3),
            "parameters": sum(p.numel() for p in made.model_.parameters()),
            "device": device_in_words(made.model_.reference.device),
        }
        results = scored(made, data, decodings, keep_rows=keep_rows)
        return {name: common | result for name, result in results.items()}

    mine = wanted(experiment, words if variant is None else words | {"variant": variant})
    # A study's cell that changes nothing is a fit of the table, and need not be made twice.
    of_table = wanted("table1", words)
    if not all(map(records.find, mine.values())) and all(map(records.find, of_table.values())):
        mine = of_table
    return records.make_all(mine, measure)


def timed_fit(made: LabelClassifier, data: Dataset, title: str = "") -> float:
    """Fit on the training rows and return the seconds; with a title, show it and a bar."""
    if title:
        print(title, file=sys.stderr, flush=True)  # noqa: T201
        made.set_params(verbose=1)
    shared = SHARED.get()
    before = shared.saved if shared else 0.0
    began = time.perf_counter()
    made.fit(data.train.X, data.train.Y)
    # A run that another fit had made already is counted all the same.
    return time.perf_counter() - began + (shared.saved - before if shared else 0.0)


def plan_of(made: LabelClassifier, rows: Split) -> Plan:
    """Return how a classifier would be trained on some rows of label sets."""
    n_rows, n_features = rows.X.shape
    sparse = Scaling.of(rows.X).sparse
    return made.plan(Shape(n_rows, n_features, rows.Y.shape[1], sparse, exclusive=False))


def describe_plan(made: LabelClassifier, data: Dataset) -> dict[str, Any]:
    """Return what decides the result beside the rows and the seed: all of the plan."""
    words = {"classifier": type(made).__name__, "plan": brief(plan_of(made, data.train))}
    if made.label_weight is not None:
        words["label_weight"] = brief(made.label_weight)
    return words | {"n_test": len(data.test)}


def scored(
    made: LabelClassifier,
    data: Dataset,
    decodings: Sequence[str] = tuple(DECODINGS),
    *,
    keep_rows: bool = False,
) -> dict[str, Record]:
    """Return what each decoding comes to on the test rows; with the F1 of each, if asked for."""
    with warnings.catch_warnings(record=True) as caught:
        # Kept in the record, where it is of more use than on a terminal that scrolls.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        began = time.perf_counter()
        probabilities = made.predict_proba(data.test.X)
        seconds = time.perf_counter() - began
    results = {}
    for name in decodings:
        began = time.perf_counter()
        labels = made.decode(probabilities, name)
        decoding = time.perf_counter() - began
        scores = score_all(data.test.Y, labels, probabilities)
        results[name] = {
            "metrics": {
                SHORT_NAMES.get(metric, metric): round(100 * score.value, 4)
                for metric, score in scores.items()
            },
            "predict_seconds": round(seconds + decoding, 4),
            "chosen": brief(made.plan_.chosen)
            | {
                "tuned": brief(made.predictor_.tuned[name]),
                "held_out_f1": round(100 * made.held_out_score_, 4),
                "held_out_decoding": made.plan_.decoding,
            },
            "notes": sorted({str(each.message) for each in caught}),
        }
        if keep_rows:
            results[name]["row_f1"] = pack_rows(row_scores("f1", data.test.Y, labels))
    return results


def device_in_words(device: torch.device) -> str:
    """Return what computed, as far as it matters for times.

    >>> device_in_words(torch.device("cpu")).startswith("cpu, ")
    True
    """
    if device.type == "cuda":
        return f"cuda, {torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' if threads > 1 else ''}"


def tell(title: str, records: dict[str, Record]) -> None:
    """Say on the error stream that a fit is done, for those who watch."""
    scores = ", ".join(f"{name} {record['metrics']['f1']:.2f}" for name, record in records.items())
    print(f"{title}: {scores}", file=sys.stderr, flush=True)  # noqa: T201
