"""The two central nouns: an Energy holds parameters, a Problem is what a solver sees."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.errors import InputError

if TYPE_CHECKING:
    from spen.energies.form import Form
    from spen.energies.unsized import UnsizedEnergy


class Problem(ABC):
    """A function of y for a batch: one number per example, differentiable in y.

    Subclasses give ``value`` and ``select``; ``gradient`` falls back on autograd.
    Problems add: ``problem + other``.
    """

    @abstractmethod
    def value(self, y: Tensor) -> Tensor:
        """Return the energy of each row: y (n, L) → (n,)."""

    @abstractmethod
    def select(self, rows: Tensor) -> Problem:
        """Return the problem of some rows (indices or a mask)."""

    @property
    @abstractmethod
    def rows_like(self) -> Tensor:
        """Any tensor with the problem's rows first: how many, their type and device."""

    def gradient(self, y: Tensor) -> Tensor:
        """Return the gradient of each row's energy with respect to y, (n, L)."""
        return self.value_and_gradient(y)[1]

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both, sharing the work. The gradient can be differentiated again."""
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            # A y that is part of a graph stays in it, so that unrolled steps chain.
            point = y if differentiable and y.requires_grad else y.detach().requires_grad_()
            value = self.value(point)
            (gradient,) = torch.autograd.grad(
                value.sum(), point, create_graph=differentiable, materialize_grads=True
            )
        return (value, gradient) if differentiable else (value.detach(), gradient)

    @property
    def form(self) -> Form | None:
        """The canonical form, or None where there is none."""
        return None

    @property
    def entropy_weight(self) -> Tensor | None:
        """The weight τ of the declared entropy term, (n,), or None.

        Rules that can apply the entropy exactly ask for τ, and take the
        gradient of ``without_entropy()``.
        """
        return None

    def without_entropy(self) -> Problem:
        """Return this problem less its declared entropy term."""
        return self

    @property
    def is_smooth(self) -> bool:
        """Whether the gradient is known to have no jumps; energies of one's own vouch for it."""
        return True

    @property
    def is_convex(self) -> bool:
        """Whether the energy is known to be convex in y, so that a gap bounds its minimum."""
        return False

    @property
    def step_rates(self) -> Tensor | None:
        """Learned factors of a rule's step size, (steps,), or None; see ``StepRates``."""
        return None

    def merge(self, other: Problem) -> Problem | None:
        """Return the sum as one problem of the same kind, or None where that cannot be."""
        return None

    def stack(self, other: Problem) -> Problem | None:
        """Return the rows of this problem and then those of another, whose shared parts must be
        the same, as one problem; None where that cannot be."""
        return None

    def __add__(self, other: Problem) -> Problem:
        return add_problems([self, other])


class SumProblem(Problem):
    """The sum of problems that have no common canonical form."""

    def __init__(self, terms: Sequence[Problem]) -> None:
        self.terms = tuple(terms)

    def value(self, y: Tensor) -> Tensor:
        return torch.stack([term.value(y) for term in self.terms]).sum(0)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = zip(*(term.value_and_gradient(y) for term in self.terms), strict=True)
        return torch.stack(values).sum(0), torch.stack(gradients).sum(0)

    def select(self, rows: Tensor) -> SumProblem:
        return SumProblem([term.select(rows) for term in self.terms])

    @property
    def rows_like(self) -> Tensor:
        return self.terms[0].rows_like

    @property
    def entropy_weight(self) -> Tensor | None:
        return total([term.entropy_weight for term in self.terms])

    def without_entropy(self) -> Problem:
        return add_problems([term.without_entropy() for term in self.terms])

    @property
    def is_smooth(self) -> bool:
        return all(term.is_smooth for term in self.terms)

    @property
    def is_convex(self) -> bool:
        return all(term.is_convex for term in self.terms)

    @property
    def step_rates(self) -> Tensor | None:
        found = [term.step_rates for term in self.terms if term.step_rates is not None]
        if len(found) > 1:
            raise InputError("An energy has two StepRates terms; leave one of them out.")
        return found[0] if found else None


