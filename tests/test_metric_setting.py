"""One setting, ``metric``, decides what is tuned, decoded, scored and shown."""

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, ndcg_score
from sklearn.model_selection import cross_val_score

import spen
from spen.estimators.decoding import BEST_FOR, decode, tune_macro_thresholds, tune_threshold
from spen.metrics import METRICS, macro_f1, ndcg_at_k, score_by

QUICK = {"hidden": (8,), "epochs": 6, "dropout": 0.1, "random_state": 0}
THEIRS = {
    "f1": lambda t, p, w=None: f1_score(
        t, p, average="samples", zero_division=1.0, sample_weight=w
    ),
    "micro_f1": lambda t, p, w=None: f1_score(t, p, average="micro", sample_weight=w),
    "macro_f1": lambda t, p, w=None: f1_score(
        t, p, average="macro", zero_division=0.0, sample_weight=w
    ),
    "subset": lambda t, p, w=None: accuracy_score(t, p, sample_weight=w),
    "hamming": lambda t, p, w=None: 1 - hamming_loss(t, p, sample_weight=w),
}


@pytest.fixture(scope="module")
def rows():
    X, Y = make_multilabel_classification(160, 10, n_classes=5, random_state=1)
    return X, Y


@pytest.fixture(scope="module", params=METRICS)
def fitted(request, rows):
    return spen.SPENClassifier(metric=request.param, **QUICK).fit(*rows)


def test_score_is_the_metric_of_what_is_predicted(fitted, rows):
    X, Y = rows
    weight = np.random.default_rng(0).random(len(X))
    labels = fitted.predict(X)
    theirs = THEIRS[fitted.metric]
    assert fitted.score(X, Y) == pytest.approx(theirs(Y, labels))
    assert fitted.score(X, Y, weight) == pytest.approx(theirs(Y, labels, weight))
    assert cross_val_score(fitted, X, Y, cv=2).shape == (2,)


def test_the_decoding_is_one_that_maximises_the_metric(fitted, rows, tmp_path):
    X, _ = rows
    assert fitted.plan_.decoding in BEST_FOR[fitted.metric]
    labels, (soft, both) = fitted.predict(X), fitted.predict_both(X)
    assert np.array_equal(labels, both)
    assert np.array_equal(soft, fitted.predict_proba(X))
    fitted.save(tmp_path / "m.spen")
    again = spen.load(tmp_path / "m.spen")
    assert np.array_equal(again.predict(X), labels)
    assert again.plan_.metric == fitted.metric


def test_scores_leave_missing_labels_out_and_take_lists(rows):
    X, Y = rows
    clf = spen.SPENClassifier(metric="hamming", **QUICK).fit(X, Y)
    holes = Y.astype(float)
    holes[::2, 1] = np.nan
    right = (clf.predict(X) == Y)[~np.isnan(holes)].mean()
    assert clf.score(X, holes) == pytest.approx(right)
    lists = [[f"l{i}" for i in np.flatnonzero(row)] for row in Y]
    named = spen.SPENClassifier(**QUICK).fit(X, lists)
    assert named.score(X, lists) == pytest.approx(spen.example_f1(Y, named.predict(X)))


def test_the_labelling_of_the_lowest_energy_is_predicted_where_it_is_the_decoding(rows):
    X, Y = rows
    clf = spen.SPENClassifier(decoding="joint", **QUICK).fit(X, Y)
    assert np.array_equal(clf.predict(X), clf.predict(X, polish=True))
    with pytest.raises(spen.InputError, match="lowest energy, which probabilities do not tell"):
        clf.decode(clf.predict_proba(X))
    # Held-out rows choose; where they prefer either, it is what is predicted.
    subset = spen.SPENClassifier(metric="subset", **QUICK).fit(X, Y)
    if subset.plan_.decoding == "half":
        assert np.array_equal(subset.predict(X), subset.predict_proba(X) > 0.5)
    else:
        assert np.array_equal(subset.predict(X), subset.predict(X, polish=True))


def test_classes_have_their_accuracy():
    X, y = make_classification(90, 6, n_informative=4, n_classes=3, random_state=0)
    default = spen.SPENClassifier(**QUICK).fit(X, y)
    named = spen.SPENClassifier(metric="accuracy", **QUICK).fit(X, y)
    assert default.score(X, y) == named.score(X, y) == (default.predict(X) == y).mean()
    with pytest.raises(spen.InputError, match="y holds classes"):
        spen.SPENClassifier(metric="hamming", **QUICK).fit(X, y)


def test_wrong_metrics_are_refused(rows):
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'macro_f1'"):
        spen.SPENClassifier(metric="macrof1", **QUICK).fit(*rows)
    with pytest.raises(spen.InputError, match="Say 'subset' for the share of rows"):
        spen.SPENClassifier(metric="accuracy", **QUICK).fit(*rows)
    with pytest.raises(spen.InputError, match="sample_weight must be 2 numbers"):
        score_by("f1", [[1, 0], [0, 1]], [[1, 0], [0, 1]], [1, -1])


def test_top_labels_come_in_the_order_of_their_probability(rows):
    X, Y = rows
    names = list("abcde")
    clf = spen.SPENClassifier(**QUICK).fit(X, Y, label_names=names)
    top = clf.predict_top(X[:20], 3)
    soft = clf.predict_proba(X[:20])
    for row, found in zip(soft, top, strict=True):
        assert found == [names[i] for i in np.argsort(-row, kind="stable")[:3]]
    with pytest.raises(spen.InputError, match="k must be"):
        clf.predict_top(X, 6)


def test_ranks_are_scored_as_scikit_learn_does():
    random = np.random.default_rng(0)
    truth, soft = (random.random((50, 7)) < 0.3).astype(int), random.random((50, 7))
    some = truth.any(1)
    for k in (1, 3, 5):
        theirs = ndcg_score(truth[some], soft[some], k=k)
        assert ndcg_at_k(truth, soft, k) == pytest.approx(theirs)


def test_thresholds_of_labels_are_tuned_for_their_own_f1():
    random = np.random.default_rng(0)
    truth = (random.random((400, 4)) < [0.5, 0.3, 0.1, 0.05]).astype(int)
    soft = np.clip(0.25 * truth + random.random((400, 4)) * 0.6, 0, 1)
    thresholds, score = tune_macro_thresholds(truth, soft, shrink=0)
    assert score == pytest.approx(macro_f1(truth, decode(soft, "label_thresholds", thresholds)))
    assert score >= tune_threshold(truth, soft, score=macro_f1)[1]
