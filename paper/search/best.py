"""The search behind the MLP and the best SPEN of Table 1: training rows alone are looked at.

    SPEN_DATA=FOLDER python paper/search/best.py --dataset bibtex --part label-wise
        [--device cuda] [--try '{"hidden": [500, 500], "dropout": 0.5}']

What was tried is in best.jsonl, one JSON line per run; this runs a part of it again, or a new
point. ``--part label-wise`` has feature networks, ``--part members`` averages of several networks
and a logistic regression, and ``--part energy`` energies over the scores that the chosen network
gives to rows it has not seen. Every score is that of rows which were held out, five folds, of the
official training part; the test part is not read.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spen
from spen.batch.arrays import densified
from spen.batch.splits import Split
from spen.estimators.decoding import decode
from spen.estimators.fit import cross_fitted
from spen.estimators.judging import folds_by, judge
from spen.estimators.plan import Plan, Shape
from spen.estimators.recipe import make_plan
from spen.estimators.runs import Fit, sharing_runs
from spen.estimators.scaling import Scaling
from spen.metrics import example_f1

PROTOCOL: dict[str, Any] = {"decoding": "expected_f1", "held_out": 0.2, "folds": 5, "refit": True}
RECORDS = Path(__file__).with_suffix(".jsonl")
CHOSEN = {
    "bibtex": {"hidden": (1000, 1000), "dropout": 0.7, "input_dropout": 0.1, "epochs": 40},
    "delicious": {"hidden": (2000, 2000), "dropout": 0.5, "input_dropout": 0.2, "epochs": 40},
}
BATCH = {"bibtex": 100, "delicious": 128}


def energy_plan(plan: Plan, tried: dict[str, Any], batch: int) -> Plan:
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
    parser.add_argument("--try", dest="new", help="a new point, written like those of the part")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    data = spen.load_dataset(options.dataset).train
    inputs = Scaling.of(data.X).transform(data.X)
    rows, size = Split(inputs, data.Y), data.Y.shape[1]
    shape = Shape(len(rows), inputs.shape[1], size, sparse=True, exclusive=False)
    work = Fit(rows, spen.UnitBox(size), options.seed, device=torch.device(options.device))
    folds = folds_by(rows.Y, 0.2, 5, options.seed)
    batch = BATCH[options.dataset]

    def network_plan(network: dict[str, Any]) -> Plan:
        settings = network | {"hidden": tuple(network["hidden"])}
        plan = make_plan(PROTOCOL | {"batch_size": batch, "energy": "local"} | settings, shape)
        return plan.choices[0].apply(plan)

    def try_out(tried: dict[str, Any]) -> dict[str, float]:
        """Return the scores of one point of the search."""
        chosen = network_plan(tried if options.part == "label-wise" else CHOSEN[options.dataset])
        if options.part == "members":
            chosen = replace(chosen, **tried)
        held = work.hold_out(chosen, folds)
        truth = densified(held.scores.Y)
        if options.part == "energy" and tried["kind"] != "none":
            plan = energy_plan(chosen, tried, batch)
            return scores(plan, truth, cross_fitted(work, plan, folds, held)[0])
        return scores(chosen, truth, torch.sigmoid(torch.from_numpy(held.scores.X)).numpy())

    lines = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    part = {"dataset": options.dataset, "part": options.part}
    points = [line["tried"] for line in lines if part.items() <= line.items()]
    # A network that several points have in common is trained once.
    with sharing_runs():
        for tried in [json.loads(options.new)] if options.new else points:
            began = time.perf_counter()
            found = {"tried": tried, "held_out": try_out(tried)}
            seconds = round(time.perf_counter() - began)
            line = part | {"seed": options.seed} | found | {"seconds": seconds}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
