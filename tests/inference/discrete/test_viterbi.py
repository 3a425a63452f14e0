"""Exact answers for chains, against all taggings of small problems."""

import math
from dataclasses import replace

import pytest
import torch
from chain_models import NAN, cases, make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from test_positions import ROW_TILE, batch, noisy, sequences

import spen
from spen.inference.base import Status
from spen.inference.discrete import viterbi

BACKENDS = ["chain-numba", "general"]


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    if request.param == "general":
        monkeypatch.setattr(viterbi, "machine_code", lambda *_: None)
    return request.param


def close(found, expected, dtype):
    tolerance = 1e-9 if dtype is torch.float64 else 2e-4
    found, expected = (torch.as_tensor(each, dtype=torch.float64) for each in (found, expected))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def impossible(case):
    """The rows that have no tagging."""
    return [row for row in range(len(case.lengths)) if not case.taggings(row)]


def solved(case, solve):
    """Solve, or see that a row without any tagging is named."""
    if not (rows := impossible(case)):
        return solve()
    with pytest.raises(spen.InputError, match=f"Row {rows[0]} has no tagging: at position"):
        solve()
    return None


@pytest.mark.parametrize("path", BACKENDS)
@settings(max_examples=60)
@given(case=cases())
def test_all_answers_equal_brute_force(path, case):
    dtype, known = case.context.features.dtype, case.context.known
    with pytest.MonkeyPatch.context() as patch:
        if path == "general":
            patch.setattr(viterbi, "machine_code", lambda *_: None)
        problem, domain = case.problem, case.domain
        best = solved(case, lambda: spen.Viterbi().solve(problem, domain, known=known))
        soft = solved(case, lambda: spen.ForwardBackward().solve(problem, domain, known=known))
        first = solved(case, lambda: spen.Viterbi().best(problem, domain, 5, known))
        logs = solved(case, lambda: spen.ForwardBackward().log_partition(problem, domain, known))
    if best is None:
        assert soft is None
        assert first is None
        assert logs is None
        return
    assert best.backend == path
    assert (best.status == Status.OPTIMAL).all()
    assert (best.gap == 0).all()
    assert best.steps.tolist() == case.lengths
    for row in range(len(case.lengths)):
        taggings = case.taggings(row)
        energies = case.energies(row)
        points = case.points(row)
        # The best, which is one of the allowed ones.
        assert any(torch.equal(best.y[row], point) for point in points)
        close(best.energy[row], energies.min(), dtype)
        # n best: the least energies in their order, each of its own tagging.
        order = energies.sort().values
        for place in range(5):
            if place >= len(taggings):
                assert first.energy[row, place] == math.inf
                assert torch.equal(first.y[row, place], first.y[row, 0])
                continue
            close(first.energy[row, place], order[place], dtype)
            tags = tuple(first.tags[row, place, : case.lengths[row]].tolist())
            assert tags in taggings
            close(case.energy(row, tags), first.energy[row, place], dtype)
        distinct = {tuple(tags) for tags in first.tags[row, : len(taggings)].tolist()}
        assert len(distinct) == min(5, len(taggings))
        # Sums and marginals.
        log = torch.logsumexp(-energies, 0)
        close(logs[row], log, dtype)
        close(soft.energy[row], -log, dtype)
        marginals = torch.softmax(-energies, 0) @ points.double()
        close(soft.y[row], marginals, dtype)


