"""Objectives: by hand, with missing labels, and interchangeable."""

from dataclasses import replace

import pytest
import torch
from problems import F, random_context, randomise

import spen
from spen.batch.context import Context
from spen.objectives.base import reveal_labels

EXACT = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(300, 0.0, 1e-12))


def hand_made() -> tuple[spen.SPEN, Context]:
    """Two labels, one feature of 1: E(y) = 0.5 y₁ − 2 y₂ + relu(y₁ + y₂ − 1)."""
    local = spen.LocalEnergy(1, 2)
    label = spen.LabelEnergy(2, 1, "relu")
    model = spen.SPEN(spen.Identity(1), local + label, spen.UnitBox(2)).double()
    with torch.no_grad():
        local.weight.copy_(torch.tensor([[0.5], [-2.0]]))
        local.bias.zero_()
        label.measurements.fill_(1.0)
        label.bias.fill_(-1.0)
        label.readout.fill_(1.0)
    one = torch.ones(1, 1, dtype=torch.float64)
    return model, model.context(one, target=torch.tensor([[1.0, 0.0]]))


def test_hinge_by_hand():
    """Target (1, 0), Δ = (1 − y₁) + y₂.

    E − Δ = 1.5 y₁ − 3 y₂ + relu(y₁ + y₂ − 1) − 1 is least at (0, 1): 0 − 3 + 0 − 1 = −4.
    E(1, 0) = 0.5, so the hinge is 0.5 + 4 = 4.5, and its subgradient is
    ∂E(1, 0) − ∂E(0, 1): local weight (1, −1), both relus at their kink.
    """
    model, context = hand_made()
    loss = spen.Hinge().loss(model, EXACT, context)
    assert loss.item() == pytest.approx(4.5, abs=1e-4)
    loss.sum().backward()
    local = model.energy.terms[0]
    torch.testing.assert_close(
        local.weight.grad, torch.tensor([[1.0], [-1.0]], dtype=torch.float64), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        local.bias.grad, torch.tensor([1.0, -1.0], dtype=torch.float64), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("rule", [spen.MirrorBundle(), spen.MirrorDescent(0.1, 0.5)])
def test_a_log_hinge_in_float32_has_the_value_of_float64(rule):
    """What it maximises grows up to the edge, so most labels end at the limit of their duals."""
    n_labels, generator = 60, torch.Generator().manual_seed(0)
    energy = spen.LocalEnergy(F, n_labels) + spen.LabelEnergy(n_labels, 4, "softplus")
    model = spen.SPEN(spen.Identity(F), energy, spen.UnitBox(n_labels), seed=0)
    inputs = torch.randn(30, F, generator=generator)
    target = (torch.rand(30, n_labels, generator=generator) < 0.1).float()
    inference = spen.Descent(rule, spen.Stopping(200), backend="general")
    single, double = (
        spen.Hinge("log").loss(model.to(kind), inference, Context(inputs.to(kind), target.to(kind)))
        for kind in (torch.float32, torch.float64)
    )
    assert double.mean() > 0.9 * 15 * n_labels
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-3)


def test_margin_scales_the_loss():
    """With margin 3: E − 3Δ is least at (0, 1): −2 − 6 = −8; the hinge is 8.5."""
    model, context = hand_made()
    loss = spen.Hinge(margin=3.0).loss(model, EXACT, context)
    assert loss.item() == pytest.approx(8.5, abs=1e-4)


