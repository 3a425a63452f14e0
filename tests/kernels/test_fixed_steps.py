"""A fixed number of steps in the kernel, against the unrolled general path, which is the oracle."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import spen
from spen.energies.form import NONLINEARITIES, Block, Form
from spen.inference.base import Status

pytest.importorskip("numba")

ROWS, LABELS = 19, 13
BOX = spen.UnitBox(LABELS)
RULES = [spen.MirrorDescent(1.0, 0.0), spen.MirrorDescent(0.2, 0.9, decay=0.1)]


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def problem(name: str, *, smooth: bool, per_row: bool) -> Form:
    bias = draw(2, ROWS, 5) if per_row else draw(2, 5)
    return Form(
        constant=draw(3, ROWS),
        linear=draw(4, ROWS, LABELS),
        quadratic=draw(5, ROWS, LABELS) if per_row else None,
        blocks=(Block(0.5 * draw(6, 5, LABELS), bias, draw(7, 5), NONLINEARITIES[name]),),
        tau=draw(8, ROWS).abs() if smooth else None,
        domain=BOX if smooth else None,
    )


@torch.no_grad()
def solve(backend: str, form: Form, rule: spen.Rule, steps: int, known: Tensor | None = None):
    # Tolerances that each row would meet at once.
    stopping = spen.Stopping(steps, objective_rtol=1.0, iterate_atol=1.0, scope="batch")
    descent = spen.Descent(rule, stopping, spen.Unrolled(), backend=backend)  # type: ignore[arg-type]
    return descent.solve(form, BOX, draw(9, ROWS, LABELS).sigmoid(), known)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [1, 5, 12])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("name", "smooth", "per_row"), [("softplus", True, False), ("relu", False, True)]
)
def test_the_last_iterate_is_that_of_the_general_path(rule, steps, held, name, smooth, per_row):
    form = problem(name, smooth=smooth, per_row=per_row)
    known = None
    if held:
        known = (draw(10, ROWS, LABELS) > 0).float().where(draw(11, ROWS, LABELS) > 0.5, torch.nan)
    ours, oracle = (solve(backend, form, rule, steps, known) for backend in ("auto", "general"))
    assert (ours.backend, oracle.backend) == ("fused-cpu", "general")
    torch.testing.assert_close(ours.y, oracle.y, atol=2e-6, rtol=0)
    torch.testing.assert_close(ours.energy, oracle.energy, atol=1e-5, rtol=1e-5)
    assert torch.equal(ours.steps, oracle.steps)
    assert torch.equal(ours.status, oracle.status)
    assert (ours.status == Status.COMPLETED).all()


def test_a_worse_iterate_is_returned_all_the_same():
    """A rate so large that the energy rises: the best iterate is not the last one."""
    form, rule = problem("softplus", smooth=False, per_row=True), spen.MirrorDescent(8.0, 0.95)
    ours = solve("fused", form, rule, 6)
    best = spen.Descent(rule, spen.Stopping(6, 0, 0)).solve(
        form, BOX, draw(9, ROWS, LABELS).sigmoid()
    )
    assert (ours.energy > best.energy + 0.01).any()
    torch.testing.assert_close(ours.energy, form.value(ours.y), atol=1e-4, rtol=1e-4)


def test_a_row_that_is_not_finite_leaves_the_others_alone():
    form = problem("softplus", smooth=True, per_row=False)
    assert form.linear is not None
    form.linear[::3, 2] = torch.nan
    ours, oracle = (solve(backend, form, RULES[0], 4) for backend in ("fused", "general"))
    assert torch.equal(ours.y.isnan(), oracle.y.isnan())
    assert torch.equal(ours.energy.isfinite(), oracle.energy.isfinite())
    torch.testing.assert_close(ours.y, oracle.y, atol=2e-6, rtol=0, equal_nan=True)
    assert (ours.status == Status.COMPLETED).all()


@pytest.mark.parametrize("rule", [spen.MirrorBundle(), spen.ProjectedGradient(0.1, 0.5)])
def test_rules_that_make_much_of_rounding_are_unrolled_step_by_step(rule):
    form = problem("softplus", smooth=False, per_row=False)
    assert solve("auto", form, rule, 3).backend == "general"
    with pytest.raises(spen.InputError, match="no fixed number of steps"):
        solve("fused", form, rule, 3)


def test_gradients_are_never_lost():
    """What is to be differentiated goes step by step; what is not may go through the kernel."""
    energy = spen.LocalEnergy(3, LABELS) + spen.LabelEnergy(LABELS, 5, "softplus")
    model = spen.SPEN(spen.Identity(3), energy, BOX, seed=0)
    descent = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(5))
    context = model.context(draw(0, ROWS, 3), target=(draw(1, ROWS, LABELS) > 0).float())
    objective = spen.UnrolledLikelihood(1.0, "local")
    trained = objective.predict(model, descent, context)
    assert (trained.backend, trained.y.requires_grad) == ("general", True)
    with torch.no_grad():
        predicted = objective.predict(model, descent, context)
    assert predicted.backend == "fused-cpu"
    torch.testing.assert_close(predicted.y, trained.y.detach(), atol=2e-6, rtol=0)
