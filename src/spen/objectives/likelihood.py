"""The exact likelihood of chains: how a CRF is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.inference.base import Inference, Solution
from spen.inference.discrete.viterbi import ForwardBackward
from spen.objectives.base import Objective, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class Likelihood(Objective):
    """−log P(target) of P(y) = exp(−E(y)) / Σ_y' exp(−E(y')), for energies that are chains.

    Targets are (n, T K), the loss (n,). It needs no inference but its own, ``ForwardBackward``.
    Classes that were not observed are summed over: then it is −log of the probability of what was.
    A target that takes a forbidden transition costs the chain's penalty.

    >>> import spen
    >>> open_end = spen.Simplex(2, positions=None)
    >>> crf = spen.SPEN(spen.Identity(1), spen.LocalEnergy(1, 2) + spen.ChainEnergy(2), open_end)
    >>> context = Context(torch.zeros(1, 3, 1), target=torch.eye(2)[[0, 1, 1]].reshape(1, 6))
    >>> Likelihood().loss(crf, spen.Viterbi(), context).exp()
    tensor([8.], grad_fn=<ExpBackward0>)
    """

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        problem, domain = model.energy.bind(context, generator), model.domain.of_batch(context)
        target, chains = target_of(context), ForwardBackward()
        domain.check_shape(target, context.n_rows, "target")
        everything = chains.log_partition(problem, domain, context.known)
        if context.observed is None:
            return everything + problem.value(target)
        seen = torch.where(context.observed, target, torch.nan)
        if context.known is not None:
            seen = torch.where(seen.isnan(), context.known, seen)
        return everything - chains.log_partition(problem, domain, seen)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        """The marginals."""
        problem, domain = model.energy.bind(context), model.domain.of_batch(context)
        return ForwardBackward().solve(problem, domain, known=context.known)
