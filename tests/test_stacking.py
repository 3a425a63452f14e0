"""Cross-fitted energies: trained on scores that label-wise models give to unseen rows."""

import numpy as np
import pytest
import torch
from scipy import sparse

import spen
from spen.batch.context import Context
from spen.energies.scores import ScoreEnergy
from spen.estimators import fit as fitting
from spen.estimators import judging
from spen.estimators.fit import fit
from spen.estimators.plan import Shape
from spen.estimators.recipe import make_plan
from spen.estimators.runs import Fit, sharing_runs
from spen.features import LabelScores
from spen.kernels import cpu
from spen.kernels.interface import StepRule


def settings(**own):
    return {
        "hidden": (16,),
        "dropout": 0.2,
        "epochs": 6,
        "decoding": "expected_f1",
        "metric": "f1",
        "held_out": 0.2,
        "folds": "auto",
        "refit": True,
    } | own


@pytest.fixture(scope="module")
def data():
    return spen.exclusive_blocks(n_train=300, n_test=200, seed=3)


def test_label_scores_are_the_log_odds_of_the_label_wise_model():
    network, local = spen.MLP(3, 8), spen.LocalEnergy(8, 4)
    whole = spen.SPEN(network, local, spen.UnitBox(4), seed=0)
    stacked = spen.SPEN(LabelScores((network, local)), ScoreEnergy(4), spen.UnitBox(4))
    rows = torch.randn(5, 3)
    context = stacked.context(rows)
    torch.testing.assert_close(context.features, -whole.local_scores(whole.context(rows)))
    # As it starts, the energy of scores repeats the label-wise model.
    for y in (torch.zeros(5, 4), torch.ones(5, 4), torch.rand(5, 4)):
        torch.testing.assert_close(stacked.energy_of(rows, y), whole.energy_of(rows, y))


def test_score_energies_pass_the_checks_of_energies():
    spen.check_energy(spen.ScoreEnergy(4) + spen.ConditionalScoreEnergy(4, measurements=3))
    spen.check_energy(spen.ScoreEnergy(4) + spen.SurpriseEnergy(4, measurements=3))


def test_the_conditional_energy_measures_probabilities():
    energy = spen.ConditionalScoreEnergy(2, measurements=1, nonlinearity="softplus")
    with torch.no_grad():
        energy.measurements.fill_(1.0)
        energy.feature_weight.fill_(-1.0)
        energy.bias.zero_()
        energy.readout.fill_(2.0)
    z = torch.tensor([[0.0, 3.0]])
    y = torch.tensor([[1.0, 0.0]])
    expected = 2 * torch.nn.functional.softplus(1 - torch.sigmoid(z).sum())
    torch.testing.assert_close(energy.bind(Context(z)).value(y), expected[None])


def test_the_energy_is_trained_on_rows_that_its_scores_have_not_seen(data, monkeypatch):
    """Each fold's scores come from a model that was trained on the other folds alone."""
    trained_on = []
    original = Fit.run

    def spy(self, plan, kept=None, held=None):
        rows = self.rows if kept is None else self.rows.rows(kept)
        trained_on.append(set(rows.X[:, 0].tolist()))
        return original(self, plan, kept, held)

    monkeypatch.setattr(Fit, "run", spy)
    shape = Shape(300, 64, 16, sparse=False, exclusive=False)
    plan = make_plan(settings(cross_fit=True, folds=4), shape)
    fitted = fit(plan, data.train, spen.UnitBox(16), seed=0)
    assert [len(kept) for kept in trained_on] == [225] * 4 + [300]
    every = trained_on[-1]
    # What the folds left out are all rows, each once.
    held = [value for kept in trained_on[:4] for value in every - kept]
    assert sorted(held) == sorted(every)
    # The label-wise part is the model that was trained on all rows.
    assert isinstance(fitted.model.features, LabelScores)
    assert [stage.name for stage in fitted.plan.stages] == ["energy"]


def test_energies_that_judge_a_fold_have_not_seen_it(data, monkeypatch):
    trained_on = []
    original = Fit.run_energies

    def spy(self, plan, rows, parts, **first):
        trained_on.extend(map(len, parts))
        return original(self, plan, rows, parts, **first)

    monkeypatch.setattr(Fit, "run_energies", spy)
    common = {"hidden": (), "epochs": 2, "folds": 3, "random_state": 0}
    spen.SPENClassifier("label", cross_fit=True, **common).fit(data.train.X, data.train.Y)
    assert trained_on == [200, 200, 200, 300]


@pytest.fixture
def one_by_one(monkeypatch):
    """Runs are not trained side by side, where they would differ in their last bits."""
    monkeypatch.setattr("spen.estimators.runs.MOST_TOGETHER", 0)


