"""The two central nouns: an Energy holds parameters, a Problem is what a solver sees.

Beside them are their sums, descriptions of energies that do not know their sizes yet, and a check
for energies that others write.
"""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from spen.batch.context import Context, take
from spen.batch.positions import at_positions
from spen.described import keep_arguments, register
from spen.domains import Domain, Simplex, UnitBox
from spen.errors import EnergyCheckError, InputError, did_you_mean

if TYPE_CHECKING:
    from spen.energies.form import Form


class Problem(ABC):
    """A function of y for a batch: one number per example, differentiable in y.

        value: y (n, L) → E(y) (n,),   gradient: y (n, L) → ∇E(y) (n, L)

    Subclasses give ``value`` and ``select``; ``gradient`` falls back on autograd.
    Problems add: ``problem + other``.

    Attributes:
        mask: (n, T) True where there is a position; None for outputs without positions.

    >>> from spen import LocalEnergy
    >>> problem = LocalEnergy(n_features=8, n_labels=4).bind(Context(torch.ones(2, 8)))
    >>> y = torch.full((2, 4), 0.5)
    >>> problem.value(y).shape, problem.gradient(y).shape, problem.flips(y.round()).shape
    (torch.Size([2]), torch.Size([2, 4]), torch.Size([2, 4]))
    >>> problem.select(torch.tensor([1])).value(y[:1]).shape
    torch.Size([1])
    """

    mask: Tensor | None = None

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

    def flips(self, y: Tensor) -> Tensor:
        """Return by how much the energy of a labelling changes where one label is flipped.

        With eⱼ the j-th unit vector and dⱼ = 1 − 2yⱼ, which is the step from one value of a label
        to the other,

            flipsⱼ(y) = E(y + dⱼ eⱼ) − E(y)

        Below zero, the energy likes the other value better. It is exact, and differs from dⱼ times
        the gradient wherever the energy bends.

        Args:
            y: (n, L) of 0 and 1. Some labels may be in between, where others are asked about.
        """
        value, changes = self.value(y), torch.empty_like(y)
        for j in range(y.shape[1]):
            flipped = y.clone()
            flipped[:, j] = 1 - y[:, j]
            changes[:, j] = self.value(flipped) - value
        return changes

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

    def settle(self) -> Problem:
        """Return the same problem for many steps: what does not depend on y is computed already.

        It is asked only about y that are zero where there is no position, and nobody looks at its
        gradient there.
        """
        return self

    def merge(self, other: Problem) -> Problem | None:
        """Return the sum as one problem of the same kind, or None where that cannot be."""
        return None

    def stack(self, other: Problem) -> Problem | None:
        """Return the rows of this problem and then those of another, whose shared parts must be
        the same, as one problem; None where that cannot be."""
        return None

    def __add__(self, other: Problem) -> Problem:
        return add_problems([self, other])


@dataclass(frozen=True)
class RecordProblem(Problem):
    """A problem that is a record. Its subclasses, frozen dataclasses, name the fields with rows."""

    with_rows: ClassVar[tuple[str, ...]]

    def select(self, rows: Tensor) -> Problem:
        return replace(self, **{name: take(getattr(self, name), rows) for name in self.with_rows})

    @property
    def rows_like(self) -> Tensor:
        return next(part for name in self.with_rows if (part := getattr(self, name)) is not None)


class SumProblem(Problem):
    """The sum of problems that have no common canonical form."""

    def __init__(self, terms: Sequence[Problem]) -> None:
        self.terms = tuple(terms)
        masks = (term.mask for term in self.terms)
        self.mask = next((mask for mask in masks if mask is not None), None)

    def value(self, y: Tensor) -> Tensor:
        return _sum([term.value(y) for term in self.terms])

    def gradient(self, y: Tensor) -> Tensor:
        return _sum([term.gradient(y) for term in self.terms])

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = zip(*(term.value_and_gradient(y) for term in self.terms), strict=True)
        return _sum(values), _sum(gradients)

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

    def flips(self, y: Tensor) -> Tensor:
        return _sum([term.flips(y) for term in self.terms])

    def settle(self) -> Problem:
        return add_problems([term.settle() for term in self.terms])

    @property
    def is_smooth(self) -> bool:
        return all(term.is_smooth for term in self.terms)

    @property
    def is_convex(self) -> bool:
        # Forms last: they look at their numbers, for which a GPU's host waits.
        return all(term.is_convex for term in sorted(self.terms, key=lambda t: t.form is not None))

    @property
    def step_rates(self) -> Tensor | None:
        found = [term.step_rates for term in self.terms if term.step_rates is not None]
        if len(found) > 1:
            raise InputError("An energy has two StepRates terms; leave one of them out.")
        return found[0] if found else None