@pytest.mark.parametrize("path", BACKENDS)
@settings(max_examples=40)
@given(case=cases(), temperature=st.sampled_from([1.0, 0.5, 3.0]), seed=st.integers(0, 99))
def test_gradients_of_the_log_partition(path, case, temperature, seed):
    """Against autograd through the sum over all taggings, in every parameter."""
    if impossible(case):
        return
    known, dtype = case.context.known, case.context.features.dtype
    weights = torch.randn(len(case.lengths), generator=torch.Generator().manual_seed(seed))
    features = case.context.features.clone().requires_grad_()
    wanted = [features, *case.model.parameters()]
    context = replace(case.context, features=features)
    with pytest.MonkeyPatch.context() as patch:
        if path == "general":
            patch.setattr(viterbi, "machine_code", lambda *_: None)
        solver = spen.ForwardBackward(temperature)
        logs = solver.log_partition(case.model.energy.bind(context), case.domain, known)
        found = torch.autograd.grad((weights * logs).sum(), wanted)
    problem, expected = case.model.energy.bind(context), []
    for row in range(len(case.lengths)):
        points = case.points(row)
        one = problem.select(torch.full((len(points),), row))
        expected.append(torch.logsumexp(-one.value(points) / temperature, 0))
    expected = torch.stack(expected)
    close(logs, expected.detach(), dtype)
    for mine, theirs in zip(
        found, torch.autograd.grad((weights * expected).sum(), wanted), strict=True
    ):
        close(mine, theirs, dtype)


@pytest.mark.parametrize("path", BACKENDS)
@pytest.mark.parametrize("loss", ["hamming", "squared"])
@settings(max_examples=30)
@given(case=cases(), margin=st.sampled_from([0.3, 2.0]))
def test_loss_augmented(path, loss, case, margin):
    """The hinge's own question: the least energy less the margin times the number of errors."""
    if impossible(case):
        return
    dtype, known = case.context.features.dtype, case.context.known
    augmentation = spen.LossAugmentation(case.model.domain, loss, margin).bind(case.context)
    with pytest.MonkeyPatch.context() as patch:
        if path == "general":
            patch.setattr(viterbi, "machine_code", lambda *_: None)
        found = spen.Viterbi().solve(case.problem + augmentation, case.domain, known=known)
    for row, length in enumerate(case.lengths):
        truth = case.context.target[row].reshape(-1, case.model.domain.n_classes).argmax(1)
        values = [
            case.energy(row, tags)
            - margin * sum(a != b for a, b in zip(tags, truth.tolist()[:length], strict=True))
            for tags in case.taggings(row)
        ]
        close(found.energy[row], min(values), dtype)


@settings(max_examples=30)
@given(case=cases(dtype=torch.float64), hidden=st.integers(0, 1000))
def test_likelihood_of_what_was_observed(case, hidden):
    """−log of the share of taggings that agree with what was observed."""
    case = replace(case, context=replace(case.context, known=None))
    generator = torch.Generator().manual_seed(hidden)
    shape = case.context.mask.shape
    seen = (torch.rand(shape, generator=generator) < 0.5).repeat_interleave(
        case.model.domain.n_classes, 1
    )
    target = case.context.target
    if impossible(case):
        return
    for observed in (None, seen):
        context = replace(case.context, observed=observed)
        expected = []
        for row in range(len(case.lengths)):
            share = torch.softmax(-case.energies(row), 0)
            points = case.points(row)
            counted = seen[row] if observed is not None else torch.ones_like(seen[row])
            agrees = ((points == target[row]) | ~counted).all(1)
            expected.append(share[agrees].sum().item())
        if min(expected) == 0:
            continue  # the target itself takes a forbidden transition
        loss = spen.Likelihood().loss(case.model, spen.Viterbi(), context)
        close(loss.detach(), [-math.log(share) for share in expected], torch.float64)
    soft = spen.Likelihood().predict(case.model, spen.Viterbi(), case.context)
    exact = spen.ForwardBackward().solve(case.problem, case.domain)
    assert torch.equal(soft.y, exact.y)


def test_a_forbidden_target_costs_the_penalty():
    case = make_case(2, [3])
    case.model.energy = spen.LocalEnergy(3, 2) + spen.ChainEnergy(2, [(0, 1)], penalty=50.0)
    case.model.energy.double()
    target = torch.eye(2)[[0, 1, 1]].reshape(1, 6).double()
    loss = spen.Likelihood().loss(
        case.model, spen.Viterbi(), spen.Context(torch.zeros(1, 3, 3).double(), target)
    )
    local = case.model.energy.terms[0].bias.detach()
    assert (local == 0).all()
    torch.testing.assert_close(loss.detach(), torch.tensor([50 + math.log(4)]).double())


