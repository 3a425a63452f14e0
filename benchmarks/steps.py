"""How many steps inference takes by each rule, to which energy, and at which F1.

    SPEN_DATA=FOLDER python benchmarks/steps.py [--nonlinearity hardtanh] [--seed 0] [--model FILE]

Trains the paper's Bibtex model (`spen-paper` of Table 1) on four fifths of the training rows,
and minimises the energies of the other fifth by every rule. Test rows are not looked at. F1 is
that of a threshold tuned on one half of those rows and measured on the other, both ways.
In the end the default rule is matched with the paper's: at the loosest tolerance at which it
reaches the paper's mean energy. With --model the classifier is kept in FILE, and read from there
the next time. The split is always the same; --seed is the model's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from steps_tried import (
    AdaptiveRestart,
    BarzilaiBorwein,
    BundleVariant,
    CoordinateRestart,
    LabelSteps,
    RowSteps,
    Secant,
)

import spen
from spen.decoding import apply_threshold
from spen.reproduce.classifiers import classifier, dataset_of, settings_of

PAPER = spen.MirrorDescent(lr=0.1, momentum=0.95)
RULES: dict[str, spen.Rule] = {
    "paper: rate .1, momentum .95": PAPER,
    "rate .05, momentum .8": spen.MirrorDescent(0.05, 0.8),
    "rate 1, no momentum": spen.MirrorDescent(1.0, 0.0),
    "rate 1, decaying": spen.MirrorDescent(1.0, 0.0, decay=0.3),
    "restart per label": CoordinateRestart(0.3),
    "adaptive restart": AdaptiveRestart(0.5),
    "step per label": LabelSteps(),
    "step per row": RowSteps(),
    "Barzilai-Borwein": BarzilaiBorwein(),
    "secant": Secant(),
    "two cuts, no aggregate": BundleVariant(aggregate=False),
    "two cuts, no values": BundleVariant(values=False),
    "two cuts, fixed rate": BundleVariant(),
    "default": spen.MirrorBundle(),
}
DEFAULT, PAPERS = "default", next(iter(RULES))
TOLERANCES = (2e-2, 1e-3, 1e-5)
MATCHES = (1e-1, 5e-2, 3e-2, 2e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
SPLIT_SEED = 0

Record = dict[str, Any]


def split(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to train on, four fifths, and those held out."""
    order = np.random.default_rng(SPLIT_SEED).permutation(rows)
    cut = int(0.8 * rows)
    return np.sort(order[:cut]), np.sort(order[cut:])


def trained(nonlinearity: str, seed: int, path: Path | None) -> tuple[Any, Any, np.ndarray]:
    """Return the classifier, and the inputs and labels of held-out rows."""
    train = dataset_of("bibtex").train
    kept, held = split(len(train))
    if path is not None and path.exists():
        made = spen.load(path)
    else:
        energy = [{"name": "LabelEnergy", "measurements": 15, "nonlinearity": nonlinearity}]
        table = settings_of("bibtex")["spen-paper"] | {"energy": energy, "folds": 1}
        made = classifier(table, seed=seed, device="cpu", where="steps.py")
        made.fit(train.X[kept], train.Y[kept])
        if path is not None:
            made.save(path)
    return made, made.predictor_.scale(train.X[held]), train.Y[held].toarray()


def cross_tuned_f1(truth: np.ndarray, soft: np.ndarray) -> float:
    """Return F1 in percent, each half decoded by the threshold that is best on the other."""
    first = np.arange(len(truth)) % 2 == 0
    scores = []
    for half in (first, ~first):
        threshold = spen.tune_threshold(truth[~half], soft[~half])[0]
        scores.append(spen.example_f1(truth[half], apply_threshold(soft[half], threshold)))
    return 100 * float(np.mean(scores))


def measure(problem: spen.Problem, truth: np.ndarray, name: str, tolerance: float) -> Record:
    """Return the steps of a rule at a tolerance, and what they come to."""
    stopping = spen.Stopping(100, objective_rtol=tolerance, iterate_atol=1e-4)
    descent = spen.Descent(RULES[name], stopping, backend="general")
    solution = descent.solve(problem, spen.UnitBox(truth.shape[1]))
    return {
        "tolerance": tolerance,
        "rule": name,
        "steps": solution.steps.double().mean().item(),
        "converged": 100 * solution.converged.double().mean().item(),
        "energy": solution.energy.mean().item(),
        "energies": solution.energy,
        "f1": cross_tuned_f1(truth, solution.y.numpy()),
    }


def compare(problem: spen.Problem, truth: np.ndarray) -> list[Record]:
    """Return a record of each tolerance and rule, the paper's being the first."""
    records = []
    for tolerance in TOLERANCES:
        found = [measure(problem, truth, name, tolerance) for name in RULES]
        paper = found[0]["energies"]
        for record in found:
            change = (record.pop("energies") - paper) / paper.abs()
            record["lower"] = 100 * (change < -1e-4).double().mean().item()
            record["higher"] = 100 * (change > 1e-4).double().mean().item()
        records += found
    return records


def match(problem: spen.Problem, truth: np.ndarray, papers: Record) -> Record:
    """Return the default's record at the loosest tolerance with the paper's energy or less."""
    for tolerance in MATCHES:
        record = measure(problem, truth, DEFAULT, tolerance)
        del record["energies"]
        if record["energy"] <= papers["energy"]:
            break
    return record


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nonlinearity", choices=("relu", "hardtanh"), default="relu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    made, inputs, truth = trained(options.nonlinearity, options.seed, options.model)
    with torch.no_grad():
        problem = made.model_.energy.bind(made.model_.context(inputs))
        records = compare(problem, truth)
        papers = [each for each in records if each["rule"] == PAPERS and each["tolerance"] < 1e-2]
        matches = [match(problem, truth, each) for each in papers]
    if options.json:
        print(json.dumps({"rules": records, "paper": papers, "matched": matches}))
        return
    print(f"Bibtex, {len(truth)} held-out training rows, {options.nonlinearity}")
    head = ("tolerance", "rule", "steps", "converged", "energy", "lower", "higher", "F1")
    print("{:>9}  {:30}{:>6}{:>11}{:>9}{:>7}{:>8}{:>7}".format(*head))
    for record in records:
        print(
            "{tolerance:9g}  {rule:30}{steps:6.1f}{converged:10.1f}%{energy:9.3f}{lower:6.0f}%"
            "{higher:7.0f}%{f1:7.2f}".format(**record)
        )
    line = "{steps:.1f} steps to {energy:.3f}, F1 {f1:.2f} (tolerance {tolerance:g})"
    for paper, matched in zip(papers, matches, strict=True):
        ratio = paper["steps"] / matched["steps"]
        print(f"paper: {line.format(**paper)}; default: {line.format(**matched)}: {ratio:.1f} x")


if __name__ == "__main__":
    main()
