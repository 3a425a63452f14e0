"""What a descent evaluates at an iterate, for its rule."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spen.batch.context import take
from spen.domains import Domain
from spen.energies.base import Problem
from spen.errors import InputError
from spen.inference.rule import Rule


class Prepared(NamedTuple):
    """A problem as a rule wants it.

    Attributes:
        problem: without its entropy, where the rule applies that itself.
        tau: (n,) the entropy's weight, or None where there is none or the problem has kept it.
        rates: (steps,) learned factors of the rule's step size, or None.
    """

    problem: Problem
    tau: Tensor | None
    rates: Tensor | None

    def value(self, y: Tensor, domain: Domain) -> Tensor:
        """Return the whole objective at y, entropy included, (n,)."""
        return _whole(self.problem.value(y), self.tau, domain, y)

    def gradient(self, y: Tensor, known: Tensor | None) -> Tensor:
        """Return the gradient that the rule wants, (n, L): zero at labels that are held."""
        return _free(self.problem.gradient(y), known)

    def evaluate(self, y: Tensor, domain: Domain, known: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return ``value`` and ``gradient``, sharing the work."""
        value, gradient = self.problem.value_and_gradient(y)
        return _whole(value, self.tau, domain, y), _free(gradient, known)

    def select(self, rows: Tensor) -> Prepared:
        """Return the same for some rows."""
        return Prepared(self.problem.select(rows), take(self.tau, rows), self.rates)


def prepare(problem: Problem, rule: Rule) -> Prepared:
    """Hand the entropy to a rule that applies it itself; leave it in the problem otherwise."""
    rates = problem.step_rates
    if rates is not None and not rule.takes_rates:
        raise InputError(
            f"The energy has learned StepRates, and {rule} has no step size that they could "
            "multiply. Use MirrorDescent or ProjectedGradient, or leave StepRates out."
        )
    tau = problem.entropy_weight if rule.applies_entropy else None
    return Prepared(problem if tau is None else problem.without_entropy(), tau, rates)


def _whole(value: Tensor, tau: Tensor | None, domain: Domain, y: Tensor) -> Tensor:
    return value if tau is None else value + tau * domain.negative_entropy(y)


def _free(gradient: Tensor, known: Tensor | None) -> Tensor:
    """Zero the gradient of labels that are held."""
    return gradient if known is None else gradient.masked_fill(~torch.isnan(known), 0.0)
