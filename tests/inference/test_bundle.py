"""The default rule against its formula, linear programs, brute force and the paper's rule."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LEARNED, brute_force, random_context, randomise
from torch import Tensor

import spen
from spen.energies.form import nonlinearity
from spen.inference.rules import FLAT, RULES, Iterate

seeds = st.integers(0, 10_000)
PAPER = spen.MirrorDescent(lr=0.1, momentum=0.95)
USUAL = spen.Stopping(100, 1e-3, 1e-4)
nan = float("nan")


def random_form(
    seed: int,
    rows: int = 16,
    n_labels: int = 6,
    measurements: int = 3,
    name: str = "relu",
    *,
    convex: bool = False,
    scale: float = 1.0,
    tau: float = 0.0,
) -> spen.Form:
    """Random scores, and random measurements whose readout is as strong as they are."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    readout = 2 * draw(measurements)
    block = spen.Block(
        draw(measurements, n_labels) / scale,
        draw(measurements) / scale,
        readout.abs() if convex else readout,
        nonlinearity(name),
    )
    weights = torch.full((rows,), tau, dtype=torch.float64) if tau else None
    domain = spen.UnitBox(n_labels) if tau else None
    return spen.Form(linear=draw(rows, n_labels), blocks=(block,), tau=weights, domain=domain)


def solve(problem: spen.Problem, rule: spen.Rule, stopping=USUAL, known=None, **options):
    descent = spen.Descent(rule, stopping, backend="general", **options)
    return descent.solve(problem, spen.UnitBox(problem.rows_like.shape[1]), known=known)


def by_the_formula(form: spen.Form, row: int, steps: int, held: dict[int, float]) -> np.ndarray:
    """The iterates of one example, label by label in Python's numbers."""
    a, C = form.linear[row].tolist(), form.blocks[0].measurements.tolist()
    b, c = form.blocks[0].bias.tolist(), form.blocks[0].readout.tolist()
    tau = 0.0 if form.tau is None else form.tau[row].item()
    labels, reach, grow, shrink = range(len(a)), 8.0, 1.2, 0.5

    def evaluate(y):
        z = [sum(C[k][i] * y[i] for i in labels) + b[k] for k in range(len(b))]
        smooth = sum(a[i] * y[i] for i in labels) + sum(c[k] * max(z[k], 0) for k in range(len(b)))
        slope = [a[i] + sum(c[k] * C[k][i] * (z[k] > 0) for k in range(len(b))) for i in labels]
        free = [i for i in labels if 0 < y[i] < 1]
        entropy = -sum(y[i] * math.log(y[i]) + (1 - y[i]) * math.log(1 - y[i]) for i in free)
        return smooth, smooth - tau * entropy, [0.0 if i in held else slope[i] for i in labels]

    y = [held.get(i, 0.5) for i in labels]
    dual = [0.0 for _ in labels]
    iterates, rate, d, promised, last = [y], 0.0, [], 0.0, 0.0
    for step in range(steps):
        smooth, value, g = evaluate(y)
        if step == 0:
            rate, d, cut = reach / max(abs(each) for each in g), g, smooth
        else:
            rate *= shrink if value > last else grow
            n, gap = [g[i] - d[i] for i in labels], smooth - promised
            along = sum(y[i] * (1 - y[i]) * n[i] * (g[i] + tau * dual[i]) for i in labels)
            bend = max(sum(y[i] * (1 - y[i]) * n[i] ** 2 for i in labels), FLAT)
            beta = min(max((along - gap * (1 / rate + tau)) / bend, 0), 1) if gap > 0 else 0
            d, cut = [g[i] - beta * n[i] for i in labels], smooth - beta * gap
        moved = [(dual[i] - rate * d[i]) / (1 + rate * tau) for i in labels]
        dual = [min(max(each, -15), 15) for each in moved]
        new = [held.get(i, 1 / (1 + math.exp(-dual[i]))) for i in labels]
        promised = cut + sum(d[i] * (new[i] - y[i]) for i in labels)
        last, y = value, new
        iterates.append(y)
    return np.array(iterates)


@pytest.mark.parametrize("tau", [0.0, 0.3])
@pytest.mark.parametrize("held", [{}, {1: 1.0, 4: 0.0}])
def test_the_steps_are_those_of_the_formula(tau, held):
    form = random_form(5, rows=4, tau=tau)
    known = torch.full((4, 6), nan, dtype=torch.float64)
    for label, value in held.items():
        known[:, label] = value
    trace = solve(
        form, spen.MirrorBundle(), spen.Stopping(12, 0.0, 0.0), known if held else None, trace=True
    ).trace
    assert trace is not None
    for row in range(4):
        expected = torch.from_numpy(by_the_formula(form, row, 12, held))
        torch.testing.assert_close(trace.y[:, row], expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, tau=st.sampled_from([0.0, 0.5]))
