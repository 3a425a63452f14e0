"""How solves are differentiated: against finite differences, and against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from live_bytes import peak_bytes
from problems import SMOOTH, SUMS, F, random_context, randomise
from torch import Tensor

import spen
from spen.batch.context import Context
from spen.energies.base import Energy
from spen.inference.backward import conjugate_gradients

BOX, CLASSES = spen.UnitBox(4), spen.Simplex(3, positions=2)
TAU = 0.7
FIXED = spen.Descent(spen.MirrorDescent(lr=0.4, momentum=0.5), spen.Stopping(12))
TIGHT = spen.Descent(
    spen.MirrorDescent(lr=0.2, momentum=0.5), spen.Stopping(4000, 0.0, 1e-13), spen.Implicit()
)
ENERGIES = {
    name: (SMOOTH | SUMS)[name]
    for name in ("local+label", "label-deep-softplus", "local+conditional+low-rank")
}


def posed(
    name: str, domain: spen.Domain, seed: int = 0, rows: int = 3
) -> tuple[Energy, Context, Tensor]:
    """Return an energy with entropy, a batch, and what the loss weighs y with."""
    energy = randomise(ENERGIES[name](domain.size), seed, scale=0.5)
    context, weights = random_context(domain, rows, seed)
    return energy + spen.Entropy(domain, TAU), context, weights - 0.3


def loss_of(
    descent: spen.Descent,
    energy: Energy,
    context: Context,
    domain: spen.Domain,
    weights: Tensor,
    known: Tensor | None = None,
) -> Tensor:
    y = descent.solve(energy.bind(context), domain, known=known).y
    return (weights * y + y.square()).sum()


def gradients(energy: Energy, loss: Callable[[], Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss(), list(energy.parameters())))


def check_slopes(energy: Energy, found: list[Tensor], loss: Callable[[], Tensor]) -> None:
    """Compare gradients with the loss on both sides of each parameter's steepest entry."""
    for parameter, gradient in zip(energy.parameters(), found, strict=True):
        with torch.no_grad():
            index = gradient.abs().flatten().argmax()
            flat = parameter.view(-1)
            flat[index] += 1e-4
            above = loss()
            flat[index] -= 2e-4
            below = loss()
            flat[index] += 1e-4
        slope = ((above - below) / 2e-4).item()
        assert gradient.flatten()[index].item() == pytest.approx(slope, rel=1e-5)


def some_known(domain: spen.Domain, rows: int) -> Tensor:
    known = torch.full((rows, domain.size), torch.nan, dtype=torch.float64)
    known[0, 0], known[1, 1] = 1.0, 0.0
    return known


@pytest.mark.parametrize("domain", [BOX, CLASSES], ids=["box", "classes"])
@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("held", [False, True], ids=["free", "known"])
def test_implicit_against_finite_differences_and_unrolled(name, domain, held):
    energy, context, weights = posed(name, domain)
    known = some_known(domain, 3) if held else None

    found = gradients(energy, lambda: loss_of(TIGHT, energy, context, domain, weights, known))
    unrolled = replace(TIGHT, stopping=spen.Stopping(120), backward=spen.Unrolled())

    def converged() -> Tensor:
        # The last iterate: the best one, by its energy, is known to half the digits only.
        return loss_of(unrolled, energy, context, domain, weights, known)

    check_slopes(energy, found, converged)
    for mine, theirs in zip(found, gradients(energy, converged), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "backward", [spen.Unrolled(), spen.Unrolled(checkpoint=True), spen.Truncated(12)], ids=repr
)
@pytest.mark.parametrize("domain", [BOX, CLASSES], ids=["box", "classes"])
def test_steps_against_finite_differences(backward, domain):
    energy, context, weights = posed("local+label", domain)
    known = some_known(domain, 3)
    descent = replace(FIXED, backward=backward)

    def loss() -> Tensor:
        return loss_of(descent, energy, context, domain, weights, known)

    check_slopes(energy, gradients(energy, loss), loss)


