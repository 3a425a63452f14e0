"""The GPU kernels against the general path: in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import spen
from spen.energies.form import Block, Form, Nonlinearity, nonlinearity
from spen.inference.base import Solution, Status
from spen.inference.fused import step_of
from spen.kernels import cuda
from spen.kernels.cuda import StreamPlan, TilePlan, launch, stream_plan, tile_plan
from spen.kernels.interface import Fused, Limits, StepRule

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported, by the first test
pytest.importorskip("triton")

pytestmark = [
    pytest.mark.skipif(
        not HAS_GPU and os.environ.get("TRITON_INTERPRET") != "1",
        reason="triton was imported before its interpreter could be asked for",
    ),
    # Slots without a row divide zeros by zeros, which a GPU does in silence.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning"),
]

DEVICE = "cuda" if HAS_GPU else "cpu"
LABELS = 20
LIMITS = Limits(max_steps=5, objective_rtol=1e-2, iterate_atol=1e-3)
BUNDLE, PAPER = spen.MirrorBundle(), spen.MirrorDescent(lr=0.3, momentum=0.5, decay=0.1)

# One program for all rows, so that rows that have ended make room for others.
TILES = TilePlan(warps=2, widths=(16, 8), padded=16, refill=2, programs=1)
STREAMS = StreamPlan(warps=2, width=16, chunk=16, programs=1)
PLANS = {"on chip": TILES, "streams": STREAMS}


class Case:
    """A random problem with every term that a form can have."""

    def __init__(self, rows: int = 23, n_labels: int = LABELS) -> None:
        self.generator = torch.Generator(DEVICE).manual_seed(1)
        self.rows, self.n_labels = rows, n_labels
        self.uniform = torch.tensor(0.5, device=DEVICE).expand(rows, n_labels)
        self.start = torch.rand(rows, n_labels, generator=self.generator, device=DEVICE)
        # The boundary, too, is a start.
        self.start[:, 0], self.start[:, 1] = 0.0, 1.0
        marks = torch.rand(rows, n_labels, generator=self.generator, device=DEVICE)
        self.known = torch.where(marks < 0.3, (marks < 0.1).float(), torch.nan)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=DEVICE)

    def block(self, name: str, m: int, by_row: bool = False) -> Block:
        bias = self.draw(self.rows, m) if by_row else self.draw(m)
        return Block(0.5 * self.draw(m, self.n_labels), bias, self.draw(m), nonlinearity(name))

    def form(self, *blocks: Block) -> Form:
        return Form(linear=self.draw(self.rows, self.n_labels), blocks=blocks)

    def everything(self, *blocks: Block) -> Form:
        return Form(
            constant=self.draw(self.rows),
            linear=self.draw(self.rows, self.n_labels),
            quadratic=self.draw(self.rows, self.n_labels),
            blocks=blocks,
            tau=self.draw(self.rows).abs(),
            domain=spen.UnitBox(self.n_labels),
        )


def general(
    form: Form,
    rule: spen.Rule,
    start: Tensor,
    known: Tensor | None = None,
    limits: Limits = LIMITS,
) -> Solution:
    require = "both" if limits.both else "either"
    tolerances = limits.objective_rtol, limits.iterate_atol
    stopping = spen.Stopping(limits.max_steps, *tolerances, require=require)
    descent = spen.Descent(rule, stopping, backend="general")
    with torch.no_grad():
        return descent.minimise(form, spen.UnitBox(start.shape[1]), start, known)


def fused(
    form: Form,
    rule: spen.Rule,
    start: Tensor,
    known: Tensor | None = None,
    plan: TilePlan | StreamPlan | None = None,
    limits: Limits = LIMITS,
) -> Fused:
    step = plain(rule)
    if isinstance(plan, TilePlan):
        return cuda.on_chip(form, step, limits, start, known, plan)
    if isinstance(plan, StreamPlan):
        return cuda.on_streams(form, step, limits, start, known, plan)
    return cuda.minimise(form, step, limits, start, known)


def plain(rule: spen.Rule) -> StepRule:
    step = step_of(rule)
    assert step is not None
    return step


def agree(found: Fused, wanted: Solution) -> None:
    assert torch.equal(found.steps, wanted.steps)
    assert torch.equal(found.status, wanted.status)
    assert torch.allclose(found.energy, wanted.energy, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert torch.allclose(found.y, wanted.y, atol=2e-4)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("rule", [BUNDLE, PAPER], ids=["bundle", "paper"])
def test_every_term_at_once_as_in_the_general_path(rule: spen.Rule, plan: TilePlan | StreamPlan):
    case = Case()
    blocks = (case.block("hardtanh", 4, by_row=True), case.block("softplus", 3))
    form = case.everything(*blocks, case.block("square", 2), case.block("sigmoid", 2))
    # A change is small beside a large constant: so rows end sooner the larger theirs is, whatever
    # numbers a device draws, and make room for others at different times.
    form = replace(form, constant=torch.logspace(1, 3, case.rows, device=DEVICE))
    wanted = general(form, rule, case.start, case.known)
    assert len(wanted.steps.unique()) > 2
    agree(fused(form, rule, case.start, case.known, plan), wanted)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_relu_alone_from_one_number(plan: TilePlan | StreamPlan):
    case = Case()
    form = case.form(case.block("relu", 4))
    agree(fused(form, BUNDLE, case.uniform, plan=plan), general(form, BUNDLE, case.uniform))


def test_a_start_where_duals_are_at_their_limit():
    case = Case(rows=3)
    form, start = case.form(), torch.sigmoid(15 * (2 * case.start.round() - 1))
    slow, limits = spen.MirrorDescent(1.0, 0.0), Limits(12, 0.0, 0.0)
    wanted = general(form, slow, start, limits=limits)
    found = fused(form, slow, start, plan=TILES, limits=limits)
    torch.testing.assert_close(found.y, wanted.y, rtol=1e-3, atol=0)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_row_that_must_meet_both_tolerances(plan: TilePlan | StreamPlan):
    case = Case()
    form = case.form(case.block("relu", 4))
    either = Limits(max_steps=12, objective_rtol=1e-2, iterate_atol=5e-2)
    both = either._replace(both=True)
    wanted = general(form, BUNDLE, case.uniform, limits=both)
    assert wanted.converged.any()
    assert (wanted.steps > general(form, BUNDLE, case.uniform, limits=either).steps).any()
    agree(fused(form, BUNDLE, case.uniform, plan=plan, limits=both), wanted)


def test_programs_share_the_rows():
    case = Case(rows=35)
    form, plan = case.form(case.block("relu", 4)), replace(TILES, programs=3)
    agree(fused(form, BUNDLE, case.uniform, plan=plan), general(form, BUNDLE, case.uniform))


def test_as_many_measurements_as_padding_and_one_row_as_the_start():
    case = Case(rows=5)
    form, start = case.form(case.block("hardtanh", 16)), case.start[:1].expand(5, -1)
    agree(fused(form, BUNDLE, start, plan=TILES), general(form, BUNDLE, start))


def test_more_measurements_than_one_pass_takes():
    case = Case(rows=5)
    form = case.form(case.block("relu", 20))
    agree(fused(form, BUNDLE, case.start, plan=STREAMS), general(form, BUNDLE, case.start))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_is_not_finite_diverges_alone(plan: TilePlan | StreamPlan):
    case = Case(rows=4)
    form = case.form(case.block("relu", 3))
    assert form.linear is not None
    form.linear[0, 2], form.linear[2, 3] = torch.nan, torch.inf
    found = fused(form, BUNDLE, case.uniform, plan=plan)
    agree(found, general(form, BUNDLE, case.uniform))
    assert (found.status == Status.DIVERGED).tolist() == [True, False, True, False]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_start_that_nothing_improves_on_is_the_answer(plan: TilePlan | StreamPlan):
    case = Case(rows=3)
    form = case.form()
    assert form.linear is not None
    best = (form.linear < 0).float()
    found = fused(form, BUNDLE, best, plan=plan)
    assert torch.equal(found.y, best)
    agree(found, general(form, BUNDLE, best))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_scale_of_an_energy_does_not_matter(plan: TilePlan | StreamPlan):
    case = Case(rows=3)
    block = case.block("relu", 3)
    large = replace(block, readout=1e7 * block.readout)
    form = Form(linear=1e7 * case.draw(3, LABELS), blocks=(large,))
    agree(fused(form, BUNDLE, case.uniform, plan=plan), general(form, BUNDLE, case.uniform))


def test_many_rows_are_solved_in_parts(monkeypatch: pytest.MonkeyPatch):
    case = Case(rows=9)
    form = case.form()
    whole = fused(form, PAPER, case.start, case.known)
    monkeypatch.setattr(cuda, "MOST_NUMBERS", 5 * LABELS)
    parts = fused(form, PAPER, case.start, case.known)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
    agree(parts, general(form, PAPER, case.start, case.known))


def test_no_rows_have_no_answers():
    case = Case(rows=0)
    for plan in PLANS.values():
        assert fused(case.form(), BUNDLE, case.start, plan=plan).y.shape == (0, LABELS)


def test_plans_hold_every_label_without_much_padding():
    for n_labels in range(1, 513):
        plan = tile_plan(n_labels, 15)
        assert plan is not None
        room = plan.warps * sum(plan.widths)
        assert n_labels <= room <= max(24, 1.34 * n_labels)
        assert 32 * plan.warps * plan.programs * plan.registers <= 65536
    assert tile_plan(513, 15) is None
    assert tile_plan(159, 64) is None
    assert stream_plan(1000).chunk == 64


def test_a_kernel_is_launched_again_without_asking_triton():
    asked, launched = [], []

    class Compiled:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *arguments: launched.append((grid, arguments))

    class Kernel:
        arg_names = ("x", "n", "scale", "SIZE", "WIDTH")

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled]:
            return lambda *arguments, **named: asked.append((arguments, named)) or Compiled()

    kernel = Kernel()
    kernel.__name__ = "one of a kind"  # pyright: ignore[reportAttributeAccessIssue]
    x = torch.zeros(8)
    for programs, tensor, n in ((2, x, 3), (5, x, 7), (5, x[1:], 7), (5, x, 1), (5, x, 32)):
        constants, options = {"WIDTH": 4, "SIZE": 16}, {"num_warps": 4}
        launch(kernel, x.device, programs, (tensor, n, None), constants, options)
    # Alignment, 1 and multiples of 16 have versions of their own; the order is the kernel's.
    assert [arguments[1] for arguments, _ in asked] == [3, 7, 1, 32]
    ((grid, (*_, n, scale, size, width)),) = launched
    assert (grid, n, scale, size, width) == ((5, 1, 1), 7, None, 16, 4)


def test_refusals_are_in_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda, "_capability", lambda device: (9, 0))
    mirror = plain(BUNDLE)
    there = SimpleNamespace(is_cuda=True, dtype=torch.float32, device=torch.device("cuda"))
    form = Form(linear=torch.zeros(1, 2))
    odd = Block(torch.ones(1, 2), torch.ones(1), torch.ones(1), Nonlinearity("sine", *2 * [abs]))
    simplex = Form(tau=torch.ones(1), domain=spen.Simplex(2))

    def said(form: Form, step: StepRule = mirror, **start: object) -> str | None:
        changed = SimpleNamespace(**{**vars(there), **start})
        return cuda.refusal(form, step, changed, None)  # pyright: ignore[reportArgumentType]

    assert said(form) is None
    assert "float64" in str(said(form, dtype=torch.float64))
    assert "mirror steps" in str(said(form, StepRule(lr=0.1, primal=True)))
    assert "'sine'" in str(said(replace(form, blocks=(odd,))))
    assert "unit box" in str(said(simplex))
    monkeypatch.setattr(cuda, "_capability", lambda device: (7, 5))
    assert "8.0" in str(said(form))
    assert cuda.refusal(form, mirror, torch.zeros(1, 2), None) is not None


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="this machine has no CUDA device")
@pytest.mark.parametrize(("n_labels", "m"), [(14, 4), (159, 15), (500, 30), (983, 64), (4096, 256)])
def test_on_a_gpu_as_in_the_general_path(n_labels: int, m: int):
    case = Case(rows=1000, n_labels=n_labels)
    limits = Limits(max_steps=100, objective_rtol=1e-3, iterate_atol=1e-4)
    for rule in (BUNDLE, spen.MirrorDescent()):
        form = (
            case.everything(case.block("relu", m)) if m < 20 else case.form(case.block("relu", m))
        )
        wanted = general(form, rule, case.start, case.known, limits)
        found = fused(form, rule, case.start, case.known, limits=limits)
        both = (found.status == Status.CONVERGED) & (wanted.status == Status.CONVERGED)
        gap = (found.energy - wanted.energy).abs() / wanted.energy.abs().clamp_min(1e-6)
        # Kinks make much of a last bit in a few rows.
        assert (gap[both] > 1e-4).double().mean() < 0.01
        same = (found.y > 0.5) == (wanted.y > 0.5)
        assert same[both].double().mean() > 0.9995
        assert (found.status == wanted.status).double().mean() > 0.99