def test_likelihood_and_hinge_learn_what_the_chain_says():
    """Tags that alternate from a first one that features tell: only transitions can know."""
    features = torch.zeros(8, 6, 1)
    first = torch.arange(8) % 2
    features[:, 0, 0] = 2.0 * first - 1
    tags = (first[:, None] + torch.arange(6)) % 2
    target = torch.nn.functional.one_hot(tags, 2).float().flatten(1)
    known = torch.full_like(target, NAN)
    known[:, 6:8] = 1 - target[:, 6:8]
    domain = spen.Simplex(2, positions=None)
    for objective in (spen.Likelihood(), spen.Hinge()):
        energy = spen.LocalEnergy(1, 2) + spen.ChainEnergy(2)
        model = spen.SPEN(spen.Identity(1), energy, domain, seed=0)
        optimiser = torch.optim.Adam(model.parameters(), 0.1)
        context = spen.Context(features, target)
        losses = []
        for _ in range(40):
            loss = objective.loss(model, spen.Viterbi(), context).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[-1] < 0.5 * losses[0]
        assert torch.equal(model.solve_context(context, spen.Viterbi()).y, target)
        # One tag that is set the other way turns round those behind it.
        held = model.solve_context(replace(context, known=known), spen.Viterbi()).y
        assert torch.equal(held[:, 6:], 1 - target[:, 6:])


@pytest.mark.parametrize("steep", [25.0, 3000.0])
def test_scores_beyond_the_range_of_numbers(backend, steep):
    """What would underflow in a sum of numbers goes by logarithms."""
    case = make_case(3, [4, 2, 5], seed=3, scale=1.0, share_forbidden=0.1)
    with torch.no_grad():
        case.model.energy.terms[0].weight.mul_(steep)
        case.model.energy.terms[1].transitions.mul_(steep)
    soft = spen.ForwardBackward().solve(case.problem, case.domain)
    assert soft.backend == ("general" if steep == 3000.0 else backend)
    for row in range(3):
        energies = case.energies(row)
        close(soft.energy[row], -torch.logsumexp(-energies, 0), torch.float64)
        close(soft.y[row], torch.softmax(-energies, 0) @ case.points(row), torch.float64)


def test_two_separate_worlds(backend):
    """Classes that never meet, one of which has next to no chance until the last position."""
    energy = spen.ChainEnergy(2, forbidden=[(0, 1), (1, 0)])
    length = 60
    scores = torch.zeros(1, length, 2).double()
    scores[:, :-1, 1] = 9.0
    scores[:, -1, 0] = 9.0 * (length - 1)
    problem = spen.Form(linear=scores.flatten(1)) + energy.double().bind(
        spen.Context(torch.zeros(1, length, 1).double())
    )
    soft = spen.ForwardBackward().solve(problem, spen.Simplex(2, positions=length))
    torch.testing.assert_close(soft.y, torch.full_like(soft.y, 0.5))
    assert soft.backend == "general"


def test_padding_and_neighbours_change_no_bit(backend):
    lengths = [5, 1, 13, 8, 2, 21, 3, 9, 4]
    features = sequences(lengths)
    energy = noisy(spen.LocalEnergy(3, 4) + spen.ChainEnergy(4, [(0, 1)]), torch.float32)
    open_end = spen.Simplex(4, positions=None)

    def answers(context, row):
        problem, domain = energy.bind(context), open_end.of_batch(context)
        columns = int(context.mask[row].sum()) * 4
        for inference in (spen.Viterbi(), spen.ForwardBackward()):
            found = inference.solve(problem, domain)
            assert (found.y[:, columns:][row] == 0).all()
            yield found.y[row, :columns], found.energy[row]
        first = spen.Viterbi().best(problem, domain, 3)
        yield first.tags[row, :, : columns // 4], first.energy[row]

    together = batch(features)
    for row in range(len(lengths)):
        one = features[row : row + 1]
        alone, longer = batch(one), batch(one, positions=36)
        for expected, *others in zip(
            answers(together, row), answers(alone, 0), answers(longer, 0), strict=True
        ):
            for other in others:
                assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))
    assert len(together.features) % ROW_TILE == 0


