"""Belief propagation against its definition, on trees, and where it cannot settle."""

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
    random_tree,
    seeds,
)

import spen
from spen.inference.base import Status
from spen.inference.discrete import belief
from spen.inference.discrete.pairwise import PairwiseForm

LBP = spen.BeliefPropagation()


@pytest.fixture(params=["numba", "general"])
def path(request, monkeypatch):
    """Either way to pass messages."""
    if request.param == "general":
        monkeypatch.setattr(belief, "machine_code", lambda *_: None)
    else:
        pytest.importorskip("numba")
    return request.param


def by_definition(form: PairwiseForm, row: int, rounds: int, damping: float) -> list[float]:
    """Min-sum with a message for either state of a label, all sent at once."""
    n_labels = form.unary.shape[1]
    unary = form.unary[row].tolist()
    weights = form.weights.expand(len(form.unary), -1, -1)[row].tolist()
    others = [[k for k in range(n_labels) if k != i] for i in range(n_labels)]
    messages = {(i, j): [0.0, 0.0] for i in range(n_labels) for j in others[i]}
    for _ in range(rounds):
        sent = {}
        for i, j in messages:
            heard = [sum(messages[k, i][s] for k in others[i] if k != j) for s in (0, 1)]
            costs = [
                min(s * unary[i] + heard[s] + s * t * weights[i][j] for s in (0, 1)) for t in (0, 1)
            ]
            sent[i, j] = [cost - costs[0] for cost in costs]
        for edge, new in sent.items():
            old = messages[edge]
            messages[edge] = [
                damping * a + (1 - damping) * b for a, b in zip(old, new, strict=True)
            ]
    beliefs = [
        [s * unary[i] + sum(messages[k, i][s] for k in others[i]) for s in (0, 1)]
        for i in range(n_labels)
    ]
    return [float(on < off - 1e-12) for off, on in beliefs]


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_rounds_of_messages_by_definition(rounds, damping, path):
    form = random_form(5, 6, 7)
    lbp = spen.BeliefPropagation(damping, rounds, tolerance=0.0, keep="last")
    solution = lbp.solve(form, spen.UnitBox(5))
    wanted = [by_definition(form, row, rounds, damping) for row in range(6)]
    assert solution.y.tolist() == wanted
    torch.testing.assert_close(solution.energy, form.value(solution.y))
    assert solution.backend == ("messages-numba" if path == "numba" else "general")


@pytest.mark.parametrize("damping", [0.0, 0.5])
@settings(max_examples=15)
@given(n_labels=st.integers(1, 8), seed=seeds)
def test_it_is_exact_on_trees(damping, n_labels, seed):
    form = random_form(n_labels, 3, seed, random_tree(n_labels, seed))
    lbp = spen.BeliefPropagation(damping, max_steps=300, tolerance=1e-12, keep="last")
    solution = lbp.solve(form, spen.UnitBox(n_labels))
    assert (solution.status == Status.CONVERGED).all()
    torch.testing.assert_close(solution.energy, energies_of_all(form, n_labels).min(1).values)
    if damping == 0:
        assert (solution.steps <= n_labels + 1).all(), "news crosses one edge a round"


@settings(max_examples=30)
@given(kind=kinds, n_labels=st.integers(1, 7), loss=losses, some_known=st.booleans(), seed=seeds)
def test_it_is_never_below_the_minimum_and_holds_what_is_known(
    kind, n_labels, loss, some_known, seed
):
    problem, domain = random_crf(kind, n_labels, 3, seed, loss)
    known = random_known(3, n_labels, seed) if some_known else None
    best = LBP.solve(problem, domain, known=known)
    last = spen.BeliefPropagation(keep="last").solve(problem, domain, known=known)
    least = energies_of_all(problem, n_labels, known).min(1).values
    assert (best.energy >= least - 1e-9).all()
    assert (best.energy <= last.energy + 1e-9).all()
    assert torch.equal(best.steps, last.steps)
    for solution in (best, last):
        assert ((solution.y == 0) | (solution.y == 1)).all()
        torch.testing.assert_close(solution.energy, problem.value(solution.y))
        assert solution.gap is None
        if known is not None:
            assert (torch.isnan(known) | (solution.y == known)).all()


def test_mostly_it_finds_the_minimum():
    problem, domain = random_crf("full", 6, 100, 0, "hamming")
    found = LBP.solve(problem, domain).energy
    least = energies_of_all(problem, 6).min(1).values
    assert ((found - least).abs() < 1e-9).double().mean() > 0.8


def test_both_ways_are_the_same(monkeypatch):
    pytest.importorskip("numba")
    form = random_form(7, 60, 1)
    for keep in ("best", "last"):
        lbp = spen.BeliefPropagation(keep=keep)
        first = lbp.solve(form, spen.UnitBox(7))
        with monkeypatch.context() as patch:
            patch.setattr(belief, "machine_code", lambda *_: None)
            second = lbp.solve(form, spen.UnitBox(7))
        for name in ("y", "energy", "steps", "status"):
            torch.testing.assert_close(getattr(first, name), getattr(second, name))
        assert 0.1 < first.converged.double().mean() < 0.99, "some rows end early, some never"


def test_messages_that_go_round_for_ever_are_a_status(path):
    """Three labels that repel each other and are wanted alike: undamped, all flip in each round."""
    weights = 4.0 * (1 - torch.eye(3, dtype=torch.float64))[None]
    unary = torch.tensor([[-4.0, -4.0, -4.0], [-9.0, 1.0, 2.0]], dtype=torch.float64)
    form = PairwiseForm(torch.zeros(2, dtype=torch.float64), unary, weights)
    solution = spen.BeliefPropagation(damping=0.0, max_steps=30).solve(form, spen.UnitBox(3))
    assert solution.status.tolist() == [Status.MAX_STEPS, Status.CONVERGED]
    assert solution.steps[0] == 30
    assert solution.steps[1] < 10
    assert solution.y[1].tolist() == [1.0, 0.0, 0.0]


def test_a_row_does_not_depend_on_its_neighbours(path):
    form, domain = random_form(6, 30, 5), spen.UnitBox(6)
    together = LBP.solve(form, domain)
    for row in range(0, 30, 7):
        alone = LBP.solve(form.select(torch.tensor([row])), domain)
        assert torch.equal(alone.y[0], together.y[row])
        assert alone.steps[0] == together.steps[row]


def test_a_row_that_is_not_finite_says_so_and_spoils_no_other(path):
    form, domain = random_form(4, 3, 2), spen.UnitBox(4)
    bad = form.unary.clone()
    bad[1, 0] = nan
    solution = LBP.solve(PairwiseForm(form.constant, bad, form.weights), domain)
    assert solution.status[1] == Status.DIVERGED
    assert solution.energy[1].isnan()
    good = torch.tensor([0, 2])
    assert torch.equal(solution.y[good], LBP.solve(form, domain).y[good])


def test_settings():
    with pytest.raises(spen.InputError, match="damping must be at least 0 and below 1"):
        spen.BeliefPropagation(damping=1.0)
    with pytest.raises(spen.InputError, match="max_steps must be a whole number"):
        spen.BeliefPropagation(max_steps=0)
    with pytest.raises(spen.InputError, match="tolerance must be a number zero or more"):
        spen.BeliefPropagation(tolerance=-1.0)
    with pytest.raises(spen.InputError, match="Unknown keep 'first'"):
        spen.BeliefPropagation(keep="first")  # type: ignore[arg-type]
