"""Loopy belief propagation: labels tell each other what they would cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import check_settings
from spen.inference.base import Inference, Solution, Status, join_solutions
from spen.inference.discrete.pairwise import PairwiseForm, conditioned
from spen.kernels.cpu import machine_code
from spen.kernels.cpu.discrete import no_rows, pass_messages

COMPACT_BELOW = 0.5
"""Dropping rows that have converged costs a copy, so it waits until it halves the work."""

ROUNDING = 32
"""Beliefs within so many roundings of zero are ties, which cycles of labels do bring about: such
labels are off, however the sum was rounded."""


@dataclass(frozen=True)
class BeliefPropagation(Inference):
    """Max-product (min-sum) loopy belief propagation on a binary pairwise energy.

    y is (n, L), of zeros and ones.

    A message from i to j is how much more j's being on costs than its being off, as far as i can
    tell from what the others say:

        m_ij = min(0, h_ij + w_ij) − min(0, h_ij),   h_ij = u_i + Σ_{k ≠ j} m_ki

    All messages of a row are sent at once; a share of the old ones stays. A label is on where
    its belief u_i + Σ_k m_ki is below zero. On a tree this is exact once the messages have
    settled. With cycles it is a heuristic: messages may never settle, and labellings that have
    less energy may be missed, so a hinge trained with it sees too few violated margins.

    It honours ``known`` labels; a start changes nothing. Numba makes it ten times quicker.

    Args:
        damping: the share of old messages that stays.
        max_steps: the most rounds of messages.
        tolerance: a row has converged when no message is further from its update than this
            share of the row's largest term.
        keep: "best": return the best labelling that beliefs have stood for in any round;
            "last": that of the last one.

    >>> import torch
    >>> import spen
    >>> pairs = spen.PairwiseEnergy(2)
    >>> with torch.no_grad():
    ...     _ = pairs.weight.copy_(torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    ...     _ = pairs.bias.copy_(torch.tensor([-1.0, -3.0]))
    >>> problem = pairs.bind(spen.Context(torch.zeros(1, 1)))
    >>> solution = BeliefPropagation(damping=0.0).solve(problem, spen.UnitBox(2))
    >>> solution.y, solution.energy, solution.steps, solution.converged
    (tensor([[0., 1.]]), tensor([-3.]), tensor([2]), tensor([True]))
    """

    damping: float = 0.5
    max_steps: int = 100
    tolerance: float = 1e-5
    keep: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        numbers = {"damping": "share", "max_steps": "steps", "tolerance": "zero or more"}
        check_settings(self, **numbers, keep=("best", "last"))

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        parts = conditioned(problem, domain, known, type(self).__name__)
        kernel = machine_code(pass_messages, no_rows)
        solutions = []
        for form, held in parts:
            if kernel is None or form.unary.device.type != "cpu":
                solution = self._propagate(form)
            else:
                solution = self._propagate_rows(form, kernel)
            if held is not None:
                solution = replace(solution, y=domain.hold(solution.y, held))
            solutions.append(solution)
        return join_solutions(solutions)

    def _propagate_rows(self, form: PairwiseForm, kernel: Callable[..., None]) -> Solution:
        """Pass the messages of one row after the other."""
        (rows, n_labels), finite = form.unary.shape, form.finite()
        unary, weights = form.arrays()
        largest = form.double().largest().nan_to_num().numpy()
        y, steps, converged = np.empty((rows, n_labels)), np.empty(rows, int), np.empty(rows, bool)
        allowed, ties = self.tolerance * largest, ROUNDING * np.finfo(np.float64).eps * largest
        settings = (self.damping, self.max_steps, self.keep == "best")
        kernel(unary, weights, allowed, ties, *settings, y, steps, converged)
        labels = torch.from_numpy(y).to(form.unary)
        ended = torch.where(torch.from_numpy(converged), Status.CONVERGED, Status.MAX_STEPS)
        return Solution(
            y=labels,
            energy=form.value(labels),
            steps=torch.from_numpy(steps),
            status=torch.where(finite, ended, Status.DIVERGED),
            backend="messages-numba",
        )

    def _propagate(self, form: PairwiseForm) -> Solution:
        """Pass the messages of all rows at once, until every row has converged."""
        finite = form.finite()
        n_labels = form.unary.shape[1]
        every = torch.arange(len(finite), device=finite.device)
        # Filled in as rows go on.
        found = Solution(
            y=torch.zeros_like(form.unary),
            energy=torch.full_like(form.constant, torch.inf),
            steps=torch.full_like(every, self.max_steps),
            status=torch.where(finite, Status.MAX_STEPS, Status.DIVERGED),
        )
        rows, work = every[finite], form.select(finite)
        messages = form.unary.new_zeros(len(rows), n_labels, n_labels)
        allowed = self.tolerance * work.largest()
        ties = ROUNDING * torch.finfo(allowed.dtype).eps * work.largest()[:, None]
        running = torch.ones_like(rows, dtype=torch.bool)
        labels = None
        for step in range(1, self.max_steps + 1):
            beliefs = work.unary + messages.sum(1)
            # What i believes without what j told it: [row, from, to], as messages are.
            without = beliefs[:, :, None] - messages.mT
            sent = (without + work.weights).clamp_max_(0).sub_(without.clamp_max_(0))
            change = sent.sub_(messages)
            messages.add_(change, alpha=1 - self.damping)
            settled = change.abs_().amax((1, 2)) <= allowed
            last, labels = labels, work.unary + messages.sum(1) < -ties
            if last is None or not torch.equal(labels, last):
                self._keep(found, rows[running], work.select(running), labels[running])
            ended = running & settled
            if not ended.any():
                continue
            found.steps[rows[ended]] = step
            found.status[rows[ended]] = Status.CONVERGED
            running = running & ~settled
            left = int(running.sum())
            if not left:
                break
            if left < COMPACT_BELOW * len(rows):
                work, messages, allowed = work.select(running), messages[running], allowed[running]
                rows, ties, labels = rows[running], ties[running], labels[running]
                running = running[running]
        return replace(found, energy=torch.where(finite, found.energy, torch.nan))

    def _keep(self, found: Solution, rows: Tensor, form: PairwiseForm, labels: Tensor) -> None:
        """Keep the labellings that beliefs stand for now, or those that are the best so far."""
        y = labels.to(found.y)
        energy = form.value(y)
        if self.keep == "best":
            better = energy < found.energy[rows]
            rows, y, energy = rows[better], y[better], energy[better]
        found.y[rows], found.energy[rows] = y, energy
