"""Machines, the rows of Table 2: an energy, a solver, and the plan of both; their kernels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import spen
from spen import Split
from spen.errors import choose
from spen.estimators.calibration import Calibration
from spen.estimators.judging import folds_by
from spen.estimators.plan import Base, Choice, Plan, Prediction
from spen.estimators.predictor import Predictor
from spen.estimators.progress import SILENT, Progress
from spen.estimators.runs import Fit
from spen.estimators.scaling import AS_THEY_ARE
from spen_paper.settings import build, read_energy, read_rows, read_solver, read_stage
from spen_paper.tables.protocol import held_out_plan

MOST_DECAYS = 4
SLACK = 1e-2
"""Energies and losses that differ by less are equal: a hundredth of what a wrong label is worth."""

MEASURED = 500
"""Training rows whose distances say how wide a kernel is."""

SURE = 0.02
"""The regression may leave (0, 1); as probabilities its values end this far from 0 and 1."""


def _squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(rows, others).square()


def _city_block_distances(rows: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(rows, others, p=1)


DISTANCES = {"rbf": _squared_distances, "laplacian": _city_block_distances}
"""The distances that kernels are functions of: each is exp(−γ distance)."""


class StandardisedFeatures(spen.Features):
    """F((x − mean) / deviation), for features F of rows that are standardised first."""

    def __init__(self, scaler: StandardScaler, features: spen.Features) -> None:
        super().__init__()
        self.n_inputs, self.n_features = features.n_inputs, features.n_features
        self.features = features
        self.mean = torch.from_numpy(scaler.mean_).float()
        self.scale = torch.from_numpy(scaler.scale_).float()

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.features((inputs - self.mean) / self.scale, generator)


class Standardised(Base):
    """The rows' own features, standardised."""

    def fit(self, rows: Split, seed: int = 0) -> tuple[spen.Features, Split]:
        scaler = StandardScaler().fit(rows.X)
        features = StandardisedFeatures(scaler, spen.Identity(rows.X.shape[1]))
        return features, replace(rows, X=np.asarray(scaler.transform(rows.X), np.float32))


@dataclass(frozen=True)
class Kernels(Base):
    """Kernels on groups of features, and how much a regression with them is smoothed.

    Attributes:
        widths: γ of each kernel ("rbf", "laplacian"), times the median distance of two rows.
        groups: the first feature and the one after the last of each group. Every group has every
            kernel, and their mean is the kernel; none stands for one group of all features.
        ridge: what is added to the diagonal; more is smoother.
    """

    widths: dict[str, float]
    groups: tuple[tuple[int, int], ...] = ()
    ridge: float = 0.1

    def fit(self, rows: Split, seed: int = 0) -> tuple[spen.Features, Split]:
        scaler = StandardScaler().fit(rows.X)
        ridge = KernelRidge(self, np.asarray(scaler.transform(rows.X), np.float32), rows.Y)
        return StandardisedFeatures(scaler, ridge), replace(rows, X=ridge.unseen.numpy())


class KernelRidge(spen.Features):
    """F(x) = log-odds of kernel ridge regression on labels of 0 and 1, (n, L).

    All training rows are centres. So the weights have a closed form, (K + ridge I) w = Y − ½, and
    so have the values that each training row would get from a regression on all others. A
    constant in the kernel does for a bias.

    Args:
        kernels: what K is made of.
        X: training rows (n, d), scaled.
        Y: their labels (n, L).

    Attributes:
        unseen: log-odds (n, L) of each training row by a regression on all the others.

    >>> X = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    >>> ridge = KernelRidge(Kernels({"rbf": 1.0}), X, (X > 0).astype(np.float32))
    >>> [round(float(each), 1) for each in ridge(torch.tensor([[-0.2], [1.0]]))]
    [-1.7, 3.9]
    """

    centres: Tensor
    weights: Tensor

    def __init__(self, kernels: Kernels, X: np.ndarray, Y: np.ndarray) -> None:
        super().__init__()
        # With a small ridge the system is nearly singular, hence float64.
        rows, labels = (torch.as_tensor(each, dtype=torch.float64) for each in (X, Y))
        self.n_inputs, self.n_features = rows.shape[1], labels.shape[1]
        some = rows[:MEASURED]
        self.terms: list[tuple[slice, str, float]] = []
        for first, end in kernels.groups or ((0, self.n_inputs),):
            if not 0 <= first < end <= self.n_inputs:
                raise spen.InputError(
                    f"A group of features must lie within 0 and {self.n_inputs}, the number of "
                    f"features; received {first} to {end}."
                )
            group = slice(first, end)
            for name, width in kernels.widths.items():
                distances = choose(name, DISTANCES, "kernel")(some[:, group], some[:, group])
                self.terms.append((group, name, width / float(distances.median())))
        system = self._kernel(rows, rows)
        system.diagonal().add_(kernels.ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(system))
        weights = inverse @ (labels - 0.5)
        # What a row is missed by when it is left out is its weight over its entry of the inverse.
        self.unseen = _log_odds(labels - weights / inverse.diagonal()[:, None]).float()
        self.register_buffer("centres", rows.float())
        self.register_buffer("weights", weights.float())

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _log_odds(self._kernel(inputs, self.centres) @ self.weights + 0.5)

    def _kernel(self, rows: Tensor, others: Tensor) -> Tensor:
        total = torch.zeros(len(rows), len(others), dtype=rows.dtype, device=rows.device)
        for group, name, gamma in self.terms:
            total += torch.exp(-gamma * DISTANCES[name](rows[:, group], others[:, group]))
        return 1 + total / len(self.terms)


def _log_odds(values: Tensor) -> Tensor:
    return values.clamp(SURE, 1 - SURE).logit()


