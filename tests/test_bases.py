"""Bases: classifiers of scikit-learn under an energy, alone or averaged with networks."""

import json
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import spen
from spen.batch.context import Context
from spen.estimators.bases import EstimatorScores
from spen.estimators.forests import Forest
from spen.files import read_tensors, write_tensors

QUICK = {"hidden": (4,), "dropout": 0.1, "epochs": 2, "random_state": 0}
FEW = ExtraTreesClassifier(5)


@pytest.fixture(scope="module")
def data():
    return spen.exclusive_blocks(n_train=90, n_test=30)


def fit(data, base, energy="label", **settings):
    classifier = spen.SPENClassifier(energy, base=base, **QUICK | settings)
    return classifier.fit(data.train.X, data.train.Y)


def test_the_energy_is_trained_on_scores_of_rows_that_the_base_has_not_seen(data):
    seen = []

    class Watched(KNeighborsClassifier):
        def fit(self, X, y):
            seen.append({row.tobytes() for row in X})
            return super().fit(X, y)

    clf = fit(data, Watched(), folds=3)
    assert [len(rows) for rows in seen] == [60, 60, 60, 90]
    left_out = [row for rows in seen[:3] for row in seen[3] - rows]
    assert sorted(left_out) == sorted(seen[3])
    assert [stage.name for stage in clf.plan_.stages] == ["energy"]
    assert clf.plan_.cross_fit
    assert clf.plan_.members == 0


def test_an_energy_over_a_forest_knows_what_labels_say_of_each_other(data):
    clf = fit(data, ExtraTreesClassifier(20), epochs=25)
    X, known = data.test.X[:5], np.full((5, 16), np.nan)
    known[:, 0] = 1
    # One label of each block of four is on.
    free, held = clf.predict_proba(X)[:, 1:4], clf.predict_proba(X, known)[:, 1:4]
    assert (held < free).mean() > 0.8


def test_log_odds_of_all_members_are_averaged(data):
    clf = fit(data, ["network", FEW, LogisticRegression(), "logistic"], members=2)
    features = clf.model_.features
    assert [type(each).__name__ for each in features.networks] == [
        "MLP", "MLP", "Identity", "Forest", "EstimatorScores"
    ]  # fmt: skip
    assert features.weights == (1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 4)
    rows = torch.from_numpy(clf.predictor_.scale(data.test.X))
    expected = sum(
        -weight * local.scores(Context(network.of(rows)))
        for weight, network, local in zip(
            features.weights, features.networks, features.locals, strict=True
        )
    )
    torch.testing.assert_close(features.of(rows), expected)


def test_without_an_energy_there_is_the_calibrated_average_alone(data):
    clf = fit(data, FEW, "local", folds=3)
    (forest,) = clf.model_.features.networks
    rows = clf.predictor_.scale(data.test.X)
    soft = torch.sigmoid(forest.of(torch.from_numpy(rows)))
    expected = clf.predictor_.calibration.apply(soft)
    np.testing.assert_allclose(clf.predict_proba(data.test.X), expected.numpy(), atol=1e-5)
    # The forest is scikit-learn's own, of all rows and of this seed.
    again = clone(FEW).set_params(random_state=_seed_of(clf))
    again.fit(clf.predictor_.scale(data.train.X), data.train.Y.astype(int))
    assert np.array_equal(
        again.apply(rows), (forest.leaves(torch.from_numpy(rows)) - forest.roots).numpy()
    )


def _seed_of(clf):
    return int(np.random.RandomState(clf.random_state).randint(2**31 - 1))


def test_a_seed_decides_all_and_that_of_an_estimator_stays(data):
    one, two = (fit(data, FEW).predict_proba(data.test.X) for _ in range(2))
    assert np.array_equal(one, two)
    own = ExtraTreesClassifier(5, random_state=3)
    forests = [fit(data, own, random_state=seed).model_.features.networks[0] for seed in (0, 1)]
    assert torch.equal(forests[0].feature, forests[1].feature)
    assert own.random_state == 3
    assert not hasattr(own, "estimators_")


def test_any_classifier_with_probabilities_is_a_base(data):
    rows, labels = data.train.X, data.train.Y.copy()
    # A label that is always 0 and one that is always 1 are not asked about.
    labels[:, 0], labels[:, 5] = 0, 1
    for base in (
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        KNeighborsClassifier(3),
    ):
        clf = spen.SPENClassifier("local", base=base, **QUICK).fit(rows, labels)
        (scores,) = clf.model_.features.networks
        assert isinstance(scores, EstimatorScores)
        found = scores.of(torch.from_numpy(clf.predictor_.scale(data.test.X)))
        assert found.isfinite().all()
        torch.testing.assert_close(found[:, 0].sigmoid(), torch.full((30,), 0.5 / 91))
        torch.testing.assert_close(found[:, 5].sigmoid(), torch.full((30,), 90.5 / 91))
        # Nobody is surer than 90 rows allow.
        assert (found.sigmoid() - 0.5).abs().max() <= 0.5 - 0.499 / 91
        fresh = clone(base).fit(clf.predictor_.scale(rows), labels[:, 7])
        expected = fresh.predict_proba(clf.predictor_.scale(data.test.X))[:, 1]
        expected = np.clip(expected, 0.5 / 91, 90.5 / 91)
        np.testing.assert_allclose(found[:, 7].sigmoid().numpy(), expected, atol=1e-5)