def total(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """Add optional tensors; None counts as zero."""
    present = [tensor for tensor in tensors if tensor is not None]
    return _sum(present) if present else None


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.add, tensors)


def add_problems(problems: Sequence[Problem]) -> Problem:
    """Add problems; those that can merge, such as canonical forms, become one."""
    terms: list[Problem] = []
    for problem in problems:
        for part in problem.terms if isinstance(problem, SumProblem) else (problem,):
            terms = _with_part(terms, part)
    return terms[0] if len(terms) == 1 else SumProblem(terms)


def _with_part(terms: Sequence[Problem], part: Problem) -> list[Problem]:
    """Return terms with one more, which takes the place of the first that it merges with."""
    kept, place = [], None
    for term in terms:
        merged = term.merge(part) or part.merge(term)
        if merged is None:
            kept.append(term)
            continue
        part, place = merged, len(kept) if place is None else place
    kept.insert(len(kept) if place is None else place, part)
    return kept


class Energy(nn.Module):
    """A learned (or fixed) energy of outputs. It holds parameters only.

    To write your own, give ``forward(features, y)``: (n, f) and (n, L) → (n,), with parameters
    whose initial values come from ``reset(generator)``; autograd does the rest.
    Override ``bind`` where a closed-form gradient is known. Check the result with
    ``spen.check_energy``.

    Energies add: ``LocalEnergy(...) + LabelEnergy(...)``.

    Attributes:
        n_labels: the number of columns of y.
        n_features: the width of F(x), or None when the energy does not look at x.

    >>> class SizeEnergy(Energy):
    ...     def __init__(self, n_labels):
    ...         super().__init__()
    ...         self.n_labels = n_labels
    ...     def forward(self, features, y):
    ...         return (y.sum(1) - 2) ** 2      # two labels are best
    >>> SizeEnergy(4)(torch.zeros(2, 1), torch.tensor([[1.0, 1, 0, 0], [1, 1, 1, 1]]))
    tensor([0., 4.])
    >>> check_energy(SizeEnergy(4))
    """

    n_labels: int
    n_features: int | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        keep_arguments(cls)

    def __getattr__(self, name: str) -> Any:
        if name == "n_labels":
            raise AttributeError(
                f"{type(self).__name__} does not say how many labels it is for. Write "
                "self.n_labels = n_labels in its __init__."
            )
        return super().__getattr__(name)

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
        return NetworkProblem(self, context.features, context.mask)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the initial parameters from the generator."""

    @classmethod
    def unsized(cls, **settings: Any) -> UnsizedEnergy:
        """Describe such an energy without its sizes, which a fit knows.

        >>> from spen import LabelEnergy
        >>> LabelEnergy.unsized(measurements=15, nonlinearity="relu")
        LabelEnergy.unsized(measurements=15, nonlinearity='relu')
        """
        return UnsizedEnergy((UnsizedTerm(cls, settings),))

    def __add__(self, other: Energy) -> Energy:
        return SumEnergy(self, other)


@dataclass(frozen=True)
class NetworkProblem(RecordProblem):
    """An energy given by ``forward(features, y)``, differentiated by autograd."""

    energy: Energy
    features: Tensor
    mask: Tensor | None = None
    with_rows = ("features", "mask")

    def value(self, y: Tensor) -> Tensor:
        return self.energy(self.features, at_positions(y, self.mask))


@register("SumEnergy")
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

    @property
    def _made_of(self) -> tuple[None, tuple[Any, ...], dict[str, Any]]:
        # Of a sum of sums, its terms: files have them side by side.
        return None, tuple(energy_terms(self)), {}

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


SIZES = ("n_features", "n_labels", "domain")
"""The constructor arguments of an energy that a fit knows and the user need not give."""


MOST_TERMS = 1000
"""The most terms of an energy that a description, such as that in a model file, may have."""


@dataclass(frozen=True)
class UnsizedTerm:
    """One energy: its class, and all of its settings but the sizes."""

    kind: type[Energy]
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        known = _parameters(self.kind)
        for name in self.settings:
            if name not in known or name in SIZES:
                others = [each for each in known if each not in SIZES]
                raise InputError(
                    f"{self.kind.__name__} has no setting {name!r} to describe. "
                    f"{did_you_mean(name, others)}"
                )

    def size(self, n_features: int, domain: Domain) -> Energy:
        """Make the energy."""
        sizes = {"n_features": n_features, "n_labels": domain.size, "domain": domain}
        wanted = {name: sizes[name] for name in SIZES if name in _parameters(self.kind)}
        try:
            return self.kind(**wanted, **self.settings)
        except TypeError as problem:
            raise InputError(
                f"{self.kind.__name__} cannot be made of {self.settings}: {problem}. Sizes are "
                f"given to the arguments called {', '.join(SIZES)}; describe all others."
            ) from None


@dataclass(frozen=True)
class UnsizedEnergy:
    """A sum of energies without sizes, as ``Energy.unsized`` makes it. Descriptions add.

    >>> import spen
    >>> description = spen.LocalEnergy.unsized() + spen.LabelEnergy.unsized(measurements=2)
    >>> description.size(3, spen.UnitBox(4)).n_labels
    4
    """

    terms: tuple[UnsizedTerm, ...]

    def __post_init__(self) -> None:
        if len(self.terms) > MOST_TERMS:
            raise InputError(f"An energy may have {MOST_TERMS} terms; received more.")

    def size(self, n_features: int, domain: Domain) -> Energy:
        """Make the energy for features of this width and outputs in this domain."""
        sized = [term.size(n_features, domain) for term in self.terms]
        return sized[0] if len(sized) == 1 else SumEnergy(*sized)

    def with_setting(self, name: str, value: Any) -> UnsizedEnergy:
        """Return the sum with one setting changed, in each term that says something of it."""
        terms = (
            replace(term, settings=term.settings | {name: value}) if name in term.settings else term
            for term in self.terms
        )
        return UnsizedEnergy(tuple(terms))

    def __add__(self, other: UnsizedEnergy) -> UnsizedEnergy:
        return UnsizedEnergy(self.terms + other.terms)

    def __repr__(self) -> str:
        return " + ".join(
            f"{term.kind.__name__}.unsized("
            f"{', '.join(f'{name}={value!r}' for name, value in term.settings.items())})"
            for term in self.terms
        )


def _parameters(kind: type[Energy]) -> list[str]:
    return list(inspect.signature(kind).parameters)


_ROWS, _LENGTHS = 5, (4, 1, 3, 4, 2)


def check_energy(energy: Energy, domain: Domain | None = None, *, seed: int = 0) -> None:
    """Raise an error that says which promise an energy breaks, if it breaks one.

    Checked in float64, on random rows: shapes; the gradient against autograd; that rows
    do not depend on each other, and ``select`` and ``settle`` keep them; the canonical
    form against the value; that τ and the rest add up to the whole; type and device (CUDA
    where there is one); that binding leaves parameters and the global random state alone. On a
    ``Simplex(n, positions=None)`` rows have positions, and what stands in the padding of
    a row may not change its numbers.

    Args:
        energy: what to check; it is copied, and stays as it is.
        domain: where y lives; the unit box by default.
        seed: draws the rows.

    >>> import spen
    >>> check_energy(spen.LocalEnergy(3, 4) + spen.LabelEnergy(4, measurements=2))
    """
    domain = domain or UnitBox(energy.n_labels)
    name = type(energy).__name__
    _require(
        energy.n_labels == domain.size,
        f"{name}.n_labels is {energy.n_labels}, but the domain has {domain.size} columns.",
    )
    generator = torch.Generator().manual_seed(seed)
    energy = copy.deepcopy(energy).double()

    def draw(columns: int) -> Tensor:
        return torch.randn(_ROWS, columns, generator=generator, dtype=torch.float64)

    width, mask = energy.n_features or 1, None
    features = draw(width)
    if isinstance(domain, Simplex) and domain.positions is None:
        longest = max(_LENGTHS)
        features = draw(longest * width).reshape(_ROWS, longest, width)
        mask = torch.arange(longest) < torch.tensor(_LENGTHS)[:, None]
        domain = domain.of_batch(Context(features))
    target = at_positions(domain.round(domain.to_primal(draw(domain.size))), mask)
    context = Context(features=features, target=target, mask=mask)
    y = at_positions(domain.to_primal(draw(domain.size)), mask)

    before = [parameter.detach().clone() for parameter in energy.parameters()]
    random_state = torch.get_rng_state()
    try:
        energy.bind(context, torch.Generator().manual_seed(seed)).value(y)
    except RuntimeError as problem:
        if energy.n_features is not None:
            raise
        raise EnergyCheckError(
            f"{name} was given features of width {width}, as it does not say which it takes "
            f"({problem}). If it looks at them, write self.n_features = n_features in its __init__."
        ) from problem
    problem = energy.bind(context)
    _check_problem(name, problem, y, domain)
    _check_rows(name, energy, context, problem, y)
    _check_settled(name, problem, y)
    if mask is not None:
        _check_padding(name, energy, context, problem, y, draw(domain.size))
    unchanged = all(torch.equal(a, b) for a, b in zip(before, energy.parameters(), strict=True))
    _require(unchanged, f"{name}.bind or its problem changes the parameters.")
    _require(
        torch.equal(random_state, torch.get_rng_state()),
        f"{name} draws from the global random state; use the generator that bind is given.",
    )
    if torch.cuda.is_available():
        expected = problem.value(y)
        there = None if mask is None else mask.cuda()
        on_gpu = Context(context.features.cuda(), target.cuda(), mask=there)
        moved = energy.to("cuda").bind(on_gpu)
        _close(moved.value(y.cuda()).cpu(), expected, f"{name} differs between devices.")


def _check_problem(name: str, problem: Problem, y: Tensor, domain: Domain) -> None:
    value = problem.value(y)
    _require(
        value.shape == (_ROWS,),
        f"{name}: value(y) must have shape ({_ROWS},), one number per row; "
        f"it has {tuple(value.shape)}.",
    )
    _require(value.dtype == y.dtype, f"{name}: value(y) changes the type to {value.dtype}.")
    _require(
        problem.value(y.detach().requires_grad_()).requires_grad,
        f"{name}: value(y) has no gradient. Compute it from y by operations of torch alone.",
    )
    _require(
        problem.rows_like.shape[0] == _ROWS,
        f"{name}: rows_like must have {_ROWS} rows; it has {problem.rows_like.shape[0]}.",
    )
    both_value, gradient = problem.value_and_gradient(y)
    expected = Problem.value_and_gradient(problem, y)[1]
    _close(both_value, value, f"{name}: value_and_gradient(y) and value(y) disagree.")
    _close(gradient, expected, f"{name}: the gradient differs from autograd's.")
    _close(problem.gradient(y), expected, f"{name}: gradient(y) differs from autograd's.")
    if problem.form is not None:
        _close(problem.form.value(y), value, f"{name}: the canonical form has another value.")
    if problem.entropy_weight is not None:
        rest = problem.without_entropy().value(y)
        whole = rest + problem.entropy_weight * domain.negative_entropy(y)
        _close(whole, value, f"{name}: without_entropy() and the entropy do not add up.")


def _check_settled(name: str, problem: Problem, y: Tensor) -> None:
    """Compare at y, which is zero where there is no position; gradients there do not count."""
    value, gradient = problem.value_and_gradient(y)
    settled, rows = problem.settle(), torch.arange(1, _ROWS)
    sentence = f"{name}: settle() changes the"
    for part, some in ((settled, torch.arange(_ROWS)), (settled.select(rows), rows)):
        point, mask = y[some], take(problem.mask, some)
        one_value, one_gradient = part.value_and_gradient(point)
        for found in (one_value, part.value(point)):
            _close(found, value[some], f"{sentence} value.")
        for found in (one_gradient, part.gradient(point)):
            _close(at_positions(found, mask), gradient[some], f"{sentence} gradient.")


def _check_rows(name: str, energy: Energy, context: Context, problem: Problem, y: Tensor) -> None:
    for row in range(_ROWS):
        one = torch.tensor([row])
        alone = energy.bind(context.select(one)).value(y[one])
        _close(alone, problem.value(y)[one], f"{name}: a row depends on its neighbours.")
        expected = problem.gradient(y)[one]
        for rows in (one, torch.arange(_ROWS) == row):
            value, gradient = problem.select(rows).value_and_gradient(y[one])
            _close(value, problem.value(y)[one], f"{name}: select(rows) changes the value.")
            _close(gradient, expected, f"{name}: select(rows) changes the gradient.")


def _check_padding(
    name: str, energy: Energy, context: Context, problem: Problem, y: Tensor, noise: Tensor
) -> None:
    """Put noise where there is no position, of the features and of y."""
    assert context.mask is not None
    absent = ~context.mask[:, :, None]
    features = torch.where(absent, 1 + context.features, context.features)
    other = energy.bind(replace(context, features=features))
    columns = absent.expand(-1, -1, y.shape[1] // context.mask.shape[1]).flatten(1)
    value, gradient = other.value_and_gradient(torch.where(columns, noise, y))
    _close(value, problem.value(y), f"{name}: padding changes the value; use context.mask.")
    expected = problem.gradient(y)
    _close(
        torch.where(columns, expected, gradient),
        expected,
        f"{name}: padding changes the gradient; use context.mask.",
    )


def _close(actual: Tensor, expected: Tensor, sentence: str) -> None:
    shapes = f"{tuple(actual.shape)} against {tuple(expected.shape)}"
    _require(actual.shape == expected.shape, f"{sentence} They differ in shape, {shapes}.")
    if not torch.allclose(actual, expected, 1e-6, 1e-8):
        gap = (actual - expected).abs().max().item()
        raise EnergyCheckError(f"{sentence} They differ by up to {gap:.3g}.")


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise EnergyCheckError(sentence)