@pytest.mark.usefixtures("one_by_one")
def test_scores_of_several_models_are_averaged(data):
    common = {"hidden": (8,), "dropout": 0.0, "epochs": 4, "folds": 2, "random_state": 0}
    rows = data.train.X, data.train.Y
    single = spen.baselines.MLPClassifier(**common).fit(*rows)
    three = spen.baselines.MLPClassifier(members=3, **common).fit(*rows)
    scaled = three.predictor_.scale(data.test.X)
    models = [
        spen.SPEN(network, local, spen.UnitBox(16))
        for network, local in zip(
            three.model_.features.networks, three.model_.features.locals, strict=True
        )
    ]
    each = [-model.local_scores(model.context(scaled)) for model in models]
    # The first is the single one, the others differ.
    alone = -single.model_.local_scores(single.model_.context(scaled))
    torch.testing.assert_close(each[0], alone)
    assert (each[0] - each[1]).abs().max() > 0.1
    averaged = -three.model_.local_scores(three.model_.context(scaled))
    torch.testing.assert_close(averaged, sum(each) / 3)
    with pytest.raises(spen.InputError, match="Add cross_fit=True"):
        spen.SPENClassifier(members=2, cross_fit=False).fit(*rows)


@pytest.mark.usefixtures("one_by_one")
def test_shared_runs_tell_one_network_from_several(data):
    common = {"hidden": (8,), "dropout": 0.0, "epochs": 2, "folds": 2, "random_state": 0}
    rows = data.train.X, data.train.Y
    alone = spen.baselines.MLPClassifier(members=2, **common).fit(*rows)
    with sharing_runs() as runs:
        spen.baselines.MLPClassifier(**common).fit(*rows)
        assert runs.saved == 0
        shared = spen.baselines.MLPClassifier(members=2, **common).fit(*rows)
        assert runs.saved > 0
    np.testing.assert_array_equal(
        shared.predict_proba(data.test.X), alone.predict_proba(data.test.X)
    )


def test_a_linear_model_weighs_as_much_as_all_networks(data):
    rows = sparse.csr_matrix(data.train.X), data.train.Y
    common = {"hidden": (8,), "dropout": 0.0, "epochs": 2, "folds": 2, "random_state": 0}
    mixed = spen.baselines.MLPClassifier(members=2, linear_member=True, **common).fit(*rows)
    features = mixed.model_.features
    assert features.weights == (0.25, 0.25, 0.5)
    scaled = mixed.predictor_.scale(sparse.csr_matrix(data.test.X))
    each = []
    for network, local in zip(features.networks, features.locals, strict=True):
        model = spen.SPEN(network, local, spen.UnitBox(16))
        each.append(-model.local_scores(model.context(scaled)))
    averaged = -mixed.model_.local_scores(mixed.model_.context(scaled))
    torch.testing.assert_close(averaged, 0.25 * each[0] + 0.25 * each[1] + 0.5 * each[2])
    linear = spen.baselines.BRClassifier(C=1 / (2e-3 * 300), random_state=0).fit(*rows)
    theirs = -linear.model_.local_scores(linear.model_.context(scaled))
    torch.testing.assert_close(each[2], theirs, atol=0.1, rtol=0)


@pytest.mark.usefixtures("one_by_one")
def test_cross_fitting_learns_what_labels_say_of_each_other():
    """Blocks of which exactly one label is on: the energy pays, and clamping works."""
    data = spen.exclusive_blocks(n_train=500, n_test=300, seed=3)
    common = {"hidden": (), "epochs": 60, "folds": 2, "random_state": 0}
    rows = data.train.X, data.train.Y
    energy = spen.LabelEnergy.unsized(measurements=16, nonlinearity="softplus", initial="neutral")
    plain = spen.baselines.MLPClassifier(**common).fit(*rows)
    with sharing_runs() as runs:
        spen.baselines.MLPClassifier(**common).fit(*rows)
        stacked = spen.SPENClassifier(energy, cross_fit=True, **common).fit(*rows)
        # Two folds and the last fit had been made for the other classifier.
        assert runs.saved > 0
    truth = data.test.Y

    def f1(classifier):
        return spen.metrics.example_f1(truth, classifier.predict(data.test.X))

    assert f1(stacked) > f1(plain) + 0.01
    # Paired: the scores are of the very same model.
    torch.testing.assert_close(stacked.model_.features.locals[0].weight, plain.model_.energy.weight)
    known = np.full(truth.shape, np.nan)
    known[:, 0] = 1
    given = stacked.predict_proba(data.test.X, known=known)[:, 1:4]
    free = stacked.predict_proba(data.test.X)[:, 1:4]
    assert given.mean() < 0.85 * free.mean()


