"""The network that is told known labels: its function, its loss, its classifier."""

import numpy as np
import pytest
import torch

import spen
from spen.baselines import KnownLabelsClassifier
from spen.batch.context import Context
from spen.estimators import runs
from spen.estimators.plan import Shape

F, L = 5, 4


def made(hidden=(6,), links=True, seed=0, zeros=1.0):
    """A model with random weights, links and biases included, in float64."""
    energy = spen.KnownLabelsEnergy(F, L, hidden=hidden, dropout=0.5, zeros=zeros)
    features = spen.Linear(3, F)
    if not links:
        energy.links = None
    model = spen.SPEN(features, energy, spen.UnitBox(L)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_(0.5 * noise)
    return model


def by_hand(model, X, known):
    """The logits (n, L), row by row and label by label, of the weights alone."""
    weights = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    rows = []
    for x, told in zip(X, known, strict=True):
        marks = [float(k == 1) for k in told] + [model.energy.zeros * (k == 0) for k in told]
        h = x @ weights["features.weights.0"] + weights["features.biases.0"]
        h = np.maximum(h + weights["energy.told"] @ marks, 0)
        for k in range(len(model.energy.hidden)):
            h = weights[f"energy.layers.{k}"] @ h + weights[f"energy.layer_biases.{k}"]
            h = np.maximum(h, 0)
        scores = weights["energy.weight"] @ h + weights["energy.bias"]
        if "energy.links" in weights:
            scores = scores + weights["energy.links"] @ marks
        rows.append(-scores)
    return np.array(rows)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 3)])
@pytest.mark.parametrize(("links", "zeros"), [(True, 1.0), (False, 1.0), (False, 0.3), (True, 0.0)])
def test_it_is_a_forward_pass_of_x_and_the_known_labels(hidden, links, zeros):
    model = made(hidden, links, zeros=zeros)
    rng = np.random.default_rng(0)
    X, known = rng.normal(size=(30, 3)), rng.choice([0.0, 1.0, np.nan], (30, L))
    logits = by_hand(model, X, known)
    context = model.context(X, known=known)
    np.testing.assert_allclose(-model.local_scores(context).detach().numpy(), logits)
    y = spen.HiddenCrossEntropy().predict(model, spen.Descent(), context).y.detach().numpy()
    expected = np.where(np.isnan(known), 1 / (1 + np.exp(-logits)), known)
    np.testing.assert_allclose(y, expected, atol=3e-7)
    # Any solver finds the same: its minimiser with entropy weight 1.
    solved = model.solve(X, known=known, entropy=1.0).y.numpy()
    np.testing.assert_allclose(solved, expected, atol=3e-3)
    # With nothing known it is what it is where all is unknown.
    free = model.local_scores(model.context(X))
    torch.testing.assert_close(
        free, model.local_scores(model.context(X, known=np.full((30, L), np.nan)))
    )


def test_the_energy_keeps_its_promises():
    spen.check_energy(spen.KnownLabelsEnergy(F, L, hidden=(6,)))
    spen.check_energy(spen.LocalEnergy(F, L) + spen.KnownLabelsEnergy(F, L))


def test_links_are_there_up_to_some_labels(monkeypatch):
    monkeypatch.setattr(spen.KnownLabelsEnergy, "MOST_LINKED", 3)
    assert spen.KnownLabelsEnergy(F, 3).links.shape == (3, 6)
    assert spen.KnownLabelsEnergy(F, 4).links is None


def loss_and_told(model, context, seed, monkeypatch):
    """Return the loss of rows, what they were told, and the dual that it was computed of."""
    seen = {}
    scores = type(model.energy).scores

    def watched(energy, context, generator=None):
        seen["told"] = context.known
        seen["dual"] = -scores(energy, context, generator)
        seen["dual"].retain_grad()
        return -seen["dual"]

    monkeypatch.setattr(type(model.energy), "scores", watched)
    generator = torch.Generator().manual_seed(seed)
    loss = spen.HiddenCrossEntropy().loss(model, spen.Descent(), context, generator)
    return loss, seen["told"], seen["dual"]


def test_only_hidden_labels_are_learned_from(monkeypatch):
    model, rng = made(), np.random.default_rng(1)
    X, Y = rng.normal(size=(200, 3)), rng.integers(0, 2, (200, L)).astype(float)
    Y[:40, 1] = np.nan
    context = model.context(X, target=Y)
    loss, told, dual = loss_and_told(model, context, 3, monkeypatch)
    hidden, present = torch.isnan(told).numpy(), ~np.isnan(Y)
    # A missing label is neither told nor learned from.
    assert hidden[~present].all()
    assert (told.numpy()[~hidden] == Y[~hidden]).all()
    # A share drawn evenly for each row: all of them come up, half on average.
    shares = (~hidden[40:]).mean(1)
    assert set(np.unique(shares)) == {0, 0.25, 0.5, 0.75, 1}
    assert shares.mean() == pytest.approx(0.5, abs=0.05)
    p = torch.sigmoid(dual.detach()).numpy()
    each = -np.log(np.where(Y == 1, p, 1 - p))
    expected = np.where(hidden & present, each, 0).sum(1)
    np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-6, atol=1e-6)
    loss.sum().backward()
    assert (dual.grad.numpy()[~hidden | ~present] == 0).all()
    assert (dual.grad.numpy()[hidden & present] != 0).all()


