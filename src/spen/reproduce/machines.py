"""What a row of Table 2 is: an energy, a solver, and how both are trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.pipeline import make_union
from sklearn.preprocessing import StandardScaler

from spen.checkpoint import Epoch
from spen.data.dataset import Split, hold_out
from spen.decoding import apply_threshold
from spen.domains import UnitBox
from spen.energies.local import LocalEnergy
from spen.energies.unsized import UnsizedEnergy
from spen.errors import InputError, choose
from spen.features import Identity
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent
from spen.metrics import hamming_error
from spen.model import SPEN
from spen.reproduce.classifiers import read_energy
from spen.reproduce.protocol import HELD_OUT
from spen.reproduce.settings import build, inherit, read_settings, read_solver, read_stage
from spen.stacking import LabelScores
from spen.training import Stage, train

MOST_DECAYS = 4
MEASURED = 500
"""Training rows whose distances say how wide a kernel is."""

DISTANCES: dict[str, Callable[..., np.ndarray]] = {
    "rbf": partial(euclidean_distances, squared=True),
    "laplacian": manhattan_distances,
}
"""The distances that kernels are functions of."""

Callbacks = Sequence[Callable[[Epoch], None]]


@dataclass(frozen=True)
class Machine:
    """One row of Table 2.

    Attributes:
        title: what the table calls it.
        energy: without its sizes.
        stages: the training; the objective of the last one predicts, and labels are on above ½.
        decays: weight decays of the first stage, of which held-out rows choose one.
        inference: the solver, the same in training and in prediction.
        kernels: γ of each kernel ("rbf", "laplacian") whose features the model sees, times the
            median distance of two rows (rbf: squared); none takes the features as they are.
            Features are standardised first.
        centres: how many training rows the features of a kernel are made of (Nyström).
        cross_fit: 0 trains all stages on the same model. k trains the first stage on all but one of
            k parts of the rows, in turn, and the others on the scores of the part left out.
    """

    title: str
    energy: UnsizedEnergy
    stages: tuple[Stage, ...]
    decays: tuple[float, ...]
    inference: Inference = field(default_factory=Descent)
    kernels: dict[str, float] = field(default_factory=dict)
    centres: int = 1000
    cross_fit: int = 0

    def with_decay(self, decay: float) -> Machine:
        """Return the machine with this weight decay in its first stage."""
        first, *others = self.stages
        return replace(self, stages=(replace(first, weight_decay=decay), *others))

    def label_wise(self) -> Machine:
        """Return the machine of the first stage alone."""
        local = LocalEnergy.unsized()
        return replace(self, energy=local, stages=self.stages[:1], cross_fit=0)


def read_machines() -> dict[str, Machine]:
    """Read the rows of ``settings/table2.toml``, by name.

    >>> read_machines()["lp"].inference
    LinearRelaxation()
    """
    tables = inherit(read_settings("table2"), "table2.toml")
    return {name: _read(table, f"table2.toml, [{name}]") for name, table in tables.items()}


def _read(table: dict[str, Any], where: str) -> Machine:
    inference = read_solver(table.get("inference", {}), f"{where} inference")
    stages = [read_stage(each, inference, f"{where} stages") for each in table.get("stages", [])]
    energy = read_energy(table.get("energy", []), where)
    decays = table.get("decays", [])
    if not 1 <= len(decays) <= MOST_DECAYS:
        raise InputError(f"{where} must have 1 to {MOST_DECAYS} decays; received {decays}.")
    return build(
        Machine, table | {"inference": inference, "stages": stages, "energy": energy}, where
    )


@dataclass(frozen=True)
class Trained:
    """A machine after training.

    Attributes:
        machine: how it was trained.
        model: the SPEN.
        view: makes of rows what the model takes.
    """

    machine: Machine
    model: SPEN
    view: Callable[[np.ndarray], np.ndarray]

    @torch.no_grad()
    def solve(self, X: np.ndarray) -> Solution:
        """Minimise the energy of each row, as its training does."""
        objective = self.machine.stages[-1].objective
        return objective.predict(
            self.model, self.machine.inference, self.model.context(self.view(X))
        )

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return labels of 0 and 1, (n, L)."""
        return apply_threshold(self.solve(X).y, 0.5)