def test_the_mixture_of_slopes_solves_the_step_with_two_cuts(seed, tau):
    """Of max(cuts) + τ·(−H) + D/η the dual is concave in the mixture: no other one is better."""
    domain, form = spen.UnitBox(6), random_form(seed, rows=1, tau=tau, convex=True)
    smooth = form.without_entropy() if tau else form
    rule, weight = spen.MirrorBundle(), form.tau
    y = domain.uniform(form.rows_like)
    state = rule.init(y, domain)
    for _ in range(5):
        here = Iterate(y, form.value(y), smooth.gradient(y))
        after, new = rule.step(state, here, weight, None, domain)
        if state.memory:
            _, slope, promised, _ = state.memory
            rate = after.memory[0]
            gap = (smooth.value(y) - promised[:, 0]).clamp_min(0)

            def dual_value(
                mixed: Tensor, share: Tensor, y=y, point=state.point, gap=gap, rate=rate
            ) -> Tensor:
                pull = mixed + tau * point
                return (
                    -share * gap - (domain.covariance(y, pull, pull) / (1 / rate[:, 0] + tau)) / 2
                )

            shares = torch.linspace(0, 1, 101, dtype=torch.float64)
            others = [dual_value(here.gradient - s * (here.gradient - slope), s) for s in shares]
            change = here.gradient - slope
            taken = ((here.gradient - after.memory[1]) * change).sum() / (
                change**2
            ).sum().clamp_min(1e-300)
            best = torch.stack(others).max()
            assert dual_value(after.memory[1], taken) >= best - 1e-9 * (1 + best.abs())
        state, y = after, new