def test_classifiers_that_need_dense_rows_get_them():
    draw = np.random.default_rng(0)
    X = sparse.csr_array(draw.random((80, 40)) * (draw.random((80, 40)) < 0.1))
    Y = np.asarray((X[:, [0, 1]] + X[:, [2, 3]]).todense() > 0).astype(int)
    for base in (GaussianNB(), LogisticRegression(), FEW):
        clf = spen.SPENClassifier("local", base=base, **QUICK).fit(X, Y)
        assert clf.plan_.bases
        assert np.array_equal(clf.predict_proba(X), clf.predict_proba(X.toarray()))


def test_missing_labels_are_left_out_label_by_label(data):
    labels = data.train.Y.astype(float)
    labels[:40, 3] = np.nan
    clf = spen.SPENClassifier("local", base=LogisticRegression(), **QUICK)
    clf.fit(data.train.X, labels)
    scaled = clf.predictor_.scale(data.train.X)
    alone = LogisticRegression().fit(scaled[40:], labels[40:, 3])
    found = clf.model_.features.networks[0].of(torch.from_numpy(scaled))[:, 3]
    expected = np.clip(alone.predict_proba(scaled)[:, 1], 0.5 / 91, 90.5 / 91)
    np.testing.assert_allclose(found.sigmoid().numpy(), expected, atol=1e-5)
    for base in (FEW, KNeighborsClassifier(3)):
        with pytest.raises(spen.InputError, match=r"some are missing \(nan\)"):
            spen.SPENClassifier(base=base, **QUICK).fit(data.train.X, labels)


def test_weights_of_rows_reach_those_who_take_them(data):
    weight = np.where(np.arange(90) < 45, 1.0, 1e-6)
    rows = data.train.X, data.train.Y
    for base in (LogisticRegression(), FEW):
        one, two = (
            spen.SPENClassifier("local", base=base, **QUICK).fit(*rows, sample_weight=given)
            for given in (None, weight)
        )
        scaled = torch.from_numpy(one.predictor_.scale(data.test.X))
        assert not torch.equal(*(clf.model_.features.of(scaled) for clf in (one, two)))


REFUSED = {
    "no probabilities": ({"base": Perceptron()}, "no predict_proba"),
    "a class": ({"base": ExtraTreesClassifier}, "must be a classifier of scikit-learn"),
    "no estimator": ({"base": 3}, "must be a classifier of scikit-learn"),
    "a wrong name": ({"base": "extratrees"}, "Did you mean 'extra_trees'"),
    "nothing": ({"base": []}, "base is empty"),
    "twice": ({"base": ["network", "network"]}, "twice"),
    "trained together": ({"base": FEW, "cross_fit": False}, "cross_fit=False"),
    "one fold": ({"base": FEW, "folds": 1}, "base needs at least two folds"),
    "no last fit": ({"base": FEW, "refit": False}, "refit=False"),
    "members": ({"base": FEW, "members": 2}, "Add 'network'"),
    "unmarked": ({"base": FEW, "missing": 0.1}, "takes every 0 in y as it is"),
}


