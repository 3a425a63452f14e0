"""What every solver of labels has in common: one verb, one kind of answer, training with it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise_models import kinds, losses, nan, random_crf, random_energy, seeds
from problems import F, random_context

import spen
from spen.inference.discrete import pairwise as pairwise_module

SOLVERS = {
    "enumeration": spen.Exact("enumeration"),
    "milp": spen.Exact("milp"),
    "lp": spen.LinearRelaxation(),
    "lbp": spen.BeliefPropagation(),
}
APPROXIMATE = {
    "lbp": spen.BeliefPropagation(),
    "lbp-undamped": spen.BeliefPropagation(0.0, 20, keep="last"),
    "mirror": spen.Descent(spen.MirrorDescent(0.1, 0.9), spen.Stopping(60)),
    "projected": spen.Descent(spen.ProjectedGradient(0.05, 0.5), spen.Stopping(60)),
}


@settings(max_examples=15)
@given(kind=kinds, n_labels=st.integers(1, 8), loss=losses, seed=seeds)
def test_the_bound_is_below_the_minimum_and_that_below_all_labellings(kind, n_labels, loss, seed):
    problem, domain = random_crf(kind, n_labels, 4, seed, loss)
    bound = spen.LinearRelaxation().solve(problem, domain).energy
    least = spen.Exact().solve(problem, domain).energy
    assert (bound <= least + 1e-9).all()
    for name, inference in APPROXIMATE.items():
        found = problem.value(domain.round(inference.solve(problem, domain).y))
        assert (least <= found + 1e-9).all(), name


@pytest.mark.parametrize("solver", SOLVERS)
def test_chunks_of_rows_change_nothing(solver, monkeypatch):
    problem, domain = random_crf("full", 5, 11, 2, "hamming")
    known = torch.full((11, 5), nan)
    known[:4, 1], known[7:, 3] = 1.0, 0.0
    whole = SOLVERS[solver].solve(problem, domain, known=known)
    monkeypatch.setattr(pairwise_module, "PAIRS_AT_ONCE", 5 * 25)
    chunked = SOLVERS[solver].solve(problem, domain, known=known)
    for name in ("y", "energy", "steps", "status"):
        torch.testing.assert_close(getattr(whole, name), getattr(chunked, name))
    assert (whole.y[:4, 1] == 1).all()
    assert (whole.y[7:, 3] == 0).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_rows(solver):
    problem, domain = random_crf("full", 3, 2, 0)
    nothing = problem.select(torch.arange(0))
    assert SOLVERS[solver].solve(nothing, domain).y.shape == (0, 3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_all_labels_known(solver):
    problem, domain = random_crf("full", 4, 3, 1)
    known = domain.round(torch.rand(3, 4))
    solution = SOLVERS[solver].solve(problem, domain, known=known)
    assert torch.equal(solution.y, known.double())
    torch.testing.assert_close(solution.energy, problem.value(known.double()))
    assert solution.converged.all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_model_predicts_with_it(solver):
    """Rows are filled up to a tile and solved in batches; answers and gaps come back in order."""
    domain = spen.UnitBox(5)
    model = spen.SPEN(spen.Identity(F), random_energy("full", 5, 0).float(), domain)
    context, _ = random_context(domain, 21, 0, torch.float32)
    inference = SOLVERS[solver]
    solution = model.solve(context.features, inference, batch_size=8)
    direct = inference.solve(model.energy.bind(context), domain)
    assert torch.equal(solution.y, direct.y)
    assert solution.y.dtype == torch.float32
    assert not solution.y.requires_grad
    assert solution.backend == direct.backend
    if direct.gap is None:
        assert solution.gap is None
    else:
        assert solution.gap is not None
        torch.testing.assert_close(solution.gap, direct.gap)


@pytest.mark.parametrize("solver", ["enumeration", "lp", "lbp"])
def test_a_structured_svm_is_trained_with_it(solver):
    """Labels that exclude each other and look alike to the local energy: pairs must learn it."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, F, generator=generator)
    scores = X @ torch.randn(F, 4, generator=generator)
    Y = torch.zeros(200, 4)
    Y[torch.arange(200), scores.argmax(1)] = 1.0
    pairs = spen.PairwiseEnergy(4)
    model = spen.SPEN(spen.Identity(F), spen.LocalEnergy(F, 4) + pairs, spen.UnitBox(4), seed=0)
    inference = SOLVERS[solver]
    stage = spen.Stage(
        "svm", spen.Hinge(), inference, epochs=10, lr=0.2, schedule="cosine", batch_size=20
    )
    history = spen.train(model, [stage], (X, Y), seed=0)
    assert history.epochs[-1].loss < 0.5 * history.epochs[0].loss
    assert spen.hamming_error(Y, model.solve(X, inference).y > 0.5) < 0.06
    off_diagonal = pairs.pairs()[~torch.eye(4, dtype=torch.bool)]
    assert (off_diagonal > 0).all(), "they exclude each other"


