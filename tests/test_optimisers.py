"""L-BFGS: against scikit-learn, closed forms and scipy, on dense and sparse rows."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import optimize, sparse
from sklearn.linear_model import LogisticRegression, Ridge

import spen
import spen.training.loop
from spen.batch.splits import Split, hold_out
from spen.training.optimisers import LBFGS, MEMORY, OPTIMISERS


def drawn(n: int = 150, d: int = 8, labels: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Rows with mostly absent features of unlike scales, and labels of unlike frequency."""
    rng = np.random.default_rng(0)
    X = (rng.random((n, d)) < 0.4) * rng.standard_normal((n, d)) * np.geomspace(0.3, 3, d)
    scores = X @ rng.standard_normal((d, labels)) + np.linspace(-2, 1, labels)
    return X, (rng.random((n, labels)) < 1 / (1 + np.exp(-scores))).astype(float)


def linear_model(d: int = 8, labels: int = 5) -> spen.SPEN:
    return spen.SPEN(spen.Identity(d), spen.LocalEnergy(d, labels), spen.UnitBox(labels), seed=0)


def stage_of(objective: spen.Objective | None = None, **settings) -> spen.Stage:
    settings = {"epochs": 500, "optimiser": "lbfgs", "weight_decay": 0.01} | settings
    return spen.Stage("convex", objective or spen.CrossEntropy(), **settings)


def coefficients(model: spen.SPEN) -> np.ndarray:
    """Return weights and biases of the log-odds, one row a label."""
    local = model.energy
    return -torch.cat([local.weight, local.bias[:, None]], 1).detach().numpy()


@pytest.fixture
def tight(monkeypatch) -> None:
    """Let L-BFGS go on to the very minimum, to compare with what is known of that."""
    monkeypatch.setitem(OPTIMISERS, "lbfgs", partial(LBFGS, tolerance=1e-14))


def scikit_learns(X: np.ndarray, Y: np.ndarray, C: float) -> np.ndarray:
    fits = [LogisticRegression(C=C, tol=1e-10, max_iter=5000).fit(X, y) for y in Y.T]
    return np.stack([np.r_[fit.coef_[0], fit.intercept_] for fit in fits])


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.usefixtures("tight")
def test_binary_relevance_is_scikit_learns_logistic_regression(C):
    X, Y = drawn()
    model = linear_model().double()
    history = spen.train(model, [stage_of(weight_decay=1 / (C * len(X)))], (X, Y))
    assert len(history.epochs) < 200, "it ends by itself"
    np.testing.assert_allclose(coefficients(model), scikit_learns(X, Y, C), atol=1e-5)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_where_it_ends_by_default_probabilities_are_those_of_the_minimum(C):
    """In float32, where the loss is rounded."""
    X, Y = drawn()
    model = linear_model()
    history = spen.train(model, [stage_of(weight_decay=1 / (C * len(X)))], (X, Y))
    assert len(history.epochs) < 60
    soft = [1 / (1 + np.exp(-(X @ each[:, :-1].T + each[:, -1])))
            for each in (coefficients(model), scikit_learns(X, Y, C))]  # fmt: skip
    np.testing.assert_allclose(*soft, atol=1e-2)


@pytest.mark.usefixtures("tight")
def test_the_squared_error_is_a_ridge_regression():
    """Mean of (z − 4(t − ½))² / 16 + ½ λ |W|²: scikit-learn's α is 8 n λ."""
    X, Y = drawn()
    model = linear_model().double()
    spen.train(model, [stage_of(spen.SquaredError())], (X, Y))
    ridge = Ridge(alpha=8 * len(X) * 0.01).fit(X, 4 * (Y - 0.5))
    expected = np.c_[ridge.coef_, ridge.intercept_]
    np.testing.assert_allclose(coefficients(model), expected, atol=1e-5)
    z = X @ expected[:, :-1].T + expected[:, -1]
    soft = spen.SquaredError().predict(model, spen.Descent(), model.context(X)).y.detach()
    np.testing.assert_allclose(soft, 1 / (1 + np.exp(-z)), atol=1e-5)
    assert ((soft > 0) & (soft < 1)).all()