def test_hinge_is_zero_when_the_margin_is_met():
    model, context = hand_made()
    good = Context(context.features, torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    # E(0,1) = −2; the runner-up with Δ: (0,0): 0 − 1; (1,1): −0.5 − 1. The margin is not met
    # by (1, 1) − Δ = −1.5 > −2, so nothing is violated.
    assert spen.Hinge().loss(model, EXACT, good).item() == 0.0


@pytest.mark.parametrize("delta", ["hamming", "squared", "log"])
def test_hinge_value_and_gradient_are_those_of_the_formula(delta):
    domain = spen.UnitBox(4)
    energy = randomise(spen.LocalEnergy(F, 4) + spen.LabelEnergy(4, 3, "softplus"), 1, scale=0.3)
    model = spen.SPEN(spen.Identity(F), energy, domain)
    context, _ = random_context(domain, 6, 1)
    assert context.target is not None
    inference = spen.Descent(spen.MirrorDescent(0.2, 0.5), spen.Stopping(10))
    loss = spen.Hinge(delta, margin=0.5).loss(model, inference, context)
    ours = torch.autograd.grad(loss.sum(), list(energy.parameters()))

    problem = energy.bind(context)
    augmented = (energy + spen.LossAugmentation(domain, delta, 0.5)).bind(context)
    y = inference.solve(augmented, domain).y
    assert ((y > 1e-3) & (y < 1 - 1e-3)).any(), "the found output is not rounded"
    t = context.target
    distance = {
        "hamming": (t * (1 - y) + (1 - t) * y).sum(1),
        "squared": (y - t).square().sum(1),
        "log": -(t * y.log() + (1 - t) * (1 - y).log()).sum(1),
    }[delta]
    formula = torch.relu(0.5 * distance - problem.value(y) + problem.value(context.target))
    torch.testing.assert_close(loss, formula)
    theirs = torch.autograd.grad(formula.sum(), list(energy.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_missing_labels_do_not_count():
    """Whatever stands where a label is missing, the loss is the same."""
    domain = spen.UnitBox(4)
    energy = randomise(spen.LocalEnergy(F, 4) + spen.LabelEnergy(4, 3, "softplus"), 1)
    model = spen.SPEN(spen.Identity(F), energy, domain)
    context, _ = random_context(domain, 6, 1)
    assert context.target is not None
    observed = torch.ones(6, 4, dtype=torch.bool)
    observed[:, 1] = False
    flipped = context.target.clone()
    flipped[:, 1] = 1 - flipped[:, 1]
    objectives = [
        spen.CrossEntropy(),
        spen.CrossEntropy(missing=0.3),
        spen.SquaredError(),
        spen.Hinge(),
        spen.UnrolledLikelihood(entropy=1.0),
        spen.UnrolledLikelihood(entropy=1.0, missing=0.3),
    ]
    for objective in objectives:
        first, second = (
            objective.loss(
                model, spen.Descent(), Context(context.features, target, observed=observed)
            )
            for target in (context.target, flipped)
        )
        torch.testing.assert_close(first, second)
        whole = objective.loss(model, spen.Descent(), context)
        assert not torch.allclose(first, whole)


def test_a_hinge_with_missing_labels_completes_the_target_by_inference():
    domain = spen.UnitBox(4)
    energy = randomise(spen.LocalEnergy(F, 4) + spen.PairwiseEnergy(4), 1)
    model = spen.SPEN(spen.Identity(F), energy, domain)
    context, _ = random_context(domain, 6, 1)
    assert context.target is not None
    observed = torch.ones(6, 4, dtype=torch.bool)
    observed[:, 1:3] = False
    partly = Context(context.features, context.target, observed=observed)
    inference = spen.Descent(spen.MirrorDescent(0.2, 0.5), spen.Stopping(100))
    loss = spen.Hinge().loss(model, inference, partly)
    problem = energy.bind(context)
    known = torch.where(observed, context.target, torch.nan)
    completed = inference.solve(problem, domain, known=known).y
    augmented = (energy + spen.LossAugmentation(domain)).bind(partly)
    found = inference.solve(augmented, domain).y
    torch.testing.assert_close(loss, torch.relu(problem.value(completed) - augmented.value(found)))
    assert (completed[:, 1:3] > 0.5).any(), "zeros would not do"


def test_known_labels_are_held_by_every_objective():
    domain = spen.UnitBox(4)
    energy = randomise(spen.LocalEnergy(F, 4) + spen.LabelEnergy(4, 3, "softplus"), 1)
    model = spen.SPEN(spen.Identity(F), energy, domain)
    context, _ = random_context(domain, 6, 1)
    known = torch.full((6, 4), torch.nan, dtype=torch.float64)
    known[:, 2] = 1.0
    held = Context(context.features, context.target, known)
    objectives = (
        spen.CrossEntropy(),
        spen.SquaredError(),
        spen.Hinge(),
        spen.UnrolledLikelihood(),
    )
    for objective in objectives:
        assert (objective.predict(model, spen.Descent(), held).y[:, 2] == 1).all()


def test_the_start_of_an_objective_is_used():
    domain = spen.UnitBox(3)
    model = spen.SPEN(spen.Identity(F), randomise(spen.LocalEnergy(F, 3), 0), domain)
    context, _ = random_context(domain, 5, 0)
    one_step = spen.Descent(spen.MirrorDescent(1e-6, 0.0), spen.Stopping(1))
    local = torch.sigmoid(-model.local_scores(context))
    for objective in (spen.Hinge, spen.UnrolledLikelihood):
        started = objective(start="local").predict(model, one_step, context).y
        torch.testing.assert_close(started, local, atol=1e-4, rtol=0)
        uniform = objective().predict(model, one_step, context).y
        torch.testing.assert_close(uniform, torch.full_like(uniform, 0.5), atol=1e-4, rtol=0)


def test_cross_entropy_is_logistic_regression():
    domain = spen.UnitBox(3)
    energy = randomise(spen.LocalEnergy(F, 3), 0)
    model = spen.SPEN(spen.Identity(F), energy, domain)
    context, _ = random_context(domain, 5, 0)
    logits = -(context.features @ energy.weight.T + energy.bias)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, context.target, reduction="none"
    ).sum(1)
    torch.testing.assert_close(spen.CrossEntropy().loss(model, spen.Descent(), context), expected)
    soft = spen.CrossEntropy().predict(model, spen.Descent(), context).y
    torch.testing.assert_close(soft, torch.sigmoid(logits))


def test_unrolled_likelihood_with_many_local_steps_is_cross_entropy():
    domain = spen.UnitBox(3)
    model = spen.SPEN(spen.Identity(F), randomise(spen.LocalEnergy(F, 3), 0), domain)
    context, _ = random_context(domain, 5, 0)
    inference = spen.Descent(spen.MirrorDescent(0.5, 0.0), spen.Stopping(200))
    unrolled = spen.UnrolledLikelihood(entropy=1.0).loss(model, inference, context)
    local = spen.CrossEntropy().loss(model, inference, context)
    torch.testing.assert_close(unrolled, local)
    for a, b in zip(
        torch.autograd.grad(unrolled.sum(), list(model.parameters())),
        torch.autograd.grad(local.sum(), list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_what_an_objective_needs_is_said():
    domain = spen.UnitBox(3)
    model = spen.SPEN(spen.Identity(F), spen.LabelEnergy(3, 2), domain)
    context = model.context(torch.zeros(2, F), target=torch.zeros(2, 3))
    with pytest.raises(spen.InputError, match="LocalEnergy"):
        spen.CrossEntropy().loss(model, spen.Descent(), context)
    bare = model.context(torch.zeros(2, F))
    with pytest.raises(spen.InputError, match="target"):
        spen.Hinge().loss(model, spen.Descent(), bare)
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'hamming'"):
        spen.Hinge("haming").loss(model, spen.Descent(), context)
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'local'"):
        spen.Hinge(start="locale").loss(model, spen.Descent(), context)


@pytest.mark.parametrize(
    "term",
    [spen.LabelEnergy(4, 3, "softplus"), spen.ConditionalEnergy(3, 4, 3, "softplus")],
    ids=["label", "conditional"],
)
def test_revealed_labels_train_the_global_energies_alone(term):
    """The added loss has the gradient of a clamped solve, and none in features or local energy."""
    torch.manual_seed(0)
    energy = spen.LocalEnergy(3, 4) + term
    model = spen.SPEN(spen.MLP(2, 3), energy, spen.UnitBox(4), seed=0)
    inference = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(3))
    target = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])

    def gradients(objective):
        context = model.context(torch.ones(2, 2), target)
        model.zero_grad()
        objective.loss(model, inference, context, torch.Generator().manual_seed(0)).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    plain = gradients(spen.UnrolledLikelihood(1.0, "local"))
    revealed = gradients(spen.UnrolledLikelihood(1.0, "local", reveal=0.9))
    for name, gradient in plain.items():
        learns = name.startswith("energy.terms.1.")
        assert torch.allclose(gradient, revealed[name], atol=1e-6) != learns, name


def test_revealed_labels_are_held_and_leave_the_loss():
    """With all labels shown nothing is left to infer; unobserved ones are never shown."""
    model, context = hand_made()
    objective = spen.UnrolledLikelihood(1.0, "local", reveal=0.999)
    inference = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(3))

    def reveal(context, seed):
        generator = torch.Generator().manual_seed(seed)
        return reveal_labels(context, context.target, objective.reveal, generator)

    drawn = [reveal(context, seed) for seed in range(40)]
    shown = torch.stack([~torch.isnan(known) for known in drawn]).double().mean()
    assert 0.3 < shown < 0.7
    assert all(((known == context.target) | known.isnan()).all() for known in drawn)
    hidden = Context(context.features, context.target, observed=torch.tensor([[False, True]]))
    for seed in range(10):
        assert reveal(hidden, seed)[0, 0].isnan()
    free = spen.UnrolledLikelihood(1.0, "local").loss(model, inference, context)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        known = reveal(context, seed)
        added = objective.loss(model, inference, context, generator) - free
        assert (added.item() > 1e-6) == bool(known.isnan().any())