def test_local_scores_alone_and_fixed_positions(backend):
    """Without a chain, each position is by itself."""
    scores = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    problem, domain = spen.Form(linear=scores), spen.Simplex(3, positions=2)
    soft = spen.ForwardBackward().solve(problem, domain)
    torch.testing.assert_close(soft.y, domain.to_primal(-scores))
    best = spen.Viterbi().solve(problem, domain)
    assert torch.equal(best.y, domain.round(-scores))
    assert torch.equal(best.y, spen.Exact().solve(problem, domain).y)


def test_chains_in_sums_and_selections():
    """Two chains add up, and some rows of a problem have the answers they had."""
    case = make_case(3, [4, 2, 5, 1], conditional=True, some_known=True)
    second = make_case(3, [4, 2, 5, 1], seed=5).model.energy.terms[1]
    problem = case.problem + second.bind(case.context)
    known = case.context.known
    whole = spen.ForwardBackward().solve(problem, case.domain, known=known)
    rows = torch.tensor([2, 0])
    some = spen.ForwardBackward().solve(problem.select(rows), case.domain, known=known[rows])
    assert torch.equal(some.y, whole.y[rows])
    best = spen.Viterbi().solve(problem, case.domain, known=known)
    exact = spen.Exact().solve(problem, case.domain, known=known)
    assert torch.equal(best.y, exact.y)


def test_scores_that_are_no_numbers_are_named_in_the_status(backend):
    case = make_case(2, [3, 2])
    case.context.features[1, 0] = NAN
    for inference in (spen.Viterbi(), spen.ForwardBackward()):
        found = inference.solve(case.problem, case.domain)
        assert found.status.tolist() == [Status.OPTIMAL, Status.DIVERGED]


def test_no_second_derivative():
    case = make_case(2, [3])
    logs = spen.ForwardBackward().log_partition(case.problem, case.domain)
    start = case.model.energy.terms[1].start
    with pytest.raises(spen.InputError, match="can be differentiated once"):
        torch.autograd.grad(logs.sum(), start, create_graph=True)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda c: spen.Viterbi().solve(c.problem, spen.UnitBox(c.domain.size)),
            "Viterbi is for a Simplex",
        ),
        (
            lambda c: spen.ForwardBackward().solve(
                c.problem + spen.Entropy(c.model.domain).bind(c.context), c.domain
            ),
            "entropy term",
        ),
        (
            lambda c: spen.Viterbi().solve(
                c.problem + spen.LossAugmentation(c.model.domain, "log").bind(c.context), c.domain
            ),
            "needs a chain: .*received LogLossProblem",
        ),
        (lambda c: spen.Viterbi().best(c.problem, c.domain, 0), "n must be a whole number"),
        (lambda c: spen.ForwardBackward(temperature=0.0), "temperature"),
        (
            lambda c: spen.Viterbi().solve(c.problem, c.domain, known=torch.zeros(2, 3)),
            "known must be a tensor of shape",
        ),
    ],
)
def test_errors(ask, words):
    case = make_case(2, [3, 2])
    with pytest.raises(spen.InputError, match=words):
        ask(case)


def test_an_impossible_row_is_named_with_its_position():
    case = make_case(2, [3, 4])
    energy = spen.LocalEnergy(3, 2) + spen.ChainEnergy(2, forbidden=[(0, 1), (1, 1)])
    known = torch.full((2, case.domain.size), NAN)
    known[1, 5] = 1.0  # class 1 at position 2, which nothing may precede
    for ask in (spen.Viterbi(), spen.ForwardBackward()):
        with pytest.raises(spen.InputError, match="Row 1 has no tagging: at position 2 no class"):
            ask.solve(energy.double().bind(case.context), case.domain, known=known)
