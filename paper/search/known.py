"""The search for how an energy over cross-fitted scores is trained: what labels say of labels.

    SPEN_DATA=FOLDER python paper/search/known.py [--dataset NAME ...] [--scores FOLDER]
        [--search steps|damping] [--device cuda] [--part 0 --of 1]
    python paper/search/known.py --winner

Only training rows are read: a random fifth of them is held out. Label-wise networks score the
others, each row by one that has not seen it (three folds), and a network of all others scores the
held-out fifth. Energies learn from the first scores, and are judged on the held-out rows.

The grid, written down before it was searched: GRID below, of which the two small sets are given all
points, as far as time allowed, and the large ones those of CORE. A point's figure is the mean, over
data sets and shares of known labels (0, 10, 25 and 50 %, drawn at random), of the logarithm of its
log loss of the hidden labels over that of the label-wise scores, which known labels do not change.

The rule was that the point of the smallest mean wins, of those that all sets have, and that `fit`
chooses the width. The log says that the rate is the data's matter too: between the two of them lie
up to eight percent of the loss, on Bibtex in favour of the small one and on Debian's tags of the
large one. So since then `fit` tries both, and a point's figure on a set is that of its better rate
at the width that all sets have. `--winner` prints what is best then, from the log, known.jsonl,
where each line is one point on one set; a test compares it with what `fit` does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy import sparse

import spen
from spen.batch.splits import Split
from spen.estimators import recipe
from spen.estimators.judging import losses_when_known
from spen.estimators.plan import Plan, Shape
from spen.estimators.recipe import make_plan
from spen.estimators.runs import Fit
from spen.training.optimisers import OPTIMISERS
from spen_paper.sets import load

LOG = Path(__file__).with_suffix(".jsonl")
SETS = ("yeast", "bibtex", "delicious", "debian-tags", "debian-depends")
SHARES = (0.0, 0.1, 0.25, 0.5)
GRID = {
    "measurements": (64, 256),
    "dropout": (0.25, 0.5),
    "global_lr": (0.01, 0.03),
    "lr": (0.001, 0.0001),
}
"""Both rates are of AdamW: ``lr`` that of the scales and shifts of labels."""

STEPS = (1500, 6000, 18000)
LONGER = {"measurements": (256, 1024), "global_lr": (0.03,), "steps": STEPS}
LONGER = {"dropout": (0.25,), "lr": (0.001,)} | LONGER
"""How long an energy is trained, in steps, for the sets of many labels.

A second search, after the first: on Delicious it had left open whether 1,500 steps are enough. The
rule: sets of 400 labels and more get the number of steps whose mean figure over them is the least,
at the better of the two widths of each set; but a longer one must be better than a shorter one by
more than .005, half a percent of the loss, since it is paid for in every fit. Others keep 1,500.
"""

ENOUGH = 0.005
DAMPINGS: tuple[dict[str, float], ...] = (
    {},
    {"weight_decay": 0.1},
    {"weight_decay": 0.3},
    {"eps": 1e-6},
    {"eps": 1e-5},
    {"eps": 1e-4},
)
DAMPED = [
    {"measurements": 256, "dropout": 0.25, "lr": 0.001, "global_lr": rate, "third": 1} | damping
    for rate in (0.03, 0.01)
    for damping in DAMPINGS
]
"""What keeps the weights of rare labels from learning noise: points of a third search, on all sets.

