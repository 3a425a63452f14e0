"""The linear relaxation against a linear program, enumeration, and what is proved about it."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise_models import (
    energies_of_all,
    kinds,
    losses,
    nan,
    random_crf,
    random_energy,
    random_form,
    random_known,
    random_tree,
    seeds,
)
from problems import F, all_labelings, random_context
from scipy.optimize import linprog

import spen
from spen.inference.base import Status
from spen.inference.discrete.pairwise import PairwiseForm, read_pairwise
from spen.inference.discrete.relaxed import RelaxedPairs
from spen.kernels.cpu import discrete

LP = spen.LinearRelaxation()


def by_linear_program(form: PairwiseForm, row: int) -> float:
    """The least value over the local polytope: 0 ≤ z ≤ y_i, y_j and z ≥ y_i + y_j − 1."""
    n_labels = form.unary.shape[1]
    pairs = list(itertools.combinations(range(n_labels), 2))
    weights = form.weights.expand(len(form.unary), -1, -1)[row].detach().numpy()
    costs = np.concatenate([form.unary[row].detach().numpy(), [weights[i, j] for i, j in pairs]])
    rows, limits = [], []
    for index, (i, j) in enumerate(pairs):
        for labels, sign, limit in (((i,), 1, 0), ((j,), 1, 0), ((i, j), -1, 1)):
            constraint = np.zeros(len(costs))
            constraint[list(labels)], constraint[n_labels + index] = -sign, sign
            rows.append(constraint)
            limits.append(limit)
    result = linprog(costs, A_ub=rows or None, b_ub=limits or None, bounds=(0, 1))
    assert result.status == 0
    return form.constant[row].item() + result.fun


@settings(max_examples=25)
@given(
    kind=kinds,
    n_labels=st.integers(1, 7),
    loss=losses,
    some_known=st.booleans(),
    whole=st.booleans(),
    seed=seeds,
)
def test_it_is_the_linear_program_and_bounds_the_minimum(
    kind, n_labels, loss, some_known, whole, seed
):
    problem, domain = random_crf(kind, n_labels, 3, seed, loss, whole)
    known = random_known(3, n_labels, seed) if some_known else None
    solution = LP.solve(problem, domain, known=known)
    assert torch.isin(solution.y, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)).all()
    assert (solution.status == Status.OPTIMAL).all()
    # The energy that is returned is the relaxed one, at y.
    torch.testing.assert_close(solution.energy, LP.relax(problem).value(solution.y))
    form = read_pairwise(problem, "").condition(known)
    wanted = torch.tensor([by_linear_program(form, row) for row in range(3)], dtype=torch.float64)
    torch.testing.assert_close(solution.energy, wanted, atol=1e-7, rtol=1e-7)

    least = energies_of_all(problem, n_labels, known).min(1).values
    assert (solution.energy <= least + 1e-9).all()
    rounded = problem.value(domain.round(solution.y))
    assert solution.gap is not None
    torch.testing.assert_close(solution.gap, (rounded - solution.energy).clamp_min(0))
    settled = (solution.y != 0.5).all(1)
    torch.testing.assert_close(solution.energy[settled], least[settled])
    if known is not None:
        assert (torch.isnan(known) | (solution.y == known)).all()


@settings(max_examples=30)
@given(kind=kinds, n_labels=st.integers(2, 7), loss=losses, whole=st.booleans(), seed=seeds)
def test_labels_that_are_not_a_half_are_right(kind, n_labels, loss, whole, seed):
    """Persistency: some best labelling has all of them, also where many labellings are best."""
    problem, domain = random_crf(kind, n_labels, 4, seed, loss, whole)
    y = LP.solve(problem, domain).y
    values = energies_of_all(problem, n_labels)
    kept = energies_of_all(problem, n_labels, torch.where(y == 0.5, nan, y))
    torch.testing.assert_close(kept.min(1).values, values.min(1).values)


def test_persistency_is_not_empty():
    """The property above says something: many labels are decided, and many are not."""
    y = torch.cat([LP.solve(*random_crf("full", 6, 20, seed, "hamming")).y for seed in range(5)])
    share = (y == 0.5).double().mean()
    assert 0.1 < share < 0.9


@settings(max_examples=20)
@given(n_labels=st.integers(1, 8), tree=st.booleans(), seed=seeds)
def test_it_is_exact_on_submodular_models_and_on_trees(n_labels, tree, seed):
    form = (
        random_form(n_labels, 3, seed, random_tree(n_labels, seed))
        if tree
        else random_form(n_labels, 3, seed, sign="negative")
    )
    solution = LP.solve(form, spen.UnitBox(n_labels))
    torch.testing.assert_close(solution.energy, energies_of_all(form, n_labels).min(1).values)
    # Random weights have one best labelling, so that no label is left open.
    assert (solution.y != 0.5).all()
    assert solution.gap is not None
    assert (solution.gap < 1e-9).all()


def test_relaxed_pairs_are_convex_below_the_energy_and_equal_to_it_at_labels():
    form = random_form(5, 1, 3)
    relaxed = RelaxedPairs(form)
    for y in all_labelings(spen.UnitBox(5)):
        torch.testing.assert_close(relaxed.value(y[None]), form.value(y[None]))
    many = relaxed.select(torch.zeros(500, dtype=torch.int64))
    generator = torch.Generator().manual_seed(0)
    one, other = torch.rand(2, 500, 5, generator=generator, dtype=torch.float64)
    half = many.value((one + other) / 2)
    assert (half <= (many.value(one) + many.value(other)) / 2 + 1e-12).all()
    assert (many.value(one) <= many.pairs.value(one) + 1e-12).all()
    assert (many.value(one) < many.pairs.value(one) - 0.1).any()


def hinge_model(seed: int) -> tuple[spen.SPEN, spen.Context, torch.Tensor]:
    domain = spen.UnitBox(5)
    model = spen.SPEN(spen.Identity(F), random_energy("full", 5, seed), domain)
    context, _ = random_context(domain, 8, seed)
    assert context.target is not None
    return model, context, context.target


@pytest.mark.parametrize("delta", ["hamming", "squared"])
def test_its_hinge_bounds_the_exact_one(delta):
    """Over-generation: the relaxation sees every violation, and more."""
    model, context, _ = hinge_model(0)
    hinge = spen.Hinge(delta)
    exact, relaxed = (hinge.loss(model, solver, context) for solver in (spen.Exact(), LP))
    assert (relaxed >= exact - 1e-9).all()
    assert (relaxed > exact + 0.1).any()
    y = LP.solve(
        (model.energy + spen.LossAugmentation(model.domain, delta)).bind(context), model.domain
    ).y
    integral = (y != 0.5).all(1)
    assert integral.any()
    torch.testing.assert_close(relaxed[integral], exact[integral])


def test_its_hinge_is_at_least_zero_by_itself_and_has_the_right_gradient():
    """The relaxed minimum is below the target's energy, so that the relu never cuts; and the
    hinge is a maximum of linear functions, whose slope finite differences find."""
    model, context, target = hinge_model(1)
    problem = model.energy.bind(context)
    augmented = problem + spen.LossAugmentation(model.domain).bind(context)
    bound = LP.solve(augmented, model.domain)
    assert (bound.y == 0.5).any(), "the gradient at fractions is what is tested"
    loss = spen.Hinge().loss(model, LP, context)
    torch.testing.assert_close(loss, problem.value(target) - bound.energy)
    parameters = list(model.energy.parameters())
    gradients = torch.autograd.grad(loss.sum(), parameters)
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.detach().view(-1)
        for index, slope in enumerate(gradient.flatten().tolist()):
            sides = []
            for move in (step, -2 * step):
                flat[index] += move
                sides.append(spen.Hinge().loss(model, LP, context).sum().item())
            flat[index] += step
            assert slope == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-5)
    assert max(gradient.abs().max() for gradient in gradients) > 0.1


def test_missing_labels_are_completed_within_the_relaxation():
    """The completed target may be fractional, so that its energy is the relaxed one too."""
    model, context, target = hinge_model(2)
    observed = torch.zeros_like(target, dtype=torch.bool)
    observed[:, 0] = True
    partly = spen.Context(context.features, target, observed=observed)
    loss = spen.Hinge().loss(model, LP, partly)
    problem = model.energy.bind(context)
    known = torch.where(observed, target, nan)
    completed = LP.solve(problem, model.domain, known=known)
    augmented = problem + spen.LossAugmentation(model.domain).bind(partly)
    found = LP.solve(augmented, model.domain)
    assert (completed.y == 0.5).any()
    torch.testing.assert_close(loss, completed.energy - found.energy)


def test_the_flow_is_the_same_with_and_without_numba(monkeypatch):
    problem, domain = random_crf("conditional", 9, 20, 3, "hamming")
    first = LP.solve(problem, domain)
    monkeypatch.setattr(discrete, "machine_code", lambda *_: None)
    second = LP.solve(problem, domain)
    assert second.backend == "maxflow-python"
    assert first.backend in ("maxflow-numba", "maxflow-python")
    assert torch.equal(first.y, second.y)
    assert torch.equal(first.steps, second.steps)


def test_numba_is_used_where_it_is_installed():
    pytest.importorskip("numba")
    assert LP.solve(*random_crf("full", 3, 2, 0)).backend == "maxflow-numba"


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_scale_of_the_energy_does_not_matter(scale):
    form = random_form(8, 10, 4)
    scaled = PairwiseForm(scale * form.constant, scale * form.unary, scale * form.weights)
    domain = spen.UnitBox(8)
    assert torch.equal(LP.solve(scaled, domain).y, LP.solve(form, domain).y)
    exact = spen.Exact("milp").solve(scaled, domain)
    assert exact.converged.all()
    torch.testing.assert_close(exact.energy, scale * spen.Exact().solve(form, domain).energy)
