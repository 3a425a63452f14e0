"""The protocol of every experiment: tune on held-out rows, freeze, refit on all rows.

A fifth of the training rows is held out, and a model trained on the others chooses the
threshold there. Then the model is trained afresh on all training rows. Everything else is
in the settings file, which was chosen on held-out rows of other seeds. Test rows are read
once, at the end, by ``evaluate``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from spen.batch.splits import Split, hold_out
from spen.data.dataset import Dataset
from spen.decoding import apply_threshold, tune_threshold
from spen.domains import UnitBox
from spen.files import versions
from spen.metrics import example_f1, hamming_error, search_error_rate
from spen.model import SPEN
from spen.reproduce.records import Record, Records
from spen.reproduce.settings import Method
from spen.training.checkpoint import Epoch, History, describe, digest
from spen.training.loop import train

HELD_OUT = 0.2
F1_RULE = "example-averaged F1 x 100; a row empty in truth and prediction counts 1"

Progress = Callable[[Epoch], None]


@dataclass(frozen=True)
class Fitted:
    """A model trained on all rows, and what was chosen on held-out ones."""

    model: SPEN
    method: Method
    threshold: float | None
    held_out_f1: float
    history: History
    seconds: float


def fit(method: Method, rows: Split, seed: int, progress: Progress | None = None) -> Fitted:
    """Tune the threshold on a held-out fifth of the rows, then refit on all of them."""
    began = time.perf_counter()
    callbacks = () if progress is None else (progress,)

    def trained_on(some: Split) -> tuple[SPEN, History]:
        model = method.build(rows.X.shape[1], rows.Y.shape[1], seed)
        return model, train(model, method.stages, some, seed=seed, callbacks=callbacks)

    kept, held = hold_out(rows, HELD_OUT, seed)
    threshold, score = _decode(method, trained_on(kept)[0], held)
    model, history = trained_on(rows)
    return Fitted(model, method, threshold, score, history, time.perf_counter() - began)


@torch.no_grad()
def soft_prediction(method: Method, model: SPEN, inputs) -> torch.Tensor:
    """Return what the last stage of training trains the model to predict."""
    objective = method.stages[-1].objective
    return objective.predict(model, method.inference, model.context(inputs)).y


def _decode(method: Method, model: SPEN, held: Split) -> tuple[float | None, float]:
    """Return the threshold (None where the domain itself rounds) and its held-out F1."""
    soft = soft_prediction(method, model, held.X)
    if isinstance(model.domain, UnitBox):
        return tune_threshold(held.Y, soft)
    return None, example_f1(held.Y, model.domain.round(soft))


def evaluate(fitted: Fitted, rows: Split) -> dict[str, float]:
    """Score a fitted model on test rows, in percent."""
    soft = soft_prediction(fitted.method, fitted.model, rows.X)
    if fitted.threshold is None:
        labels = fitted.model.domain.round(soft)
    else:
        labels = apply_threshold(soft, fitted.threshold)
    metrics = {"f1": example_f1(rows.Y, labels), "hamming": hamming_error(rows.Y, labels)}
    if fitted.method.measurements:
        truth = fitted.model.energy_of(rows.X, rows.Y)
        found = fitted.model.energy_of(rows.X, soft)
        metrics["search_errors"] = search_error_rate(truth, found)
    return {name: round(100 * value, 4) for name, value in metrics.items()}


def run(
    experiment: str,
    name: str,
    method: Method,
    data: Dataset,
    seed: int,
    records: Records,
    progress: Progress | None = None,
    keep: Callable[[Fitted], None] | None = None,
) -> Record:
    """Return the record of one fit; make it if it is not there yet, and hand it to ``keep``."""
    # The weights that a fit starts from tell apart what the settings' words do not.
    start = method.build(data.train.X.shape[1], data.train.Y.shape[1], seed)
    identity: Record = {
        "experiment": experiment,
        "dataset": data.name,
        "method": name,
        "n_train": len(data.train),
        "seed": seed,
        "fold": None,
        "decoding": "threshold" if not method.block_size else "argmax",
        "settings": {
            "method": describe(method),
            "initial_weights": digest(start.state_dict().values())[:12],
            "held_out": HELD_OUT,
            "n_test": len(data.test),
        },
    }
    if (found := records.find(identity)) is not None:
        return found
    fitted = fit(method, data.train, seed, progress)
    if keep is not None:
        keep(fitted)
    matrix = [
        parameter.tolist()
        for parameter_name, parameter in fitted.model.named_parameters()
        if parameter_name.endswith("measurements")
    ]
    record = identity | {
        "metrics": evaluate(fitted, data.test),
        "seconds": round(fitted.seconds, 2),
        "chosen": {
            "threshold": fitted.threshold,
            "held_out_f1": round(100 * fitted.held_out_f1, 4),
        },
        "measurements": matrix[0] if matrix else None,
        "parameters": sum(p.numel() for p in fitted.model.parameters()),
        "rule": F1_RULE,
        "versions": versions(),
    }
    records.add(record)
    return record