After the second: longer training had made energies worse, most where labels are many and rare.
Weights may decay more than by .01, or AdamW may divide by no less than eps, so that a gradient
that is next to nothing moves nothing. The rule: of DAMPINGS the one of the least mean figure over
all sets, each at its better rate; but it must be better than the first, which is how energies were
trained before, by more than .005. On the large sets time was up before all points were run at a
rate of .01; a damping of which points are missing does not count. What `fit` tries on sets of many
labels, a decay of .1, was decided after the log had been seen (docs/reproduce.md).
"""

MANY = ("delicious", "debian-tags", "debian-depends")

CORE = {"measurements": (256,), "dropout": (0.25, 0.5), "global_lr": (0.01, 0.03), "lr": (0.001,)}
SMALL = ("yeast", "bibtex")


def main() -> None:
    """Run what is missing in the log, or print the winner."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--scores", type=Path, default=Path("runs/known-scores"))
    parser.add_argument("--winner", action="store_true")
    parser.add_argument("--search", default="first", choices=("first", "steps", "damping"))
    parser.add_argument("--part", type=int, default=0, help="this process's, from 0")
    parser.add_argument("--of", type=int, default=1, help="so many processes share the points")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--log", type=Path, default=LOG, help="where points are added")
    given = parser.parse_args()
    if given.winner:
        for record in records():
            losses = " ".join(f"{each:.4f}" for each in [record["scores_alone"], *record["losses"]])
            print(f"{record['dataset']:12} {losses}  {figure(record):+.4f}  {record['point']}")
        print(winner(), f"steps: {steps()}, damping: {damping()}")
        return
    for name in given.dataset:
        rows = scored(name, given.scores)
        for number, point in enumerate(points(name, given.search)):
            if number % given.of != given.part:
                continue
            made = [*records(), *records(given.log)]
            if not any(r["dataset"] == name and r["point"] == point for r in made):
                record = {"dataset": name, "point": point} | run(rows, point, given.device)
                with given.log.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(record, flush=True)


def points(name: str, search: str) -> list[dict[str, Any]]:
    """Return the points of a search on a set."""
    if search == "damping":
        return DAMPED
    grid: dict[str, tuple[float, ...]] = LONGER if search == "steps" else CORE
    if search == "first" and name in SMALL:
        grid = GRID
    return [dict(zip(grid, each, strict=True)) for each in itertools.product(*grid.values())]


def records(log: Path = LOG) -> list[dict[str, Any]]:
    """Return what a log holds."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def winner() -> dict[str, float]:
    """Return the settings of the least mean figure among those that every set in the log has."""
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    (width,) = CORE["measurements"]
    for record in records():
        point = {name: record["point"][name] for name in ("dropout", "lr")}
        if record["point"]["measurements"] == width and record["point"].keys() == GRID.keys():
            sets = figures[json.dumps(point)]
            sets[record["dataset"]] = min(figure(record), sets.get(record["dataset"], math.inf))
    most = max(map(len, figures.values()))
    means = {
        point: float(np.mean(list(sets.values())))
        for point, sets in figures.items()
        if len(sets) == most
    }
    return json.loads(min(means, key=lambda point: means[point]))


def figure(record: dict[str, Any]) -> float:
    """Return the mean logarithm of a point's losses over that of the scores alone."""
    return float(np.mean([math.log(loss / record["scores_alone"]) for loss in record["losses"]]))


def steps() -> int:
    """Return how many steps the energies of sets of many labels are trained for, by the rule."""
    least = best_of(lambda point: point.get("steps"), MANY)
    chosen = STEPS[0]
    for count in (each for each in STEPS[1:] if each in least):
        chosen = count if least[chosen] - least[count] > ENOUGH else chosen
    return chosen


def damping() -> dict[str, float]:
    """Return what rare labels are damped by, by the rule."""

    made = [(record["dataset"], record["point"]) for record in records()]

    def is_whole(damping: dict[str, float]) -> bool:
        wanted = [point for point in DAMPED if _damping_of(point) == damping]
        return all((name, point) in made for name in SETS for point in wanted)

    whole = [number for number, each in enumerate(DAMPINGS) if is_whole(each)]

    def number(point: dict[str, Any]) -> int | None:
        found = DAMPINGS.index(_damping_of(point)) if "third" in point else None
        return found if found in whole else None

    least = best_of(number, SETS)
    best = min(least, key=lambda each: least[each], default=0)
    return DAMPINGS[best] if best and least[0] - least[best] > ENOUGH else DAMPINGS[0]


def _damping_of(point: dict[str, Any]) -> dict[str, float]:
    return {name: point[name] for name in ("weight_decay", "eps") if name in point}


def best_of(value_of: Callable[[dict[str, Any]], Any], sets: tuple[str, ...]) -> dict[Any, float]:
    """Return the mean over sets of the least figure of each, for each value that all sets have."""
    least: dict[Any, dict[str, float]] = defaultdict(dict)
    for record in records():
        if (value := value_of(record["point"])) is not None:
            mine = least[value]
            mine[record["dataset"]] = min(figure(record), mine.get(record["dataset"], math.inf))
    return {
        value: float(np.mean([mine[name] for name in sets]))
        for value, mine in least.items()
        if all(name in mine for name in sets)
    }


