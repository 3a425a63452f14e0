"""A check for energies that others write."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.domains import Domain, UnitBox
from spen.energies.base import Energy, Problem
from spen.errors import EnergyCheckError

_ROWS = 5


def check_energy(energy: Energy, domain: Domain | None = None, *, seed: int = 0) -> None:
    """Raise an error that says which promise an energy breaks, if it breaks one.

    Checked in float64, on random rows: shapes; the gradient against autograd; that rows
    do not depend on each other and ``select`` keeps them; the canonical form against the
    value; that τ and the rest add up to the whole; type and device (CUDA where there is
    one); that binding leaves parameters and the global random state alone.

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

    target = domain.round(domain.to_primal(draw(domain.size)))
    context = Context(features=draw(energy.n_features or 1), target=target)
    y = domain.to_primal(draw(domain.size))

    before = [parameter.detach().clone() for parameter in energy.parameters()]
    random_state = torch.get_rng_state()
    energy.bind(context, torch.Generator().manual_seed(seed)).value(y)
    problem = energy.bind(context)
    _check_problem(name, problem, y, domain)
    _check_rows(name, energy, context, problem, y)
    unchanged = all(torch.equal(a, b) for a, b in zip(before, energy.parameters(), strict=True))
    _require(unchanged, f"{name}.bind or its problem changes the parameters.")
    _require(
        torch.equal(random_state, torch.get_rng_state()),
        f"{name} draws from the global random state; use the generator that bind is given.",
    )
    if torch.cuda.is_available():
        expected = problem.value(y)
        moved = energy.to("cuda").bind(Context(context.features.cuda(), target.cuda()))
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


def _check_rows(name: str, energy: Energy, context: Context, problem: Problem, y: Tensor) -> None:
    for row in range(_ROWS):
        one = torch.tensor([row])
        alone = energy.bind(context.select(one)).value(y[one])
        _close(alone, problem.value(y)[one], f"{name}: a row depends on its neighbours.")
        for rows in (one, torch.arange(_ROWS) == row):
            value, gradient = problem.select(rows).value_and_gradient(y[one])
            _close(value, problem.value(y)[one], f"{name}: select(rows) changes the value.")
            _close(
                gradient, problem.gradient(y)[one], f"{name}: select(rows) changes the gradient."
            )


def _close(actual: Tensor, expected: Tensor, sentence: str) -> None:
    if actual.shape != expected.shape or not torch.allclose(actual, expected, 1e-6, 1e-8):
        gap = (
            f"by up to {(actual - expected).abs().max().item():.3g}"
            if actual.shape == expected.shape
            else f"in shape, {tuple(actual.shape)} against {tuple(expected.shape)}"
        )
        raise EnergyCheckError(f"{sentence} They differ {gap}.")


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise EnergyCheckError(sentence)