@pytest.mark.usefixtures("tight")
def test_low_rank_weights_reach_the_best_minimum():
    """On orthonormal inputs it is known: singular values of the least squares, less 8 λ.

    A ridge on both factors is a nuclear norm on their product, and mean (z − w)² / 16 is then
    the squared distance to the least-squares solution / 16.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 8))
    X -= X.mean(0)
    X = np.linalg.qr(X)[0] * np.sqrt(120)
    Y = (rng.random((120, 6)) < 1 / (1 + np.exp(-X[:, :3] @ rng.standard_normal((3, 6)) * 3))) * 1.0
    u, s, vt = np.linalg.svd(4 * (Y - Y.mean(0)).T @ X / 120, full_matrices=False)
    decay = 0.02
    kept = np.maximum(s - 8 * decay, 0)
    assert 1 <= (kept > 0).sum() <= 5, "the rank below must be enough, and be a limit"
    for seed in (0, 1):
        energy = spen.LocalEnergy(5, 6)
        model = spen.SPEN(spen.Linear(8, 5), energy, spen.UnitBox(6), seed=seed).double()
        spen.train(model, [stage_of(spen.SquaredError(), weight_decay=decay)], (X, Y))
        product = -(energy.weight @ model.features.weights[0].T).detach().numpy()
        np.testing.assert_allclose(product, u @ np.diag(kept) @ vt, atol=1e-5)


def test_a_curved_valley_is_followed_to_its_end():
    """Rosenbrock's function, which scipy minimises too."""
    weight = torch.nn.Parameter(torch.tensor([-1.2, 1.0, -1.2, 1.0], dtype=torch.float64))
    evaluations = 0

    def closure() -> float:
        nonlocal evaluations
        evaluations += 1
        x, y = weight[::2], weight[1::2]
        loss = ((1 - x).square() + 100 * (y - x.square()).square()).sum()
        loss.backward()
        return loss.item()

    optimiser = LBFGS([weight], tolerance=1e-12)
    values = []
    while not optimiser.ended and len(values) < 200:
        values.append(optimiser.step(closure))
    theirs = optimize.minimize(
        lambda w: sum((1 - x) ** 2 + 100 * (y - x**2) ** 2 for x, y in (w[:2], w[2:])),
        [-1.2, 1.0, -1.2, 1.0],
        method="L-BFGS-B",
    )
    np.testing.assert_allclose(weight.detach().numpy(), np.ones(4), atol=1e-5)
    assert values[-1] <= theirs.fun + 1e-10
    assert evaluations < 200
    assert all(b <= a + 1e-12 for a, b in pairwise(values))


@pytest.mark.usefixtures("tight")
def test_the_penalty_is_part_of_what_falls():
    """The loss with its penalty never rises by more than rounding; biases are not penalised."""
    X, Y = drawn()
    model = linear_model().double()
    values = []

    def value(epoch):
        values.append(epoch.loss + 0.5 * 0.1 * model.energy.weight.detach().square().sum().item())

    spen.train(model, [stage_of(weight_decay=0.1)], (X, Y), callbacks=[value])
    assert all(b <= a + 1e-10 for a, b in pairwise(values))
    context = model.context(X, Y)
    loss = spen.CrossEntropy().loss(model, spen.Descent(), context).mean()
    weight, bias = torch.autograd.grad(loss, [model.energy.weight, model.energy.bias])
    torch.testing.assert_close(weight, -0.1 * model.energy.weight.detach(), atol=1e-6, rtol=0)
    torch.testing.assert_close(bias, torch.zeros_like(bias), atol=1e-6, rtol=0)


def test_sparse_rows_in_small_pieces_are_dense_rows_at_once(monkeypatch):
    X, Y = drawn()
    models = []
    for rows, at_once in (((X, Y), 512), ((sparse.csr_matrix(X), sparse.csr_matrix(Y)), 7)):
        monkeypatch.setattr(spen.training.loop, "SUMMED_AT_ONCE", at_once)
        for features in (spen.Identity(8), spen.Linear(8, 3)):
            energy = spen.LocalEnergy(features.n_features, 5)
            model = spen.SPEN(features, energy, spen.UnitBox(5), seed=0).double()
            spen.train(model, [stage_of(epochs=30)], rows)
            models.append(coefficients(model))
    np.testing.assert_allclose(models[0], models[2], atol=1e-8)
    np.testing.assert_allclose(models[1], models[3], atol=1e-6)


@pytest.mark.usefixtures("tight")
def test_weights_of_rows_and_labels_count():
    """A row of weight two is two rows; labels of no weight learn nothing."""
    X, Y = drawn()
    weight = np.r_[np.full(30, 2.0), np.ones(120)]
    twice = np.r_[np.arange(30), np.arange(150)]
    label_weight = [1.0, 1.0, 0.0, 1.0, 2.0]
    answers = []
    for rows, decay in (
        (Split(X, Y, weight), 0.01),
        # A mean over 180 rows weighs a penalty differently from one over 150.
        (Split(X[twice], Y[twice]), 0.01 * 150 / 180),
    ):
        model = linear_model().double()
        stage = stage_of(weight_decay=decay)
        spen.train(model, [stage], rows, label_weight=label_weight)
        answers.append(coefficients(model))
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-5)
    assert np.abs(answers[0][2, :-1]).max() < 1e-5
    assert np.abs(answers[0][1, :-1]).max() > 0.1


class StoppedError(Exception):
    """What a callback ends a run with."""


@pytest.fixture
def saved_each_epoch(monkeypatch):
    monkeypatch.setattr("spen.training.checkpoint.SAVED_TIMES", 0)


