"""Steps of inference by each rule: how many, to which energy, and at which F1.

    SPEN_DATA=FOLDER python paper/scripts/steps.py [--nonlinearity hardtanh] [--seed 0]
        [--model FILE] [--out FOLDER]

Trains the paper's Bibtex model (`spen-paper` of Table 1) on four fifths of the training rows,
and minimises the energies of the other fifth by every rule. Test rows are not looked at. F1 is
that of a threshold tuned on one half of those rows and measured on the other, both ways.
In the end the default rule is matched with the paper's: at the loosest tolerance at which it
reaches the paper's mean energy. With --model the classifier is kept in FILE, and read from there
the next time. The split is always the same; --seed is the model's. With --out what is measured is
kept in FOLDER/records.jsonl, and where it is there already it is printed again;
`paper/records/steps` has what the texts show.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

import spen
from spen import Domain, Rule
from spen.cli.show import text_table
from spen.inference.rules import Iterate, State, at_dual
from spen_paper.bench.measurements import compare_energies, f1_of
from spen_paper.bench.model import PAPERS_RULE
from spen_paper.fits import dataset_of
from spen_paper.records import kept
from spen_paper.settings import classifier, settings_of

# Rules that were tried for fewer steps and dropped. They are written for reading, not for use: on
# the unit box, without known labels or entropy.


@dataclass(frozen=True)
class Tried(Rule):
    """A dual rule: ``move`` returns the next dual and what to remember."""

    lr: float = 1.0
    uses_value: ClassVar[bool] = True

    def init(self, y: Tensor, domain: Domain) -> State:
        """Start at y."""
        return self._start(domain.clamp_dual(domain.to_dual(y)))

    def step(
        self, state: State, here: Iterate, tau: Tensor | None, known: Tensor | None, domain: Domain
    ) -> tuple[State, Tensor]:
        """Make one step."""
        dual, *memory = self.move(state, here)
        after, y = at_dual(state, dual, known, domain)
        return after._replace(memory=tuple(memory)), y

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Return the next dual, and what to remember of this step."""
        raise NotImplementedError

    def rates(self, like: Tensor) -> Tensor:
        """Return the first step size of each row, (n, 1)."""
        return torch.full_like(like[:, :1], self.lr)


def dot(u: Tensor, v: Tensor) -> Tensor:
    """Return the inner products of rows, (n, 1)."""
    return (u * v).sum(1, keepdim=True)


@dataclass(frozen=True)
class CoordinateRestart(Tried):
    """Momentum, of which a label loses its own when the gradient turns against it."""

    momentum: float = 0.9

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Drop the velocities that point uphill."""
        velocity = state.point - state.previous
        kept = velocity * (velocity * here.gradient < 0)
        return (state.point - self.lr * here.gradient + self.momentum * kept,)


@dataclass(frozen=True)
class AdaptiveRestart(Tried):
    """Nesterov's momentum, begun anew in a row when it points uphill."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Extrapolate from the last two gradient steps."""
        last, count = state.memory or (state.point, torch.zeros_like(state.point[:, :1]))
        stepped = (state.point - self.lr * here.gradient).clamp(-15, 15)
        velocity = stepped - last
        count = (count + 1) * (dot(velocity, here.gradient) <= 0)
        return stepped + (count / (count + 3)).clamp(max=0.9) * velocity, stepped, count


@dataclass(frozen=True)
class LabelSteps(Tried):
    """A step size for each label: half as long when its gradient changes sign."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Adapt the step sizes by the signs."""
        rate, last = state.memory or (self.rates(state.point), torch.zeros_like(here.gradient))
        turned = last * here.gradient
        rate = rate * (1 + 0.2 * (turned > 0).float() - 0.5 * (turned < 0).float())
        return state.point - rate * here.gradient, rate, here.gradient


@dataclass(frozen=True)
class RowSteps(Tried):
    """A step size for each row: half as long when a step went too far."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Adapt the step size by the slope at its end."""
        rate, last = state.memory or (self.rates(state.point), here.y)
        slope = dot(here.y - last, here.gradient)
        rate = rate * (1 + 0.2 * (slope < 0).float() - 0.5 * (slope > 0).float())
        return state.point - rate * here.gradient, rate, here.y


@dataclass(frozen=True)
class BarzilaiBorwein(Tried):
    """A step size for each row, from the curvature along its last step."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Divide the step's length in the mirror map by the change of the gradient."""
        if not state.memory:
            rate = self.rates(state.point)
        else:
            rate, last_y, last_gradient = state.memory
            moved = here.y - last_y
            length = dot(state.point - state.previous, moved)
            bend = dot(here.gradient - last_gradient, moved)
            straight = torch.full_like(rate, 5.0)
            found = torch.where(bend > 1e-12, length / bend.clamp(min=1e-12), straight)
            rate = torch.minimum(found, 2 * rate).clamp(0.02, 5)
        return state.point - rate * here.gradient, rate, here.y, here.gradient


@dataclass(frozen=True)
class Secant(Tried):
    """A quasi-Newton step: a secant along the last change of the gradient, full steps across."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Take the part along the change out of the gradient, as far as the secant says."""
        slope = here.gradient
        if state.memory:
            last_y, last_slope = state.memory
            change, weight = slope - last_slope, here.y * (1 - here.y)
            bend = dot(change, here.y - last_y)
            across = dot(change * weight, slope)
            share = across / (bend / self.lr + dot(change * weight, change)).clamp(min=1e-12)
            slope = slope - share.clamp(0, 1) * (bend > 0) * change
        return state.point - self.lr * slope, here.y, here.gradient