@pytest.mark.parametrize("term", [spen.LabelEnergy(4, 3, "softplus", hidden=(2,)), None])
def test_one_solve_for_both_or_two_is_the_same(term):
    """Problems without a canonical form cannot be stacked, and are solved one after the other."""
    term = term or spen.ConditionalEnergy(3, 4, 2, "softplus")
    model = spen.SPEN(spen.Identity(3), spen.LocalEnergy(3, 4) + term, spen.UnitBox(4), seed=0)
    objective = spen.UnrolledLikelihood(1.0, "local", reveal=0.9)
    inference = spen.Descent(spen.MirrorDescent(1.0, 0.0), spen.Stopping(3))
    context = model.context(
        torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.eye(5)[:, :4]
    )
    loss = objective.loss(model, inference, context, torch.Generator().manual_seed(1))
    target, log_loss = context.target, model.domain.log_loss
    given = reveal_labels(context, target, objective.reveal, torch.Generator().manual_seed(1))
    plain = spen.UnrolledLikelihood(1.0, "local")
    y = plain.predict(model, inference, context).y
    y_given = plain.predict(model, inference, replace(context, known=given)).y
    hidden = torch.where(given.isnan(), log_loss(y_given, target), 0.0)
    assert 0 < hidden.count_nonzero() < hidden.numel()
    assert torch.allclose(loss, (log_loss(y, target) + hidden).sum(1), atol=1e-5)