@pytest.mark.usefixtures("saved_each_epoch")
@pytest.mark.parametrize("stop_at", [1, 4, MEMORY + 3])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, stop_at):
    """Before and after the memory is full, and on to a stage of another kind."""
    kept, held = hold_out(Split(*drawn()), 0.3, 0)
    stages = [
        stage_of(epochs=MEMORY + 9, weight_decay=1e-4),
        spen.Stage("more", spen.CrossEntropy(), epochs=2),
    ]

    def run(**settings):
        model = linear_model()
        history = spen.train(model, stages, kept, held, **settings)
        return model.state_dict(), [replace(epoch, seconds=0.0) for epoch in history.epochs]

    def interrupt(epoch):
        if epoch.epoch == stop_at:
            raise StoppedError

    whole, epochs = run()
    path = tmp_path / "run.ckpt"
    with pytest.raises(StoppedError):
        run(checkpoint=path, callbacks=[interrupt])
    weights, resumed = run(checkpoint=path, resume=True)
    assert resumed == epochs
    assert all(torch.equal(weights[name], whole[name]) for name in whole)


@pytest.mark.usefixtures("saved_each_epoch")
def test_a_run_that_had_converged_stays_so(tmp_path):
    """The checkpoint of its last iteration does not begin another."""
    rows, path = drawn(), tmp_path / "run.ckpt"
    history = spen.train(linear_model(), [stage_of()], rows)
    last = len(history.epochs)

    def interrupt(epoch):
        if epoch.epoch == last:
            raise StoppedError

    with pytest.raises(StoppedError):
        spen.train(linear_model(), [stage_of()], rows, checkpoint=path, callbacks=[interrupt])
    resumed = spen.train(linear_model(), [stage_of()], rows, checkpoint=path, resume=True)
    assert len(resumed.epochs) == last < 500


def test_what_is_random_is_refused_and_clamped_dropout_is_not():
    X, Y = drawn()
    energy = spen.LocalEnergy(4, 5) + spen.LabelEnergy(5, 2, "softplus")
    for features, objective in (
        (spen.MLP(8, 4, dropout=0.5), spen.CrossEntropy()),
        (spen.MLP(8, 4), spen.UnrolledLikelihood(1.0, reveal=0.5)),
    ):
        model = spen.SPEN(features, energy, spen.UnitBox(5), seed=0)
        with pytest.raises(spen.InputError, match="uses lbfgs, but its loss is random"):
            spen.train(model, [stage_of(objective)], (X, Y))
    model = spen.SPEN(spen.MLP(8, 4, dropout=0.5), energy, spen.UnitBox(5), seed=0)
    history = spen.train(model, [stage_of(parts=("local",), epochs=5)], (X, Y))
    assert history.epochs[-1].loss < history.epochs[0].loss


@pytest.mark.parametrize("change", [{"clip": 1.0}, {"global_lr": 0.1}, {"schedule": "cosine"}])
def test_settings_that_a_line_search_does_not_look_at_are_refused(change):
    (name,) = change
    with pytest.raises(spen.InputError, match=rf"line search has no rate.*received {name}="):
        stage_of(**change)


@pytest.mark.usefixtures("tight")
def test_scales_of_inputs_are_no_hindrance():
    """A first step of one is far too long here, far too short there."""
    X, Y = drawn()
    probabilities = []
    for scale in (0.1, 1.0, 1e2):
        model = linear_model().double()
        stage = stage_of(weight_decay=0.01 * scale**2)
        spen.train(model, [stage], (X * scale, Y))
        predicted = stage.objective.predict(model, stage.inference, model.context(X * scale))
        probabilities.append(predicted.y.detach().numpy())
    np.testing.assert_allclose(probabilities[0], probabilities[1], atol=1e-4)
    np.testing.assert_allclose(probabilities[2], probabilities[1], atol=1e-4)


def test_a_loss_that_is_not_smooth_still_falls_and_ends():
    X, Y = drawn(60)
    energy = spen.LocalEnergy(8, 5) + spen.LabelEnergy(5, 2)
    model = spen.SPEN(spen.Identity(8), energy, spen.UnitBox(5), seed=0)
    inference = spen.Descent(spen.MirrorDescent(0.5, 0.5), spen.Stopping(10))
    stage = stage_of(spen.Hinge(), inference=inference, epochs=40)
    losses = [epoch.loss for epoch in spen.train(model, [stage], (X, Y)).epochs]
    assert losses[-1] < 0.75 * losses[0]


def test_a_start_without_a_finite_loss_is_named():
    model = linear_model()
    with torch.no_grad():
        model.energy.weight.fill_(float("inf"))
    with pytest.raises(spen.InputError, match=r"diverged in stage 'convex'.*Scale the inputs"):
        spen.train(model, [stage_of()], drawn())
