"""Structured mirror descent and the best of n, against all taggings of small problems."""

from dataclasses import replace

import pytest
import torch
from chain_models import NAN, cases, make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from test_positions import OPEN, K, batch, noisy, sequences

import spen
from spen.inference.base import Status


def impossible(case):
    return any(not case.taggings(row) for row in range(len(case.lengths)))


def draw_dual(domain, rows, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, domain.size, generator=generator, dtype=torch.float64)


@settings(max_examples=40)
@given(
    classes=st.integers(2, 3),
    length=st.integers(1, 4),
    seed=st.integers(0, 999),
    some_known=st.booleans(),
)
def test_the_mirror_map_is_forward_backward(classes, length, seed, some_known):
    """Marginals, the entropy and its gradient, and the way back, by all taggings."""
    domain = spen.ChainMarginals(classes, positions=length)
    dual = domain.clamp_dual(draw_dual(domain, 2, seed, scale=2.0))
    tags = torch.cartesian_prod(*[torch.arange(classes)] * length).reshape(-1, length)
    one_hot = torch.nn.functional.one_hot(tags, classes).double()
    points = domain.product(one_hot.flatten(1))
    known = None
    if some_known:
        generator = torch.Generator().manual_seed(seed)
        held = torch.full((2, length, classes), NAN).double()
        held[0, :, 0] = torch.where(torch.rand(length, generator=generator) < 0.5, 0.0, NAN)
        held[1, -1] = torch.eye(classes).double()[seed % classes]
        pairs = torch.full((2, length, classes, classes), NAN).double()
        known = domain.complete_known(domain.join(held, pairs))
    scores = dual @ points.T
    if known is not None:
        wanted = known.unflatten(1, (length, -1))[:, None, :, :classes]
        agrees = (wanted.isnan() | (wanted == one_hot)).all((2, 3))
        scores = scores.masked_fill(~agrees, -torch.inf)
    shares = torch.softmax(scores, 1)
    y = domain.at_dual(dual, known)[1]
    torch.testing.assert_close(y, shares @ points)
    torch.testing.assert_close(domain.negative_entropy(y), torch.xlogy(shares, shares).sum(1))
    if known is None:
        torch.testing.assert_close(domain.to_primal(domain.to_dual(y)), y)
        torch.testing.assert_close(domain.project(y), y)
        loss = domain.log_loss_of_dual(dual, points[:2]).sum(1)
        expected = -torch.log_softmax(scores, 1)[[0, 1], [0, 1]]
        torch.testing.assert_close(loss, expected)
    # Differentiable steps say the same, and so do their derivatives: covariances.
    asked = dual.clone().requires_grad_()
    soft = domain.at_dual(asked, known)[1]
    torch.testing.assert_close(soft.detach(), y)
    direction = draw_dual(domain, 2, seed + 1, scale=1.0)
    # Classes that are ruled out do not move, and a shift of a position's scores changes nothing.
    (moved,) = torch.autograd.grad((soft * direction).sum(), asked)
    along = points @ direction.T
    mean = (shares * along.T).sum(1, keepdim=True)
    expected = ((shares * (along.T - mean)) @ points).double()
    if known is None:
        torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(domain.spread(y, direction), expected, rtol=1e-5, atol=1e-7)