def halves(name: str) -> tuple[Split, Split]:
    """Return the training rows to learn from, and a random fifth of them to judge by."""
    train = load(name).train
    labels = sparse.csr_matrix(train.Y, dtype=np.float32)
    order = np.random.default_rng(12345).permutation(labels.shape[0])
    cut = int(0.8 * len(order))
    X: Any = train.X
    own, judged = (
        Split(X[part], labels[part]) for part in map(np.sort, (order[:cut], order[cut:]))
    )
    return own, judged


def scored(name: str, folder: Path, kind: str = "", **network: Any) -> tuple[Split, Split]:
    """Return the rows to learn from, whose inputs are scores, and those to judge by.

    Scores are kept in the folder, those of networks with further settings by the name of the kind.
    """
    own, judged = halves(name)
    path = folder / f"{name}{kind}.npz"
    if not path.exists():
        part = np.random.default_rng(0).permutation(len(own)) % 3
        unseen = np.zeros(own.Y.shape, np.float32)
        for fold in range(3):
            one = label_wise(own.X[part != fold], own.Y[part != fold], **network)
            unseen[part == fold] = log_odds(one, own.X[part == fold])
        whole = log_odds(label_wise(own.X, own.Y, **network), judged.X)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, oof=unseen, dev=whole)
    scores = np.load(path)
    return Split(scores["oof"], own.Y), Split(scores["dev"], judged.Y)


def label_wise(X: Any, Y: Any, **settings: Any) -> spen.SPENClassifier:
    """Return a network without an energy, which is trained on nearly all of these rows."""
    one: dict[str, Any] = {"cross_fit": False, "linear_member": False, "base": None, "members": 1}
    one |= {"folds": 1, "dropout": 0.5, "decoding": "half", "refit": False, "held_out": 0.02}
    one |= settings
    # As the library's defaults were then: thousands of labels have had their own since.
    with patch.object(recipe, "THOUSANDS", math.inf):
        return spen.SPENClassifier(energy="local", **one, random_state=0).fit(X, Y)


def log_odds(network: spen.SPENClassifier, X: Any) -> np.ndarray:
    """Return a network's log-odds of rows, not calibrated."""
    path = network.predictor_
    parts = [path.solve(path.scale(X[k : k + 4096])).y for k in range(0, X.shape[0], 4096)]
    return torch.cat(parts).double().clamp(1e-7, 1 - 1e-7).logit().float().cpu().numpy()


def plan_of(point: dict[str, Any], rows: Split) -> Plan:
    """Return the recipe's plan for such rows, with the point's settings."""
    n, labels = rows.Y.shape
    settings = {"cross_fit": True, "decoding": "half", "metric": "f1", "folds": 3, "refit": True}
    plan = make_plan(settings | {"held_out": 0.2}, Shape(n, labels, labels, False, False))
    term = {name: point[name] for name in ("measurements", "dropout")}
    energy = spen.ScoreEnergy.unsized() + spen.SurpriseEnergy.unsized(**term)
    stage = replace(plan.stages[0], lr=point["lr"], global_lr=point["global_lr"])
    stage = replace(stage, weight_decay=point.get("weight_decay", 0.01))
    if "steps" in point:
        stage = replace(stage, epochs=round(point["steps"] * stage.batch_size / n))
    return replace(plan, energy=energy, energies=(), stages=(stage,))


def run(rows: tuple[Split, Split], point: dict[str, Any], device: str) -> dict[str, Any]:
    """Train an energy and return its log loss of hidden labels at each share."""
    own, judged = rows
    plan, domain = plan_of(point, own), spen.UnitBox(own.Y.shape[1])
    began = time.perf_counter()
    adamw = partial(torch.optim.AdamW, eps=point.get("eps", 1e-8))
    with patch.dict(OPTIMISERS, adamw=adamw):
        model, _ = Fit(own, domain, 0, device=torch.device(device)).run_energy(plan, own)
    seconds = time.perf_counter() - began
    losses = [
        float(losses_when_known(model, plan.prediction, judged, 99, (share,)).mean())
        for share in SHARES
    ]
    truth, z = judged.Y.toarray(), judged.X.astype(np.float64)
    alone = float((np.logaddexp(0, z) - truth * z).mean())
    return {"scores_alone": alone, "losses": losses, "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
