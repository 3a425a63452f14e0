"""Descent against brute force and reference solvers, and everything a caller relies on."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LEARNED, F, brute_force, fixed_terms, random_context, randomise

import spen
from spen.batch.context import Context
from spen.inference import descent as descent_module
from spen.inference.base import Status

seeds = st.integers(0, 10_000)
RULES = {
    "mirror": spen.MirrorDescent(0.1, 0.9),
    "mirror-decay": spen.MirrorDescent(0.5, 0.5, decay=0.05),
    "projected": spen.ProjectedGradient(0.05, 0.5),
}
LONG = spen.Stopping(max_steps=400)
nan = float("nan")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", LEARNED)
@settings(max_examples=5, deadline=None)
@given(n_labels=st.integers(1, 8), seed=seeds)
def test_rounded_energy_is_never_below_brute_force(rule, name, n_labels, seed):
    domain = spen.UnitBox(n_labels)
    problem = randomise(LEARNED[name](n_labels), seed).bind(random_context(domain, 4, seed)[0])
    solution = spen.Descent(RULES[rule], spen.Stopping(60)).solve(problem, domain)
    rounded = problem.value(domain.round(solution.y))
    assert (rounded >= brute_force(problem, domain, 4) - 1e-9).all()
    assert (solution.energy <= problem.value(domain.uniform(problem.rows_like)) + 1e-12).all()
    torch.testing.assert_close(solution.energy, problem.value(solution.y))


@pytest.mark.parametrize("rule", RULES)
def test_rounded_energy_on_a_simplex(rule):
    domain = spen.Simplex(3, positions=3)
    problem = randomise(LEARNED["local+label"](9), 2).bind(random_context(domain, 6, 2)[0])
    solution = spen.Descent(RULES[rule], LONG).solve(problem, domain)
    best = brute_force(problem, domain, 6)
    rounded = problem.value(domain.round(solution.y))
    assert (rounded >= best - 1e-9).all()
    assert ((rounded - best).abs() < 1e-6).double().mean() >= 0.5, "and mostly it is found"


def test_local_energy_alone_is_minimised_exactly():
    domain = spen.UnitBox(6)
    problem = randomise(spen.LocalEnergy(F, 6), 0).bind(random_context(domain, 50, 0)[0])
    for rule in RULES.values():
        solution = spen.Descent(rule, spen.Stopping(2000, 0.0, 1e-9)).solve(problem, domain)
        rounded = problem.value(domain.round(solution.y))
        torch.testing.assert_close(rounded, brute_force(problem, domain, 50))


def convex_problem(n_labels: int, seed: int, smoothing: str = "entropy", rows: int = 3):
    """Local + softplus with positive readouts + entropy or squares: strictly convex in y."""
    domain = spen.UnitBox(n_labels)
    label = spen.LabelEnergy(n_labels, 3, "softplus")
    energy = randomise(spen.LocalEnergy(F, n_labels) + label, seed)
    with torch.no_grad():
        label.readout.abs_()
    context, _ = random_context(domain, rows, seed)
    if smoothing == "entropy":
        return (energy + spen.Entropy(domain, 0.5)).bind(context), domain
    squares = spen.Form(quadratic=torch.ones(rows, n_labels, dtype=torch.float64))
    return energy.bind(context) + squares, domain


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=8, deadline=None)
@given(n_labels=st.integers(1, 6), seed=seeds)
def test_convex_energies_reach_a_reference_solver(rule, n_labels, seed):
    # The entropy's gradient has no bound, so a rule must apply it exactly to get this close.
    smoothing = "entropy" if RULES[rule].applies_entropy else "squares"
    problem, domain = convex_problem(n_labels, seed, smoothing)
    stopping = spen.Stopping(max_steps=3000, objective_rtol=0.0, iterate_atol=1e-8)
    solution = spen.Descent(RULES[rule], stopping).solve(problem, domain)
    edge = 1e-6 if smoothing == "entropy" else 0.0
    for row in range(3):
        one = problem.select(torch.tensor([row]))

        def value(y, one=one):
            v, g = one.value_and_gradient(torch.tensor(y[None]))
            return v.item(), g[0].detach().numpy()

        reference = scipy.optimize.minimize(
            value,
            np.full(n_labels, 0.5),
            jac=True,
            bounds=[(edge, 1 - edge)] * n_labels,
            options={"ftol": 1e-14, "gtol": 1e-10},
        )
        assert solution.energy[row].item() == pytest.approx(reference.fun, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_local_energy_with_entropy_one_is_the_sigmoid(momentum):
    domain = spen.UnitBox(5)
    energy = randomise(spen.LocalEnergy(F, 5), 4)
    context, _ = random_context(domain, 7, 4)
    problem = (energy + spen.Entropy(domain, 1.0)).bind(context)
    rule = spen.MirrorDescent(0.5, momentum)
    solution = spen.Descent(rule, spen.Stopping(500, 0.0, 1e-12)).solve(problem, domain)
    torch.testing.assert_close(
        solution.y, torch.sigmoid(-energy.scores(context)), atol=1e-8, rtol=0
    )


def test_local_energy_with_entropy_one_is_the_softmax_on_a_simplex():
    domain = spen.Simplex(3, positions=2)
    energy = randomise(spen.LocalEnergy(F, 6), 4)
    context, _ = random_context(domain, 7, 4)
    problem = (energy + spen.Entropy(domain, 1.0)).bind(context)
    stopping = spen.Stopping(500, 0.0, 1e-12)
    solution = spen.Descent(spen.MirrorDescent(0.5, 0.0), stopping).solve(problem, domain)
    expected = torch.softmax(-energy.scores(context).reshape(7, 2, 3), 2).reshape(7, 6)
    torch.testing.assert_close(solution.y, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("kind", ["box", "simplex"])
@pytest.mark.parametrize("term", ["hamming", "squared", "log", "entropy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_iterates_stay_inside(kind, term, dtype):
    domain = spen.UnitBox(8) if kind == "box" else spen.Simplex(4, positions=2)
    context, _ = random_context(domain, 20, 0, dtype)
    learned = randomise(LEARNED["local+label"](8), 0, scale=3.0).to(dtype)
    problem = (learned + fixed_terms(domain)[term]).bind(context)
    descent = spen.Descent(spen.MirrorDescent(), spen.Stopping(100, 0.0, 0.0), trace=True)
    solution = descent.solve(problem, domain)
    assert solution.trace is not None
    assert solution.trace.y.shape == (101, 20, 8)
    assert (solution.trace.y > 0).all()
    assert (solution.trace.y < 1).all()
    assert torch.isfinite(solution.trace.energy).all()
    assert (solution.status == Status.MAX_STEPS).all()


@pytest.mark.parametrize("delta", ["hamming", "squared", "log"])
def test_loss_augmented_inference_minimises_the_written_out_objective(delta):
    domain = spen.UnitBox(5)
    energy = randomise(LEARNED["local+label"](5), 1)
    context, _ = random_context(domain, 6, 1)
    assert context.target is not None
    margin, target = 0.8, context.target

    class WrittenOut(spen.Energy):
        n_labels, n_features = 5, F

        def forward(self, features, y):
            loss = {
                "hamming": (target * (1 - y) + (1 - target) * y).sum(1),
                "squared": (y - target).square().sum(1),
                "log": torch.nn.functional.binary_cross_entropy(y, target, reduction="none").sum(1),
            }[delta]
            return energy(features, y) - margin * loss

    augmented = (energy + spen.LossAugmentation(domain, delta, margin)).bind(context)
    descent = spen.Descent(spen.MirrorDescent(0.1, 0.9), spen.Stopping(60, 0.0, 0.0))
    ours = descent.solve(augmented, domain)
    theirs = descent.solve(WrittenOut().bind(context), domain)
    torch.testing.assert_close(ours.y, theirs.y, atol=1e-7, rtol=0)
    torch.testing.assert_close(ours.energy, theirs.energy, atol=1e-6, rtol=0)


def trained_like(n_labels=12, dtype=torch.float32):
    domain = spen.UnitBox(n_labels)
    energy = randomise(
        spen.LocalEnergy(F, n_labels) + spen.LabelEnergy(n_labels, 6, "hardtanh"), 9
    ).to(dtype)
    return energy, domain


@pytest.mark.parametrize("rule", RULES)
def test_predictions_do_not_depend_on_batch_order_or_neighbours(rule):
    energy, domain = trained_like()
    features = torch.randn(64, F, generator=torch.Generator().manual_seed(0))
    model = spen.SPEN(spen.Identity(F), energy, domain)
    descent = spen.Descent(RULES[rule])
    whole = model.solve(features, descent)
    for size in (1, 7, 32):
        parts = model.solve(features, descent, batch_size=size)
        torch.testing.assert_close(parts.y, whole.y, atol=1e-5, rtol=0)
        assert torch.equal(parts.status, whole.status)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    shuffled = model.solve(features[order], descent)
    torch.testing.assert_close(shuffled.y, whole.y[order], atol=1e-5, rtol=0)


def test_a_trained_model_does_not_depend_on_its_batches_either():
    """Training puts examples at the kinks of HardTanh, which make much of little rounding."""
    data = spen.exclusive_blocks(200, 60, seed=5)
    energy = spen.LocalEnergy(64, 16) + spen.LabelEnergy(16, 4, initial="counting")
    model = spen.SPEN(spen.Identity(64), energy, spen.UnitBox(16), seed=0)
    rule = spen.MirrorDescent(0.05, 0.8)
    short = spen.Descent(rule, spen.Stopping(30))
    stages = [
        spen.Stage("local", spen.CrossEntropy(), parts=("local",), epochs=40, lr=0.1),
        spen.Stage("all", spen.Hinge(), short, epochs=20, lr=0.03, clip=1.0),
    ]
    spen.train(model, stages, data.train)
    for long in (spen.Descent(rule, spen.Stopping(300)), spen.Descent(stopping=LONG)):
        whole = model.solve(data.test.X, long).y
        for size in (1, 3, 7, 59):
            parts = model.solve(data.test.X, long, batch_size=size).y
            torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)
        alone = model.solve(data.test.X[17:18], long).y
        torch.testing.assert_close(alone, whole[17:18], atol=1e-5, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_compaction_changes_nothing_but_time(rule, monkeypatch):
    energy, domain = trained_like(dtype=torch.float64)
    context, start = random_context(domain, 100, 3)
    problem = energy.bind(context)
    if RULES[rule].applies_entropy:
        problem = problem + spen.Entropy(domain, 0.1).bind(context)
    known = torch.full_like(start, torch.nan)
    known[::3, 0] = 1.0
    descent = spen.Descent(RULES[rule], spen.Stopping(300, iterate_atol=1e-2))

    selected = []
    kept = descent_module.Work.select
    monkeypatch.setattr(
        descent_module.Work, "select", lambda self, rows: selected.append(1) or kept(self, rows)
    )
    compacted = descent.solve(problem, domain, start, known)
    assert selected, "this test must really compact"
    monkeypatch.setattr(descent_module, "COMPACT_BELOW", 0.0)
    selected.clear()
    plain = descent.solve(problem, domain, start, known)
    assert not selected
    torch.testing.assert_close(compacted.y, plain.y, atol=1e-12, rtol=0)
    torch.testing.assert_close(compacted.energy, plain.energy, atol=1e-12, rtol=0)
    assert torch.equal(compacted.steps, plain.steps)
    assert torch.equal(compacted.status, plain.status)


@pytest.mark.parametrize("backend", ["auto", "general"])
def test_the_best_iterate_is_returned(backend):
    """One huge step overshoots; the start was better."""
    problem = spen.Form(
        linear=torch.tensor([[-20.0]]), quadratic=torch.tensor([[40.0]])
    )  # minimum at one half
    descent = spen.Descent(spen.ProjectedGradient(1.0, 0.0), spen.Stopping(3), backend=backend)
    start = torch.tensor([[0.6]])
    solution = descent.solve(problem, spen.UnitBox(1), start)
    assert solution.y.item() == pytest.approx(0.6)
    assert solution.energy.item() == pytest.approx(problem.value(start).item())
    assert solution.status.item() == Status.MAX_STEPS


@pytest.mark.parametrize("rule", RULES)
def test_known_labels_are_held_and_the_rest_is_what_is_left(rule):
    """Clamping equals solving the smaller problem in which the label is a constant."""
    energy = randomise(spen.LocalEnergy(F, 3) + spen.PairwiseEnergy(3), 5)
    context, _ = random_context(spen.UnitBox(3), 4, 5)
    known = torch.tensor([[1.0, torch.nan, torch.nan]], dtype=torch.float64).expand(4, -1)
    held = spen.Descent(RULES[rule], spen.Stopping(500, 0.0, 1e-10)).solve(
        energy.bind(context), spen.UnitBox(3), known=known
    )
    assert (held.y[:, 0] == 1).all()

    class Rest(spen.Energy):
        n_labels, n_features = 2, F

        def forward(self, features, y):
            return energy(features, torch.cat([torch.ones_like(y[:, :1]), y], 1))

    rest = spen.Descent(RULES[rule], spen.Stopping(500, 0.0, 1e-10)).solve(
        Rest().bind(context), spen.UnitBox(2)
    )
    torch.testing.assert_close(held.y[:, 1:], rest.y, atol=1e-6, rtol=0)
    torch.testing.assert_close(held.energy, rest.energy, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rule", [*RULES.values(), spen.MirrorBundle()])
def test_a_step_is_as_long_beside_a_known_label_as_without_it(rule):
    """Also by rules that look at the largest gradient of a row."""
    slope = torch.tensor([[0.5, -0.1, 0.2]], dtype=torch.float64)
    known = torch.tensor([[1.0, torch.nan, torch.nan]], dtype=torch.float64)
    descent = spen.Descent(rule, spen.Stopping(2, 0.0, 0.0))
    held = descent.solve(spen.Form(linear=slope), spen.UnitBox(3), known=known)
    rest = descent.solve(spen.Form(linear=slope[:, 1:]), spen.UnitBox(2))
    torch.testing.assert_close(held.y[:, 1:], rest.y, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_known_classes_on_a_simplex(rule):
    domain = spen.Simplex(3, positions=2)
    energy = randomise(LEARNED["local+label"](6), 5)
    context, _ = random_context(domain, 4, 5)
    nan = torch.nan
    known = torch.tensor([[0.0, nan, nan, nan, 1.0, nan]], dtype=torch.float64).expand(4, -1)
    solution = spen.Descent(RULES[rule], LONG).solve(energy.bind(context), domain, known=known)
    assert (solution.y[:, 0] == 0).all()
    assert torch.equal(solution.y[:, 3:], torch.tensor([[0.0, 1.0, 0.0]]).double().expand(4, -1))
    torch.testing.assert_close(solution.y[:, :3].sum(1), torch.ones(4, dtype=torch.float64))


def test_a_known_zero_leaves_the_other_classes_their_own_minimum():
    """The class that is held must not set the scale for the others."""
    nan = torch.nan
    problem = spen.Form(linear=torch.tensor([[0.0, 20.0, 16.0]]))
    known = torch.tensor([[0.0, nan, nan]])
    for backward in (spen.Detached(), spen.Unrolled()):
        descent = spen.Descent(spen.MirrorDescent(0.1, 0.5), spen.Stopping(400), backward)
        y = descent.solve(problem, spen.Simplex(3), known=known).y
        assert y[0, 2] > 0.99
        smoothed = problem + spen.Form(tau=torch.ones(1), domain=spen.Simplex(3))
        y = descent.solve(smoothed, spen.Simplex(3), known=known).y
        expected = torch.sigmoid(torch.tensor(4.0))
        torch.testing.assert_close(y[0, 2], expected, atol=5e-3, rtol=0)


def test_projection_survives_large_steps_and_nan():
    problem = spen.Form(linear=torch.tensor([[1e9, -1e9, 0.0], [nan, 0.0, 0.0]]))
    solution = spen.Descent(spen.ProjectedGradient()).solve(problem, spen.Simplex(3))
    assert solution.y[0].tolist() == [0.0, 1.0, 0.0]
    assert solution.status[1] == Status.DIVERGED


def test_a_trace_stands_still_where_an_example_has_ended():
    energy, domain = trained_like(dtype=torch.float64)
    context, _ = random_context(domain, 30, 3)
    solution = spen.Descent(trace=True).solve(energy.bind(context), domain)
    assert solution.trace is not None
    ended = solution.steps < len(solution.trace.y) - 1
    assert ended.any()
    for row in ended.nonzero().flatten().tolist():
        after = solution.trace.y[solution.steps[row] :, row]
        assert (after == after[0]).all()
        assert (solution.trace.energy[:, row].min() == solution.energy[row]).all()


@pytest.mark.parametrize("backend", ["auto", "general"])
@pytest.mark.parametrize("rule", [spen.MirrorDescent, spen.ProjectedGradient])
def test_a_decaying_step_moves_less(rule, backend):
    problem, box, moves = spen.Form(linear=torch.tensor([[1.0]])), spen.UnitBox(1), []
    # From the centre in the dual, and so far from the edge that no step is cut short.
    start, lr = (0.5, 1.0) if rule is spen.MirrorDescent else (0.95, 0.1)
    for decay in (0.0, 1.0):
        descent = spen.Descent(rule(lr, 0.0, decay), spen.Stopping(3, 0.0, 0.0), backend=backend)
        y = descent.solve(problem, box, torch.tensor([[start]])).y
        moves.append(box.to_dual(y).item() if rule is spen.MirrorDescent else y.item() - start)
    assert moves == pytest.approx([-3 * lr, -lr * (1 + 1 / 2 + 1 / 3)], rel=1e-4)


def test_contradicting_known_classes_are_refused():
    problem = spen.Form(linear=torch.zeros(1, 3))
    for known in ([[1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]):
        with pytest.raises(spen.InputError, match="exactly one"):
            spen.Descent().solve(problem, spen.Simplex(3), known=torch.tensor(known))


def test_either_tolerance_ends_an_example():
    problem, domain = convex_problem(4, 0)
    for stopping in (
        spen.Stopping(1000, objective_rtol=1e-7, iterate_atol=0.0),
        spen.Stopping(1000, objective_rtol=0.0, iterate_atol=1e-5),
    ):
        solution = spen.Descent(spen.MirrorDescent(0.2, 0.0), stopping).solve(problem, domain)
        assert solution.converged.all()
        assert (solution.steps < 1000).all()
        loose = dataclasses.replace(
            stopping,
            objective_rtol=stopping.objective_rtol * 100,
            iterate_atol=stopping.iterate_atol * 100,
        )
        sooner = spen.Descent(spen.MirrorDescent(0.2, 0.0), loose).solve(problem, domain)
        assert (sooner.steps < solution.steps).all()


@pytest.mark.parametrize("require", ["either", "both"])
@pytest.mark.parametrize("rule", [RULES["mirror"], spen.MirrorBundle()])
def test_an_example_ends_in_the_first_step_that_meets_what_is_required(rule, require):
    """A run without tolerances says when each is met."""
    energy, domain = trained_like(dtype=torch.float64)
    problem = energy.bind(random_context(domain, 60, 3)[0])
    endless = spen.Stopping(400, objective_rtol=0.0, iterate_atol=0.0)
    everything = spen.Descent(rule, endless, trace=True).solve(problem, domain)
    y, energies = everything.trace.y, everything.trace.energy
    size = energies.abs()
    settled = energies.diff(dim=0).abs() < 1e-4 * torch.maximum(size[1:], size[:-1])
    still = y.diff(dim=0).abs().amax(2) < 1e-3
    met = settled & still if require == "both" else settled | still
    assert met.any(0).double().mean() > 0.5
    stopping = spen.Stopping(400, 1e-4, 1e-3, require=require)
    found = spen.Descent(rule, stopping, backend="general").solve(problem, domain)
    assert torch.equal(found.converged, met.any(0))
    assert torch.equal(found.steps, torch.where(met.any(0), met.int().argmax(0) + 1, 400))
    assert (settled.int().argmax(0) != still.int().argmax(0)).any(), "or both ask the same"


def test_a_tolerance_that_is_off_is_not_required():
    problem, domain = convex_problem(4, 0)
    for off in ("objective_rtol", "iterate_atol"):
        either = dataclasses.replace(spen.Stopping(1000), **{off: 0.0})
        both = dataclasses.replace(either, require="both")
        wanted, found = (
            spen.Descent(stopping=each).solve(problem, domain) for each in (either, both)
        )
        assert found.converged.all()
        assert torch.equal(found.steps, wanted.steps)


def test_stopping_when_a_share_of_the_batch_has_converged():
    energy, domain = trained_like(dtype=torch.float64)
    context, _ = random_context(domain, 200, 3)
    problem = energy.bind(context)
    everyone = spen.Descent().solve(problem, domain)
    half = spen.Descent(stopping=spen.Stopping(fraction=0.5)).solve(problem, domain)
    assert half.steps.max() < everyone.steps.max()
    assert half.converged.double().mean() >= 0.5
    assert ((half.status == Status.BATCH_STOPPED) == ~half.converged).all()
    batch = spen.Descent(stopping=spen.Stopping(fraction=0.5, scope="batch")).solve(problem, domain)
    assert (batch.steps == batch.steps.max()).all(), "no example stands still before the batch does"
    assert (batch.energy <= half.energy + 1e-12).all()


@pytest.mark.parametrize(("rows", "fraction"), [(20, 0.8), (20, 0.9), (100, 0.95)])
def test_a_batch_ends_with_the_step_that_makes_the_share(rows, fraction):
    """Each example goes its own way, so the steps of a whole run say when the share is there.

    Most rows have ended by then and were dropped, but for those that fill up a tile.
    """
    energy, domain = trained_like(dtype=torch.float64)
    problem = energy.bind(random_context(domain, rows, 3)[0])
    stopping = spen.Stopping(max_steps=1000)
    everyone = spen.Descent(stopping=stopping, backend="general").solve(problem, domain)
    assert everyone.converged.all()
    last = everyone.steps.sort().values[round(fraction * rows) - 1]
    assert last < everyone.steps.max()
    stopping = dataclasses.replace(stopping, fraction=fraction)
    share = spen.Descent(stopping=stopping).solve(problem, domain)
    assert torch.equal(share.steps, everyone.steps.clamp(max=last))
    assert torch.equal(share.converged, everyone.steps <= last)


def test_a_nan_energy_is_a_status_and_leaves_the_others_alone():
    linear = torch.tensor([[1.0, -1.0], [torch.nan, 0.0], [torch.inf, 0.0]])
    solution = spen.Descent().solve(spen.Form(linear=linear), spen.UnitBox(2))
    assert solution.status.tolist()[1:] == [Status.DIVERGED] * 2
    alone = spen.Descent().solve(spen.Form(linear=linear[:1]), spen.UnitBox(2))
    torch.testing.assert_close(solution.y[:1], alone.y)
    assert "not finite" in solution.describe()


def test_start_and_shapes_are_checked():
    problem = spen.Form(linear=torch.zeros(2, 3))
    with pytest.raises(
        spen.InputError, match=r"start must be a tensor of shape \(2, 3\); received \(2, 4\)"
    ):
        spen.Descent().solve(problem, spen.UnitBox(3), start=torch.zeros(2, 4))
    with pytest.raises(spen.InputError, match="known must be a tensor of shape"):
        spen.Descent().solve(problem, spen.UnitBox(3), known=torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_steps": 0}, "max_steps"),
        ({"objective_rtol": -1.0}, "objective_rtol"),
        ({"iterate_atol": float("nan")}, "iterate_atol"),
        ({"scope": "exampel"}, "Did you mean 'example'"),
        ({"require": "all"}, "Unknown require 'all'"),
        ({"fraction": 0.0}, "fraction"),
    ],
)
def test_bad_stopping(settings, words):
    with pytest.raises(spen.InputError, match=words):
        spen.Stopping(**settings)


def test_diverged_rows_do_not_count_as_converged():
    linear = torch.tensor([[3.0, -1.0], [nan, 0.0]])
    half = spen.Descent(stopping=spen.Stopping(fraction=0.5))
    solution = half.solve(spen.Form(linear=linear), spen.UnitBox(2))
    assert solution.status.tolist() == [Status.CONVERGED, Status.DIVERGED]


@pytest.mark.parametrize(
    "settings", [{"rule": "mirror"}, {"rule": spen.MirrorDescent}, {"stopping": 10}]
)
def test_parts_of_a_descent_are_checked(settings):
    with pytest.raises(spen.InputError, match="must be a"):
        spen.Descent(**settings)


def test_bad_rules():
    with pytest.raises(spen.InputError, match="lr"):
        spen.MirrorDescent(lr=0.0)
    with pytest.raises(spen.InputError, match="momentum"):
        spen.MirrorDescent(momentum=1.0)


def test_unrolled_gradient_against_finite_differences():
    domain = spen.UnitBox(3)
    energy = randomise(LEARNED["local+label"](3), 2, scale=0.5)
    context, _ = random_context(domain, 2, 2)
    descent = spen.Descent(spen.MirrorDescent(0.3, 0.5), spen.Stopping(8), backward=spen.Unrolled())
    whole = energy + spen.Entropy(domain, 0.5)

    def final() -> torch.Tensor:
        solution = descent.solve(whole.bind(context), domain)
        assert (solution.status == Status.COMPLETED).all()
        return solution.y.square().sum()

    parameters = list(energy.parameters())
    gradients = torch.autograd.grad(final(), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        with torch.no_grad():
            index = gradient.abs().flatten().argmax()
            flat = parameter.view(-1)
            flat[index] += 1e-6
            above = final()
            flat[index] -= 2e-6
            below = final()
            flat[index] += 1e-6
        slope = ((above - below) / 2e-6).item()
        assert gradient.flatten()[index].item() == pytest.approx(slope, rel=1e-5)


def test_detached_solutions_carry_no_gradient():
    energy = spen.LocalEnergy(F, 3)
    problem = energy.bind(Context(torch.randn(2, F)))
    assert not spen.Descent().solve(problem, spen.UnitBox(3)).y.requires_grad
