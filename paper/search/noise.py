"""What was compared before ``label_issues`` ranked labels as it does.

    SPEN_DATA=FOLDER python paper/search/noise.py [--dataset NAME ...] [--models FOLDER]

Errors are planted in training rows as ``spen reproduce noise`` does, by a seed that it does not
use; no test row is read. Models of three folds score the rows that they have not seen, and each
way to rank decisions is judged by its precision at the number of planted errors, beside the log
loss of the labels given where the way predicts them. The rule: the simplest way that none beats by
more than a standard error (about 2 points) on either set.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

import spen
from spen.estimators.calibration import Calibration
from spen.estimators.issues import WRONG, Trust, evidence, log_odds_given
from spen_paper.sets import load
from spen_paper.studies.noise import SHARE, plant

SEED, FOLDS = 1000, 3
CHOSEN = "… and trust (label_issues)"
SHARES = (0.01, 0.02, WRONG, 0.1, 0.2)
"""Of wrong labels, with which the chosen way is tried: how much depends on that."""

FEW_LABELS = 14
"""Up to which all labellings are looked at."""


def main() -> None:
    """Train what is missing, and print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", nargs="+", default=("yeast", "bibtex"))
    parser.add_argument("--models", type=Path, default=Path("runs/noise-search"))
    given = parser.parse_args()
    for name in given.dataset:
        train = load(name).train
        planted = plant(train.Y, SHARE, SEED)
        labels = planted.given.toarray().astype(float)
        part = np.random.default_rng(SEED).permutation(len(train)) % FOLDS
        odds: dict[str, np.ndarray] = {}
        for fold in range(FOLDS):
            kept, held = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
            rows = spen.Split(train.X, planted.given)
            own, alone = (
                fitted(given.models / f"{name}-{fold}-{energy}.spen", energy, rows.rows(kept))
                for energy in ("auto", "local")
            )
            for way, z in ways(own, alone, train.X[held], labels[held]).items():
                odds.setdefault(way, np.zeros(labels.shape))[held] = z
        print(f"\n{name}: {planted.count} errors")
        for way, z in odds.items():
            loss = (np.logaddexp(0, z) - labels * z).mean()
            plain = precision(planted, np.where(labels == 1, -z, z))
            told = []
            for share in SHARES if way == CHOSEN else (WRONG,):
                if_one, if_zero = evidence(labels, share)
                score = np.where(labels == 1, -z - if_one, z + if_zero)
                told.append(f"{precision(planted, score):.1f}")
            words = f"with evidence {', '.join(told)}"
            print(f"{way:<34} log loss {loss:.4f}  as it is {plain:.1f}  {words}")


def fitted(path: Path, energy: str, rows: spen.Split) -> spen.SPENClassifier:
    """Return a classifier of this file, or fit it and write the file."""
    if not path.exists():
        made = spen.SPENClassifier(energy=energy, random_state=SEED).fit(rows.X, rows.Y)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.save(path)
    return spen.load(path)


def ways(own: Any, alone: Any, X: Any, given: np.ndarray) -> dict[str, np.ndarray]:
    """Return the log-odds of each label (n, L) by each way."""
    parts = zip(*log_odds_given(own.predictor_, X, given), strict=True)
    _, z, c = map(np.concatenate, parts)
    rest = settled(own, X, given)
    calibrated = Calibration.of(given, special.expit(c), False)
    found = {
        "label-wise model": special.logit(alone.predict_proba(X).astype(float)),
        "SPEN, no label known": special.logit(own.predict_proba(X).astype(float)),
        "energy of the label flipped": c,
        "… calibrated": calibrated.scale * c + calibrated.shift,
        CHOSEN: Trust.of(given, z, c).log_odds(z, c),
        "… the rest settled": rest,
        "… the rest settled, and trust": Trust.of(given, z, rest).log_odds(z, rest),
    }
    if given.shape[1] <= FEW_LABELS:
        found["… the rest at its minimum"] = minimal(own, X, given, 0.0)
        found["… that of energy and evidence"] = minimal(own, X, given, WRONG)
    return found


@torch.no_grad()
def minimal(own: Any, X: Any, given: np.ndarray, wrong: float) -> np.ndarray:
    """Return (2 yⱼ − 1) [min E(y with j flipped, any others) − E(y)], by looking at all labellings;
    of the energy alone, or with the evidence of a share of wrong labels for all labels but j."""
    model, size, first, found = own.model_, given.shape[1], 0, []
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=size)))
    if_one, if_zero = evidence(given, wrong) if wrong else (0.0, 0.0)
    for context, rows in model.contexts(own.predictor_.scale(X)):
        problem = model.smoothed(context, 0.0)
        for row in range(rows):
            y = torch.from_numpy(given[first + row]).float()
            told = torch.where(y == 1, if_one, if_zero)
            one = problem.select(torch.full((len(every),), row))
            values = one.value(every) - every @ told
            now = values[(every == y).all(1)]
            least = torch.stack([values[every[:, j] != y[j]].min() for j in range(size)])
            found.append(((2 * y - 1) * (least - now) - told).double().numpy())
        first += rows
    return np.stack(found)


@torch.no_grad()
def settled(own: Any, X: Any, given: np.ndarray) -> np.ndarray:
    """Return the log-odds of each label where the others are not as given, but at the mean field
    of the energy and of the evidence that each is given or not."""
    if_one, if_zero = evidence(given, WRONG)
    told = torch.from_numpy(np.where(given == 1, if_one, if_zero)).float()
    model, first, found = own.model_, 0, []
    for context, rows in model.contexts(own.predictor_.scale(X)):
        problem = model.smoothed(context, 0.0).select(torch.arange(rows))
        at = torch.from_numpy(given[first : first + rows]).float()
        evident = told[first : first + rows]
        odds = (2 * at - 1) * problem.flips(at)
        for _ in range(2):
            odds = contrast(problem, torch.sigmoid(odds + evident))
        found.append(odds.double().numpy())
        first += rows
    return np.concatenate(found)


def contrast(form: Any, y: Tensor) -> Tensor:
    """Return E(y with label j off) − E(y with it on), (n, L), for soft labels y."""
    odds = -form.linear
    for block in form.blocks:
        z = y @ block.measurements.T + block.bias
        odds = odds - block.flips(z, 1 - y) + block.flips(z, -y)
    return odds


def precision(planted: Any, score: np.ndarray) -> float:
    """Return the share of errors, in percent, among as many of the highest scores."""
    first = np.argsort(-score.ravel(), kind="stable")[: planted.count]
    return 100 * float(planted.wrong.ravel()[first].mean())


if __name__ == "__main__":
    main()