@pytest.mark.parametrize(("settings", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(data, settings, said):
    with pytest.raises(spen.InputError, match=said):
        spen.SPENClassifier(**QUICK | settings).fit(data.train.X, data.train.Y)


def test_classes_are_refused(data):
    with pytest.raises(spen.InputError, match="sets of labels"):
        spen.SPENClassifier(base=FEW).fit(data.train.X, data.train.Y.argmax(1))


def test_auto_and_none_take_networks_alone(data):
    plans = [fit(data, base).plan_ for base in ("auto", None)]
    assert plans[0] == plans[1]
    assert plans[0].bases == ()
    assert plans[0].members == 1


FORESTS = {
    "named": "extra_trees",
    "own": RandomForestClassifier(4, max_depth=3, class_weight=[{0: 1.0, 1: 2.0}] * 16),
    "averaged": [FEW, "network", "logistic"],
}


@pytest.mark.parametrize("base", FORESTS.values(), ids=FORESTS)
def test_forests_come_back_from_a_file_by_themselves(data, base, tmp_path, monkeypatch):
    clf = fit(data, base)
    clf.save(tmp_path / "model.spen")
    # No word of scikit-learn's is needed to predict.
    monkeypatch.setattr(ExtraTreesClassifier, "fit", None)
    again = spen.load(tmp_path / "model.spen")
    X = data.test.X
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(again.energy(X, data.test.Y), clf.energy(X, data.test.Y))
    ours, theirs = (c.get_params(deep=True) for c in (again, clf))
    assert repr(ours.pop("base")) == repr(theirs.pop("base"))
    assert ours.get("base__max_depth") == theirs.get("base__max_depth")
    assert again.plan_.bases[0].sizes
    # How large the forest is stands in the file's notes.
    size = (tmp_path / "model.spen").stat().st_size
    note = again.notes_["base 1"]
    assert note.startswith(("ExtraTreesClassifier, ", "RandomForestClassifier, "))
    assert 0 <= float(note.split()[1]) * 1e6 <= size + 5e4
    again.save(tmp_path / "again.spen")
    assert np.array_equal(spen.load(tmp_path / "again.spen").predict(X), clf.predict(X))


def test_damaged_forests_are_refused(data, tmp_path):
    path = tmp_path / "model.spen"
    fit(data, FEW).save(path)
    tensors, header = read_tensors(path)
    name = "model/features.networks.0.left"
    harmed = tensors | {name: tensors[name].clone()}
    harmed[name][0] = 0
    write_tensors(path, harmed, header)
    with pytest.raises(spen.errors.CheckpointError, match="lead out of the file"):
        spen.load(path)
    for sizes in ([10**12, 10**12, 10**12], [5], ["x", 1, 1], None, [-1, 1, 1]):
        wrong = json.loads(json.dumps(header))
        wrong["plan"]["bases"][0]["sizes"] = sizes
        write_tensors(path, tensors, wrong)
        with pytest.raises(spen.errors.CheckpointError, match="cannot be used"):
            spen.load(path)
    for estimator in (
        {"forest": "Pipeline", "settings": {}},
        {"forest": "Forest"},
        3,
    ):
        wrong = json.loads(json.dumps(header))
        wrong["settings"]["base"] = estimator
        write_tensors(path, tensors, wrong)
        with pytest.raises(spen.errors.CheckpointError, match="cannot be used"):
            spen.load(path)


def test_a_base_that_needs_a_package_names_it(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(spen.InputError, match=r"pip install 'spen\[bases\]'"):
        fit(data, GaussianNB(), "local").save(tmp_path / "model.spen")


def test_a_fit_with_a_base_goes_on_where_it_was_stopped(data, tmp_path):
    whole = fit(data, [FEW, "network"])
    clf = spen.SPENClassifier(base=[FEW, "network"], energy="label", **QUICK)
    rows = data.train.X, data.train.Y
    for _ in range(2):
        clf.fit(*rows, checkpoint=tmp_path / "run", resume=True)
    assert np.array_equal(clf.predict_proba(data.test.X), whole.predict_proba(data.test.X))


def test_bases_are_fitted_once_for_all_trials_of_a_fold(data, monkeypatch):
    fits = []
    original = ExtraTreesClassifier.fit
    monkeypatch.setattr(
        ExtraTreesClassifier, "fit", lambda *args, **k: fits.append(1) or original(*args, **k)
    )
    clf = fit(data, [FEW, "network"], dropout="auto", folds=2)
    assert len(clf.plan_.choices) == 1
    assert len(fits) == 3
    assert isinstance(clf.model_.features.networks[1], Forest)


def test_no_base_stays_no_base_in_a_file(tmp_path):
    X, Y = make_multilabel_classification(120, 6, n_classes=3, random_state=0)
    made = spen.SPENClassifier(base=None, hidden=(4,), epochs=1, random_state=0).fit(X, Y)
    made.save(tmp_path / "m.spen")
    assert spen.load(tmp_path / "m.spen").base is None


def test_weights_reach_the_end_of_a_pipeline_or_are_refused():
    X, Y = make_multilabel_classification(80, 5, n_classes=3, random_state=0)
    weight = np.where(np.arange(80) < 40, 1e-6, 1.0)
    common = {"energy": "local", "random_state": 0, "device": "cpu"}
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    soft = [
        spen.SPENClassifier(base=logistic, **common).fit(X, Y, given).predict_proba(X)
        for given in (None, weight)
    ]
    assert not np.allclose(*soft)
    with pytest.raises(spen.InputError, match="takes no sample_weight"):
        spen.SPENClassifier(base=KNeighborsClassifier(), **common).fit(X, Y, weight)


def test_estimators_of_several_labels_are_bases_too():
    X, Y = make_multilabel_classification(80, 5, n_classes=3, random_state=0)
    for base in (ClassifierChain(LogisticRegression()), MultiOutputClassifier(GaussianNB())):
        made = spen.SPENClassifier(base=base, energy="local", random_state=0).fit(X, Y)
        assert made.predict(X).shape == Y.shape