def train_machine(machine: Machine, rows: Split, seed: int, callbacks: Callbacks = ()) -> Trained:
    """Train on all of the rows.

    Args:
        machine: what to train.
        rows: X (n, d) and Y (n, L), both dense.
        seed: of initial weights, the order of rows, and centres.
        callbacks: called after each epoch.
    """
    if machine.cross_fit:
        view = _fitted_view(machine, rows.X, seed)
        seen = Split(view(rows.X), rows.Y)
        return Trained(machine, _cross_fitted(machine, seen, seed, callbacks), view)
    fresh, seen = untrained(machine, rows, seed)
    train(fresh.model, machine.stages, seen, seed=seed, callbacks=callbacks)
    return fresh


def untrained(machine: Machine, rows: Split, seed: int) -> tuple[Trained, Split]:
    """Return a machine before its training, and the rows as its model takes them."""
    view = _fitted_view(machine, rows.X, seed)
    seen = Split(view(rows.X), rows.Y)
    return Trained(machine, _new(machine.energy, seen, seed), view), seen


def choose_decay(
    machine: Machine, rows: Split, seed: int, callbacks: Callbacks = ()
) -> tuple[float, dict[float, float]]:
    """Return the weight decay with the least Hamming error on a held-out fifth of the rows.

    A machine that is cross-fitted is judged by its label-wise model. Of equally good ones the
    largest is taken. Also returns the error of each, in percent.
    """
    kept, held = hold_out(rows, HELD_OUT, seed)
    trial = machine.label_wise() if machine.cross_fit else machine
    errors = {}
    for decay in machine.decays:
        trained = train_machine(trial.with_decay(decay), kept, seed, callbacks)
        errors[decay] = round(100 * hamming_error(held.Y, trained.predict(held.X)), 4)
    return min(machine.decays, key=lambda decay: (errors[decay], -decay)), errors


def _fitted_view(machine: Machine, X: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    scaler = StandardScaler().fit(X)
    if not machine.kernels:
        return lambda rows: np.asarray(scaler.transform(rows), np.float32)
    scaled = np.asarray(scaler.transform(X))
    maps = []
    for kernel, width in machine.kernels.items():
        distances = choose(kernel, DISTANCES, "kernel")(scaled[:MEASURED])
        gamma = width / np.median(distances)
        size = min(machine.centres, len(X))
        maps.append(Nystroem(kernel=kernel, gamma=gamma, n_components=size, random_state=seed))
    # Side by side they are the features of the sum of the kernels; of the mean, when scaled.
    fitted, scale = make_union(*maps).fit(scaled), len(maps) ** -0.5
    return lambda rows: np.asarray(scale * fitted.transform(scaler.transform(rows)), np.float32)


def _new(energy: UnsizedEnergy, rows: Split, seed: int) -> SPEN:
    width, domain = rows.X.shape[1], UnitBox(rows.Y.shape[1])
    return SPEN(Identity(width), energy.size(width, domain), domain, seed=seed)


def _cross_fitted(machine: Machine, rows: Split, seed: int, callbacks: Callbacks) -> SPEN:
    """Train the energy on scores of rows that their label-wise model has not seen."""
    first, *others = machine.stages

    def label_wise(some: Split) -> LabelScores:
        model = _new(LocalEnergy.unsized(), some, seed)
        train(model, [first], some, seed=seed, callbacks=callbacks)
        assert isinstance(model.energy, LocalEnergy)
        return LabelScores((model.features, model.energy))

    every = np.arange(len(rows))
    scores = np.empty(rows.Y.shape, np.float32)
    for part in np.array_split(np.random.default_rng(seed).permutation(every), machine.cross_fit):
        fitted = label_wise(rows.rows(np.setdiff1d(every, part)))
        with torch.no_grad():
            scores[part] = fitted(torch.from_numpy(rows.X[part])).numpy()
    over = Split(scores, rows.Y)
    apart = _new(machine.energy, over, seed)
    train(apart, others, over, seed=seed, callbacks=callbacks)
    return SPEN(label_wise(rows), apart.energy, apart.domain)