def test_cross_fitted_models_are_saved_and_loaded(data, tmp_path):
    small = {"hidden": (8,), "dropout": 0.0, "epochs": 3, "folds": 2, "linear_member": True}
    clf = spen.SPENClassifier("conditional", objective="f1", cross_fit=True, **small)
    clf.fit(data.train.X, data.train.Y)
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    np.testing.assert_array_equal(again.predict_proba(data.test.X), clf.predict_proba(data.test.X))
    assert again.plan_ == clf.plan_
    assert again.structure().measurements.shape == (64, 16)


def test_what_cannot_be_cross_fitted_is_said(data):
    X, Y = data.train.X, data.train.Y
    with pytest.raises(spen.InputError, match="energy='local' has none"):
        spen.SPENClassifier("local", cross_fit=True).fit(X, Y)
    with pytest.raises(spen.InputError, match="at least two folds"):
        spen.SPENClassifier(cross_fit=True, folds=1).fit(X, Y)
    with pytest.raises(spen.InputError, match="y holds classes"):
        spen.SPENClassifier(cross_fit=True).fit(X, Y[:, :4].argmax(1))
    with pytest.raises(spen.InputError, match="leaves that out"):
        spen.SPENClassifier(cross_fit=True, refit=False).fit(X, Y)
    with pytest.raises(spen.InputError, match="refit=False keeps"):
        spen.SPENClassifier(folds=3, refit=False).fit(X, Y)


def test_the_surprise_energy_is_its_formula():
    energy = spen.SurpriseEnergy(3, measurements=2)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in energy.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    z, y = torch.randn(4, 3, generator=generator), torch.rand(4, 3, generator=generator)
    C, d, s, c = energy.measurements, energy.bias, energy.surprise_bias, energy.readout
    expected = [
        sum(
            c[k] * torch.log1p(torch.exp(C[k] @ y[i] - s[k] * (C[k] @ torch.sigmoid(z[i])) + d[k]))
            for k in range(2)
        )
        for i in range(4)
    ]
    assert torch.allclose(energy.bind(Context(z)).value(y), torch.stack(expected), atol=1e-5)


def test_dropped_measurements_stay_dropped_for_a_whole_inference_run():
    energy = spen.SurpriseEnergy(3, measurements=400, dropout=0.25)
    context = Context(torch.zeros(50, 3))
    (block,) = energy.bind(context, torch.Generator().manual_seed(0)).blocks
    kept = block.readout != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.02)
    assert not kept.all(0).any()
    assert torch.allclose(block.readout, energy.readout * kept / 0.75)
    assert energy.bind(context).blocks[0].readout is energy.readout
    rows = torch.tensor([3, 1])
    assert block.select(rows).readout.equal(block.readout[rows])
    # A kernel that takes one readout for all rows must not see it.
    start = torch.full((50, 3), 0.5)
    form = energy.bind(context, torch.Generator())
    assert "in its own way" in cpu.refusal(form, StepRule(lr=0.1), start, None)


def test_what_is_tried_beside_an_energy_is_judged_by_the_same_rows(monkeypatch):
    """The energy is judged by one fold where that has rows enough, and so is a rival."""
    data = spen.exclusive_blocks(n_train=150, n_test=1)
    judged = []
    compare = fitting.best_verdict

    def recorded(verdicts, raw):
        judged.append([len(verdict.scores) for verdict in verdicts])
        return compare(verdicts, raw)

    monkeypatch.setattr(fitting, "best_verdict", recorded)
    # Of 16 labels, in four blocks with one on in each, 50 rows have 12.5 ones each.
    for enough, rows in ((12, 50), (13, 150)):
        monkeypatch.setattr(judging, "ENOUGH_ONES", enough)
        spen.SPENClassifier(base=None, random_state=0).fit(data.train.X, data.train.Y)
        assert judged[-1] == [rows, rows]


def test_folds_are_trained_side_by_side_and_shared_whatever_was_fitted_before(data):
    common = {"hidden": (8,), "dropout": 0.2, "epochs": 2, "folds": 3, "random_state": 0}
    rows = data.train.X, data.train.Y

    def made(*others):
        with sharing_runs() as runs:
            for other in others:
                spen.baselines.MLPClassifier(**common | other).fit(*rows)
            own = spen.baselines.MLPClassifier(members=2, **common).fit(*rows)
            return own.predict_proba(data.test.X), runs.saved

    alone, nothing = made()
    after, something = made({}, {"folds": 2}, {"dropout": 0.5}, {"random_state": 7919})
    np.testing.assert_array_equal(after, alone)
    assert something > nothing == 0
