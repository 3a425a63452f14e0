"""The best labelling: enumeration and integer programs against asking for every energy."""

import time
from types import SimpleNamespace

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
    random_form,
    random_known,
    seeds,
)
from problems import LEARNED, F, all_labelings, brute_force, random_context, randomise

import spen
from spen.inference.base import Status
from spen.inference.discrete import exact
from spen.inference.discrete.pairwise import PairwiseForm

ENUMERATION, MILP = spen.Exact("enumeration"), spen.Exact("milp")


@pytest.mark.parametrize("size", [1e-11, 1.0, 1e8])
def test_a_program_of_any_size_is_solved_though_some_costs_are_zero(size):
    """The solver's tolerances are absolute, so costs are scaled by the largest."""
    rng = np.random.default_rng(0)
    unary, pairs = rng.normal(size=10), np.triu(rng.normal(size=(10, 10)), 1)
    unary[0], pairs = 0.0, pairs + pairs.T
    every = all_labelings(spen.UnitBox(10)).numpy()
    energies = every @ unary + 0.5 * ((every @ pairs) * every).sum(1)
    program = exact.solve_program(size * unary, size * pairs, 10.0)
    found = program.y @ unary + 0.5 * program.y @ pairs @ program.y
    assert found == pytest.approx(energies.min())
    assert program.bound == pytest.approx(size * energies.min(), rel=1e-6, abs=0)


@pytest.mark.parametrize("name", LEARNED)
@settings(max_examples=5)
@given(n_labels=st.integers(1, 7), some_known=st.booleans(), seed=seeds)
def test_enumeration_of_any_energy(name, n_labels, some_known, seed):
    domain = spen.UnitBox(n_labels)
    augmented = LEARNED[name](n_labels) + spen.LossAugmentation(domain, "hamming")
    problem = randomise(augmented, seed).bind(random_context(domain, 30, seed)[0])
    known = random_known(30, n_labels, seed) if some_known else None
    solution = ENUMERATION.solve(problem, domain, known=known)
    torch.testing.assert_close(
        solution.energy, energies_of_all(problem, n_labels, known).min(1).values
    )
    torch.testing.assert_close(solution.energy, problem.value(solution.y))
    assert ((solution.y == 0) | (solution.y == 1)).all()
    assert (solution.status == Status.OPTIMAL).all()
    assert solution.gap is not None
    assert (solution.gap == 0).all()
    assert (solution.steps == 2**n_labels).all()


@pytest.mark.parametrize("name", ["local+label", "pairwise-conditional", "label-deep-relu"])
def test_enumeration_on_a_simplex(name):
    domain = spen.Simplex(3, positions=3)
    problem = randomise(LEARNED[name](9), 5).bind(random_context(domain, 4, 5)[0])
    solution = spen.Exact().solve(problem, domain)
    torch.testing.assert_close(solution.energy, brute_force(problem, domain, 4))
    known = torch.full((4, 9), nan)
    known[1, 0], known[2, 4] = 1.0, 0.0
    held = spen.Exact().solve(problem, domain, known=known)
    assert (held.y[1, :3] == torch.tensor([1.0, 0.0, 0.0])).all()
    assert held.y[2, 4] == 0
    labelings = all_labelings(domain)
    allowed = labelings[labelings[:, 0] == 1]
    least = torch.stack([problem.value(one.expand(4, -1))[1] for one in allowed]).min()
    torch.testing.assert_close(held.energy[1], least)


@pytest.mark.parametrize("name", ["full", "conditional", "deep"])
def test_chunks_change_nothing(name, monkeypatch):
    domain = spen.UnitBox(7)
    if name == "deep":
        problem = randomise(LEARNED["label-deep-relu"](7), 1).bind(random_context(domain, 9, 1)[0])
    else:
        problem, _ = random_crf(name, 7, 9, 1)
    whole = ENUMERATION.solve(problem, domain)
    monkeypatch.setattr(exact, "AT_ONCE", 50)
    chunked = ENUMERATION.solve(problem, domain)
    assert torch.equal(whole.y, chunked.y)


@settings(max_examples=25)
@given(
    kind=kinds,
    n_labels=st.integers(1, 7),
    loss=losses,
    some_known=st.booleans(),
    whole=st.booleans(),
    seed=seeds,
)
def test_the_integer_program_agrees_with_enumeration(kind, n_labels, loss, some_known, whole, seed):
    problem, domain = random_crf(kind, n_labels, 2, seed, loss, whole)
    known = random_known(2, n_labels, seed) if some_known else None
    by_program = MILP.solve(problem, domain, known=known)
    torch.testing.assert_close(
        by_program.energy, ENUMERATION.solve(problem, domain, known=known).energy
    )
    torch.testing.assert_close(by_program.energy, problem.value(by_program.y))
    assert by_program.backend == "milp"
    assert (by_program.status == Status.OPTIMAL).all()
    assert by_program.gap is not None
    assert (by_program.gap < 1e-6 * (1 + by_program.energy.abs())).all()
    if known is not None:
        assert (torch.isnan(known) | (by_program.y == known)).all()


@pytest.mark.parametrize("labels_decided", [True, False])
def test_the_program_alone_is_right_too(labels_decided, monkeypatch):
    """Whether roof duality decides some labels first or none."""
    if not labels_decided:
        undecided = lambda unary, weights: (0 * unary + 0.5, None, "")  # noqa: E731
        monkeypatch.setattr(exact, "roof_duals", undecided)
    problem, domain = random_crf("full", 8, 4, 7)
    solution = MILP.solve(problem, domain)
    torch.testing.assert_close(solution.energy, energies_of_all(problem, 8).min(1).values)
    assert solution.converged.all()