def coordinate_mean_field(problem: spen.Problem, y: torch.Tensor, tau: float, label: int):
    """One label becomes the best response to the others, which stay."""
    others = [y.clone(), y.clone()]
    others[0][:, label], others[1][:, label] = 0.0, 1.0
    updated = y.clone()
    cost = problem.value(others[1]) - problem.value(others[0])
    updated[:, label] = torch.sigmoid(-cost / tau)
    return updated


@settings(max_examples=12)
@given(kind=kinds, n_labels=st.integers(1, 5), tau=st.floats(0.3, 3.0), seed=seeds)
def test_coordinate_wise_mean_field_descends_to_fixed_points_of_the_rule(kind, n_labels, tau, seed):
    """It never raises the free energy, and where it stands still the parallel update does too."""
    pairwise, domain = random_crf(kind, n_labels, 3, seed)
    # Mean field is for energies that are linear in each label: squares are, read as pairs.
    problem = pairwise_module.read_pairwise(pairwise, "Mean field")
    entropy = spen.Form(tau=torch.full((3,), tau, dtype=torch.float64), domain=domain)
    smoothed = problem + entropy
    y = domain.uniform(problem.rows_like)
    free = smoothed.value(y)
    for _ in range(3):
        for label in range(n_labels):
            y = coordinate_mean_field(problem, y, tau, label)
            lower = smoothed.value(y)
            assert (lower <= free + 1e-9 * (1 + free.abs())).all()
            free = lower
    for _ in range(60):
        for label in range(n_labels):
            y = coordinate_mean_field(problem, y, tau, label)
    rule = spen.Descent(spen.MeanField(), spen.Stopping(1), spen.Unrolled())
    moved = (rule.solve(smoothed, domain, y).y - y).abs().amax(1)
    again = y
    for label in range(n_labels):
        again = coordinate_mean_field(problem, again, tau, label)
    still = (again - y).abs().amax(1) < 1e-12
    assert still.any()
    # Duals are clamped at ±15 in the rule, and nowhere else.
    assert (moved[still] < 1e-9 + 2 * math.exp(-15)).all()


def test_the_parallel_update_may_raise_the_free_energy_where_the_other_does_not():
    weights = 10.0 * (1 - torch.eye(2, dtype=torch.float64))[None]
    unary = torch.full((1, 2), -5.0, dtype=torch.float64)
    form = pairwise_module.PairwiseForm(torch.zeros(1, dtype=torch.float64), unary, weights)
    domain = spen.UnitBox(2)
    smoothed = form + spen.Form(tau=torch.ones(1, dtype=torch.float64), domain=domain)
    y = torch.tensor([[0.6, 0.6]], dtype=torch.float64)
    rule = spen.Descent(spen.MeanField(), spen.Stopping(2), spen.Unrolled())
    assert rule.solve(smoothed, domain, y).energy > smoothed.value(y)
    assert smoothed.value(coordinate_mean_field(form, y, 1.0, 0)) < smoothed.value(y)
