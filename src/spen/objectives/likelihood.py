"""Likelihoods that chains make exact: of a CRF, and of any energy among a chain's n best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.domains import Domain
from spen.energies.base import Problem, SumProblem
from spen.energies.language import LanguageProblem
from spen.errors import InputError, check_settings
from spen.inference.base import Inference, Solution
from spen.inference.discrete.best_of import BestOf, candidate_values, split_chain
from spen.inference.discrete.viterbi import ForwardBackward, Viterbi
from spen.objectives.base import Objective, known_or_nan, target_of

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
        problem = model.energy.bind(context, generator)
        return _loss_of_chain(problem, model.domain.of_batch(context), context)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        """The marginals."""
        problem, domain = model.energy.bind(context), model.domain.of_batch(context)
        return ForwardBackward().solve(problem, domain, known=context.known)


@dataclass(frozen=True)
class NBestLikelihood(Objective):
    """−log P(target) among the n best taggings of the chain, by all energies together.

        loss = E(t) + log Σ_y exp(−E(y)) + weight · the chain's own ``Likelihood`` loss
                                         + language · the language models' own, E^lm(t)

    where y runs over the target t and those of the n best taggings that are not t. Targets are
    (n, T K), the loss (n,). The n best change while the chain learns; the other energies learn to
    tell the target from what the chain finds likely. It predicts by ``BestOf``, with the n of the
    inference or its own. Tags that were not observed are filled in by the chain.

    Features that fit the rows leave next to nothing to learn from the first part. What a
    ``LanguageEnergy`` learns from labels alone, with ``language`` above 0, features cannot take.

    Args:
        n: how many taggings of each row the target is compared with.
        weight: how much the chain's own loss counts, without which its n best could be anything.
        language: how much −log P(t) of language models among the energies counts beside.

    >>> import spen
    >>> energy = spen.LocalEnergy(1, 2) + spen.ChainEnergy(2) + spen.SkipChainEnergy(2)
    >>> model = spen.SPEN(spen.Identity(1), energy, spen.Simplex(2, positions=None))
    >>> context = Context(torch.zeros(1, 3, 1), target=torch.eye(2)[[0, 1, 1]].reshape(1, 6))
    >>> NBestLikelihood(n=8, weight=0.0).loss(model, spen.BestOf(8), context).exp()
    tensor([8.], grad_fn=<ExpBackward0>)
    """

    n: int = 16
    weight: float = 1.0
    language: float = 0.0

    def __post_init__(self) -> None:
        check_settings(self, n="whole", weight="zero or more", language="zero or more")

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        problem, domain = model.energy.bind(context, generator), model.domain.of_batch(context)
        chain, target = split_chain(problem)[0], target_of(context)
        domain.check_shape(target, context.n_rows, "target")
        with torch.no_grad():
            if context.observed is not None:
                known = torch.where(context.observed, target, known_or_nan(context, target))
                target = Viterbi().solve(chain, domain, known=known).y
            found = Viterbi().best(chain, domain, self.n, context.known)
        y = found.y
        left_out = (y == target[:, None]).all(2) | found.energy.isinf()
        energies = candidate_values(problem, y).masked_fill(left_out, torch.inf)
        wanted = problem.value(target)
        everything = torch.logsumexp(-torch.cat([wanted[:, None], energies], 1), 1)
        loss = wanted + everything
        if self.weight:
            loss = loss + self.weight * _loss_of_chain(chain, domain, context)
        if self.language:
            loss = loss + self.language * _loss_of_language(problem, target)
        return loss

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        """The best of the n best taggings: of as many as the inference looks at, if it does so."""
        problem, domain = model.energy.bind(context), model.domain.of_batch(context)
        chosen = inference if isinstance(inference, BestOf) else BestOf(self.n)
        return chosen.solve(problem, domain, known=context.known)


def _loss_of_language(problem: Problem, target: Tensor) -> Tensor:
    """Return −log of how likely language models among the energies find the target, (n,)."""
    terms = problem.terms if isinstance(problem, SumProblem) else (problem,)
    models = [term for term in terms if isinstance(term, LanguageProblem)]
    if not models:
        raise InputError(
            "NBestLikelihood(language=...) trains language models over labels, and there is none "
            "among the energies. Add a LanguageEnergy, or leave language at 0."
        )
    return torch.stack([model.value(target) for model in models]).sum(0)


def _loss_of_chain(problem: Problem, domain: Domain, context: Context) -> Tensor:
    """Return −log of the probability of what was observed, (n,)."""
    target, chains = target_of(context), ForwardBackward()
    domain.check_shape(target, context.n_rows, "target")
    everything = chains.log_partition(problem, domain, context.known)
    if context.observed is None:
        return everything + problem.value(target)
    seen = torch.where(context.observed, target, known_or_nan(context, target))
    return everything - chains.log_partition(problem, domain, seen)
