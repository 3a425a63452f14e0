"""The search behind the MLP and the best SPEN of Table 1: training rows alone are looked at.

``--part label-wise`` tries feature networks, ``--part members`` averages of several networks
and a logistic regression, and ``--part energy`` energies over the scores that the chosen network
gives to rows it has not seen. Every score is that of rows which were held out, five folds, of the
official training part; the test part is not read.

    python paper/search/best.py --dataset bibtex --part label-wise --device cuda
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import spen
from spen.batch.splits import Split
from spen.estimators.decoding import decode
from spen.estimators.fit import (
    Fit,
    cross_fitted,
    densified,
    folds_by,
    judge,
    sharing_runs,
)
from spen.estimators.plan import Plan, Shape
from spen.estimators.recipe import make_plan
from spen.estimators.scaling import Scaling
from spen.metrics import example_f1

PROTOCOL: dict[str, Any] = {
    "decoding": "expected_f1",
    "held_out": 0.2,
    "folds": 5,
    "refit": True,
}
LABEL_WISE = {
    "bibtex": [
        (150, 0.0, 0.0, 20),
        (512, 0.5, 0.2, 30),
        (1000, 0.6, 0.2, 30),
        (1000, 0.7, 0.1, 40),
        (1000, 0.7, 0.2, 40),
        (1000, 0.7, 0.2, 60),
        (1500, 0.75, 0.1, 40),
        (2000, 0.75, 0.1, 40),
        (2000, 0.8, 0.2, 40),
        (4000, 0.8, 0.2, 40),
    ],
    "delicious": [
        (500, 0.3, 0.2, 24),
        (1000, 0.5, 0.2, 24),
        (2000, 0.5, 0.0, 24),
        (2000, 0.5, 0.2, 24),
        (2000, 0.5, 0.2, 40),
        (2000, 0.6, 0.2, 40),
    ],
}
"""The width of both layers, dropout, dropout of inputs, and epochs."""

CHOSEN = {
    "bibtex": {"hidden": (1000, 1000), "dropout": 0.7, "input_dropout": 0.1, "epochs": 40},
    "delicious": {"hidden": (2000, 2000), "dropout": 0.5, "input_dropout": 0.2, "epochs": 40},
}
BATCH = {"bibtex": 100, "delicious": 128}


ENERGY: dict[str, dict[str, Any]] = {
    "bibtex": {"measurements": 16, "epochs": 30, "f1": 5.0},
    "delicious": {"measurements": 64, "epochs": 16, "f1": 70.0},
}


def energies(dataset: str) -> list[dict[str, Any]]:
    """Return the energies to try: the chosen one, and one change at a time from it."""
    chosen = {
        "kind": "conditional",
        "lr": 1e-2,
        "weight_decay": 1e-2,
        "reveal": 0.0,
        "steps": 5,
        **ENERGY[dataset],
    }
    changes: list[dict[str, Any]] = [
        {},
        {"kind": "label"},
        {"f1": 0.0},
        {"f1": chosen["f1"] / 3},
        {"f1": chosen["f1"] * 3},
        {"reveal": 0.9},
        {"measurements": chosen["measurements"] // 4},
        {"measurements": chosen["measurements"] * 4},
        {"epochs": chosen["epochs"] // 2},
        {"weight_decay": 0.3},
        {"lr": 3e-3},
    ]
    return [chosen | change for change in changes]


def energy_plan(plan: Plan, size: int, tried: dict[str, Any], batch: int) -> Plan:
    """Return the cross-fitted plan of one energy."""
    shape = {"measurements": tried["measurements"], "nonlinearity": "softplus"}
    energy = spen.ScoreEnergy.unsized()
    if tried["kind"] == "label":
        energy += spen.LabelEnergy.unsized(**shape, initial="neutral")
    else:
        energy += spen.ConditionalScoreEnergy.unsized(**shape)
    objective = spen.UnrolledLikelihood(1.0, "local", tried["reveal"], f1=tried["f1"])
    rule = spen.MirrorDescent(lr=1.0, momentum=0.0)
    inference = spen.Descent(rule, spen.Stopping(max_steps=tried["steps"]))
    stage = spen.Stage(
        "energy",
        objective,
        inference,
        parts=("local", "global"),
        epochs=tried["epochs"],
        lr=tried["lr"],
        weight_decay=tried["weight_decay"],
        batch_size=batch,
        optimiser="adamw",
        schedule="cosine",
        keep="last",
    )
    prediction = replace(plan.prediction, objective=objective, inference=inference)
    return replace(plan, energy=energy, stages=(stage,), prediction=prediction, cross_fit=True)


def scores(plan: Plan, truth: np.ndarray, soft: np.ndarray) -> dict[str, float]:
    """Return the F1 of held-out rows under both decodings, and their log loss."""
    verdict = judge(plan, spen.UnitBox(truth.shape[1]), truth, soft)
    calibrated = verdict.calibration.apply(soft)
    found = {
        name: round(100 * example_f1(truth, decode(calibrated, name, verdict.tuned[name])), 2)
        for name in ("threshold", "expected_f1")
    }
    return found | {"log_loss": round(float(verdict.losses.mean()), 3)}


def main() -> None:
    """Run one part of the search, and print what came out, as best.jsonl keeps it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", choices=sorted(CHOSEN), default="bibtex")
    parser.add_argument("--part", choices=["label-wise", "members", "energy"], required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    data = spen.load_dataset(options.dataset).train
    inputs = Scaling.of(data.X).transform(data.X)
    rows, size = Split(inputs, data.Y), data.Y.shape[1]
    shape = Shape(len(rows), inputs.shape[1], size, sparse=True, exclusive=False)
    device = torch.device(options.device)
    work = Fit(rows, spen.UnitBox(size), options.seed, device=device)
    folds = folds_by(rows.Y, 0.2, 5, options.seed)
    network = {"batch_size": BATCH[options.dataset], "energy": "local"}

    def record(tried: dict[str, Any], found: dict[str, float], began: float) -> None:
        line = {"dataset": options.dataset, "part": options.part, "seed": options.seed}
        line |= {"tried": tried, "held_out": found, "seconds": round(time.perf_counter() - began)}
        print(json.dumps(line), flush=True)

    if options.part == "label-wise":
        for width, dropout, input_dropout, epochs in LABEL_WISE[options.dataset]:
            tried = {"hidden": (width, width), "dropout": dropout}
            tried |= {"input_dropout": input_dropout, "epochs": epochs}
            began = time.perf_counter()
            plan = make_plan(PROTOCOL | network | tried, shape)
            plan = plan.choices[0].apply(plan)
            held = work.hold_out(plan, folds)
            soft = torch.sigmoid(torch.from_numpy(held.scores.X)).numpy()
            record(tried, scores(plan, densified(held.scores.Y), soft), began)
        return
    plan = make_plan(PROTOCOL | network | CHOSEN[options.dataset], shape)
    plan = plan.choices[0].apply(plan)
    if options.part == "members":
        with sharing_runs():
            for networks, linear in itertools.product((1, 2, 3), (False, True)):
                began = time.perf_counter()
                several = replace(plan, members=networks, linear_member=linear)
                held = work.hold_out(several, folds)
                soft = torch.sigmoid(torch.from_numpy(held.scores.X)).numpy()
                tried = {"members": networks, "linear_member": linear}
                record(tried, scores(plan, densified(held.scores.Y), soft), began)
        return
    scored = work.hold_out(plan, folds)
    truth = densified(scored.scores.Y)
    soft = torch.sigmoid(torch.from_numpy(scored.scores.X)).numpy()
    record({"kind": "none"}, scores(plan, truth, soft), time.perf_counter())
    for tried in energies(options.dataset):
        began = time.perf_counter()
        each = energy_plan(plan, size, tried, BATCH[options.dataset])
        record(tried, scores(each, truth, cross_fitted(work, each, folds, scored)), began)


if __name__ == "__main__":
    main()
