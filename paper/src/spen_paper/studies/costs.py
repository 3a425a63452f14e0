"""What each method of Table 1 costs: ratios of times of one machine, taken in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from spen import Dataset
from spen.cli.show import text_table
from spen.estimators.base import LabelClassifier
from spen.model import usable_device
from spen_paper import fits
from spen_paper.figures import say_table
from spen_paper.records import Record, Records, identity
from spen_paper.settings import settings_of

METHODS = {
    "br": "BR, logistic regressions",
    "lr": "LR, low-rank weights",
    "mlp": "MLP",
    "mlp-best": "MLP, our best",
    "dmf": "DMF, deep mean field",
    "prlr": "PRLR, missing labels",
    "spen-paper": "SPEN, the paper's recipe",
    "spen-single": "SPEN, cross-fitted, one network",
    "spen-best": "SPEN, our best",
}
PREDICTIONS = 5
"""Times that the test rows are predicted to see what that costs; the median counts."""


def costs(dataset: str, seeds: int, device: str, out: Path) -> None:
    """Fit each method once, right after the MLP, and print the ratios of their times.

    ``seeds`` is there for the sake of the other studies: one fit tells what a fit costs.
    """
    records = Records(out)
    data = fits.dataset_of(dataset)
    tables = settings_of(dataset, "studies")
    makers = fits.makers_of(tables, list(METHODS), data, device, "studies")
    mlp = partial(makers["mlp"], seed=0)
    pairs = {
        METHODS[name]: compare_costs(name, partial(make, seed=0), mlp, data, records)
        for name, make in makers.items()
        if name != "mlp"
    }
    where = fits.device_in_words(usable_device(device))
    remark = (
        f"{data.name}, {len(data.train):,} training and {len(data.test):,} test rows, "
        f"{where}. Each method was fitted\nright after the MLP "
        "in one process, with all that is done on held-out rows. Predictions are\nprobabilities "
        f"of the test rows; medians of {PREDICTIONS}, taken in turns with the MLP's."
    )
    say_table(render_costs(pairs), [remark], records)


def compare_costs(
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
    where = fits.device_in_words(usable_device(method.device))
    words, mlp_words = (fits.describe_plan(each, data) for each in (method, mlp))
    settings = words | {"mlp": mlp_words, "device": where}

    def measure() -> Record:
        mlp_seconds = fits.timed_fit(mlp, data, f"mlp, for {name}")
        seconds = fits.timed_fit(method, data, name)
        times = [[_predict_seconds(each, data) for each in (method, mlp)]
                 for _ in range(PREDICTIONS)]  # fmt: skip
        predict_seconds, mlp_predict_seconds = map(statistics.median, zip(*times, strict=True))
        return {
            "metrics": {},
            "seconds": round(seconds, 3),
            "mlp_seconds": round(mlp_seconds, 3),
            "predict_seconds": round(predict_seconds, 5),
            "mlp_predict_seconds": round(mlp_predict_seconds, 5),
        }

    place = ("costs", data.name, name, len(data.train), method.random_state, settings)
    return records.make(identity(*place, rule="ratios of times, not scores"), measure)


def render_costs(records: dict[str, Record]) -> str:
    """Lay the ratios out, with the times that they come from; one row a title."""
    header = ["", "training / MLP", "prediction / MLP"]
    header += ["fit, s", "MLP fit, s", "predict, s", "MLP predict, s"]
    rows = [["MLP", "1", "1", "", "", "", ""]]
    for title, record in records.items():
        pairs = [(record[what], record[f"mlp_{what}"]) for what in ("seconds", "predict_seconds")]
        ratios = [f"{mine / mlp:.2g}" for mine, mlp in pairs]
        rows.append([title, *ratios, *(f"{value:.3g}" for pair in pairs for value in pair)])
    return text_table(header, rows)


def _predict_seconds(fitted: LabelClassifier, data: Dataset) -> float:
    began = time.perf_counter()
    fitted.predict_proba(data.test.X)
    return time.perf_counter() - began