@dataclass(frozen=True)
class Machine:
    """One row of Table 2.

    Attributes:
        title: what the table calls it.
        energy: without its sizes.
        stages: the training; the objective of the last one predicts, and labels are on above ½.
        decays: weight decays of the first stage, of which held-out rows choose one; with
            kernels, values of their ridge.
        inference: the solver, the same in training and in prediction.
        kernels: None trains on the rows' features. With kernels a regression is fitted first, label
            by label, and the stages are trained on its scores of rows that it has not seen.
    """

    title: str
    energy: spen.UnsizedEnergy
    stages: tuple[spen.Stage, ...]
    decays: tuple[float, ...]
    inference: spen.Inference = field(default_factory=spen.Descent)
    kernels: Kernels | None = None

    def plan(self) -> Plan:
        """Return how it is chosen and trained."""
        return held_out_plan(
            self.stages,
            self.inference,
            choices=tuple(Decay((), decay=decay) for decay in sorted(self.decays)),
            energy=self.energy,
            decoding="half",
            base=self.kernels or Standardised(),
            # A machine with kernels is judged by their regression alone.
            tried="base" if self.kernels else "all",
            metric="hamming",
        )

    def epochs(self) -> int:
        """Return how many epochs it takes to choose a decay and to train."""
        trials = 0 if self.kernels else len(self.decays)
        return (trials + 1) * sum(stage.epochs for stage in self.stages)


@dataclass(frozen=True)
class Decay(Choice):
    """A weight decay of the first stage, or the ridge of kernels."""

    decay: float = 0.0

    def apply(self, plan: Plan) -> Plan:
        if isinstance(plan.base, Kernels):
            return replace(plan, choices=(self,), base=replace(plan.base, ridge=self.decay))
        first = replace(plan.stages[0], weight_decay=self.decay)
        return replace(plan, choices=(self,), trial=first, stages=(first, *plan.stages[1:]))


def read_machines() -> dict[str, Machine]:
    """Read the rows of ``settings/table2.toml``, by name.

    >>> read_machines()["lp"].inference
    LinearRelaxation()
    """
    return read_rows("table2", read_machine)


def read_machine(table: dict[str, Any], where: str) -> Machine:
    """Make a row of the table of its settings."""
    inference = read_solver(table.get("inference", {}), f"{where} inference")
    stages = [read_stage(each, inference, f"{where} stages") for each in table.get("stages", [])]
    energy = read_energy(table.get("energy", []), where)
    kernels = table.get("kernels")
    if kernels is not None:
        groups = [tuple(group) for group in kernels.get("groups", [])]
        kernels = build(Kernels, kernels | {"groups": groups}, f"{where} kernels")
    decays = table.get("decays", [])
    if not 1 <= len(decays) <= MOST_DECAYS:
        raise spen.InputError(f"{where} must have 1 to {MOST_DECAYS} decays; received {decays}.")
    read = {"inference": inference, "stages": stages, "energy": energy, "kernels": kernels}
    return build(Machine, table | read, where)


def choose_decay(
    machine: Machine, rows: Split, seed: int, progress: Progress = SILENT
) -> tuple[Plan, dict[float, float]]:
    """Return the plan with the decay of the least Hamming error on a held-out fifth of the rows.

    Of equally good ones the largest is taken. Also returns the error of each, in percent.
    """
    plan = machine.plan()
    work = Fit(rows, spen.UnitBox(rows.Y.shape[1]), seed, progress=progress)
    folds = folds_by(rows.Y, plan.held_out, plan.folds, seed)
    chosen, _, verdicts = work.choose(plan, folds)
    errors = [round(100 * (1 - verdict.score), 4) for verdict in verdicts]
    return chosen, dict(zip(sorted(machine.decays), errors, strict=False))


def train_by(plan: Plan, rows: Split, seed: int, progress: Progress = SILENT) -> Predictor:
    """Train on all of the rows, X (n, d) and Y (n, L), both dense."""
    work = Fit(rows, spen.UnitBox(rows.Y.shape[1]), seed, progress=progress)
    return predictor_of(work.run(plan)[0], plan.prediction)


def predictor_of(model: spen.SPEN, prediction: Prediction) -> Predictor:
    """Return the predictor of a model over label sets that takes things as they are."""
    unchanged = Calibration(1.0, np.zeros(model.domain.size), exclusive=False)
    return Predictor(model, prediction, AS_THEY_ARE, unchanged, "half", {"half": 0.5})


def decay_of(plan: Plan) -> float:
    """Return the weight decay, or the ridge, that a plan has chosen."""
    choice = plan.chosen
    assert isinstance(choice, Decay)
    return choice.decay


@torch.no_grad()
def search_of(predictor: Predictor, X: np.ndarray) -> dict[str, float]:
    """Return how a max-margin machine's predictions compare with least energies, in percent.

    Other objectives do not ask for the labelling of least energy, so nothing is said of them.

    Returns:
        search_errors: rows whose rounded solution has more energy than the best labelling;
        undecided: rows with a label that is neither off (below .1) nor on (above .9);
        unsettled: rows where the solver did not end as it wants to.
    """
    if not isinstance(predictor.prediction.objective, spen.Hinge):
        return {}
    model, solution = predictor.model, predictor.solve(X)
    problem = model.energy.bind(model.context(X))
    found = problem.value(model.domain.round(solution.y))
    least = spen.Exact().solve(problem, model.domain).energy
    undecided = ((solution.y > 0.1) & (solution.y < 0.9)).any(1)
    return {
        "search_errors": percent(found > least + SLACK),
        "undecided": percent(undecided),
        "unsettled": percent(~solution.converged),
    }


def percent(rows: Tensor) -> float:
    """Return which share of rows is true, × 100."""
    return round(100 * float(rows.float().mean()), 4)
