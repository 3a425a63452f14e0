"""A labelling of low energy: descend, round, and flip labels while that lowers the energy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain, UnitBox
from spen.energies.base import Problem
from spen.errors import InputError, check_whole
from spen.inference.base import Inference, Solution
from spen.inference.descent import Descent

LEAST_GAIN = 1e-6
"""Flips that gain less, relative to the energy, are rounding."""


@dataclass(frozen=True)
class Polished(Inference):
    """Round what another inference found, and flip single labels as long as one lowers the energy.

    The answer y (n, L) is a labelling, zeros and ones, and its energy is that of the labelling. No
    flip of a candidate lowers it further: with eⱼ the j-th unit vector and dⱼ = 1 − 2yⱼ,
    E(y + dⱼ eⱼ) ≥ E(y). Candidates are the labels whose flip the gradient likes best, anew after
    each flip.

    Args:
        inference: what is polished.
        candidates: how many flips of a row are tried at a time.
        flips: the most flips of a row.

    >>> import torch
    >>> from spen import Form, UnitBox
    >>> problem = Form(linear=torch.tensor([[2.0, -2.0]]))
    >>> Polished().solve(problem, UnitBox(2)).y
    tensor([[0., 1.]])
    """

    inference: Inference = field(default_factory=Descent)
    candidates: int = 8
    flips: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.inference, Inference):
            raise InputError(
                f"inference must be an Inference, such as Descent(); received {self.inference!r}."
            )
        check_whole(self.candidates, "candidates")
        check_whole(self.flips, "flips", least=0)

    @torch.no_grad()
    def solve(
        self,
        problem: Problem,
        domain: Domain,
        start: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Solution:
        """Minimise each example's energy over labellings, as ``Inference.solve``."""
        if not isinstance(domain, UnitBox):
            raise InputError(f"Polished flips labels of UnitBox; the domain is {domain}.")
        found = self.inference.solve(problem, domain, start, known)
        y, energy = self.polish(problem, (found.y > 0.5).to(found.y), known)
        return replace(found, y=y, energy=energy, trace=None, gap=None)

    def polish(
        self, problem: Problem, y: Tensor, known: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Flip labels of labellings, (n, L), until no candidate helps; return them and energies."""
        if problem.entropy_weight is not None:
            # A labelling has none, and its gradient there is infinite.
            problem = problem.without_entropy()
        y, energy = y.clone(), problem.value(y)
        rows = torch.arange(y.shape[0], device=y.device)
        for _ in range(self.flips):
            if not len(rows):
                break
            flipped, value = self._best_flip(problem.select(rows), y[rows], take(known, rows))
            now = energy[rows]
            lower = value < now - LEAST_GAIN * now.abs()
            # From a labelling of infinite energy, any other is a way out.
            lower |= torch.isfinite(value) & ~torch.isfinite(now)
            rows = rows[lower]
            y[rows], energy[rows] = flipped[lower], value[lower]
        return y, energy

    def _best_flip(
        self, problem: Problem, y: Tensor, known: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return each row with its best candidate flipped, and the energy of that."""
        change = problem.gradient(y) * (1 - 2 * y)
        if known is not None:
            change = change.masked_fill(~torch.isnan(known), float("inf"))
        likely = change.topk(min(self.candidates, y.shape[1]), largest=False)
        row, rank = (likely.values < float("inf")).nonzero(as_tuple=True)
        flipped = y[row]
        at = likely.indices[row, rank][:, None]
        flipped.scatter_(1, at, 1 - flipped.gather(1, at))
        values = torch.full_like(likely.values, float("inf"))
        values[row, rank] = problem.select(row).value(flipped)
        lowest, best = values.min(1)
        at = likely.indices.gather(1, best[:, None])
        return y.scatter(1, at, 1 - y.gather(1, at)), lowest
