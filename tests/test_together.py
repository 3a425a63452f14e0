"""Models that are trained side by side are those that are trained alone, but for rounding."""

import numpy as np
import pytest
import torch
from scipy import sparse

import spen
from spen.batch.splits import Split
from spen.training.together import RowsInTurns, goes_together, side_by_side, train_together

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 7)).astype(np.float32) * (RNG.random((60, 7)) < 0.4)
Y = (X[:, :4] + 0.5 * RNG.normal(size=(60, 4)) > 0).astype(np.float32)
INFERENCE = spen.Descent(spen.MirrorDescent(lr=1.0, momentum=0.0), spen.Stopping(5))


def model_of(kind, seed, **rates):
    features = {
        "mlp": lambda: spen.MLP(7, 8, 5, **rates),
        "low rank": lambda: spen.Linear(7, 3, **rates),
        "linear": lambda: spen.Identity(7),
        "scores": lambda: spen.Identity(4),
    }[kind]()
    local = spen.LocalEnergy(features.n_features, 4)
    if kind == "scores":
        energy = spen.ScoreEnergy(4) + spen.SurpriseEnergy(4, measurements=3)
        return spen.SPEN(features, energy, spen.UnitBox(4), seed=seed)
    energy = local + spen.LabelEnergy(4, measurements=3, nonlinearity="softplus", initial="neutral")
    return spen.SPEN(features, energy, spen.UnitBox(4), seed=seed)


def stage_of(kind, objective, **settings):
    parts = ("local", "global") if kind in ("linear", "scores") else ("features", "local", "global")
    if isinstance(objective, spen.CrossEntropy):
        parts = parts[:-1]
    return spen.Stage("all", objective, INFERENCE, parts=parts, epochs=3, **settings)


@pytest.mark.parametrize("kind", ["mlp", "low rank", "linear", "scores"])
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize(
    "objective",
    [
        spen.CrossEntropy(),
        spen.UnrolledLikelihood(1.0, "local"),
        spen.EndToEnd("log", "all", 1.0, "local"),
    ],
)
def test_each_model_learns_what_it_would_alone(kind, objective, sparse_rows):
    """All rows in one batch, so that their order does not matter."""
    inputs = X[:, :4] if kind == "scores" else X
    rows = Split(sparse.csr_array(inputs) if sparse_rows else inputs, Y)
    kept = [np.arange(60), np.arange(0, 60, 2), np.arange(7, 31)]
    stage = stage_of(kind, objective, batch_size=60, optimiser="sgd", lr=0.1)
    together = [model_of(kind, seed) for seed in range(3)]
    train_together(together, [stage], rows, kept)
    for seed, numbers in enumerate(kept):
        alone = model_of(kind, seed)
        start = {name: t.clone() for name, t in alone.state_dict().items()}
        spen.train(alone, [stage], rows.rows(numbers))
        for name, weight in alone.state_dict().items():
            other = together[seed].state_dict()[name]
            torch.testing.assert_close(other, weight, rtol=1e-4, atol=1e-5)
        assert any(not torch.equal(start[name], t) for name, t in alone.state_dict().items())


def test_revealed_labels_and_weights_of_rows_and_labels_go_along():
    weight = RNG.random(60).astype(np.float32)
    rows = Split(X, np.where(RNG.random(Y.shape) < 0.1, np.nan, Y), weight)
    stage = stage_of(
        "mlp", spen.UnrolledLikelihood(1.0, "local", reveal=0.9), batch_size=8, lr=0.03
    )
    models = [model_of("mlp", seed, dropout=rate) for seed, rate in enumerate((0.0, 0.5, 0.7))]
    history = train_together(
        models, [stage], rows, [np.arange(60)] * 3, label_weight=np.arange(1.0, 5)
    )
    losses = [epoch.loss for epoch in history.epochs]
    assert losses[-1] < losses[0] / 1.1


def test_a_rate_is_each_models_own():
    """Dropping nearly all units is not the same as dropping none."""
    rows = Split(X, Y)
    stage = stage_of("mlp", spen.CrossEntropy(), batch_size=60, optimiser="sgd", lr=0.1)
    plain = model_of("mlp", 0)
    spen.train(plain, [stage], rows)
    kept, dropped = model_of("mlp", 0), model_of("mlp", 0, dropout=0.9, input_dropout=0.5)
    train_together([kept, dropped], [stage], rows, [np.arange(60)] * 2)
    same, other = kept.state_dict(), dropped.state_dict()
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(same[name], weight, rtol=1e-4, atol=1e-5)
    assert any((other[name] - weight).abs().max() > 1e-3 for name, weight in same.items())


def test_an_epoch_shows_every_row_once_to_its_model():
    model = model_of("linear", 0)
    plain = spen.training.rows.TrainingRows.of(model, (X, Y), "train")
    kept = (torch.arange(60), torch.arange(0, 60, 7), torch.arange(20))
    rows = RowsInTurns(plain.inputs, plain.target, None, None, None, kept=kept)
    batches = rows.batches(16, torch.Generator().manual_seed(0))
    assert len(batches) == 4
    for k, numbers in enumerate(kept):
        shown = torch.cat([batch[:, 0].view(-1, 3)[:, k] for batch in batches])
        assert shown[shown >= 0].sort().values.equal(numbers)
        total = sum(
            rows.context(model, batch, None).weight.view(-1, 3)[:, k].sum() for batch in batches
        )
        assert total > 0


def test_what_cannot_go_together_is_told_apart():
    stage = stage_of("mlp", spen.CrossEntropy())
    assert goes_together(model_of("mlp", 0), [stage])
    clipped = stage_of("mlp", spen.CrossEntropy(), clip=1.0)
    assert not goes_together(model_of("mlp", 0), [clipped])
    assert not goes_together(model_of("mlp", 0), [stage_of("mlp", spen.Hinge())])
    pairs = spen.LocalEnergy(7, 4) + spen.PairwiseEnergy(4, rank=2)
    assert not goes_together(spen.SPEN(spen.Identity(7), pairs, spen.UnitBox(4)), [stage])


def test_stacking_leaves_the_models_alone():
    models = [model_of("mlp", seed) for seed in range(2)]
    before = models[0].state_dict()["energy.terms.0.weight"].clone()
    stacked = side_by_side(models)
    with torch.no_grad():
        for weight in stacked.parameters():
            weight.zero_()
    assert torch.equal(before, models[0].state_dict()["energy.terms.0.weight"])
