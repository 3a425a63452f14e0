"""Energies over positions: chains, against plain loops and autograd."""

import itertools

import pytest
import torch
from chain_models import cases, make_case
from hypothesis import given
from hypothesis import strategies as st
from test_positions import DESCENTS, OPEN, F, K, batch, noisy, sequences

import spen

ENERGIES = {
    "chain": lambda: spen.ChainEnergy(K),
    "forbidden": lambda: spen.ChainEnergy(K, forbidden=[(0, 1), (-1, 2), (3, -1)], penalty=5.0),
    "conditional": lambda: spen.ConditionalChainEnergy(F, K, forbidden=[(2, 2)], penalty=5.0),
}


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("beside", [False, True])
def test_check_energy(name, beside):
    energy = ENERGIES[name]()
    if beside:
        energy = spen.LocalEnergy(F, K) + energy + spen.Entropy(OPEN, 0.5)
    spen.check_energy(noisy(energy, torch.float64), OPEN)


@given(cases())
def test_energy_of_every_tagging(case):
    problem = case.problem
    for row in range(len(case.lengths)):
        for tags in case.taggings(row)[:30]:
            y = torch.zeros(len(case.lengths), case.domain.size, dtype=case.context.features.dtype)
            y[row] = case.one_hot(row, tags)
            expected = torch.tensor(case.energy(row, tags), dtype=y.dtype)
            torch.testing.assert_close(problem.value(y)[row], expected, rtol=1e-4, atol=1e-4)


def test_forbidden_transitions_cost_their_penalty():
    energy = spen.ChainEnergy(3, forbidden=[(0, 1), (1, 1), (-1, 0), (2, -1)], penalty=7.0)
    problem = energy.bind(spen.Context(torch.zeros(1, 3, 1)))
    for tags in itertools.product(range(3), repeat=3):
        steps = [(-1, tags[0]), *itertools.pairwise(tags), (tags[-1], -1)]
        count = sum(steps.count(pair) for pair in [(0, 1), (1, 1), (-1, 0), (2, -1)])
        y = torch.eye(3)[list(tags)].reshape(1, 9)
        assert problem.value(y).item() == 7.0 * count


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_and_neighbours_change_no_bit(name, dtype):
    lengths = [5, 1, 13, 8, 2, 21, 3, 9, 4]
    features = [part.astype(str(dtype).split(".")[1]) for part in sequences(lengths)]
    energy = noisy(spen.LocalEnergy(F, K) + ENERGIES[name]() + spen.Entropy(OPEN, 0.3), dtype)

    def answers(context, row):
        problem, domain = energy.bind(context), OPEN.of_batch(context)
        columns = int(context.mask[row].sum()) * K
        for descent in DESCENTS:
            found = descent.solve(problem, domain)
            yield found.y[row, :columns], found.energy[row], problem.value(found.y)[row]
            yield problem.gradient(found.y)[row, :columns], found.steps[row]

    together = batch(features)
    for row in range(len(lengths)):
        alone, longer = batch(features[row : row + 1]), batch(features[row : row + 1], positions=36)
        for expected, *others in zip(
            answers(together, row), answers(alone, 0), answers(longer, 0), strict=True
        ):
            for other in others:
                assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


def test_descent_from_marginals_is_near_the_best_tagging():
    """Steep scores leave one tagging, which descent then stays at."""
    case = make_case(3, [5, 3, 4], scale=4.0)
    best = spen.Viterbi().solve(case.problem, case.domain)
    start = spen.ForwardBackward().solve(case.problem, case.domain).y
    found = spen.Descent().solve(case.problem, case.domain, start)
    assert (problem_of(case, found.y) >= best.energy - 1e-9).all()
    assert torch.equal(case.domain.round(found.y), best.y)


def problem_of(case, y):
    return case.problem.value(case.domain.round(y))


def follows(scheme, i, j, tags):
    """Whether a tagging (…, i, j, …) of two positions is a valid one, by its spans."""
    names = [None if k == -1 else tags[k] for k in (i, j)]
    one, other = (("O", "") if n is None or n == "O" else tuple(n.split("-")) for n in names)
    inside = other[0] in "IEL"
    if inside and (one[0] not in "BI" or one[1] != other[1]):
        return False
    return inside or scheme == "BIO" or one[0] not in "BI"


@pytest.mark.parametrize(
    ("scheme", "letters"), [("BIO", "BI"), ("BIOES", "BIES"), ("BILOU", "BILU")]
)
@given(kinds=st.integers(1, 3))
def test_forbidden_transitions_of_spans(scheme, letters, kinds):
    tags = ["O", *(f"{letter}-{kind}" for kind in "XYZ"[:kinds] for letter in letters)]
    found = set(spen.forbidden_transitions(tags))
    classes = range(-1, len(tags))
    expected = {
        (i, j)
        for i in classes
        for j in classes
        if (i, j) != (-1, -1) and not follows(scheme, i, j, tags)
    }
    assert found == expected


def test_forbidden_transitions_worked_by_hand():
    tags = ["O", "B", "I", "E", "S"]
    goes_on = {(i, j) for i in (0, 3, 4, -1) for j in (2, 3)}
    breaks_off = {(i, j) for i in (1, 2) for j in (0, 1, 4, -1)}
    assert set(spen.forbidden_transitions(tags)) == goes_on | breaks_off


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: spen.ChainEnergy(3, forbidden=[(0, 3)]), r"from 0 to 2, or -1.*received \(0, 3\)"),
        (lambda: spen.ChainEnergy(0), "whole number"),
        (lambda: spen.ConditionalChainEnergy(0, 3), "n_features"),
        (lambda: spen.forbidden_transitions(["O", "NOUN"]), "'NOUN' does not say"),
        (lambda: spen.ChainEnergy(3).bind(spen.Context(torch.zeros(2, 3))), "with positions"),
    ],
)
def test_errors(make, words):
    with pytest.raises(spen.InputError, match=words):
        make()


def test_a_saved_chain_comes_back(tmp_path):
    case = make_case(3, [2, 4], share_forbidden=0.2)
    case.model.save(tmp_path / "model.spen")
    loaded = spen.load(tmp_path / "model.spen")
    y = case.domain.uniform(case.context.target)
    assert torch.equal(loaded.energy.bind(case.context).value(y), case.problem.value(y))
    assert loaded.domain == case.model.domain
    described = spen.LocalEnergy.unsized() + spen.ChainEnergy.unsized(penalty=3.0)
    assert described.size(F, OPEN).n_labels == K
