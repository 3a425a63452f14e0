"""The structured hinge: a max-margin loss with real loss-augmented inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.energies.terms import LOSSES, LossAugmentation
from spen.errors import check_settings, one_of
from spen.inference.base import Inference, Solution
from spen.objectives.base import STARTS, Objective, Start, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class Hinge(Objective):
    """loss = [Δ(t, ȳ) − E(ȳ) + E(t)]₊ at ȳ = argmin E − Δ, the paper's equations 8 and 9.

    The target t and ȳ are (n, L), the loss is (n,).

    ȳ is not rounded and held constant, so the gradient is that of E(t) − E(ȳ).

    Where a solver minimises a relaxation of E, that is the energy of the whole hinge
    (``inference.relax``). At labels both are the same; at a fractional ȳ the plain energy is
    neither what was minimised nor what the margin is about, and its gradient points elsewhere.

    Args:
        delta: Δ, by name: hamming, squared or log.
        margin: how much each wrong label is worth.
        start: where inference begins: "uniform", or the "local" model's output.
        entropy: τ of the entropy that softens predictions; training does not see it.

    >>> from spen import Context, Descent, Identity, LocalEnergy, SPEN, Stopping, UnitBox
    >>> model = SPEN(Identity(8), LocalEnergy(8, 4), UnitBox(4), seed=0)
    >>> context = Context(torch.ones(2, 8), torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]]))
    >>> Hinge(margin=2.0).loss(model, Descent(), context).shape
    torch.Size([2])
    """

    delta: str = "hamming"
    margin: float = 1.0
    start: Start = "uniform"
    entropy: float = 0.0

    def __post_init__(self) -> None:
        one_of(self.delta, LOSSES, "loss")
        check_settings(self, margin="positive", entropy="zero or more", start=STARTS)

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        problem, domain = model.energy.bind(context, generator), model.domain.of_batch(context)
        start = model.starting_point(context, self.start)
        target = target_of(context)
        if context.observed is not None:
            # Missing labels are filled in by inference, with the observed ones held fixed.
            known = torch.where(context.observed, target, torch.nan)
            target = inference.solve(problem, domain, start, known).y.detach()
        augmentation = LossAugmentation(domain, self.delta, self.margin)
        augmented = problem + augmentation.bind(context)
        solution = inference.solve(augmented, domain, start, context.known)
        found = inference.relax(augmented).value(solution.y.detach())
        return torch.relu(inference.relax(problem).value(target) - found)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        return model.solve_context(context, inference, self.start, self.entropy)
