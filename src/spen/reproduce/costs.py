"""What each method costs, as ratios to the MLP: times of one machine, taken in turns."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from spen.cli.show import say, text_table
from spen.data.dataset import Dataset
from spen.estimators.base import LabelClassifier
from spen.files import versions
from spen.model import usable_device
from spen.reproduce.classifiers import dataset_of, device_in_words, identity_of, timed_fit
from spen.reproduce.records import Record, Records

PREDICTIONS = 5
"""Times that the test rows are predicted; the median counts."""


def costs(dataset: str, seeds: int, device: str, out: Path) -> None:
    """Fit each method once, right after the MLP, and print the ratios of their times.

    ``seeds`` is there for the sake of the other studies: one fit tells what a fit costs.
    """
    from spen.reproduce.table1 import TITLES, makers_of

    records = Records(out)
    data = dataset_of(dataset)
    makers = makers_of(data, list(TITLES), device)
    where = device_in_words(usable_device(device))
    pairs = {
        name: compare(name, partial(make, seed=0), partial(makers["mlp"], seed=0), data, records)
        for name, make in makers.items()
        if name != "mlp"
    }
    say(render({TITLES[name]: record for name, record in pairs.items()}))
    say(
        f"\n{data.name}, {len(data.train):,} training and {len(data.test):,} test rows, {where}. "
        "Each method was fitted\nright after the MLP in one process, with all that is done on "
        "held-out rows. Predictions are\nprobabilities of the test rows; "
        f"medians of {PREDICTIONS}, taken in turns with the MLP's."
    )
    say(f"Records: {records.path}")


def compare(
    name: str,
    make: Callable[[], LabelClassifier],
    make_mlp: Callable[[], LabelClassifier],
    data: Dataset,
    records: Records,
) -> Record:
    """Return the times of a method and of the MLP, taken one after the other.

    Args:
        name: of the method.
        make: returns its classifier, not fitted.
        make_mlp: returns the MLP.
        data: with test rows.
        records: where the times are kept.
    """
    method, mlp = make(), make_mlp()
    where = device_in_words(usable_device(method.device))
    identity: Record = {
        "experiment": "costs",
        "dataset": data.name,
        "method": name,
        "n_train": len(data.train),
        "seed": method.random_state,
        "fold": None,
        "decoding": None,
        "settings": identity_of(method, data) | {"mlp": identity_of(mlp, data), "device": where},
    }
    if (found := records.find(identity)) is not None:
        return found
    mlp_seconds = timed_fit(mlp, data, f"mlp, for {name}")
    seconds = timed_fit(method, data, name)
    times: list[tuple[float, float]] = []
    for _ in range(PREDICTIONS):
        times.append((_predict_seconds(method, data), _predict_seconds(mlp, data)))
    predict_seconds, mlp_predict_seconds = map(statistics.median, zip(*times, strict=True))
    record = identity | {
        "metrics": {},
        "seconds": round(seconds, 3),
        "mlp_seconds": round(mlp_seconds, 3),
        "predict_seconds": round(predict_seconds, 5),
        "mlp_predict_seconds": round(mlp_predict_seconds, 5),
        "versions": versions(),
    }
    records.add(record)
    return record


def render(records: dict[str, Record]) -> str:
    """Lay the ratios out, with the times that they come from; one row a title."""
    header = ["", "training / MLP", "prediction / MLP"]
    header += ["fit, s", "MLP fit, s", "predict, s", "MLP predict, s"]
    rows = [["MLP", "1", "1", "", "", "", ""]]
    for title, record in records.items():
        pairs = [
            (record[f"{what}"], record[f"mlp_{what}"]) for what in ("seconds", "predict_seconds")
        ]
        ratios = [f"{mine / mlp:.2g}" for mine, mlp in pairs]
        rows.append([title, *ratios, *(f"{value:.3g}" for pair in pairs for value in pair)])
    return text_table(header, rows)


def _predict_seconds(fitted: LabelClassifier, data: Dataset) -> float:
    with warnings.catch_warnings():
        # Said in the table itself; here only the time counts.
        warnings.simplefilter("ignore", ConvergenceWarning)
        began = time.perf_counter()
        fitted.predict_proba(data.test.X)
        return time.perf_counter() - began