@settings(max_examples=25)
@given(case=cases(dtype=torch.float64), temperature=st.sampled_from([0.5, 1.0]))
def test_a_chain_alone_ends_where_the_exact_answers_are(case, temperature):
    if impossible(case):
        return
    known = case.context.known
    # An energy of everyday size: duals are bounded.
    with torch.no_grad():
        for weight in case.model.parameters():
            weight.clamp_(-1, 1)
    case.model.energy.terms[1].penalty = 40.0
    entropy = spen.Entropy(case.model.domain, temperature).bind(case.context)
    exact = spen.ForwardBackward(temperature).solve(case.problem, case.domain, known=known)
    rule = spen.MirrorDescent(lr=4.0, momentum=0.0)
    descent = spen.StructuredDescent(rule, spen.Stopping(60, 0, 0))
    found = descent.solve(case.problem + entropy, case.domain, known=known)
    torch.testing.assert_close(found.y, exact.y, rtol=0, atol=2e-3)
    torch.testing.assert_close(found.energy, exact.energy, rtol=2e-3, atol=2e-3)
    unrolled = descent.solve(
        case.problem + entropy, case.domain, known=known, backward=spen.Unrolled()
    )
    torch.testing.assert_close(unrolled.y.detach(), found.y)
    colder = replace(descent, rule=spen.MirrorDescent(lr=30.0, momentum=0.0))
    best = spen.Viterbi().solve(case.problem, case.domain, known=known)
    coldest = colder.solve(case.problem, case.domain, known=known)
    assert (coldest.energy - best.energy).abs().max() < 0.05


@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_a_convex_energy_beside_a_chain_by_descent_on_all_taggings(tau):
    """The least free energy over distributions of taggings, found without any chain."""
    case = make_case(2, [4, 3, 1], seed=1)
    wide = noisy(spen.ConvolutionEnergy(2, window=3, measurements=4), torch.float64)
    with torch.no_grad():
        wide.requires_grad_(
            False
        ).readout.abs_()  # softplus of what is linear, with weights above zero, is convex
    problem = case.problem + wide.bind(case.context)
    entropy = spen.Entropy(case.model.domain, tau).bind(case.context)
    rule = spen.MirrorDescent(lr=0.5, momentum=0.0)
    descent = spen.StructuredDescent(rule, spen.Stopping(300, 0, 0), trace=True)
    found = descent.solve(problem + entropy, case.domain)
    assert found.trace is not None
    assert found.trace.y.shape[1:] == found.y.shape
    for row, _ in enumerate(case.lengths):
        points, energies = case.points(row), case.energies(row)
        one = wide.bind(case.context).select(torch.tensor([row]))
        scores = torch.zeros(len(points), dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([scores], max_iter=500, line_search_fn="strong_wolfe")

        def free(scores=scores, points=points, energies=energies, one=one):
            shares = torch.softmax(scores, 0)
            mean = (shares @ points)[None]
            return shares @ energies + one.value(mean)[0] + tau * torch.xlogy(shares, shares).sum()

        def closure(free=free, optimiser=optimiser):
            optimiser.zero_grad()
            value = free()
            value.backward()
            return value

        optimiser.step(closure)
        torch.testing.assert_close(found.energy[row], free().detach(), rtol=1e-5, atol=1e-5)


def test_the_gap_bounds_how_far_a_chain_is_from_its_minimum():
    case = make_case(3, [4, 2, 5], some_known=True, seed=2)
    known = case.context.known
    few = spen.StructuredDescent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(3, 0, 0))
    least = spen.Viterbi().solve(case.problem, case.domain, known=known).energy
    found = few.solve(case.problem, case.domain, known=known)
    assert found.gap is not None
    # The energy is linear over these marginals, so the gap is what is missing.
    torch.testing.assert_close(found.energy - found.gap, least)
    entropy = spen.Entropy(case.model.domain, 1.0).bind(case.context)
    soft = few.solve(case.problem + entropy, case.domain, known=known)
    exact = spen.ForwardBackward().solve(case.problem, case.domain, known=known)
    torch.testing.assert_close(soft.energy - soft.gap, exact.energy)


def test_unrolled_structured_descent_trains():
    case = make_case(3, [4, 2, 5], seed=4)
    energy = case.model.energy + noisy(spen.SkipChainEnergy(3), torch.float64)
    model = spen.SPEN(spen.Identity(3), energy, case.model.domain)
    descent = spen.StructuredDescent(stopping=spen.Stopping(4))
    objective = spen.UnrolledLikelihood(entropy=1.0)
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(15):
        loss = objective.loss(model, descent, case.context).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    hinge = spen.Hinge().loss(model, descent, case.context)
    assert hinge.shape == (3,)
    assert bool((hinge >= 0).all())


