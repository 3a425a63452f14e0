"""Classifier chains, against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain

import spen
from spen_paper.studies.known_labels import ChainClassifier, fit_chain

DATA = spen.exclusive_blocks(150, 60, n_features=6, n_blocks=2, block_size=3, seed=1)
ORDER = np.array([4, 0, 5, 2, 1, 3])
C = 0.5


@pytest.fixture(scope="module")
def theirs():
    base = LogisticRegression(C=C, tol=1e-10, max_iter=2000)
    return ClassifierChain(base, order=ORDER.tolist()).fit(DATA.train.X, DATA.train.Y)


@pytest.fixture(scope="module")
def ours():
    X, Y = torch.from_numpy(DATA.train.X).double(), torch.from_numpy(DATA.train.Y).double()
    return fit_chain(X, Y, torch.from_numpy(ORDER), C)


def test_links_are_the_regressions_of_scikit_learn(ours, theirs):
    for place, (label, estimator) in enumerate(zip(ORDER, theirs.estimators_, strict=True)):
        width = DATA.train.X.shape[1]
        coefficients = estimator.coef_[0]
        assert ours.weight[label].numpy() == pytest.approx(coefficients[:width], abs=1e-2)
        links = ours.links[label].numpy()
        assert links[ORDER[:place]] == pytest.approx(coefficients[width:], abs=1e-2)
        assert not links[ORDER[place:]].any(), "later labels say nothing"
        assert float(ours.bias[label]) == pytest.approx(estimator.intercept_[0], abs=1e-2)


def test_predictions_without_known_labels_are_those_of_scikit_learn(ours, theirs):
    p = ours.probabilities(torch.from_numpy(DATA.test.X).double()).numpy()
    assert p == pytest.approx(theirs.predict_proba(DATA.test.X), abs=1e-2)


def test_known_labels_stand_in_for_predictions(ours, theirs):
    rng = np.random.default_rng(0)
    truth = DATA.test.Y.astype(float)
    known = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    told = np.zeros((len(truth), 0))
    expected = np.zeros_like(truth)
    for label, estimator in zip(ORDER, theirs.estimators_, strict=True):
        expected[:, label] = estimator.predict_proba(np.hstack([DATA.test.X, told]))[:, 1]
        decided = np.where(np.isnan(known[:, label]), expected[:, label] > 0.5, known[:, label])
        told = np.hstack([told, decided[:, None]])
    p = ours.probabilities(torch.from_numpy(DATA.test.X).double(), torch.from_numpy(known))
    assert p.numpy() == pytest.approx(expected, abs=1e-2)


def test_the_first_half_of_each_block_tells_the_second():
    classifier = ChainClassifier(3, device="cpu", seed=0).fit(DATA.train.X, DATA.train.Y)
    truth = DATA.test.Y.astype(float)
    known = np.where(np.arange(6) % 3 < 2, truth, np.nan)
    free, held = classifier.predict_proba(DATA.test.X), classifier.predict_proba(DATA.test.X, known)
    assert (held[~np.isnan(known)] == truth[~np.isnan(known)]).all()
    hidden = np.isnan(known)
    log_loss = [-np.log(np.where(truth == 1, p, 1 - p)[hidden]).mean() for p in (free, held)]
    assert log_loss[1] < 0.95 * log_loss[0]
    for decoding in ("threshold", "expected_f1"):
        labels = classifier.decode(free, decoding)
        assert spen.example_f1(truth, labels) > spen.example_f1(truth, np.ones_like(truth))
