"""The CPU kernel against the general path, which is the oracle."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

import spen
from spen.energies.form import NONLINEARITIES, Block, Form
from spen.inference.base import Status
from spen.inference.fused import step_of
from spen.kernels import cpu, interface

pytest.importorskip("numba")

ROWS = 21
MIRROR = spen.MirrorDescent(lr=0.1, momentum=0.8, decay=0.05)
PROJECTED = spen.ProjectedGradient(lr=0.02, momentum=0.5)


class Case:
    """A random problem over L labels, with every term one may ask for."""

    def __init__(self, labels: int, rows: int = ROWS, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.rows, self.labels = rows, labels
        self.centre = torch.full((rows, labels), 0.5)
        self.start = torch.rand(rows, labels, generator=self.generator)
        self.known = (self.start > 0.5).float().where(self.draw(rows, labels) > 0.5, torch.nan)
        self.linear = Form(linear=self.draw(rows, labels))

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def block(self, name: str, measurements: int, per_row: bool = False) -> Form:
        bias = self.draw(self.rows, measurements) if per_row else self.draw(measurements)
        matrix = 0.5 * self.draw(measurements, self.labels)
        return Form(
            constant=torch.zeros(self.rows),
            blocks=(Block(matrix, bias, self.draw(measurements), NONLINEARITIES[name]),),
        )

    @property
    def quadratic(self) -> Form:
        return Form(quadratic=self.draw(self.rows, self.labels))

    @property
    def entropy(self) -> Form:
        tau = self.draw(self.rows).abs()
        return Form(tau=tau, domain=spen.UnitBox(self.labels))

    @property
    def everything(self) -> Form:
        form = Form(constant=self.draw(self.rows)) + self.linear + self.quadratic + self.entropy
        for name in ("sigmoid", "square", "softplus"):
            form = form + self.block(name, 3, per_row=name == "square")
        assert isinstance(form, Form)
        return form


def fused(
    form: Form,
    start: Tensor,
    known: Tensor | None = None,
    rule: spen.Rule = MIRROR,
    stopping: spen.Stopping | None = None,
) -> interface.Fused:
    stopping = stopping or spen.Stopping(12, objective_rtol=0, iterate_atol=0)
    step = step_of(rule)
    assert step is not None
    assert cpu.refusal(form, step, start, known) is None
    tolerances = stopping.objective_rtol, stopping.iterate_atol
    limits = interface.Limits(stopping.max_steps, *tolerances, both=stopping.needs_both)
    return cpu.minimise(form, step, limits, start, known)


def check(form: Form, start: Tensor, known: Tensor | None = None, rule: spen.Rule = MIRROR) -> None:
    """Twelve steps must lead to the same place."""
    answer = fused(form, start, known, rule)
    stopping = spen.Stopping(12, objective_rtol=0, iterate_atol=0)
    descent = spen.Descent(rule, stopping, backend="general")
    oracle = descent.solve(form, spen.UnitBox(start.shape[1]), start, known)
    close = partial(torch.testing.assert_close, rtol=2e-5, atol=2e-5)
    close(answer.energy, oracle.energy)
    close(form.value(answer.y), oracle.energy)
    # Near a minimum the best of two iterates may be either, and the energy is flat.
    torch.testing.assert_close(answer.y, oracle.y, rtol=0, atol=1e-2)
    assert (answer.steps == 12).all()
    assert (answer.status == Status.MAX_STEPS).all()


BUNDLE = spen.MirrorBundle()
rules = pytest.mark.parametrize(
    "rule", [BUNDLE, MIRROR, PROJECTED], ids=["bundle", "mirror", "projected"]
)


@rules
@pytest.mark.parametrize("name", NONLINEARITIES)
def test_every_nonlinearity(name: str, rule: spen.Rule) -> None:
    case = Case(labels=19)
    form = case.linear + case.block(name, 5)
    assert isinstance(form, Form)
    check(form, case.centre, rule=rule)


@rules
@pytest.mark.parametrize("labels", [1, 7, 8, 9, 64, 159])
def test_all_terms_together_at_any_number_of_labels(labels: int, rule: spen.Rule) -> None:
    case = Case(labels)
    check(case.everything, case.start, case.known, rule)


@rules
@pytest.mark.parametrize("term", ["linear", "quadratic", "entropy"])
def test_one_term_alone(term: str, rule: spen.Rule) -> None:
    case = Case(labels=11)
    check(getattr(case, term), case.start, rule=rule)


@rules
def test_a_bias_of_each_row(rule: spen.Rule) -> None:
    case = Case(labels=11)
    check(case.block("softplus", 4, per_row=True), case.start, rule=rule)


@pytest.mark.parametrize("measurements", [1, 8, 9, 17])
def test_any_number_of_measurements(measurements: int) -> None:
    case = Case(labels=11)
    check(case.block("softplus", measurements), case.start)


def test_a_constant_alone() -> None:
    answer = fused(Form(constant=torch.tensor([2.0, -1.0])), torch.full((2, 3), 0.25))
    torch.testing.assert_close(answer.energy, torch.tensor([2.0, -1.0]))
    torch.testing.assert_close(answer.y, torch.full((2, 3), 0.25))


def test_one_row_and_none() -> None:
    case = Case(labels=11, rows=1)
    check(case.everything, case.start, case.known)
    assert fused(Form(linear=torch.zeros(0, 3)), torch.zeros(0, 3)).y.shape == (0, 3)


def test_a_start_at_the_boundary() -> None:
    case = Case(labels=11)
    check(case.everything, case.start.round())


@rules
def test_a_start_where_duals_are_at_their_limit(rule: spen.Rule) -> None:
    case = Case(labels=11)
    check(case.linear + case.entropy, torch.sigmoid(15 * (2 * case.start.round() - 1)), rule=rule)


def test_a_start_and_terms_that_all_rows_share_are_read_as_such() -> None:
    case = Case(labels=11)
    row, start = case.draw(1, 11), torch.rand(1, 11, generator=case.generator)
    expanded = fused(Form(linear=row.expand(9, -1)), start.expand(9, -1))
    copied = fused(Form(linear=row.repeat(9, 1)), start.repeat(9, 1))
    for a, b in zip(expanded, copied, strict=True):
        assert torch.equal(a, b)


def test_columns_that_are_not_contiguous() -> None:
    case = Case(labels=11)
    check(Form(linear=case.draw(11, ROWS).t()), case.draw(11, ROWS).sigmoid().t())


@pytest.mark.parametrize("name", ["softplus", "relu"])
def test_rows_that_converge_agree_with_the_general_path(name: str) -> None:
    """The tolerances that are promised: 1e-4 of the energy, 99.95 % of the labels.

    The energies are convex: where there are several minima, rounding may lead to another. Even
    so, rounding at a kink may send a row on a path that ends a little earlier or later.
    """
    case = Case(labels=80, rows=300)
    (block,) = case.block(name, 15).blocks
    form = replace(case.linear, blocks=(replace(block, readout=block.readout.abs()),))
    stopping = spen.Stopping(200, objective_rtol=1e-6, iterate_atol=1e-4)
    answer = fused(form, case.centre, rule=BUNDLE, stopping=stopping)
    oracle = spen.Descent(BUNDLE, stopping, backend="general").solve(form, spen.UnitBox(80))
    both = oracle.converged & (answer.status == Status.CONVERGED)
    assert both.float().mean() > 0.9
    close = torch.isclose(answer.energy, oracle.energy, rtol=1e-4, atol=0)[both]
    assert close.float().mean() > 0.97
    assert ((answer.y > 0.5) == (oracle.y > 0.5))[both].float().mean() >= 0.9995


@pytest.mark.parametrize("tolerance", ["objective_rtol", "iterate_atol"])
def test_either_tolerance_ends_a_row_at_the_same_step(tolerance: str) -> None:
    case = Case(labels=19, rows=64)
    form = case.linear + case.block("softplus", 5)
    stopping = replace(spen.Stopping(80, 0, 0), **{tolerance: 1e-3})
    assert isinstance(form, Form)
    answer = fused(form, case.centre, stopping=stopping)
    oracle = spen.Descent(MIRROR, stopping, backend="general").solve(form, spen.UnitBox(19))
    assert len(oracle.steps.unique()) > 3
    assert (answer.steps == oracle.steps).float().mean() > 0.95
    assert (answer.status == oracle.status).float().mean() > 0.95


@pytest.mark.parametrize("off", [None, "objective_rtol", "iterate_atol"])
def test_both_tolerances_end_a_row_at_the_same_step(off: str | None) -> None:
    case = Case(labels=19, rows=64)
    form = case.linear + case.block("softplus", 5)
    both = spen.Stopping(80, 3e-3, 3e-3, require="both")
    both = replace(both, **{off: 0.0}) if off else both
    assert isinstance(form, Form)
    with torch.no_grad():
        solve = partial(spen.Descent, MIRROR, both)
        answer = solve(backend="fused").solve(form, spen.UnitBox(19))
        oracle = solve(backend="general").solve(form, spen.UnitBox(19))
    assert len(oracle.steps.unique()) > 3
    assert (answer.steps == oracle.steps).float().mean() > 0.95
    assert (answer.status == oracle.status).float().mean() > 0.95
    sooner = fused(form, case.centre, stopping=replace(both, require="either")).steps
    assert (
        (sooner < answer.steps).float().mean() > 0.5 if off is None else sooner.equal(answer.steps)
    )


def test_an_oscillating_row_returns_its_best_iterate() -> None:
    case = Case(labels=30)
    form = case.linear + case.block("hardtanh", 5)
    rule = spen.MirrorDescent(lr=3.0, momentum=0.9)
    stopping = spen.Stopping(40, objective_rtol=0, iterate_atol=0)
    assert isinstance(form, Form)
    answer = fused(form, case.start, rule=rule, stopping=stopping)
    torch.testing.assert_close(form.value(answer.y), answer.energy, rtol=1e-5, atol=1e-5)
    trace = spen.Descent(rule, stopping, trace=True).solve(form, spen.UnitBox(30), case.start).trace
    assert trace is not None
    ends_above = trace.energy[-1] > trace.energy.min(0).values + 1e-3
    assert ends_above.any()
    # Where it steps on a kink, an iterate goes another way than in the oracle: not often.
    close = torch.isclose(answer.energy, trace.energy.min(0).values, rtol=1e-4, atol=1e-4)
    assert close.float().mean() > 0.8


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_that_diverges_ends_and_leaves_its_neighbours_alone(bad: float) -> None:
    case = Case(labels=11)
    linear = case.draw(ROWS, 11)
    whole = fused(Form(linear=linear), case.start, case.known)
    linear = linear.clone()
    linear[4, 3] = bad
    known = case.known.clone()
    known[4, 3] = torch.nan
    answer = fused(Form(linear=linear), case.start, known)
    assert answer.status[4] == Status.DIVERGED
    assert answer.steps[4] == 1
    torch.testing.assert_close(answer.y[4], spen.UnitBox(11).hold(case.start, known)[4])
    others = torch.arange(ROWS) != 4
    assert torch.equal(answer.y[others], whole.y[others])
    assert torch.equal(answer.energy[others], whole.energy[others])


def test_divergence_on_the_way_keeps_the_best_iterate() -> None:
    # The first step multiplies z so far that its square leaves float32.
    block = Block(
        torch.full((1, 2), 1e19), torch.zeros(1), -torch.ones(1), NONLINEARITIES["square"]
    )
    form = Form(constant=torch.zeros(1), blocks=(block,))
    start = torch.tensor([[1e-4, 1e-4]])
    answer = fused(form, start, rule=PROJECTED)
    oracle = spen.Descent(PROJECTED, spen.Stopping(12, 0, 0), backend="general").solve(
        form, spen.UnitBox(2), start
    )
    assert answer.status.tolist() == oracle.status.tolist() == [Status.DIVERGED]
    assert answer.steps.tolist() == oracle.steps.tolist()
    torch.testing.assert_close(answer.y, oracle.y)


def test_a_row_does_not_depend_on_its_neighbours_not_even_in_the_last_bit() -> None:
    case = Case(labels=30, rows=50)
    form = case.everything
    stopping = spen.Stopping(40, objective_rtol=1e-4, iterate_atol=1e-4)
    together = fused(form, case.start, case.known, stopping=stopping)
    alone = torch.tensor([17])
    answer = fused(form.select(alone), case.start[alone], case.known[alone], stopping=stopping)
    for one, many in zip(answer, together, strict=True):
        assert torch.equal(one[0], many[17])


def test_the_codes_are_those_of_status() -> None:
    codes = (interface.CONVERGED, interface.MAX_STEPS, interface.DIVERGED)
    assert codes == (Status.CONVERGED, Status.MAX_STEPS, Status.DIVERGED)


def test_what_it_cannot_do_is_refused_in_words() -> None:
    case = Case(labels=5)
    step = interface.StepRule(0.1)
    double = cpu.refusal(Form(linear=case.start.double()), step, case.start, None)
    assert double is not None
    assert "float32" in double
    strange = NONLINEARITIES["relu"]._replace(name="strange")
    block = Block(torch.zeros(2, 5), torch.zeros(2), torch.zeros(2), strange)
    unknown = cpu.refusal(Form(constant=torch.zeros(ROWS), blocks=(block,)), step, case.start, None)
    assert unknown is not None
    assert "'strange'" in unknown


@pytest.mark.parametrize(
    "rule", [spen.MirrorDescent(), spen.MirrorBundle(), spen.ProjectedGradient()]
)
def test_slopes_that_overflow_do_not_reach_the_next_example(rule):
    huge = torch.full((1,), 1e20)
    block = Block(huge[None], torch.ones(1), huge, NONLINEARITIES["relu"])
    form = spen.Form(linear=torch.zeros(40, 1), blocks=(block,))
    with torch.no_grad():
        found = spen.Descent(rule, spen.Stopping(1), backend="fused").solve(form, spen.UnitBox(1))
    assert len(found.status.unique()) == 1
    assert len(found.y.unique()) == 1


def test_a_start_of_nan_is_left_to_the_general_path():
    form, start = spen.Form(linear=torch.randn(2, 3)), torch.full((2, 3), torch.nan)
    found = spen.Descent().solve(form, spen.UnitBox(3), start)
    assert (found.status == Status.DIVERGED).all()
    assert found.backend == "general"