def test_structured_descent_leaves_padding_and_neighbours_alone():
    lengths = [5, 1, 9, 2]
    features = sequences(lengths)
    parts = spen.LocalEnergy(3, K) + spen.ChainEnergy(K, [(0, 1)]) + spen.SkipChainEnergy(K)
    energy = noisy(parts, torch.float32)
    descent = spen.StructuredDescent(stopping=spen.Stopping(5, 0, 0))

    def answer(context, row):
        found = descent.solve(energy.bind(context), OPEN.of_batch(context))
        columns = int(context.mask[row].sum()) * K
        assert (found.y[row, columns:] == 0).all()
        return found.y[row, :columns], found.energy[row]

    together = batch(features)
    for row in range(len(lengths)):
        alone, longer = batch(features[row : row + 1]), batch(features[row : row + 1], positions=36)
        for other in (alone, longer):
            for mine, theirs in zip(answer(together, row), answer(other, 0), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


@settings(max_examples=40)
@given(case=cases(dtype=torch.float64), seed=st.integers(0, 99))
def test_the_best_of_all_taggings_is_exact(case, seed):
    """With as many as there are, the one of least energy of any kind; fewer are never better."""
    if impossible(case):
        return
    classes, known = case.model.domain.n_classes, case.context.known
    wide = noisy(spen.LanguageEnergy(classes, window=3, hidden=4), torch.float64, seed)
    other = wide.bind(case.context)
    problem = case.problem + other
    most = max(len(case.taggings(row)) for row in range(len(case.lengths)))
    found = spen.BestOf(most).solve(problem, case.domain, known=known)
    few = spen.BestOf(2).solve(problem, case.domain, known=known)
    first = spen.Viterbi().solve(case.problem, case.domain, known=known)
    assert (few.energy >= found.energy - 1e-9).all()
    assert (problem.value(first.y) >= few.energy - 1e-9).all()
    assert (found.status == Status.COMPLETED).all()
    for row in range(len(case.lengths)):
        points = case.points(row)
        one = other.select(torch.full((len(points),), row))
        whole = case.energies(row) + one.value(points).detach()
        torch.testing.assert_close(found.energy[row], whole.min())
        assert torch.equal(found.y[row], points[whole.argmin()])
        assert int(found.steps[row]) == len(points)


def test_many_candidates_are_looked_at_some_rows_at_a_time(monkeypatch):
    case = make_case(3, [4, 2, 5, 1, 3] * 9, some_known=True)
    problem, known = case.problem, case.context.known
    wide = noisy(spen.SkipChainEnergy(3, skips=(2,)), torch.float64).bind(case.context)
    whole = spen.BestOf(8).solve(problem + wide, case.domain, known=known)
    monkeypatch.setattr(spen.limits, "chunk", 1)
    parts = spen.BestOf(8).solve(problem + wide, case.domain, known=known)
    assert torch.equal(whole.y, parts.y)
    torch.testing.assert_close(whole.energy, parts.energy)


@settings(max_examples=25)
@given(case=cases(dtype=torch.float64), hide=st.booleans())
def test_likelihood_among_all_taggings_is_exact(case, hide):
    case = replace(case, context=replace(case.context, known=None))
    if case.forbidden or impossible(case):
        return
    classes = case.model.domain.n_classes
    wide = noisy(spen.SkipChainEnergy(classes, (2,)), torch.float64)
    model = spen.SPEN(spen.Identity(3), case.model.energy + wide, case.model.domain)
    most = max(len(case.taggings(row)) for row in range(len(case.lengths)))
    loss = spen.NBestLikelihood(most, weight=0.0).loss(model, spen.BestOf(most), case.context)
    both = spen.NBestLikelihood(most, weight=2.0).loss(model, spen.BestOf(most), case.context)
    crf = spen.Likelihood().loss(case.model, spen.Viterbi(), case.context)
    objective = spen.NBestLikelihood(2)
    for inference, n in ((spen.BestOf(7), 7), (spen.Viterbi(), 2)):
        found = objective.predict(model, inference, case.context)
        assert int(found.steps.max()) <= n
        expected = spen.BestOf(n).solve(model.energy.bind(case.context), case.domain)
        assert torch.equal(found.y, expected.y)
    torch.testing.assert_close(both, loss + 2 * crf)
    for row in range(len(case.lengths)):
        points = case.points(row)
        one = wide.bind(case.context).select(torch.full((len(points),), row))
        energies = case.energies(row) + one.value(points)
        place = (points == case.context.target[row]).all(1)
        expected = -torch.log_softmax(-energies, 0)[place][0]
        torch.testing.assert_close(loss[row], expected)
    if hide:
        seen = torch.zeros_like(case.context.target, dtype=torch.bool)
        partly = replace(case.context, observed=seen)
        filled = spen.Viterbi().solve(case.problem, case.domain).y
        wanted = replace(case.context, target=filled)
        objective = spen.NBestLikelihood(4, weight=0.0)
        torch.testing.assert_close(
            objective.loss(model, spen.BestOf(4), partly),
            objective.loss(model, spen.BestOf(4), wanted),
        )


def test_language_models_learn_from_labels_alone_where_that_is_asked_for():
    """However sure the chain is of the target, so that the rest of the loss is zero."""
    case = make_case(3, [4, 2, 5])
    language = noisy(spen.LanguageEnergy(3, window=2, hidden=4), torch.float64)
    model = spen.SPEN(spen.Identity(3), case.model.energy + language, case.model.domain)
    plain, learning = (
        spen.NBestLikelihood(4, language=weight).loss(model, spen.BestOf(4), case.context)
        for weight in (0.0, 0.7)
    )
    own = language.bind(case.context).value(case.context.target)
    torch.testing.assert_close(learning, plain + 0.7 * own)
    sure = torch.autograd.grad(own.sum(), list(language.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in sure)
    two = spen.SPEN(model.features, model.energy + language, model.domain)
    both = spen.NBestLikelihood(4, weight=0.0, language=1.0)
    alone = spen.NBestLikelihood(4, weight=0.0).loss(two, spen.BestOf(4), case.context)
    torch.testing.assert_close(both.loss(two, spen.BestOf(4), case.context), alone + 2 * own)
    with pytest.raises(spen.InputError, match=r"trains language models .* Add a LanguageEnergy"):
        both.loss(case.model, spen.BestOf(4), case.context)
    with pytest.raises(spen.InputError, match="language must be a number zero or more"):
        spen.NBestLikelihood(language=-1.0)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: spen.StructuredDescent(spen.ProjectedGradient()), "steps in the dual"),
        (lambda c: spen.StructuredDescent(shortlist=3), "no shortlist"),
        (
            lambda c: spen.StructuredDescent().solve(c.problem, spen.UnitBox(c.domain.size)),
            "is for a Simplex",
        ),
        (
            lambda c: spen.StructuredDescent().solve(c.problem, c.model.domain),
            r"domain.of_batch\(context\)",
        ),
        (
            lambda c: spen.ChainMarginals(2, 2).project(torch.full((1, 12), 0.5).double()),
            "agree with each other",
        ),
        (lambda c: spen.BestOf(0), "n must be a whole number"),
        (
            lambda c: spen.BestOf(2).solve(spen.LanguageEnergy(2).bind(c.context), c.domain),
            "no chain among the energies",
        ),
    ],
)
def test_errors(ask, words):
    with pytest.raises(spen.InputError, match=words):
        ask(make_case(2, [3, 2]))