def test_without_the_free_loss_hidden_labels_teach_everything():
    """The oracle: the log loss of what one solve with the revealed labels leaves, hidden ones."""
    energy = spen.ScoreEnergy(5) + spen.SurpriseEnergy(5, measurements=3)
    model = spen.SPEN(spen.Identity(5), energy, spen.UnitBox(5), seed=0)
    generator = torch.Generator().manual_seed(1)
    z, target = torch.randn(6, 5, generator=generator), torch.ones(6, 5)
    target[:, ::2] = 0
    observed = torch.rand(6, 5, generator=generator) < 0.8
    stopping = spen.Stopping(3, objective_rtol=0.0, iterate_atol=0.0)
    inference = spen.Descent(spen.MirrorDescent(lr=1.0, momentum=0.0), stopping)
    objective = spen.UnrolledLikelihood(1.0, "local", reveal=0.9, free=False)
    context = model.context(z, target=target, observed=observed)
    loss = objective.loss(model, inference, context, torch.Generator().manual_seed(7))
    given = reveal_labels(context, target, objective.reveal, torch.Generator().manual_seed(7))
    assert not given[~observed].isnan().logical_not().any()
    y = objective.predict(model, inference, replace(context, known=given)).y
    each = -torch.where(target == 1, y, 1 - y).log() * (given.isnan() & observed)
    assert torch.allclose(loss, each.sum(1), atol=1e-5)
    gradients = torch.autograd.grad(loss.sum(), list(energy.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    # Without a generator nothing is revealed: the loss of a prediction.
    alone = objective.loss(model, inference, context)
    assert torch.allclose(
        alone, spen.UnrolledLikelihood(1.0, "local").loss(model, inference, context)
    )


def test_label_wise_predictions_have_the_free_energy_of_independent_labels():
    energy = randomise(spen.LocalEnergy(F, 5), 0)
    context, _ = random_context(spen.UnitBox(5), 3, 0)
    model = spen.SPEN(spen.Identity(F), energy, spen.UnitBox(5)).double()
    found = spen.CrossEntropy().predict(model, spen.Descent(), context)
    scores = model.local_scores(context)
    # min over y of s·y − H(y) is −Σ log(1 + exp(−s)).
    wanted = -torch.nn.functional.softplus(-scores).sum(1)
    torch.testing.assert_close(found.energy, wanted)
