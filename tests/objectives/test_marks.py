"""Labels whose positives are partly missing: against the hidden labels, enumerated."""

import itertools
import math

import numpy as np
import pytest
import torch
from problems import F, random_context, randomise

import spen
from spen.batch.context import Context
from spen.objectives.label_wise import log_loss_of_marks

BOX = spen.UnitBox(3)


@pytest.mark.parametrize("missing", [0.0, 0.01, 0.4, 0.95])
def test_the_loss_is_the_marginal_likelihood_of_the_marks(missing):
    """Sum P(hidden labels) P(marks | hidden labels) over all hidden labels."""
    dual = torch.tensor([[-2.0, 0.0, 3.0]], dtype=torch.float64)
    p = torch.sigmoid(dual)[0].tolist()
    for marks in itertools.product([0, 1], repeat=3):
        likelihood = 0.0
        for hidden in itertools.product([0, 1], repeat=3):
            chance = math.prod(q if on else 1 - q for q, on in zip(p, hidden, strict=True))
            for on, mark in zip(hidden, marks, strict=True):
                chance *= ((1 - missing) if mark else missing) if on else float(not mark)
            likelihood += chance
        target = torch.tensor([marks], dtype=torch.float64)
        loss = log_loss_of_marks(BOX, dual, target, missing).sum().item()
        # The chance that a label was marked at all does not depend on y, and is left out.
        constant = sum(marks) * math.log(1 - missing)
        assert loss == pytest.approx(-math.log(likelihood) + constant, rel=1e-12)


def test_without_missing_labels_it_is_the_plain_loss_bit_for_bit():
    model, context = small_model()
    assert context.target is not None
    inference = spen.Descent(spen.MirrorDescent(0.5, 0.5), spen.Stopping(5))
    scores = model.local_scores(context)
    plain = model.domain.log_loss_of_dual(-scores, context.target).sum(1)
    assert torch.equal(spen.CrossEntropy(missing=0.0).loss(model, inference, context), plain)
    unrolled = spen.UnrolledLikelihood(entropy=1.0, missing=0.0)
    y = unrolled.predict(model, inference, context).y
    plain = model.domain.log_loss(y, context.target).sum(1)
    assert torch.equal(unrolled.loss(model, inference, context), plain)
    classes = spen.Simplex(3)
    dual, target = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.eye(4, 3)
    expected = classes.log_loss_of_dual(dual, target)
    assert torch.equal(log_loss_of_marks(classes, dual, target, 0.0), expected)


def small_model() -> tuple[spen.SPEN, Context]:
    domain = spen.UnitBox(4)
    energy = randomise(spen.LocalEnergy(F, 4) + spen.LabelEnergy(4, 3, "softplus"), 1)
    return spen.SPEN(spen.Identity(F), energy, domain), random_context(domain, 6, 1)[0]


@pytest.mark.parametrize(
    "objective",
    [spen.CrossEntropy(missing=0.3), spen.UnrolledLikelihood(entropy=1.0, missing=0.3)],
)
def test_gradients_are_those_of_finite_differences(objective):
    model, context = small_model()
    inference = spen.Descent(spen.MirrorDescent(0.5, 0.5), spen.Stopping(5))
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss = objective.loss(model, inference, context).sum()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    generator = torch.Generator().manual_seed(0)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:  # the global energy does not reach a label-wise loss
            continue
        way = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        ends = []
        with torch.no_grad():
            for move in (1e-5, -2e-5, 1e-5):
                parameter += move * way
                ends.append(objective.loss(model, inference, context).sum().item())
        slope = (ends[0] - ends[1]) / 2e-5
        assert (gradient * way).sum().item() == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_it_stays_finite_far_out():
    dual = torch.tensor([[-1e4, 0.0, 1e4]], requires_grad=True)
    for target in (torch.zeros(1, 3), torch.ones(1, 3)):
        loss = log_loss_of_marks(BOX, dual, target, 0.25)
        assert torch.isfinite(loss).all()
        (gradient,) = torch.autograd.grad(loss.sum(), dual)
        assert torch.isfinite(gradient).all()
    # A sure label that is not marked costs no more than that it went missing.
    unmarked = log_loss_of_marks(BOX, dual, torch.zeros(1, 3), 0.25)
    assert unmarked[0, 2].item() == pytest.approx(-math.log(0.25), abs=2e-3)


@pytest.mark.parametrize("kind", [spen.CrossEntropy, spen.UnrolledLikelihood])
def test_erased_positives_are_made_up_for(kind):
    """With the right share, probabilities are nearer those that drew the labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 4)).astype(np.float32)
    true = 1 / (1 + np.exp(-(X @ rng.standard_normal((4, 3)) * 2 - 0.5)))
    labels = rng.random(true.shape) < true
    marks = (labels & (rng.random(true.shape) > 0.4)).astype(np.float32)
    inference = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(3))
    options = {} if kind is spen.CrossEntropy else {"entropy": 1.0}
    errors = {}
    for missing in (0.0, 0.4):
        objective = kind(**options, missing=missing)
        model = spen.SPEN(spen.Identity(4), spen.LocalEnergy(4, 3), BOX, seed=0)
        stage = spen.Stage("a", objective, inference, epochs=60, optimiser="lbfgs")
        spen.train(model, [stage], (X, marks))
        y = objective.predict(model, inference, model.context(X)).y.detach().numpy()
        errors[missing] = np.abs(y - true).mean()
    assert errors[0.4] < 0.04
    assert errors[0.4] < 0.3 * errors[0.0]


def test_what_missing_cannot_be_is_said():
    classes = spen.SPEN(spen.Identity(2), spen.LocalEnergy(2, 3), spen.Simplex(3), seed=0)
    context = classes.context(torch.zeros(2, 2), torch.eye(2, 3))
    for objective in (spen.CrossEntropy(missing=0.1), spen.UnrolledLikelihood(missing=0.1)):
        with pytest.raises(spen.InputError, match=r"missing=0\.1 is for sets of labels"):
            objective.loss(classes, spen.Descent(), context)
    for kind in (spen.CrossEntropy, spen.UnrolledLikelihood):
        for value in (-0.1, 1.0, "some"):
            with pytest.raises(spen.InputError, match="missing must be at least 0 and below 1"):
                kind(missing=value)
    with pytest.raises(spen.InputError, match="no model of missing labels"):
        spen.SquaredError(missing=0.1)


def test_the_f1_term_is_one_minus_the_f1_of_soft_labels():
    model = spen.SPEN(spen.Identity(3), spen.LocalEnergy(3, 4), spen.UnitBox(4), seed=0)
    X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    Y = torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]])
    context = model.context(X, Y)
    inference = spen.Descent(spen.MirrorDescent(lr=1.0, momentum=0.0), spen.Stopping(3))
    plain = spen.UnrolledLikelihood(1.0, "local")
    mixed = spen.UnrolledLikelihood(1.0, "local", f1=3.0)
    y = plain.predict(model, inference, context).y
    f1 = 2 * (y * Y).sum(1) / (y.sum(1) + Y.sum(1))
    expected = plain.loss(model, inference, context) + 3 * (1 - f1)
    torch.testing.assert_close(mixed.loss(model, inference, context), expected)
