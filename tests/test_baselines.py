"""The classifiers that a SPEN is compared with."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import spen
from spen import baselines
from spen.baselines import (
    ALL,
    BRClassifier,
    DMFClassifier,
    KnownLabelsClassifier,
    LRClassifier,
    MLPClassifier,
    PRLRClassifier,
)

SMALL = {
    BRClassifier: {"C": 1.0},
    LRClassifier: {"rank": 12, "C": 0.3},
    MLPClassifier: {"hidden": (32,), "dropout": 0.0, "epochs": 25},
    DMFClassifier: {"hidden": (32,), "dropout": 0.0, "epochs": 25, "pairwise_epochs": 4},
    PRLRClassifier: {"hidden": (32,), "dropout": 0.0, "epochs": 25, "missing": 0.2},
    KnownLabelsClassifier: {"hidden": (64, 32), "dropout": 0.0, "epochs": 40},
}


@pytest.fixture(scope="module")
def data():
    return spen.exclusive_blocks(n_train=400, n_test=100, seed=1)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_they_keep_the_classifiers_contract(kind, data, tmp_path):
    clf = kind(random_state=0, **SMALL[kind])
    assert clone(clf).get_params() == clf.get_params()
    clf.fit(data.train.X, data.train.Y, label_names=data.label_names)
    labels, soft = clf.predict(data.test.X), clf.predict_proba(data.test.X)
    assert labels.shape == soft.shape == (100, 16)
    assert set(np.unique(labels)) <= {0, 1}
    assert soft.min() > 0
    assert soft.max() < 1
    chance = np.tile(data.train.Y.mean(0) > 0.2, (100, 1))
    score = spen.metrics.example_f1(data.test.Y, labels)
    assert score > 0.05 + spen.metrics.example_f1(data.test.Y, chance)
    assert clf.energy(data.test.X, data.test.Y).shape == (100,)
    for decoding in ("threshold", "expected_f1"):
        assert clf.decode(soft, decoding).shape == (100, 16)
    np.testing.assert_array_equal(clf.decode(soft, "expected_f1"), labels)
    known = np.full((100, 16), np.nan)
    known[:, 3] = 1
    assert (clf.predict(data.test.X, known=known)[:, 3] == 1).all()
    clf.save(tmp_path / "model.spen")
    again = spen.load(tmp_path / "model.spen")
    assert type(again) is kind
    np.testing.assert_array_equal(again.predict_proba(data.test.X), soft)
    np.testing.assert_array_equal(again.decode(soft, "threshold"), clf.decode(soft, "threshold"))
    # Sparse rows are the same rows.
    other = clone(clf).fit(sparse.csr_matrix(data.train.X), data.train.Y)
    assert other.predict(sparse.csr_matrix(data.test.X)).shape == (100, 16)


HELD_OUT = (
    "Rows of weight two and rows that stand there twice are held out differently for calibration."
)


@parametrize_with_checks(
    [BRClassifier(C=1.0)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": HELD_OUT,
        "check_sample_weight_equivalence_on_sparse_data": HELD_OUT,
    },
)
@pytest.mark.filterwarnings("default")
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_br_is_one_vs_rest_logistic_regression(data):
    X, Y = data.train.X, data.train.Y
    clf = BRClassifier(C=0.3, random_state=0).fit(X, Y)
    scaled = clf.predictor_.scale(X)
    other = OneVsRestClassifier(LogisticRegression(C=0.3, tol=1e-8, max_iter=1000)).fit(scaled, Y)
    rows = clf.predictor_.scale(data.test.X)
    soft = clf.model_.solve_with(
        lambda context: clf.plan_.prediction.objective.predict(
            clf.model_, clf.plan_.prediction.inference, context
        ),
        rows,
    ).y.numpy()
    np.testing.assert_allclose(soft, other.predict_proba(rows), atol=2e-3)


def test_the_strengths_that_are_tried_are_scikit_learns(data):
    clf = BRClassifier(random_state=0).fit(data.train.X, data.train.Y)
    tried = [1 / (400 * strength) for strength in (0.03, 0.1, 0.3, 1.0)]
    assert min(abs(clf.plan_.chosen.weight_decay / each - 1) for each in tried) < 1e-9


def test_lr_reaches_the_minimum_of_its_objective(data):
    """At full rank a ridge on both factors is a trace norm; a lower rank cannot do better."""
    X, Y = data.train.X, data.train.Y

    def objective(rank):
        clf = LRClassifier(rank=rank, C=1.0, random_state=0).fit(X, Y)
        decay = clf.plan_.stages[0].weight_decay
        weights = [p for n, p in clf.model_.named_parameters() if "bias" not in n]
        ridge = 0.5 * decay * sum(float(p.detach().square().sum()) for p in weights)
        return clf.refit_history_.epochs[-1].loss, ridge

    values = [sum(objective(rank)) for rank in (1, 4, 16)]
    assert values[0] > values[1] > values[2]


def test_lr_has_two_losses_and_chooses_its_rank(data):
    X, Y = data.train.X, data.train.Y
    clf = LRClassifier(loss="squared", C=1.0, random_state=0).fit(X, Y)
    assert clf.plan_.chosen.hidden in {(2,), (4,), (8,)}
    assert spen.metrics.example_f1(data.test.Y, clf.predict(data.test.X)) > 0.5
    with pytest.raises(spen.InputError, match="logistic"):
        LRClassifier(loss="logistc").fit(X, Y)


def test_a_fit_that_ends_before_it_has_settled_says_so(data, monkeypatch):
    X, Y = data.train.X, data.train.Y
    monkeypatch.setattr(baselines, "ITERATIONS", 12)
    # A strong ridge is soon done, with iterations left; so is a loss that no longer moves.
    BRClassifier(C=1e-4, random_state=0).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="made all 12 iterations") as caught:
        LRClassifier(rank=8, C=10.0, random_state=0).fit(X, Y)
    assert len(caught) == 1
    monkeypatch.setattr(baselines, "SETTLED", 10.0)
    LRClassifier(rank=8, C=10.0, random_state=0).fit(X, Y)


def test_dmf_starts_from_the_mlp_and_keeps_it(data, monkeypatch):
    # Side by side with others a run differs in its last bits.
    monkeypatch.setattr("spen.estimators.runs.MOST_TOGETHER", 0)
    X, Y = data.train.X, data.train.Y
    network = {"hidden": (8,), "dropout": 0.0, "epochs": 8, "random_state": 0}
    plain = MLPClassifier(**network).fit(X, Y)
    dmf = DMFClassifier(pairwise_epochs=3, **network).fit(X, Y)
    mine = dict(dmf.model_.named_parameters())
    for name, theirs in plain.model_.features.named_parameters():
        assert mine[f"features.{name}"].equal(theirs)
    tables = [p for n, p in mine.items() if n.endswith("terms.1.weight")]
    assert tables
    assert tables[0].abs().max() > 0


def test_missing_labels_are_chosen_on_held_out_rows(data):
    network = {"hidden": (8,), "dropout": 0.0, "epochs": 4, "random_state": 0}
    clf = PRLRClassifier(**network).fit(data.train.X, data.train.Y)
    share = clf.plan_.chosen.missing
    assert share in (0.1, 0.25, 0.5)
    assert clf.plan_.stages[0].objective.missing == share
    both = spen.SPENClassifier(missing="auto", **network).fit(data.train.X, data.train.Y)
    assert both.plan_.stages[0].objective.missing == both.plan_.chosen.missing > 0