@pytest.mark.parametrize("domain", [spen.UnitBox(6), spen.Simplex(3, positions=2)])
def test_covariance_is_the_derivative_of_the_mirror_map(domain):
    generator = torch.Generator().manual_seed(0)
    dual, u, v = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    moved = torch.zeros(4, 1, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad((u * domain.to_primal(dual + moved * v)).sum(), moved)
    found = domain.covariance(domain.to_primal(dual), u, v)
    torch.testing.assert_close(found, derivative[:, 0])


def linear_program(form: spen.Form, row: int) -> float:
    """The least energy over the box: a ReLU with a readout above zero is a slack variable."""
    C, b = form.blocks[0].measurements.numpy(), form.blocks[0].bias.numpy()
    cost = np.concatenate([form.linear[row].numpy(), form.blocks[0].readout.numpy()])
    bounds = [(0, 1)] * C.shape[1] + [(0, None)] * len(C)
    above = np.hstack([C, -np.eye(len(C))])
    return scipy.optimize.linprog(cost, A_ub=above, b_ub=-b, bounds=bounds).fun


def test_convex_kinks_are_solved_as_by_linear_programs():
    """The paper's rule is a tenth off, in three times the steps: it jumps over the kinks."""
    gaps, steps = {PAPER: 0.0, spen.MirrorBundle(): 0.0}, {PAPER: 0.0, spen.MirrorBundle(): 0.0}
    for seed in range(8):
        form = random_form(seed, convex=True)
        least = torch.tensor([linear_program(form, row) for row in range(16)])
        for rule in gaps:
            solution = solve(form, rule)
            assert (solution.energy >= least - 1e-9).all()
            gaps[rule] += ((solution.energy - least) / least.abs().mean()).mean().item() / 8
            steps[rule] += solution.steps.double().mean().item() / 8
    assert gaps[spen.MirrorBundle()] < 0.01
    assert gaps[spen.MirrorBundle()] < gaps[PAPER] / 3
    assert steps[spen.MirrorBundle()] < steps[PAPER] / 2


@settings(max_examples=15, deadline=None)
@given(seed=seeds, name=st.sampled_from(["relu", "softplus"]))
def test_convex_forms_take_fewer_steps_than_by_the_paper_rule(seed, name):
    form = random_form(seed, 128, 12, 4, name, convex=True)
    ours, paper = solve(form, spen.MirrorBundle()), solve(form, PAPER)
    assert ours.energy.mean() < paper.energy.mean() + 1e-2 * paper.energy.abs().mean()
    assert ours.steps.double().mean() < paper.steps.double().mean() / 1.2
    assert ours.converged.double().mean() > 0.98


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", ["relu", "hardtanh", "sigmoid", "square"])
def test_other_forms_do_so_on_average(name, scale):
    """Such forms have many minima, and chance decides which one a rule finds."""
    changes, ratios = [], []
    for seed in range(10):
        form = random_form(seed, 32, 8, 4, name, scale=scale)
        ours, paper = solve(form, spen.MirrorBundle()), solve(form, PAPER)
        changes.append((ours.energy - paper.energy).mean() / paper.energy.abs().mean())
        ratios.append(paper.steps.double().mean() / ours.steps.double().mean())
    assert torch.stack(changes).mean() < 0
    assert torch.stack(ratios).mean() > 1


@pytest.mark.parametrize("name", LEARNED)
@settings(max_examples=3, deadline=None)
@given(n_labels=st.integers(1, 8), seed=seeds)
def test_rounded_energy_is_never_below_brute_force(name, n_labels, seed):
    domain = spen.UnitBox(n_labels)
    problem = randomise(LEARNED[name](n_labels), seed).bind(random_context(domain, 4, seed)[0])
    solution = spen.Descent().solve(problem, domain)
    assert (problem.value(domain.round(solution.y)) >= brute_force(problem, domain, 4) - 1e-9).all()
    assert (solution.energy <= problem.value(domain.uniform(problem.rows_like)) + 1e-12).all()
    torch.testing.assert_close(solution.energy, problem.value(solution.y))


def test_the_best_class_is_mostly_found_on_a_simplex():
    domain = spen.Simplex(3, positions=3)
    problem = randomise(LEARNED["local+label"](9), 2).bind(random_context(domain, 12, 2)[0])
    rounded = problem.value(domain.round(spen.Descent().solve(problem, domain).y))
    best = brute_force(problem, domain, 12)
    assert (rounded >= best - 1e-9).all()
    assert ((rounded - best).abs() < 1e-6).double().mean() >= 0.5


def test_the_scale_of_an_energy_does_not_matter():
    small, large = (random_form(3, scale=scale) for scale in (2.0**-6, 2.0**6))
    one, other = solve(small, spen.MirrorBundle()), solve(large, spen.MirrorBundle())
    torch.testing.assert_close(one.y, other.y)
    assert (one.steps == other.steps).all()


def test_an_example_does_not_see_its_neighbours():
    form = random_form(1, rows=40)
    together = solve(form, spen.MirrorBundle())
    assert together.steps.unique().numel() > 3, "so that some were dropped on the way"
    for row in (0, 17, 39):
        alone = solve(form.select(torch.tensor([row])), spen.MirrorBundle())
        torch.testing.assert_close(alone.y[0], together.y[row])
        assert alone.steps[0] == together.steps[row]


def test_entropy_is_applied_exactly():
    domain = spen.UnitBox(4)
    scores = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.full((5,), 2.0, dtype=torch.float64)
    problem = spen.Form(linear=scores, tau=weights, domain=domain)
    solution = solve(problem, spen.MirrorBundle(), spen.Stopping(200, 0.0, 1e-12))
    torch.testing.assert_close(solution.y, torch.sigmoid(-scores / 2))


def test_unrolled_steps_have_the_gradient_of_finite_differences():
    form = random_form(2, rows=3, name="softplus", tau=0.5)

    def total(linear: Tensor) -> Tensor:
        problem = dataclasses.replace(form, linear=linear)
        return solve(problem, spen.MirrorBundle(), spen.Stopping(5), backward=spen.Unrolled()).y

    linear = form.linear.clone().requires_grad_()
    assert torch.autograd.gradcheck(total, (linear,), eps=1e-7, atol=1e-5)


def test_a_flat_objective_and_all_labels_known_stay_finite():
    flat = spen.Form(linear=torch.zeros(2, 3))
    solution = solve(flat, spen.MirrorBundle())
    assert solution.converged.all()
    assert (solution.y == 0.5).all()
    known = torch.tensor([[1.0, 0.0, 1.0], [nan, 0.0, nan]])
    held = solve(spen.Form(linear=torch.full((2, 3), -1.0)), spen.MirrorBundle(), known=known)
    assert held.converged.all()
    torch.testing.assert_close(held.y.round(), torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]]))


def test_a_start_without_a_value_is_left_behind():
    """The objective is nan at the start alone, and so is what its cut promises."""
    form, domain, rule = random_form(4, rows=2), spen.UnitBox(6), spen.MirrorBundle()
    y = domain.uniform(form.rows_like)
    state, lost = rule.init(y, domain), torch.full((2,), nan, dtype=torch.float64)
    for value in (lost, None, None, None):
        here = Iterate(y, form.value(y) if value is None else value, form.gradient(y))
        state, y = rule.step(state, here, None, None, domain)
        assert torch.isfinite(y).all()
    assert torch.isfinite(state.memory[2]).all(), "and the later cuts are whole"


def test_it_is_the_default_and_has_a_name():
    assert spen.Descent().rule == spen.MirrorBundle() == RULES["bundle"]()
    assert spen.MirrorDescent() == PAPER, "and the paper's rule keeps its own"


@pytest.mark.parametrize("wrong", [{"reach": 0.0}, {"grow": 0.9}, {"shrink": 0.0}, {"shrink": 1.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(spen.InputError, match=next(iter(wrong))):
        spen.MirrorBundle(**wrong)