def test_without_a_generator_the_loss_is_the_plain_one():
    model = made()
    context = model.context(np.ones((3, 3)), target=np.eye(3, L))
    plain = spen.CrossEntropy().loss(model, spen.Descent(), context)
    assert torch.equal(spen.HiddenCrossEntropy().loss(model, spen.Descent(), context), plain)


def test_dropout_is_drawn_in_training_alone():
    model = made()
    context = Context(torch.ones(2000, F, dtype=torch.float64), known=torch.ones(2000, L) * 0)
    still = model.energy.scores(context)
    assert torch.equal(still, model.energy.scores(context))
    drawn = model.energy.scores(context, torch.Generator().manual_seed(0))
    assert not torch.equal(drawn, still)
    flat = spen.KnownLabelsEnergy(F, L, dropout=0.5).double()
    # One layer is linear in what is left of its units, so its mean is that of all of them.
    mean = flat.scores(context, torch.Generator().manual_seed(0)).mean(0)
    torch.testing.assert_close(mean, flat.scores(context)[0], atol=0.05, rtol=0)


SMALL = {"hidden": (32, 32), "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    data = spen.exclusive_blocks(n_train=2000, n_test=200, seed=2)
    clf = KnownLabelsClassifier(dropout=0.0, lr=5e-3, epochs=40, **SMALL)
    return clf.fit(data.train.X, data.train.Y), data


def some_known(Y, share=0.5, seed=0):
    shown = np.random.default_rng(seed).random(Y.shape) < share
    return np.where(shown, Y, np.nan)


def test_it_learns_what_labels_say_about_each_other(fitted):
    clf, data = fitted
    known = some_known(data.test.Y)
    hidden = np.isnan(known)
    free, told = clf.predict_proba(data.test.X), clf.predict_proba(data.test.X, known=known)
    assert (told[~hidden] == known[~hidden]).all()

    def loss(p):
        return -np.log(np.where(data.test.Y == 1, p, 1 - p))[hidden].mean()

    # Of four labels one is on, so that knowing half of them says much.
    assert loss(told) < 0.8 * loss(free)
    assert clf.predictor_.calibration.half is not None


def test_rows_do_not_depend_on_their_neighbours(fitted):
    clf, data = fitted
    known = some_known(data.test.Y)
    whole = clf.predict_proba(data.test.X, known=known)
    for rows in (slice(0, 1), slice(7, 50), slice(199, 200)):
        part = clf.predict_proba(data.test.X[rows], known=known[rows])
        np.testing.assert_array_equal(part, whole[rows])


def test_a_file_keeps_every_bit(fitted, tmp_path):
    clf, data = fitted
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    known = some_known(data.test.Y)
    np.testing.assert_array_equal(
        again.predict_proba(data.test.X, known=known), clf.predict_proba(data.test.X, known=known)
    )
    np.testing.assert_array_equal(
        again.predict(data.test.X, known=known), clf.predict(data.test.X, known=known)
    )


def test_trials_are_judged_by_hidden_labels(monkeypatch):
    data = spen.exclusive_blocks(n_train=1100, n_test=10, seed=2)
    seen = []

    def watched(*place):
        losses = judge(*place)
        seen.append(losses)
        # The third is made out to be the best.
        return losses + (len(seen) != 3)

    judge = runs.losses_when_known
    monkeypatch.setattr(runs, "losses_when_known", watched)
    clf = KnownLabelsClassifier(hidden=(8,), epochs=2, random_state=0)
    clf.fit(data.train.X, data.train.Y)
    choices = clf.plan(Shape(1100, 64, 16, False, False)).choices
    assert len(seen) == len(choices) > 3
    assert clf.plan_.chosen == choices[2]
    assert clf.plan_.stages[0].lr == choices[2].lr
    assert clf.model_.energy.dropout == choices[2].energy_dropout


def test_classes_and_no_layers_are_refused():
    with pytest.raises(spen.InputError, match="sets of labels"):
        KnownLabelsClassifier().fit(np.eye(6), [0, 1, 2, 0, 1, 2])
    with pytest.raises(spen.InputError, match="at least one width"):
        KnownLabelsClassifier(hidden=()).fit(np.eye(6), np.eye(6))
