"""What the energy adds: beside the same networks alone, and beside its stage without an energy.

The stage that trains a cross-fitted energy trains a scale and a shift for each label too, with
an F1 loss. The control has that stage, and an energy that is zero. Each method is decoded in three
ways, and what each row scores is kept, so that differences have a standard error over test rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spen.cli.show import say, text_table
from spen.metrics import row_scores
from spen_paper.figures import difference, mean_and_deviation
from spen_paper.fits import describe_plan, tell, timed_fit
from spen_paper.records import Record
from spen_paper.settings import NoEnergy
from spen_paper.studies.study import Study
from spen_paper.studies.variants import changed

METHODS = {
    "mlp": ("mlp", False),
    "control-single": ("spen-single", True),
    "spen-single": ("spen-single", False),
    "mlp-best": ("mlp-best", False),
    "control-best": ("spen-best", True),
    "spen-best": ("spen-best", False),
}
"""By name: whose settings it has, and whether its energy is left out."""

TITLES = {
    "mlp": "one network",
    "control-single": "… and the energy's stage, without an energy",
    "spen-single": "… and the energy",
    "mlp-best": "three networks (Bibtex: and a regression)",
    "control-best": "… and the energy's stage, without an energy",
    "spen-best": "… and the energy",
}
PAIRS = (
    ("spen-single", "mlp"),
    ("spen-single", "control-single"),
    ("spen-best", "mlp-best"),
    ("spen-best", "control-best"),
)
DECODINGS = {
    "threshold": "one threshold",
    "row_threshold": "one a row",
    "expected_f1": "expected F1",
}
DRAWS = 2000
"""Of the bootstrap over test rows."""

PARTS = 10_000
"""Of 1, in which records keep the F1 of a row."""


def control(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare networks, the energy's stage without an energy, and with it."""
    study = Study.open("table1-control", dataset, seeds, device, out)
    found: dict[str, list[Record]] = {name: [] for name in METHODS}
    for seed in range(seeds):
        for name in METHODS:
            found[name].append(run(study, name, seed))
    say(render(found))
    say()
    say(render_pairs(found))
    say("\nOne a row: threshold t · (the row's largest probability)^c; t and c from held-out rows.")
    say("Over seeds: ± standard error of the difference paired by seed. Over rows: ± that of the")
    say(f"mean over seeds, by a bootstrap of {DRAWS:,} draws of the test rows, paired by row.")
    study.tell_protocol()


def run(study: Study, name: str, seed: int) -> Record:
    """Return the record of one fit: its F1 under each decoding, of all rows and of each."""
    settings, without = METHODS[name]
    made = changed(study.classifier(settings, seed), {"decoding": "row_threshold"})
    if without:
        made = changed(made, {"energy": NoEnergy.unsized()})
    described = describe_plan(made, study.data) | {"decodings": list(DECODINGS)}
    identity = study.identity(name, seed, study.data, described, None)

    def measure() -> Record:
        seconds = timed_fit(made, study.data, f"{name}, {study.data.name}, seed {seed}")
        test, soft = study.data.test, made.predict_proba(study.data.test.X)
        rows = {
            decoding: row_scores("f1", test.Y, made.decode(soft, decoding))
            for decoding in DECODINGS
        }
        return {
            "metrics": {f"f1, {way}": round(100 * each.mean(), 4) for way, each in rows.items()},
            "row_f1": {
                way: np.rint(each * PARTS).astype(int).tolist() for way, each in rows.items()
            },
            "fit_seconds": round(seconds, 2),
            "tuned": {way: np.asarray(made.predictor_.tuned[way]).tolist() for way in DECODINGS},
        }

    record = study.records.make(identity, measure)
    scores = {way: {"metrics": {"f1": record["metrics"][f"f1, {way}"]}} for way in DECODINGS}
    tell(f"{name}, seed {seed}", scores)
    return record


def render(found: dict[str, list[Record]]) -> str:
    """Lay out F1 by each decoding."""
    rows = [
        [TITLES[name], *(mean_and_deviation(_scores(found[name], way)) for way in DECODINGS)]
        for name in found
    ]
    return text_table(["", *DECODINGS.values()], rows)


def render_pairs(found: dict[str, list[Record]]) -> str:
    """Lay out the differences, with their errors over seeds and over rows."""
    header = ["difference"]
    for words in DECODINGS.values():
        header += [f"{words}, over seeds", "over rows"]
    lines = []
    for one, other in PAIRS:
        line = [f"{one} − {other}"]
        for way in DECODINGS:
            line.append(difference(_scores(found[one], way), _scores(found[other], way)))
            gaps = _rows(found[one], way) - _rows(found[other], way)
            line.append(f"± {error_over_rows(gaps):.2f}")
        lines.append(line)
    return text_table(header, lines)


def error_over_rows(gaps: np.ndarray, draws: int = DRAWS) -> float:
    """Return the standard error of a mean over rows, by a bootstrap.

    >>> gaps = np.random.default_rng(1).normal(size=400)
    >>> bool(abs(error_over_rows(gaps) - gaps.std() / 20) < 0.003)
    True
    """
    rng = np.random.default_rng(0)
    means = [rng.choice(gaps, len(gaps)).mean() for _ in range(draws)]
    return float(np.std(means))


def _scores(records: Sequence[Record], way: str) -> list[float]:
    return [record["metrics"][f"f1, {way}"] for record in records]


def _rows(records: Sequence[Record], way: str) -> Any:
    """Return the F1 of each row in percent, averaged over seeds."""
    return 100 * np.mean([record["row_f1"][way] for record in records], axis=0) / PARTS