@pytest.mark.parametrize(
    "backward", [spen.Unrolled(), spen.Unrolled(checkpoint=True), spen.Truncated(3)], ids=repr
)
@pytest.mark.parametrize(
    "rule",
    [FIXED.rule, spen.MirrorBundle(), spen.ProjectedGradient(lr=0.1, momentum=0.5)],
    ids=repr,
)
def test_all_make_the_same_steps(backward, rule):
    energy, context, weights = posed("local+label", BOX)
    descent = replace(FIXED, rule=rule, trace=True)
    plain = descent.solve(energy.bind(context), BOX, backward=spen.Unrolled())
    other = descent.solve(energy.bind(context), BOX, backward=backward)
    assert plain.trace is not None
    assert other.trace is not None
    assert torch.equal(plain.y, other.y)
    assert torch.equal(plain.trace.y, other.trace.y)
    assert other.trace.y.shape == (13, 3, 4)
    assert torch.equal(other.trace.y[-1], other.y)
    if backward == spen.Unrolled(checkpoint=True):
        # Of all iterates, too.
        slopes = [
            torch.autograd.grad((weights * each.trace.y).sum(), list(energy.parameters()))
            for each in (plain, other)
            if each.trace is not None
        ]
        for mine, theirs in zip(*slopes, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_truncated_is_a_descent_from_a_constant():
    energy, context, weights = posed("local+label", BOX)
    plain = replace(FIXED, rule=spen.MirrorDescent(lr=0.4, momentum=0.0))
    found = gradients(
        energy,
        lambda: loss_of(replace(plain, backward=spen.Truncated(3)), energy, context, BOX, weights),
    )

    def by_hand() -> Tensor:
        problem = energy.bind(context)
        with torch.no_grad():
            first = replace(plain, stopping=spen.Stopping(9), backward=spen.Unrolled())
            start = first.solve(problem, BOX).y
        last = replace(plain, stopping=spen.Stopping(3), backward=spen.Unrolled())
        y = last.solve(problem, BOX, start).y
        return (weights * y + y.square()).sum()

    for mine, theirs in zip(found, gradients(energy, by_hand), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "descent", [TIGHT, replace(FIXED, backward=spen.Unrolled(checkpoint=True))], ids=["im", "un"]
)
def test_batch_neighbours_do_not_matter(descent):
    energy, context, weights = posed("local+label", BOX, rows=5)
    row = torch.tensor([3])
    alone = gradients(
        energy, lambda: loss_of(descent, energy, context.select(row), BOX, weights[row])
    )
    only = torch.zeros(5, 1, dtype=torch.float64)
    only[3] = 1.0

    def among_others() -> Tensor:
        y = descent.solve(energy.bind(context), BOX).y
        return (only * (weights * y + y.square())).sum()

    for mine, theirs in zip(alone, gradients(energy, among_others), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)


def test_checkpointing_needs_the_square_root_of_the_memory():
    energy = spen.LocalEnergy(F, 64) + spen.LabelEnergy(64, 8, "softplus")
    context = Context(torch.randn(32, F, generator=torch.Generator().manual_seed(0)))

    def peak(steps: int, checkpoint: bool) -> int:
        descent = replace(
            FIXED, stopping=spen.Stopping(steps), backward=spen.Unrolled(checkpoint=checkpoint)
        )
        return peak_bytes(
            lambda: descent.solve(energy.bind(context), spen.UnitBox(64)).y.sum().backward()
        )

    plain = {steps: peak(steps, checkpoint=False) for steps in (4, 64)}
    thrifty = {steps: peak(steps, checkpoint=True) for steps in (4, 16, 64)}
    assert plain[64] > 9 * plain[4]
    # Four times the steps, at most twice the memory.
    assert thrifty[16] < 2.1 * thrifty[4]
    assert thrifty[64] < 2.1 * thrifty[16]
    assert thrifty[64] < plain[64] / 3


def test_implicit_memory_does_not_depend_on_the_steps():
    energy = spen.LocalEnergy(F, 64) + spen.LabelEnergy(64, 8, "softplus")
    energy = energy + spen.Entropy(spen.UnitBox(64), 1.0)
    context = Context(torch.randn(32, F, generator=torch.Generator().manual_seed(0)))

    def peak(steps: int) -> int:
        descent = spen.Descent(FIXED.rule, spen.Stopping(steps, 0.0, 0.0), spen.Implicit())
        return peak_bytes(
            lambda: descent.solve(energy.bind(context), spen.UnitBox(64)).y.sum().backward()
        )

    assert peak(160) < 1.05 * peak(10)


def test_implicit_refuses_what_has_no_derivative():
    context, _ = random_context(BOX, 2, 0)
    smooth = randomise(spen.LabelEnergy(4, 3, "softplus"), 0)
    for problem in (smooth.bind(context), (smooth + spen.Entropy(BOX, 0.0)).bind(context)):
        with pytest.raises(spen.InputError, match="entropy weight above zero"):
            TIGHT.solve(problem, BOX)
    for kinked in (
        spen.LabelEnergy(4, 3, "relu"),
        spen.LocalEnergy(F, 4) + spen.LabelEnergy(4, 3, "hardtanh"),
        spen.LabelEnergy(4, 3, "relu", hidden=(2,)),
    ):
        problem = (kinked.double() + spen.Entropy(BOX, 1.0)).bind(context)
        with pytest.raises(spen.InputError, match="kinks"):
            TIGHT.solve(problem, BOX)
    bad: list[dict[str, Any]] = [{"damping": -1.0}, {"iterations": 0}, {"tolerance": 0.0}]
    for settings in bad:
        with pytest.raises(spen.InputError):
            spen.Implicit(**settings)
    with pytest.raises(spen.InputError, match="steps"):
        spen.Truncated(0)


def test_damping_shortens_the_gradient():
    energy, context, weights = posed("local+label", BOX)
    lengths = []
    for damping in (0.0, 0.5, 5.0):
        descent = replace(TIGHT, backward=spen.Implicit(damping=damping))
        found = gradients(energy, lambda d=descent: loss_of(d, energy, context, BOX, weights))
        lengths.append(sum(each.square().sum().item() for each in found))
    assert lengths[0] > lengths[1] > lengths[2] > 0


def test_conjugate_gradients_solve_each_row_and_stop_where_it_bends_down():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 6, 6, generator=generator, dtype=torch.float64)
    bend = root @ root.mT
    spread = torch.rand(3, 6, generator=generator, dtype=torch.float64)
    spread[0, 2] = 0.0  # a label that is held
    wanted = torch.randn(3, 6, generator=generator, dtype=torch.float64)

    def product(matrix: Tensor, vector: Tensor) -> Tensor:
        return (matrix @ vector[:, :, None])[:, :, 0]

    def solve(matrix: Tensor) -> Tensor:
        return conjugate_gradients(
            lambda s, p: 0.5 * s + product(matrix, p), lambda r: spread * r, wanted, 50, 1e-12
        )

    # (τ + W H) λ = W v, which needs no inverse of W.
    exact = torch.linalg.solve(
        0.5 * torch.eye(6, dtype=torch.float64) + spread[:, :, None] * bend, spread * wanted
    )
    torch.testing.assert_close(solve(bend), exact, rtol=1e-8, atol=1e-10)
    down = bend.clone()
    down[1] = -10 * bend[1]
    found = solve(down)
    assert found.isfinite().all()
    torch.testing.assert_close(found[[0, 2]], exact[[0, 2]], rtol=1e-8, atol=1e-10)