def test_more_labels_than_can_be_enumerated():
    """Two models of twelve labels side by side have the sum of both minima."""
    first, second = random_form(12, 2, 3), random_form(12, 2, 4)
    rows = zip(first.weights, second.weights, strict=True)
    together = PairwiseForm(
        first.constant + second.constant,
        torch.cat([first.unary, second.unary], 1),
        torch.stack([torch.block_diag(a, b) for a, b in rows]),
    )
    found = spen.Exact().solve(together, spen.UnitBox(24))
    halves = [ENUMERATION.solve(half, spen.UnitBox(12)) for half in (first, second)]
    torch.testing.assert_close(found.energy, halves[0].energy + halves[1].energy)
    assert found.backend == "milp"


def hard_model() -> tuple[PairwiseForm, spen.UnitBox]:
    """Labels that are wanted but repel each other, so that roof duality decides nothing."""
    form = random_form(10, 2, 0)
    weights = form.weights.abs()
    return PairwiseForm(form.constant, -weights.sum(2) / 2, weights), spen.UnitBox(10)


def test_running_out_of_time_is_a_status():
    form, domain = hard_model()
    solution = spen.Exact("milp", time_limit=1e-6).solve(form, domain)
    assert (solution.status == Status.TIME_LIMIT).all()
    assert not solution.converged.any()
    assert "time limit" in solution.describe()
    torch.testing.assert_close(solution.energy, form.value(solution.y))
    assert solution.gap is not None
    least = energies_of_all(form, 10).min(1).values
    assert (solution.energy - solution.gap <= least + 1e-9).all()
    assert (solution.energy >= least - 1e-9).all()
    assert (solution.gap > 0).all()


@pytest.mark.parametrize("claims_success", [True, False])
def test_a_failing_program_is_a_status(claims_success, monkeypatch):
    """HiGHS may fail, or be wrong about having succeeded: the gap finds that out."""
    nothing = SimpleNamespace(x=None, mip_dual_bound=None, mip_node_count=None, status=4)

    def wrong(costs, **_):
        return SimpleNamespace(x=0 * costs, mip_dual_bound=None, mip_node_count=1, status=0)

    monkeypatch.setattr(exact, "milp", wrong if claims_success else lambda *_, **__: nothing)
    form, domain = hard_model()
    solution = MILP.solve(form, domain)
    assert (solution.status == Status.FAILED).all()
    torch.testing.assert_close(solution.energy, form.value(solution.y))
    assert solution.gap is not None
    least = energies_of_all(form, 10).min(1).values
    assert (solution.energy - solution.gap <= least + 1e-9).all()


def test_yeast_in_seconds():
    """2,417 rows of 14 labels, every pair weighted, Hamming-augmented, in float32."""
    domain = spen.UnitBox(14)
    energy = randomise(spen.LocalEnergy(F, 14) + spen.PairwiseEnergy(14), 0).float()
    context, _ = random_context(domain, 2417, 0, torch.float32)
    problem = (energy + spen.LossAugmentation(domain)).bind(context)
    began = time.process_time()
    solution = spen.Exact().solve(problem, domain)
    assert time.process_time() - began < 5.0
    some = torch.arange(0, 2417, 400)
    one_by_one = MILP.solve(problem.select(some), domain)
    torch.testing.assert_close(solution.energy[some], one_by_one.energy)
    assert solution.y.dtype == solution.energy.dtype == torch.float32


@pytest.mark.parametrize("method", ["enumeration", "milp"])
def test_a_row_that_is_not_finite_says_so_and_spoils_no_other(method):
    form, domain = hard_model()
    bad = form.unary.clone()
    bad[1, 2] = nan
    solution = spen.Exact(method).solve(PairwiseForm(form.constant, bad, form.weights), domain)
    assert solution.status.tolist() == [Status.OPTIMAL, Status.DIVERGED]
    torch.testing.assert_close(solution.energy[0], spen.Exact().solve(form, domain).energy[0])
    assert solution.gap is not None
    assert solution.gap[1] == torch.inf


def test_an_energy_that_is_nan_somewhere_is_no_minimum():
    class Own(spen.Energy):
        n_labels = 3

        def forward(self, features, y):
            return torch.where(y.sum(1) == 2, nan, y.sum(1))

    problem = Own().bind(random_context(spen.UnitBox(3), 2, 0)[0])
    assert (spen.Exact().solve(problem, spen.UnitBox(3)).status == Status.DIVERGED).all()


def test_settings_and_refusals():
    with pytest.raises(spen.InputError, match="Unknown method 'brute'"):
        spen.Exact("brute")  # type: ignore[arg-type]
    with pytest.raises(spen.InputError, match="time_limit must be a number above zero"):
        spen.Exact(time_limit=0)
    large = spen.UnitBox(21)
    context, _ = random_context(large, 1, 0)
    problem = (spen.LocalEnergy(F, 21) + spen.LabelEnergy(21, 2, "relu")).double().bind(context)
    with pytest.raises(spen.InputError, match=r"too many to enumerate. Choose method='milp'"):
        ENUMERATION.solve(problem, large)
    with pytest.raises(spen.InputError, match="Exact of 21 labels needs a pairwise energy"):
        spen.Exact().solve(problem, large)
    small = spen.UnitBox(2)
    with pytest.raises(spen.InputError, match="Leave the entropy at 0"):
        spen.Exact().solve(spen.Entropy(small).bind(random_context(small, 1, 0)[0]), small)


def test_what_roof_duality_settles_needs_no_tree():
    unary, weights = np.array([-1.0, 2.0]), np.array([[0.0, 0.5], [0.5, 0.0]])
    program = exact._fill_open(np.array([1.0, 0.0]), unary, weights, 1.0)
    assert program.nodes == 0
    assert program.bound == -1.0
    assert program.y.tolist() == [1.0, 0.0]
