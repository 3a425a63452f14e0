"""End-to-end training: written-out losses, weights of iterates, learned rates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import spen
from spen.batch.context import Context
from spen.objectives.base import Start

STEPS = 4
DESCENT = spen.Descent(spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(STEPS))


def model_of(domain: spen.Domain, rates: bool = False) -> spen.SPEN:
    energy = spen.LocalEnergy(3, domain.size) + spen.LabelEnergy(domain.size, 4, "softplus")
    if rates:
        energy = energy + spen.StepRates(domain.size, steps=STEPS)
    return spen.SPEN(spen.Identity(3), energy, domain, seed=0).double()


def batch(model: spen.SPEN, rows: int = 5) -> Context:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 3, generator=generator)
    Y = model.domain.round(torch.rand(rows, model.domain.size, generator=generator))
    return model.context(X, Y)


def by_hand(model: spen.SPEN, context: Context, factors: Tensor, tau: float) -> list[Tensor]:
    """The iterates of mirror descent, written out."""
    problem = model.energy.bind(context)
    theta, iterates = torch.zeros(context.n_rows, model.domain.size).double(), []
    for factor in factors:
        rate = 0.5 * factor
        gradient = problem.gradient(model.domain.to_primal(theta))
        theta = (theta - rate * gradient) / (1 + rate * tau)
        iterates.append(model.domain.to_primal(theta))
    return iterates


def loss_by_hand(domain: spen.Domain, delta: str, y: Tensor, target: Tensor) -> Tensor:
    if delta == "squared":
        return (y - target).square().sum(1) / (2 if isinstance(domain, spen.Simplex) else 1)
    off = 0.0 if isinstance(domain, spen.Simplex) else (1 - target) * torch.log(1 - y)
    return -(target * torch.log(y) + off).sum(1)


@pytest.mark.parametrize("domain", [spen.UnitBox(6), spen.Simplex(3, 2)], ids=["box", "classes"])
@pytest.mark.parametrize("delta", ["log", "squared"])
@pytest.mark.parametrize("weighting", ["last", "all"])
def test_loss_is_what_is_written(domain, delta, weighting):
    model = model_of(domain)
    context = batch(model)
    assert context.target is not None
    objective = spen.EndToEnd(delta, weighting, entropy=0.3)
    iterates = by_hand(model, context, torch.ones(STEPS).double(), 0.3)
    each = torch.stack([loss_by_hand(domain, delta, y, context.target) for y in iterates])
    raw = torch.tensor([1 / 4, 1 / 3, 1 / 2, 1]).double()
    wanted = each[-1] if weighting == "last" else (raw / raw.sum()) @ each
    torch.testing.assert_close(objective.loss(model, DESCENT, context), wanted)
    with torch.no_grad():
        torch.testing.assert_close(objective.loss(model, DESCENT, context), wanted)
    assert torch.equal(
        objective.predict(model, DESCENT, context).y.argmax(1), iterates[-1].argmax(1)
    )


def test_the_unrolled_likelihood_is_a_special_case():
    model = model_of(spen.UnitBox(6))
    context = batch(model)
    cases: list[tuple[float, Start]] = [(0.0, "uniform"), (1.0, "local")]
    for entropy, start in cases:
        one = spen.EndToEnd("log", "last", entropy, start).loss(model, DESCENT, context)
        other = spen.UnrolledLikelihood(entropy, start).loss(model, DESCENT, context)
        assert torch.equal(one, other)


def test_labels_that_do_not_count_have_no_gradient():
    model = model_of(spen.UnitBox(6))
    context = batch(model)
    observed = torch.ones(5, 6, dtype=torch.bool)
    observed[:, 2] = False
    hidden = replace(context, observed=observed)
    assert context.target is not None
    flipped = context.target.clone()
    flipped[:, 2] = 1 - flipped[:, 2]
    for weighting in ("last", "all"):
        objective = spen.EndToEnd("squared", weighting)
        one = objective.loss(model, DESCENT, hidden)
        other = objective.loss(model, DESCENT, replace(hidden, target=flipped))
        assert torch.equal(one, other)
        assert not torch.equal(one, objective.loss(model, DESCENT, context))


@pytest.mark.parametrize("backward", [spen.Truncated(2), spen.Unrolled(checkpoint=True)], ids=repr)
def test_the_descents_own_backward_is_used(backward):
    model = model_of(spen.UnitBox(6))
    context = batch(model)
    objective = spen.EndToEnd("log", "last")
    plain = objective.loss(model, DESCENT, context).sum()
    other = objective.loss(model, replace(DESCENT, backward=backward), context).sum()
    assert torch.equal(plain, other)
    parameters = list(model.energy.parameters())
    same = all(
        torch.allclose(a, b)
        for a, b in zip(
            torch.autograd.grad(plain, parameters),
            torch.autograd.grad(other, parameters),
            strict=True,
        )
    )
    assert same == (backward == spen.Unrolled(checkpoint=True))


def test_implicit_trains_the_minimiser_and_has_no_iterates():
    model = model_of(spen.UnitBox(6))
    context = batch(model)
    inference = replace(DESCENT, stopping=spen.Stopping(500), backward=spen.Implicit())
    spen.EndToEnd("log", "last", entropy=1.0).loss(model, inference, context).sum().backward()
    assert all(p.grad is not None for p in model.energy.parameters())
    with pytest.raises(spen.InputError, match="every iterate"):
        spen.EndToEnd("log", "all", entropy=1.0).loss(model, inference, context)
    with pytest.raises(spen.InputError, match="entropy weight"):
        spen.EndToEnd("log", "last").loss(model, inference, context)


def test_learned_rates_multiply_the_steps_and_learn():
    model = model_of(spen.UnitBox(6), rates=True)
    context = batch(model)
    plain = spen.EndToEnd().loss(model_of(spen.UnitBox(6)), DESCENT, context)
    torch.testing.assert_close(spen.EndToEnd().loss(model, DESCENT, context), plain)
    (rates,) = [term for term in model.energy.terms if isinstance(term, spen.StepRates)]  # type: ignore[union-attr]
    with torch.no_grad():
        rates.rate_bias.copy_(torch.tensor([1.0, -1.0, 0.5, 2.0]))
    last = by_hand(model, context, rates.rates().detach(), 0.0)[-1]
    found = spen.EndToEnd().predict(model, DESCENT, context)
    torch.testing.assert_close(found.y, last)
    assert found.backend == "general"
    # Beyond the last step that has a factor, and where each example stops by itself.
    longer = replace(DESCENT, stopping=spen.Stopping(6, 0.0, 0.0))
    factors = torch.cat([rates.rates().detach(), rates.rates().detach()[-1:].expand(2)])
    with torch.no_grad():
        ended = longer.solve(model.energy.bind(context), model.domain).y
    torch.testing.assert_close(ended, by_hand(model, context, factors, 0.0)[-1])
    spen.EndToEnd().loss(model, DESCENT, context).sum().backward()
    assert rates.rate_bias.grad is not None
    assert (rates.rate_bias.grad != 0).all()


def test_rates_are_an_energy_in_good_order_and_refused_where_nothing_takes_them():
    spen.check_energy(spen.StepRates(4, steps=3))
    model = model_of(spen.UnitBox(6), rates=True)
    context = batch(model)
    for rule in (spen.MirrorBundle(), spen.MeanField()):
        with pytest.raises(spen.InputError, match="StepRates"):
            spen.Descent(rule).solve(model.energy.bind(context), model.domain)
    twice = model.energy + spen.StepRates(6, steps=2).double()
    with pytest.raises(spen.InputError, match="two StepRates"):
        DESCENT.solve(twice.bind(context), model.domain)


def test_training_learns_with_every_weighting():
    data = spen.exclusive_blocks(n_train=200, n_test=200, seed=0)
    for objective in (spen.EndToEnd("log", "all"), spen.EndToEnd("squared", "last")):
        energy = spen.LocalEnergy(64, 16) + spen.LabelEnergy(16, 8, "softplus")
        model = spen.SPEN(
            spen.Identity(64), energy + spen.StepRates(16, 4), spen.UnitBox(16), seed=0
        )
        stage = spen.Stage("all", objective, DESCENT, epochs=6, lr=0.03)
        history = spen.train(model, [stage], data.train, seed=0)
        assert history.epochs[-1].loss < 0.75 * history.epochs[0].loss


def test_bad_settings():
    for settings in ({"delta": "hamming"}, {"weighting": "first"}, {"entropy": -1.0}):
        with pytest.raises(spen.InputError):
            spen.EndToEnd(**settings)  # type: ignore[arg-type]
    model = model_of(spen.UnitBox(6))
    with pytest.raises(spen.InputError, match="trace"):
        _ = DESCENT.solve(model.energy.bind(batch(model)), model.domain).iterates
    with pytest.raises(spen.InputError, match="Descent"):
        spen.EndToEnd().loss(model, spen.Polished(), batch(model))