@dataclass(frozen=True)
class BundleVariant(Tried):
    """The default's two cuts with a fixed step, and one of its parts left out.

    Args:
        lr: the step size.
        aggregate: False: the second cut is the gradient before, and stands for no older ones.
        values: False: how far the old cut lies below is guessed from the gradients alone.
    """

    aggregate: bool = True
    values: bool = True

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Mix the slopes of the two cuts."""
        assert here.value is not None
        value, slope = here.value[:, None], here.gradient
        cut = value
        if state.memory:
            last_y, last_slope, last_cut = state.memory
            change, moved = slope - last_slope, here.y - last_y
            weighted = here.y * (1 - here.y) * change
            gap = value - last_cut - dot(last_slope, moved)
            if not self.values:
                gap = dot(change, moved) / 2
            share = (dot(weighted, slope) - gap / self.lr) / dot(weighted, change).clamp(min=1e-12)
            share = share.clamp(0, 1) * (gap > 0)
            slope, cut = slope - share * change, value - share * gap
        dual = state.point - self.lr * slope
        return (
            (dual, here.y, slope, cut) if self.aggregate else (dual, here.y, here.gradient, value)
        )


RULES: dict[str, Rule] = {
    "paper: rate .1, momentum .95": PAPERS_RULE,
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
MATCHED = (1e-5, 1e-3)
"""Tolerances of the paper's rule with which the default is matched, which has these."""

MATCHES = (1e-1, 5e-2, 3e-2, 2e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)

Record = dict[str, Any]


def trained(nonlinearity: str, seed: int, path: Path | None) -> tuple[Any, Any, np.ndarray]:
    """Return the classifier, and the inputs and labels of held-out rows."""
    train = dataset_of("bibtex").train
    order = np.random.default_rng(0).permutation(len(train))
    ours, held = (np.sort(part) for part in np.split(order, [int(0.8 * len(order))]))
    if path is not None and path.exists():
        made = spen.load(path)
    else:
        energy = [{"name": "LabelEnergy", "measurements": 15, "nonlinearity": nonlinearity}]
        table = settings_of("bibtex")["spen-paper"] | {"energy": energy, "folds": 1}
        made = classifier(table, seed=seed, device="cpu", where="steps.py")
        made.fit(train.X[ours], train.Y[ours])
        if path is not None:
            made.save(path)
    return made, made.predictor_.scale(train.X[held]), train.Y[held].toarray()


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
        "f1": f1_of(truth, solution),
    }


def match(problem: spen.Problem, truth: np.ndarray, papers: Record) -> Record:
    """Return the default's record at the loosest tolerance with the paper's energy or less."""
    for tolerance in MATCHES:
        record = measure(problem, truth, DEFAULT, tolerance)
        if record["energy"] <= papers["energy"]:
            break
    return record


def measure_all(nonlinearity: str, seed: int, path: Path | None) -> Record:
    """Return every rule at every tolerance, and the default at those that match the paper's."""
    made, inputs, truth = trained(nonlinearity, seed, path)
    with torch.no_grad():
        problem = made.model_.energy.bind(made.model_.context(inputs))
        found = {
            tolerance: [measure(problem, truth, name, tolerance) for name in RULES]
            for tolerance in TOLERANCES
        }
        matched = [match(problem, truth, found[tolerance][0]) for tolerance in MATCHED]
    for records in found.values():
        papers = records[0]["energies"]
        for record in records:
            shares = compare_energies(record["energies"], papers)
            record |= {side: 100 * shares[side] for side in ("lower", "higher")}
    rules = [record for records in found.values() for record in records]
    for record in [*rules, *matched]:
        record.pop("energies", None)
    return {"rows": len(truth), "rules": rules, "matched": matched}


HEADER = ["rule", "tolerance", "steps", "converged, %", "mean energy", "lower / higher, %", "F1"]


def cells(record: Record) -> list[str]:
    """Lay a record out."""
    shares = ""
    if "lower" in record and record["rule"] != PAPERS:
        shares = f"{record['lower']:.0f} / {record['higher']:.0f}"
    return [
        record["rule"],
        f"{record['tolerance']:.0e}",
        f"{record['steps']:.1f}",
        f"{record['converged']:.1f}",
        f"{record['energy']:.3f}",
        shares,
        f"{record['f1']:.1f}",
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nonlinearity", choices=("relu", "hardtanh"), default="relu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, help="keeps what was measured")
    options = parser.parse_args()
    if options.model and options.out:
        parser.error("a record is of the model that is trained here: leave --model or --out out")
    settings = {"nonlinearity": options.nonlinearity, "seed": options.seed}
    measured = partial(measure_all, **settings, path=options.model)
    found = kept(options.out, "steps", settings, measured)["found"]
    print(f"Bibtex, {found['rows']} held-out training rows, {options.nonlinearity}\n")
    print(text_table(HEADER, [cells(record) for record in found["rules"]]))
    print("\nBeside the paper's rule: the default at the loosest tolerance that reaches its mean")
    print("energy, and at the same tolerance:\n")
    by_rule = {(record["rule"], record["tolerance"]): record for record in found["rules"]}
    rows = []
    for tolerance, matched in zip(MATCHED, found["matched"], strict=True):
        rows += [by_rule[PAPERS, tolerance], matched, by_rule[DEFAULT, tolerance]]
    print(text_table(HEADER, [cells(record) for record in rows]))
    for paper, matched in zip(rows[::3], rows[1::3], strict=True):
        print(f"{paper['tolerance']:.0e}: {paper['steps'] / matched['steps']:.1f} times the steps")


if __name__ == "__main__":
    main()
