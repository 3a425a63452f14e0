"""Outputs with positions: padding and neighbours change no number of a row, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import spen
from spen.batch.positions import (
    POSITION_TILE,
    ROW_TILE,
    at_positions,
    batches_of_like_length,
    pad,
    sum_positions,
)
from spen.domains import held_labels

F, K = 3, 4
OPEN = spen.Simplex(K, positions=None)
nan = torch.nan


def sequences(lengths, seed=0, width=F, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(length, width)).astype(dtype) for length in lengths]


def batch(features, positions=POSITION_TILE, **fields):
    """The context of some sequences, filled up as batches are."""
    padded, mask = pad(features, rows=ROW_TILE, positions=positions)
    filled = {
        name: pad(each, rows=ROW_TILE, positions=positions)[0] for name, each in fields.items()
    }
    return spen.Context(padded, mask=mask, **{n: t.flatten(1) for n, t in filled.items()})


def noisy(energy, dtype, seed=3):
    generator = torch.Generator().manual_seed(seed)
    energy = energy.to(dtype)
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return energy


ENERGIES = {
    "local": lambda: spen.LocalEnergy(F, K),
    "entropy": lambda: spen.LocalEnergy(F, K) + spen.Entropy(OPEN, 0.7),
    "hamming": lambda: spen.LocalEnergy(F, K) + spen.LossAugmentation(OPEN, "hamming"),
    "squared": lambda: spen.LocalEnergy(F, K) + spen.LossAugmentation(OPEN, "squared"),
    "log": lambda: spen.LocalEnergy(F, K) + spen.LossAugmentation(OPEN, "log"),
}
DESCENTS = [
    spen.Descent(spen.MirrorDescent(), spen.Stopping(6, 0, 0), backend="general"),
    spen.Descent(spen.MirrorBundle(), spen.Stopping(6, 0, 0), backend="general"),
    spen.Descent(spen.ProjectedGradient(), spen.Stopping(6, 0, 0), backend="general"),
]


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_padding_and_neighbours_change_no_bit(name, dtype):
    """A row alone, beside shorter and longer ones, and with more padding than it needs."""
    lengths = [5, 1, 13, 8, 2, 21, 3, 9, 4]
    features = sequences(lengths, dtype=dtype)
    rng = np.random.default_rng(1)
    targets = [np.eye(K, dtype=dtype)[rng.integers(K, size=length)] for length in lengths]
    energy = noisy(ENERGIES[name](), torch.float32 if dtype is np.float32 else torch.float64)

    def answers(context, row):
        problem, domain = energy.bind(context), OPEN.of_batch(context)
        length = int(context.mask[row].sum())
        for descent in DESCENTS:
            found = descent.solve(problem, domain)
            assert (found.y[row, length * K :] == 0).all()
            yield found.y[row, : length * K], found.energy[row], problem.value(found.y)[row]
            yield problem.gradient(found.y)[row, : length * K], domain.round(found.y).sum(1)[row]

    together = batch(features, target=targets)
    for row in range(len(lengths)):
        one = [features[row]], [targets[row]]
        alone = batch(one[0], target=one[1])
        longer = batch(one[0], positions=36, target=one[1])
        for expected, *others in zip(
            answers(together, row), answers(alone, 0), answers(longer, 0), strict=True
        ):
            for other in others:
                assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


@pytest.mark.parametrize("name", ENERGIES)
def test_check_energy_with_positions(name):
    spen.check_energy(noisy(ENERGIES[name](), torch.float64), OPEN)


def test_check_energy_finds_what_looks_at_padding():
    class Leaky(spen.Energy):
        n_labels, n_features = K, F

        def forward(self, features, y):
            return features.sum((1, 2)) + y.sum(1)

    with pytest.raises(spen.EnergyCheckError, match="padding changes the value"):
        spen.check_energy(Leaky(), OPEN)


def test_exact_with_padding_and_known_classes():
    """Each row has the best class at each of its positions, and no class beyond."""
    context = batch(sequences([3, 1, 2]))
    problem, domain = noisy(spen.LocalEnergy(F, K), torch.float32).bind(context), None
    domain = OPEN.of_batch(context)
    known = torch.full((ROW_TILE, domain.size), nan)
    known[0, K + 2] = 1.0
    found = spen.Exact().solve(problem, domain, known=known)
    best = problem.linear.unflatten(1, (-1, K)).argmin(2)
    best[0, 1] = 2
    expected = torch.nn.functional.one_hot(best, K) * context.mask[:, :, None]
    assert torch.equal(found.y, expected.flatten(1).float())
    assert torch.equal(found.energy, problem.value(found.y))


def test_known_and_missing_tags():
    """Known classes are held, whatever stands in the padding; missing ones do not count."""
    features = sequences([4, 2])
    context = batch(features)
    domain = OPEN.of_batch(context)
    known = torch.full((ROW_TILE, domain.size), nan)
    known[0, 2 * K + 1], known[1, 0] = 1.0, 0.0
    known[1, 3 * K : 3 * K + 2] = 1.0  # there is no such position
    model = spen.SPEN(spen.Identity(F), spen.LocalEnergy(F, K), OPEN, seed=0)
    context = replace(context, known=known)
    for inference in [*DESCENTS, spen.Exact()]:
        y = model.solve_context(context, inference).y.unflatten(1, (-1, K))
        assert y[0, 2].tolist() == [0, 1, 0, 0]
        assert y[1, 0, 0] == 0
        torch.testing.assert_close(y.sum(2), context.mask.float())
    soft = spen.CrossEntropy().predict(model, DESCENTS[0], context).y.unflatten(1, (-1, K))
    assert soft[0, 2].tolist() == [0, 1, 0, 0]
    torch.testing.assert_close(soft.sum(2), context.mask.float())

    target = at_positions(
        domain.round(torch.rand(ROW_TILE, domain.size, generator=torch.Generator().manual_seed(0))),
        context.mask,
    )
    observed = torch.ones_like(target, dtype=torch.bool)
    observed[0, K : 2 * K] = False
    other = target.clone()
    other[0, K : 2 * K] = target[0, K : 2 * K].roll(1)
    for objective in (spen.CrossEntropy(), spen.UnrolledLikelihood(entropy=1.0), spen.Hinge()):
        inference = spen.Exact() if isinstance(objective, spen.Hinge) else DESCENTS[0]

        def loss(target, observed, objective=objective, inference=inference):
            of_rows = replace(context, known=None, target=target, observed=observed)
            return objective.loss(model, inference, of_rows)

        assert torch.equal(loss(target, observed), loss(other, observed))
        assert loss(other, None)[0] != loss(other, observed)[0]


def test_contradictions_are_named_with_row_and_position():
    context = batch(sequences([4, 2]))
    known = torch.full((ROW_TILE, 4 * K), nan)
    known[1, K : 2 * K] = 0
    with pytest.raises(spen.InputError, match="position 1 of row 1"):
        held_labels(OPEN.of_batch(context), known, context.features, context.mask)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20))
def test_batches_of_like_length_hold_every_row_once(lengths, positions):
    for generator in (None, torch.Generator().manual_seed(0)):
        batches = list(batches_of_like_length(lengths, positions, generator))
        assert sorted(torch.cat(batches).tolist()) == list(range(len(lengths)))
        for rows in batches:
            longest = max(lengths[row] for row in rows.tolist())
            assert len(rows) == 1 or len(rows) * longest <= positions
    assert len(list(batches_of_like_length(lengths, 9 * len(lengths)))) == 1


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 99))
def test_sums_of_positions(positions, padding, seed):
    values = torch.randn(3, positions * 2, generator=torch.Generator().manual_seed(seed))
    expected = sum_positions(values, positions)
    torch.testing.assert_close(expected, values.sum(1))
    padded = torch.cat([values, values.new_zeros(3, padding * 2)], 1)
    assert torch.equal(sum_positions(padded, positions + padding), expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pad([]), "at least one sequence"),
        (lambda: pad([[1.0], []]), "Sequence 1 is empty"),
        (lambda: pad([np.ones((2, 3)), np.ones((2, 4))]), r"sequence 1 has shape \(4,\)"),
        (lambda: OPEN.of_batch(spen.Context(torch.zeros(2, 3))), "as many positions"),
        (
            lambda: spen.Context(torch.zeros(1, 3, 2), mask=torch.tensor([[True, False, True]])),
            "Row 0 of the mask has no position at its beginning, or a gap",
        ),
        (
            lambda: spen.Context(torch.zeros(1, 2, 2), mask=torch.zeros(1, 2, dtype=torch.bool)),
            "Row 0 of the mask",
        ),
        (
            lambda: spen.Context(torch.zeros(2, 2), mask=torch.ones(2, 2, dtype=torch.bool)),
            "A mask must be True or False",
        ),
        (lambda: spen.Simplex(3, positions=0), "whole number"),
    ],
)
def test_errors(make, words):
    with pytest.raises(spen.InputError, match=words):
        make()


def test_of_batch_is_the_same_for_fixed_domains():
    fixed = spen.Simplex(3, positions=2)
    context = spen.Context(torch.zeros(2, 3))
    assert fixed.of_batch(context) is fixed
    assert spen.UnitBox(3).of_batch(context) == spen.UnitBox(3)
    assert OPEN.size == K


WAYS = {
    "unrolled": spen.Descent(spen.MirrorDescent(0.3, 0.5), spen.Stopping(6)),
    "truncated": spen.Descent(
        spen.MirrorDescent(0.3, 0.0), spen.Stopping(6), backward=spen.Truncated(3)
    ),
    "implicit": spen.Descent(
        spen.MirrorDescent(0.3, 0.0), spen.Stopping(300, 0, 1e-9), backward=spen.Implicit()
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("some_known", [False, True])
def test_gradients_through_inference_know_of_no_padding(way, some_known):
    """The gradient of rows of different lengths together is the sum of those of each alone."""
    energy = spen.LocalEnergy(F, K) + spen.ChainEnergy(K) + spen.ConvolutionEnergy(K, 3, 4)
    model = spen.SPEN(spen.Identity(F), noisy(energy, torch.float64), OPEN)
    lengths = [4, 1, 6]
    features = sequences(lengths, dtype=np.float64)
    rng = np.random.default_rng(2)
    targets = [np.eye(K)[rng.integers(K, size=length)] for length in lengths]
    hidden = [np.where(rng.random((length, 1)) < 0.7, nan, 1.0) for length in lengths]
    objective = spen.UnrolledLikelihood(entropy=1.0, start="chain")

    def gradients(rows):
        inputs, mask = pad([features[row] for row in rows])
        target = pad([targets[row] for row in rows])[0].flatten(1)
        shown = pad([targets[row] * hidden[row] for row in rows], nan)[0].flatten(1)
        context = spen.Context(inputs, target, shown if some_known else None, mask=mask)
        loss = objective.loss(model, WAYS[way], context).sum()
        return torch.autograd.grad(loss, list(model.parameters()))

    together = gradients(range(len(lengths)))
    alone = zip(*(gradients([row]) for row in range(len(lengths))), strict=True)
    for whole, parts in zip(together, alone, strict=True):
        assert whole.isfinite().all()
        torch.testing.assert_close(whole, sum(parts), rtol=1e-5, atol=1e-7)
