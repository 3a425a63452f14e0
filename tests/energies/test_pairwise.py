"""Pairs that depend on the features: the energy against sums written out, and what it learns."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import F, random_context, randomise

import spen
from spen.batch.context import Context
from spen.energies.base import Problem

seeds = st.integers(0, 10_000)


def written_out(energy: spen.ConditionalPairwiseEnergy, context: Context, y: torch.Tensor):
    """Σ_{i≠j} y_i y_j Σ_k (1 + w_k·F(x)) (A_k)_ij + Σ_i s_i y_i, one number at a time."""
    values = []
    for features, labels in zip(context.features, y, strict=True):
        total = (energy.bias * labels).sum()
        for weight, table in zip(energy.feature_weight, energy.weight, strict=True):
            factor = 1 + weight.dot(features)
            for i, j in itertools.permutations(range(energy.n_labels), 2):
                total = total + factor * table[i, j] * labels[i] * labels[j]
        values.append(total)
    return torch.stack(values)


@settings(max_examples=20)
@given(n_labels=st.integers(1, 5), rows=st.integers(1, 4), terms=st.integers(1, 3), seed=seeds)
def test_value_and_gradient_against_the_sums_written_out(n_labels, rows, terms, seed):
    energy = randomise(spen.ConditionalPairwiseEnergy(F, n_labels, terms), seed)
    context, y = random_context(spen.UnitBox(n_labels), rows, seed)
    expected = written_out(energy, context, y.requires_grad_())
    (slope,) = torch.autograd.grad(expected.sum(), y, retain_graph=True)
    problem = energy.bind(context)
    value, gradient = problem.value_and_gradient(y.detach())
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, slope)
    torch.testing.assert_close(problem.gradient(y.detach()), slope)


@pytest.mark.parametrize("terms", [1, 2])
def test_it_keeps_the_promises_of_an_energy(terms):
    energy = randomise(spen.ConditionalPairwiseEnergy(F, 5, terms), 0)
    spen.check_energy(energy)
    spen.check_energy(energy + spen.LocalEnergy(F, 5) + spen.Entropy(spen.UnitBox(5), 0.5))


@pytest.mark.parametrize("terms", [1, 2])
def test_the_gradient_can_be_differentiated_again(terms):
    energy = randomise(spen.ConditionalPairwiseEnergy(F, 4, terms), 3)
    context, y = random_context(spen.UnitBox(4), 2, 5)
    problem, parameters = energy.bind(context), list(energy.parameters())
    closed = problem.gradient(y).square().sum()
    general = Problem.value_and_gradient(problem, y)[1].square().sum()
    ours = torch.autograd.grad(closed, parameters, retain_graph=True)
    theirs = torch.autograd.grad(general, parameters)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_where_the_features_say_nothing_it_is_the_plain_pairwise_energy():
    plain = randomise(spen.PairwiseEnergy(4), 1)
    conditional = spen.ConditionalPairwiseEnergy(F, 4).double()
    with torch.no_grad():
        conditional.weight.copy_(plain.weight[None])
        conditional.bias.copy_(plain.bias)
    context, y = random_context(spen.UnitBox(4), 3, 1)
    assert torch.equal(conditional.pairs()[0], plain.pairs())
    for ours, theirs in zip(
        conditional.bind(context).value_and_gradient(y),
        plain.bind(context).value_and_gradient(y),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("terms", [1, 3])
def test_a_new_energy_is_zero_and_its_first_gradient_reaches_the_pairs(terms):
    energy = spen.ConditionalPairwiseEnergy(F, 4, terms).double()
    context, y = random_context(spen.UnitBox(4), 3, 0)
    value = energy.bind(context).value(y)
    assert torch.equal(value, torch.zeros(3, dtype=torch.float64))
    value.sum().backward()
    assert energy.weight.grad is not None
    off_diagonal = ~torch.eye(4, dtype=torch.bool)
    assert (energy.weight.grad[:, off_diagonal] != 0).all()
    assert (energy.weight.grad.diagonal(dim1=1, dim2=2) == 0).all()
    torch.testing.assert_close(energy.weight.grad, energy.weight.grad.mT)


def test_terms_start_apart_and_the_seed_decides_how():
    """Terms that started alike would have equal gradients for ever."""
    energy = spen.ConditionalPairwiseEnergy(F, 4, terms=3)
    first, *others = energy.feature_weight.detach()
    assert (first == 0).all()
    assert not torch.equal(*others)
    before = energy.feature_weight.detach().clone()
    energy.reset(torch.Generator().manual_seed(0))
    assert torch.equal(energy.feature_weight, before)
    energy.reset(torch.Generator().manual_seed(1))
    assert not torch.equal(energy.feature_weight, before)


def pairs_by_the_input(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two fair labels that are equal when x is 1 and opposite when x is −1."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 2, (rows, 1), generator=generator) * 2.0 - 1
    first = torch.randint(0, 2, (rows, 1), generator=generator).float()
    return x, torch.cat([first, torch.where(x > 0, first, 1 - first)], 1)


@pytest.mark.parametrize("terms", [1, 2])
def test_training_makes_the_pairs_depend_on_the_input(terms):
    """Shown one label, the other follows from it and x; no one table of pairs gives that."""
    energy = spen.LocalEnergy(1, 2) + spen.ConditionalPairwiseEnergy(1, 2, terms)
    model = spen.SPEN(spen.Identity(1), energy, spen.UnitBox(2), seed=0)
    X, Y = pairs_by_the_input(200, seed=0)
    inference = spen.Descent(spen.MeanField(), spen.Stopping(5))
    objective = spen.UnrolledLikelihood(entropy=1.0, reveal=0.9)
    stage = spen.Stage("all", objective, inference, epochs=40, lr=0.1)
    spen.train(model, [stage], spen.Split(X, Y), seed=0)
    pairwise = energy.terms[1]
    factors = pairwise.factors(Context(torch.tensor([[1.0], [-1.0]])))
    tables = torch.einsum("nk,kij->nij", factors, pairwise.pairs())
    equal, opposite = tables[:, 0, 1].tolist()
    assert equal < -0.5, "the pair is pulled together"
    assert opposite > 0.5, "and pushed apart"
    X, Y = pairs_by_the_input(100, seed=1)
    known = torch.stack([Y[:, 0], torch.full((100,), torch.nan)], 1)
    y = model.solve(X, inference, known=known, entropy=1.0).y
    assert torch.equal(y.round(), Y)


def test_a_description_is_sized_by_a_fit():
    description = spen.LocalEnergy.unsized() + spen.ConditionalPairwiseEnergy.unsized(terms=2)
    assert repr(description).endswith("ConditionalPairwiseEnergy.unsized(terms=2)")
    energy = description.size(7, spen.UnitBox(4))
    assert energy.terms[1].feature_weight.shape == (2, 7)
    assert energy.terms[1].weight.shape == (2, 4, 4)


@pytest.mark.parametrize("sizes", [(0, 4, 1), (3, 0, 1), (3, 4, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(spen.InputError, match="must be a whole number of 1 or more; received 0"):
        spen.ConditionalPairwiseEnergy(*sizes)
