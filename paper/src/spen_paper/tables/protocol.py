"""The protocol of the synthetic task: tune on held-out rows, freeze, refit on all rows.

A fifth of the training rows is held out, and a model trained on the others chooses the
threshold there. Then the model is trained afresh on all training rows. Everything else is
in the settings file, which was chosen on held-out rows of other seeds. Test rows are read
once, at the end, by ``evaluate``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import spen
from spen import Dataset, Split, example_f1, hamming_error
from spen.estimators.fit import Fitted, fit
from spen.estimators.plan import HELD_OUT, Choice, Plan, Prediction
from spen.estimators.scaling import AS_THEY_ARE
from spen.files import digest
from spen_paper.records import Record, Records, brief, identity
from spen_paper.settings import build, read_inference, read_rows, read_stage, shortened


def held_out_plan(
    stages: tuple[spen.Stage, ...], inference: spen.Inference, **settings: Any
) -> Plan:
    """Return the plan of a table's row: what is chosen is chosen once, on a held-out fifth.

    Args:
        stages: the training.
        inference: the solver of predictions.
        settings: what else the plan says.
    """
    # Held-out rows tune a threshold or choose a decay; they must not choose an epoch too.
    stages = tuple(replace(stage, keep="last") for stage in stages)
    return Plan(
        trial=stages[0],
        stages=stages,
        prediction=Prediction(stages[-1].objective, inference),
        held_out=HELD_OUT,
        folds=1,
        trial_folds=1,
        refit=True,
        raw=True,
        **settings,
    )


@dataclass(frozen=True)
class Method:
    """One row of a table: a model and how it is trained.

    Attributes:
        title: what the table calls it.
        hidden: the widths of the feature network; () means F(x) = x.
        dropout: of the feature network.
        block_size: 0 for label sets; k for one label out of each k consecutive ones.
        measurements: the rows of the measurement matrix; 0 leaves the label energy out.
        nonlinearity: of the label energy.
        initial: how its measurements start.
        inference: the solver of predictions.
        training_steps: its step limit in training; 0 keeps the one of predictions.
        stages: the training.
    """

    title: str
    stages: tuple[spen.Stage, ...]
    inference: spen.Descent = field(default_factory=spen.Descent)
    training_steps: int = 0
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    block_size: int = 0
    measurements: int = 0
    nonlinearity: str = "hardtanh"
    initial: Literal["signed", "counting"] = "signed"

    @property
    def energy(self) -> spen.UnsizedEnergy:
        """The energy without its sizes."""
        local = spen.LocalEnergy.unsized()
        if not self.measurements:
            return local
        return local + spen.LabelEnergy.unsized(
            measurements=self.measurements, nonlinearity=self.nonlinearity, initial=self.initial
        )

    def domain(self, n_labels: int) -> spen.Domain:
        """Return where labels live."""
        if not self.block_size:
            return spen.UnitBox(n_labels)
        return spen.Simplex(self.block_size, positions=n_labels // self.block_size)

    def plan(self) -> Plan:
        """Return how it is tuned and trained."""
        choices = (Choice(self.hidden, self.dropout),)
        settings = {"choices": choices, "energy": self.energy, "decoding": "threshold"}
        return held_out_plan(self.stages, self.inference, **settings)

    def fit(self, rows: Split, seed: int, title: str | None = None) -> Fitted:
        """Tune the threshold on a held-out fifth of the rows, then refit on all of them."""
        return fit(self.plan(), rows, self.domain(rows.Y.shape[1]), seed=seed, title=title)


def read_methods(name: str, column: int = 0) -> dict[str, Method]:
    """Read the methods of a table from ``settings/NAME.toml``.

    A method may be like another (see ``inherit``).

    Args:
        name: of the file.
        column: which of the table's columns is wanted. A number of a stage that is given
            as a list has one value per column.
    """
    return read_rows(name, partial(method, column=column))


def method(table: dict[str, Any], where: str, column: int = 0) -> Method:
    """Make a method of one table of a settings file."""
    inference = read_inference(table.get("inference", {}), f"{where} inference")
    training = shortened(inference, table.get("training_steps", 0))
    stages = [
        read_stage(_of_column(stage, column), training, f"{where} stages")
        for stage in table.get("stages", [])
    ]
    return build(Method, table | {"inference": inference, "stages": stages}, where)


def _of_column(stage: dict[str, Any], column: int) -> dict[str, Any]:
    per_column = {"epochs", "lr", "weight_decay"}
    return {
        key: value[column] if key in per_column and isinstance(value, list) else value
        for key, value in stage.items()
    }


def evaluate(fitted: Fitted, rows: Split) -> dict[str, float]:
    """Score a fitted model on test rows, in percent."""
    predictor = fitted.predictor(AS_THEY_ARE)
    soft = predictor.solve(rows.X).y
    labels = predictor.decode(soft)
    metrics = {"f1": example_f1(rows.Y, labels), "hamming": hamming_error(rows.Y, labels)}
    if len(fitted.plan.energy.terms) > 1:
        truth = fitted.model.energy_of(rows.X, rows.Y)
        found = fitted.model.energy_of(rows.X, soft)
        metrics["search_errors"] = spen.search_error_rate(truth, found)
    return {name: round(100 * value, 4) for name, value in metrics.items()}


def run(
    experiment: str, name: str, method: Method, data: Dataset, seed: int, records: Records
) -> Record:
    """Return the record of one fit; make it if it is not there yet."""
    # The weights that a fit starts from tell apart what the settings' words do not.
    (_, width), labels = data.train.X.shape, data.train.Y.shape[1]
    start = method.plan().build(width, method.domain(labels), seed)
    settings = {
        "method": brief(method),
        "initial_weights": digest(start.state_dict().values())[:12],
        "held_out": HELD_OUT,
        "n_test": len(data.test),
    }

    def measure() -> Record:
        began = time.perf_counter()
        title = f"{name}, {len(data.train):,} rows, seed {seed}"
        fitted = method.fit(data.train, seed, title)
        seconds = time.perf_counter() - began
        parameters = dict(fitted.model.named_parameters())
        matrix = [each.tolist() for key, each in parameters.items() if key.endswith("measurements")]
        return {
            "metrics": evaluate(fitted, data.test),
            "seconds": round(seconds, 2),
            "chosen": {
                "threshold": fitted.tuned.get("threshold"),
                "held_out_f1": round(100 * fitted.score, 4),
            },
            "measurements": matrix[0] if matrix else None,
            "parameters": sum(p.numel() for p in parameters.values()),
        }

    decoding = "argmax" if method.block_size else "threshold"
    place = (experiment, data.name, name, len(data.train), seed, settings)
    return records.make(identity(*place, decoding=decoding), measure)
