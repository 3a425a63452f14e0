"""Convex energies: that they are, that inference reaches their minimum, and that it proves it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import F, all_labelings, random_context, randomise
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import softplus

import spen
from spen.energies.base import Energy, Problem
from spen.energies.form import Block, nonlinearity

L = 6
BOX, CLASSES = spen.UnitBox(L), spen.Simplex(3, positions=2)
TIGHT = spen.Descent(
    spen.MirrorDescent(lr=0.2, momentum=0.9), spen.Stopping(1500, 0.0, 1e-10), backend="general"
)


def convex(hidden: tuple[int, ...], nonlinearity: str = "softplus", seed: int = 0) -> Energy:
    own = spen.ConvexEnergy(F, L, 5, nonlinearity, hidden)  # type: ignore[arg-type]
    return randomise(spen.LocalEnergy(F, L) + own, seed)


def reference(problem: Problem, row: int, bounds: list[tuple[float, float]]) -> float:
    """The minimum over a box, by scipy."""
    one = problem.select(torch.tensor([row]))

    def both(y: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = one.value_and_gradient(torch.from_numpy(y)[None])
        return value.item(), gradient[0].detach().numpy()

    start = np.array([(low + high) / 2 for low, high in bounds])
    options = {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 5000}
    found = minimize(both, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun)


@pytest.mark.parametrize("nonlinearity", ["softplus", "relu"])
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_the_energy_lies_below_its_chords(hidden, nonlinearity):
    energy = convex(hidden, nonlinearity)
    context, _ = random_context(BOX, 200, 1)
    problem = energy.bind(context)
    one, other = (random_context(BOX, 200, seed)[1] for seed in (2, 3))
    share = torch.linspace(0, 1, 200, dtype=torch.float64)
    between = share[:, None] * one + (1 - share[:, None]) * other
    chord = share * problem.value(one) + (1 - share) * problem.value(other)
    assert (problem.value(between) <= chord + 1e-9).all()
    assert problem.is_convex
    assert problem.is_smooth == (nonlinearity == "softplus")


def test_one_layer_has_the_canonical_form_and_fused_kernels():
    assert convex(()).bind(random_context(BOX, 2, 0)[0]).form is not None
    assert convex((3,)).bind(random_context(BOX, 2, 0)[0]).form is None
    energy = convex(()).float()
    context, _ = random_context(BOX, 5, 0, torch.float32)
    problem = energy.bind(context)
    with torch.no_grad():
        fused = spen.Descent().solve(problem, BOX)
        general = spen.Descent(backend="general").solve(problem, BOX)
    assert fused.gap is not None
    torch.testing.assert_close(fused.energy, general.energy, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_inference_finds_the_minimum_and_the_gap_bounds_the_rest(hidden, tau):
    energy = convex(hidden) + spen.Entropy(BOX, tau)
    problem = energy.bind(random_context(BOX, 4, 1)[0])
    least = torch.tensor([reference(problem, row, [(1e-9, 1 - 1e-9)] * L) for row in range(4)])
    for steps in (3, 30, 1500):
        stopping = replace(TIGHT.stopping, max_steps=steps)
        solution = replace(TIGHT, stopping=stopping).solve(problem, BOX)
        assert solution.gap is not None
        above = solution.energy - least
        assert (above > -1e-6).all()
        assert (above <= solution.gap + 1e-6).all()
    assert (above < 1e-4).all()
    assert (solution.gap < 1e-3).all()


def test_no_labelling_is_below_the_relaxation():
    """A search error of the relaxation would be a labelling with a lower energy."""
    problem = convex((4,)).bind(random_context(BOX, 4, 1)[0])
    solution = TIGHT.solve(problem, BOX)
    for one in all_labelings(BOX):
        assert (problem.value(one.expand(4, -1)) >= solution.energy - 1e-4).all()


@pytest.mark.parametrize("domain", [BOX, CLASSES], ids=["box", "classes"])
def test_the_gap_is_the_largest_fall_of_the_tangent(domain):
    _, y = random_context(domain, 5, 3)
    gradient = torch.randn(5, L, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    corners = all_labelings(domain)
    known = torch.full_like(y, torch.nan)
    known[0, 0], known[1, 1], known[2, 5] = 1.0, 0.0, 0.0
    known = domain.complete_known(known)

    def largest(y: Tensor, known: Tensor) -> Tensor:
        falls = (gradient * y).sum(1)[:, None] - gradient @ corners.T
        fixed = ~torch.isnan(known)
        wrong = ((corners[None] != known[:, None]) & fixed[:, None]).any(2)
        return falls.masked_fill(wrong, -torch.inf).amax(1)

    held = domain.hold(y, known)
    free = torch.full_like(y, torch.nan)
    torch.testing.assert_close(domain.frank_wolfe_gap(y, gradient), largest(y, free))
    torch.testing.assert_close(domain.frank_wolfe_gap(held, gradient, known), largest(held, known))


@pytest.mark.parametrize("domain", [BOX, CLASSES], ids=["box", "classes"])
def test_the_entropic_gap_lies_between_the_truth_and_the_frank_wolfe_gap(domain):
    _, y = random_context(domain, 5, 3)
    known = torch.full_like(y, torch.nan)
    known[0, 0], known[1, 1] = 1.0, 0.0
    known = domain.complete_known(known)
    y = domain.hold(y, known)
    gradient = torch.randn(5, L, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tau = torch.full((5,), 0.6, dtype=torch.float64)
    gap = domain.entropic_gap(y, gradient, tau, known)
    # For a linear energy the bound is exact: its minimiser is known.
    problem = spen.Form(linear=gradient, tau=tau, domain=domain)
    least = TIGHT.solve(problem, domain, known=known)
    torch.testing.assert_close(gap, problem.value(y) - least.energy, rtol=1e-5, atol=1e-7)
    assert least.gap is not None
    assert (least.gap < 1e-7).all()
    whole = domain.frank_wolfe_gap(y, problem.gradient(y), known)
    assert (gap <= whole + 1e-9).all()
    tiny = torch.full_like(tau, 1e-6)
    plain = domain.frank_wolfe_gap(y, gradient, known)
    torch.testing.assert_close(
        domain.entropic_gap(y, gradient, tiny, known), plain, atol=1e-4, rtol=0
    )


def test_known_labels_keep_their_certificate():
    problem = convex(()).bind(random_context(BOX, 2, 1)[0])
    known = torch.full((2, L), torch.nan, dtype=torch.float64)
    known[:, 0] = 1.0
    solution = TIGHT.solve(problem, BOX, known=known)
    bounds = [(1.0, 1.0), *[(0.0, 1.0)] * (L - 1)]
    least = torch.tensor([reference(problem, row, bounds) for row in range(2)])
    assert solution.gap is not None
    assert (solution.gap < 1e-3).all()
    torch.testing.assert_close(solution.energy, least.double(), rtol=1e-5, atol=1e-5)


def test_only_convex_energies_have_a_gap():
    context, _ = random_context(BOX, 2, 0)
    assert spen.Descent().solve(spen.LocalEnergy(F, L).double().bind(context), BOX).gap is not None
    wavy = randomise(spen.LabelEnergy(L, 3, "hardtanh"), 0)
    assert spen.Descent().solve(wavy.bind(context), BOX).gap is None
    down = spen.Form(quadratic=torch.tensor([[1.0, -0.1]]))
    assert not down.is_convex
    deep = randomise(spen.LabelEnergy(L, 3, "softplus", hidden=(2,)), 0)
    assert not (convex(()) + deep).bind(context).is_convex


def test_gaps_of_batches_are_joined():
    model = spen.SPEN(spen.Identity(F), convex(()).float(), BOX)
    solution = model.solve(np.ones((5, F)), batch_size=2)
    assert solution.gap is not None
    assert solution.gap.shape == (5,)


def test_weights_stay_above_zero_without_clipping_and_decay_to_where_they_started():
    energy = spen.ConvexEnergy(F, L, 5, hidden=(4,))
    torch.testing.assert_close(energy.readout, torch.full((4,), 0.5))
    torch.testing.assert_close(energy.weights[0], torch.full((4, 5), 0.2))
    with torch.no_grad():
        energy.raw_readout.fill_(-20.0)
    assert (energy.readout > 0).all()


def test_bad_settings():
    with pytest.raises(spen.InputError, match="softplus"):
        spen.ConvexEnergy(F, L, 5, "hardtanh")  # type: ignore[arg-type]
    with pytest.raises(spen.InputError, match="hidden"):
        spen.ConvexEnergy(F, L, 5, hidden=(0,))


def test_what_is_convex_by_construction_is_not_looked_at():
    class Unread(torch.Tensor):
        """Stands for a readout on a GPU, which the host must not wait for."""

        @property
        def is_cuda(self):
            return True

        def __lt__(self, other):
            raise AssertionError("the host would wait")

    readout = torch.ones(2).as_subclass(Unread)
    parts = torch.zeros(2, 3), torch.zeros(2), readout, nonlinearity("softplus")
    assert not Block(*parts).is_convex
    assert Block(*parts, never_negative=True).is_convex
    own = spen.ConvexEnergy(F, L, measurements=5)
    (block,) = own.bind(spen.Context(torch.zeros(1, F))).form.blocks
    assert block.never_negative


def test_two_layers_are_the_formula_of_the_docstring() -> None:
    energy = randomise(spen.ConvexEnergy(F, L, 5, "softplus", (4,)), 3)
    context, y = random_context(BOX, 3, 3)
    [C, *further], x = [energy.measurements, *energy.further_measurements], context.features
    first = softplus(y @ C.T + x @ energy.feature_weight.T + energy.bias)
    second = softplus(
        first @ energy.weights[0].T
        + y @ further[0].T
        + x @ energy.further_feature_weights[0].T
        + energy.further_biases[0]
    )
    torch.testing.assert_close(energy.bind(context).value(y), second @ energy.readout)
