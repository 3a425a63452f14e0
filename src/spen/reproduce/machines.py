"""What a row of Table 2 is: an energy, a solver, and how both are trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from spen.batch.splits import Split, hold_out
from spen.decoding import apply_threshold
from spen.domains import UnitBox
from spen.energies.unsized import UnsizedEnergy
from spen.errors import InputError
from spen.features import Identity
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent
from spen.metrics import hamming_error
from spen.model import SPEN
from spen.reproduce.classifiers import read_energy
from spen.reproduce.kernel_ridge import KernelRidge, Kernels
from spen.reproduce.protocol import HELD_OUT
from spen.reproduce.settings import build, inherit, read_settings, read_solver, read_stage
from spen.training.checkpoint import Epoch
from spen.training.loop import train
from spen.training.stage import Stage

MOST_DECAYS = 4

Callbacks = Sequence[Callable[[Epoch], None]]
View = Callable[[np.ndarray], np.ndarray]


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
    energy: UnsizedEnergy
    stages: tuple[Stage, ...]
    decays: tuple[float, ...]
    inference: Inference = field(default_factory=Descent)
    kernels: Kernels | None = None

    def with_decay(self, decay: float) -> Machine:
        """Return the machine with this weight decay in its first stage, or this ridge."""
        if self.kernels is not None:
            return replace(self, kernels=replace(self.kernels, ridge=decay))
        first, *others = self.stages
        return replace(self, stages=(replace(first, weight_decay=decay), *others))

    def epochs(self) -> int:
        """Return how many epochs it takes to choose a decay and to train."""
        trials = 0 if self.kernels else len(self.decays)
        return (trials + 1) * sum(stage.epochs for stage in self.stages)


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
    kernels = table.get("kernels")
    if kernels is not None:
        groups = [tuple(group) for group in kernels.get("groups", [])]
        kernels = build(Kernels, kernels | {"groups": groups}, f"{where} kernels")
    decays = table.get("decays", [])
    if not 1 <= len(decays) <= MOST_DECAYS:
        raise InputError(f"{where} must have 1 to {MOST_DECAYS} decays; received {decays}.")
    read = {"inference": inference, "stages": stages, "energy": energy, "kernels": kernels}
    return build(Machine, table | read, where)


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
    view: View

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
        seed: of initial weights and the order of rows.
        callbacks: called after each epoch.
    """
    if machine.kernels is None:
        fresh, seen = untrained(machine, rows, seed)
        train(fresh.model, machine.stages, seen, seed=seed, callbacks=callbacks)
        return fresh
    view, ridge = _regression(machine.kernels, rows)
    over = Split(ridge.unseen.numpy(), rows.Y)
    apart = _new(machine.energy, over, seed)
    train(apart, machine.stages, over, seed=seed, callbacks=callbacks)
    return Trained(machine, SPEN(ridge, apart.energy, apart.domain), view)


def untrained(machine: Machine, rows: Split, seed: int) -> tuple[Trained, Split]:
    """Return a machine before its training, and the rows as its model takes them."""
    view = _scaler(rows)
    seen = Split(view(rows.X), rows.Y)
    return Trained(machine, _new(machine.energy, seen, seed), view), seen


def choose_decay(
    machine: Machine, rows: Split, seed: int, callbacks: Callbacks = ()
) -> tuple[float, dict[float, float]]:
    """Return the weight decay with the least Hamming error on a held-out fifth of the rows.

    A machine with kernels is judged by their regression alone. Of equally good ones the
    largest is taken. Also returns the error of each, in percent.
    """
    kept, held = hold_out(rows, HELD_OUT, seed)
    errors = {}
    for decay in machine.decays:
        labels = _trial(machine.with_decay(decay), kept, held.X, seed, callbacks)
        errors[decay] = round(100 * hamming_error(held.Y, labels), 4)
    return min(machine.decays, key=lambda decay: (errors[decay], -decay)), errors


def _trial(
    machine: Machine, rows: Split, X: np.ndarray, seed: int, callbacks: Callbacks
) -> np.ndarray:
    if machine.kernels is None:
        return train_machine(machine, rows, seed, callbacks).predict(X)
    view, ridge = _regression(machine.kernels, rows)
    return apply_threshold(ridge(torch.from_numpy(view(X))).sigmoid(), 0.5)


def _regression(kernels: Kernels, rows: Split) -> tuple[View, KernelRidge]:
    view = _scaler(rows)
    return view, KernelRidge(kernels, view(rows.X), rows.Y)


def _scaler(rows: Split) -> View:
    scaler = StandardScaler().fit(rows.X)
    return lambda X: np.asarray(scaler.transform(X), np.float32)


def _new(energy: UnsizedEnergy, rows: Split, seed: int) -> SPEN:
    width, domain = rows.X.shape[1], UnitBox(rows.Y.shape[1])
    return SPEN(Identity(width), energy.size(width, domain), domain, seed=seed)
