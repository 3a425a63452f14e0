"""Steps whose back-propagation is written out: to the last bit what autograd finds."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import spen
from spen.batch.context import Context
from spen.energies.scores import ScoreEnergy, SurpriseEnergy
from spen.inference import written
from spen.inference.descent import y_through
from spen.training.together import side_by_side

L, ROWS = 6, 24
BOX = spen.UnitBox(L)
THREE = spen.Descent(spen.MirrorDescent(lr=1.0, momentum=0.0), spen.Stopping(3))
HALF = replace(THREE, rule=spen.MirrorDescent(lr=0.5, momentum=0.0))


def label_model(seed: int) -> spen.SPEN:
    energy = spen.LocalEnergy(L, L) + spen.LabelEnergy(L, measurements=9, nonlinearity="softplus")
    return spen.SPEN(spen.Identity(L), energy, BOX, seed=seed)


def surprise_model(seed: int) -> spen.SPEN:
    energy = ScoreEnergy(L) + SurpriseEnergy(L, measurements=9, dropout=0.25)
    model = spen.SPEN(spen.Identity(L), energy, BOX, seed=seed)
    torch.nn.init.normal_(model.energy.terms[1].readout, generator=torch.manual_seed(seed))
    return model


MODELS: dict[str, Any] = {
    "label": lambda: label_model(0),
    "surprise": lambda: surprise_model(0),
    "label side by side": lambda: side_by_side([label_model(k) for k in range(3)]),
    "surprise side by side": lambda: side_by_side([surprise_model(k) for k in range(3)]),
}


def found_by(model: spen.SPEN, descent: spen.Descent, settings: dict[str, Any]) -> list[Tensor]:
    """Return the loss of each row, and its gradient in each parameter."""
    draws = torch.Generator().manual_seed(1)
    # Some scores are so large that duals reach their bounds.
    features = 8 * torch.randn(ROWS, L, generator=draws)
    target = (torch.rand(ROWS, L, generator=draws) < 0.3).float()
    objective = spen.UnrolledLikelihood(start="local", **settings)
    losses = objective.loss(model, descent, Context(features, target), draws)
    gradients = torch.autograd.grad(losses.sum(), list(model.parameters()))
    return [losses.detach(), *gradients]


@pytest.mark.parametrize("descent", [THREE, HALF], ids=["one", "half"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"entropy": 1.0},
        {"entropy": 0.7, "reveal": 0.9},
        {"entropy": 1.0, "reveal": 0.9, "free": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", MODELS)
def test_not_a_bit_differs_from_what_autograd_finds(name, settings, descent, monkeypatch):
    model, made = MODELS[name](), []
    apply = written._MirrorSteps.apply
    monkeypatch.setattr(written._MirrorSteps, "apply", lambda *of: made.append(1) or apply(*of))
    found = found_by(model, descent, settings)
    assert made
    made.clear()
    plain = found_by(model, replace(descent, backend="general"), settings)
    assert not made
    for one, other in zip(found, plain, strict=True):
        assert torch.equal(one, other)


def test_what_is_not_written_out_goes_through_autograd():
    energies = {
        "kinks": spen.LabelEnergy(L, measurements=4, nonlinearity="relu"),
        "two blocks": label_model(0).energy.terms[1] + label_model(1).energy.terms[1],
        "learned rates": label_model(0).energy.terms[1] + spen.StepRates(L, steps=3),
    }
    for energy in energies.values():
        whole = spen.LocalEnergy(L, L) + energy
        problem = whole.bind(Context(torch.ones(ROWS, L)))
        y = y_through(THREE, problem, BOX, None, None)
        assert "MirrorSteps" not in type(y.grad_fn).__name__
        assert torch.equal(y, THREE.solve(problem, BOX, backward=spen.Unrolled()).y)


def test_nothing_outlives_a_step():
    model = surprise_model(0)
    gc.collect()
    found_by(model, THREE, {"entropy": 1.0})
    assert gc.collect() == 0


def test_second_derivatives_are_refused_and_not_wrong():
    model = label_model(0)
    context = Context(torch.randn(3, L), torch.zeros(3, L))
    weight = model.energy.terms[1].measurements

    def slope(descent: spen.Descent) -> Tensor:
        loss = spen.UnrolledLikelihood(start="local").loss(model, descent, context).sum()
        return torch.autograd.grad(loss, weight, create_graph=True)[0]

    with pytest.raises(spen.InputError, match="differentiated once"):
        slope(THREE)
    found = torch.autograd.grad(slope(replace(THREE, backend="general")).square().sum(), weight)
    assert found[0].abs().max() > 0


def test_what_is_not_quite_these_steps_takes_the_general_path():
    class Narrow(spen.UnitBox):
        def clamp_dual(self, dual: Tensor) -> Tensor:
            return dual.clamp(-1, 1)

    class Told(spen.Descent):
        def solve(self, *args: Any, **settings: Any) -> spen.Solution:
            asked.append(args)
            return super().solve(*args, **settings)

    asked: list[Any] = []
    model, known = label_model(0), None
    context = Context(8 * torch.randn(4, L), torch.zeros(4, L))
    problem = model.energy.bind(context)
    narrow = y_through(THREE, problem, Narrow(L), None, known)
    assert narrow.max() <= torch.tensor(1.0).sigmoid()
    y_through(Told(THREE.rule, THREE.stopping), problem, BOX, None, known)
    assert len(asked) == 1
    with torch.autocast("cpu", torch.bfloat16):
        loss = spen.UnrolledLikelihood().loss(model, THREE, context).sum()
    loss.backward()
    # torch.func looks through them, too.
    weights = dict(model.named_parameters())

    def of_weights(given: dict[str, Tensor]) -> Tensor:
        with torch.nn.utils.stateless._reparametrize_module(model, given):
            return spen.UnrolledLikelihood().loss(model, THREE, context).sum()

    slopes = torch.func.grad(of_weights)({k: w.detach() for k, w in weights.items()})
    wanted = torch.autograd.grad(of_weights(weights), list(weights.values()))
    for slope, each in zip(slopes.values(), wanted, strict=True):
        torch.testing.assert_close(slope, each)