def total(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """Add optional tensors; None counts as zero."""
    present = [tensor for tensor in tensors if tensor is not None]
    return functools.reduce(torch.add, present) if present else None


def add_problems(problems: Sequence[Problem]) -> Problem:
    """Add problems; those that can merge, such as canonical forms, become one."""
    terms: list[Problem] = []
    for problem in problems:
        for part in problem.terms if isinstance(problem, SumProblem) else (problem,):
            for index, term in enumerate(terms):
                if (merged := term.merge(part)) is not None:
                    terms[index] = merged
                    break
            else:
                terms.append(part)
    return terms[0] if len(terms) == 1 else SumProblem(terms)


class Energy(nn.Module):
    """A learned (or fixed) energy of outputs. It holds parameters only.

    To write your own, give ``forward(features, y)`` → (n,), with parameters
    whose initial values come from ``reset(generator)``; autograd does the rest.
    Override ``bind`` where a closed-form gradient is known. Check the result with
    ``spen.check_energy``.

    Energies add: ``LocalEnergy(...) + LabelEnergy(...)``.

    Attributes:
        n_labels: the number of columns of y.
        n_features: the width of F(x), or None when the energy does not look at x.
    """

    n_labels: int
    n_features: int | None = None

    def forward(self, features: Tensor, y: Tensor) -> Tensor:
        """Return the energy of each row: features (n, f), y (n, L) → (n,)."""
        return self.bind(Context(features)).value(y)

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        """Do once what does not depend on y; return the problem that is left.

        A generator means training: random masks are drawn from it, and stay
        fixed for the whole solve.
        """
        if type(self).forward is Energy.forward:
            raise TypeError(f"{type(self).__name__} must define forward(features, y) or bind.")
        return NetworkProblem(self, context.features)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the initial parameters from the generator."""

    @classmethod
    def unsized(cls, **settings: Any) -> UnsizedEnergy:
        """Describe such an energy without its sizes, which a fit knows.

        >>> from spen import LabelEnergy
        >>> LabelEnergy.unsized(measurements=15, nonlinearity="relu")
        LabelEnergy.unsized(measurements=15, nonlinearity='relu')
        """
        from spen.energies.unsized import UnsizedEnergy, UnsizedTerm

        return UnsizedEnergy((UnsizedTerm(cls, settings),))

    def __add__(self, other: Energy) -> Energy:
        return SumEnergy(self, other)


class NetworkProblem(Problem):
    """An energy given by ``forward(features, y)``, differentiated by autograd."""

    def __init__(self, energy: Energy, features: Tensor) -> None:
        self.energy = energy
        self.features = features

    def value(self, y: Tensor) -> Tensor:
        return self.energy(self.features, y)

    def select(self, rows: Tensor) -> NetworkProblem:
        return NetworkProblem(self.energy, self.features[rows])

    @property
    def rows_like(self) -> Tensor:
        return self.features


class SumEnergy(Energy):
    """The sum of energies over the same labels.

    >>> from spen import LabelEnergy, LocalEnergy
    >>> energy = LocalEnergy(3, 4) + LabelEnergy(4, measurements=2)
    >>> len(energy.terms), energy.n_features, energy.n_labels
    (2, 3, 4)
    """

    def __init__(self, *terms: Energy) -> None:
        super().__init__()
        flat = [part for term in terms for part in energy_terms(term)]
        self.terms = nn.ModuleList(flat)
        self.n_labels = _common("labels", [(term, term.n_labels) for term in flat]) or 0
        self.n_features = _common("features", [(term, term.n_features) for term in flat])

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        return add_problems([term.bind(context, generator) for term in energy_terms(self)])

    def reset(self, generator: torch.Generator) -> None:
        for term in energy_terms(self):
            term.reset(generator)


def energy_terms(energy: Energy) -> list[Energy]:
    """Return the terms of a sum, or the energy itself."""
    if isinstance(energy, SumEnergy):
        return [term for term in energy.terms if isinstance(term, Energy)]
    return [energy]


def _common(what: str, sizes: Sequence[tuple[Energy, int | None]]) -> int | None:
    """Return the size that all terms with such a size agree on."""
    present = [(type(term).__name__, size) for term, size in sizes if size is not None]
    if len({size for _, size in present}) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in present)
        raise InputError(f"Energies that are added must have the same {what}: {listed}.")
    return present[0][1] if present else None
