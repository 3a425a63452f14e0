"""How a solve ended, what counts as the end that was wanted, and what a user hears of it."""

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import spen
from spen.estimators.predictor import warn_unless_converged
from spen.inference.base import Solution, Status

WANTED = {Status.CONVERGED, Status.OPTIMAL}
AS_ASKED = {Status.COMPLETED, Status.BATCH_STOPPED}


def ended(*codes: Status) -> Solution:
    n = len(codes)
    return Solution(torch.zeros(n, 1), torch.zeros(n), torch.ones(n), torch.tensor(codes))


@pytest.mark.parametrize("status", [code for code in Status if code != Status.RUNNING])
def test_an_ending_that_nobody_wanted_warns(status, recwarn):
    solution = ended(Status.OPTIMAL, status)
    assert solution.converged.tolist() == [True, status in WANTED]
    assert solution.cut_off.tolist() == [False, status not in WANTED | AS_ASKED]
    warn_unless_converged([(solution.steps, solution.status)])
    heard = [str(each.message) for each in recwarn if each.category is ConvergenceWarning]
    assert len(heard) == int(solution.cut_off.sum())
    assert all("1 of 2 rows" in text and status.sentence in text for text in heard)


@pytest.mark.parametrize("inference", [spen.Exact(), spen.LinearRelaxation()], ids=["exact", "lp"])
def test_a_classifier_predicts_with_a_proof_and_is_silent(inference, tmp_path):
    data = spen.exclusive_blocks(n_train=60, n_test=20, n_features=8, n_blocks=2)
    clf = spen.SPENClassifier(
        "pairwise", inference, spen.Hinge(), hidden=(), epochs=4, folds=1, random_state=0
    )
    predicted = clf.fit(data.train.X, data.train.Y).predict(data.test.X)
    assert "The minimum was found" in clf.diagnose(data.test.X, data.test.Y).endings
    clf.save(tmp_path / "svm.spen")
    assert (spen.load(tmp_path / "svm.spen").predict(data.test.X) == predicted).all()


def test_a_classifier_whose_messages_do_not_settle_says_so():
    data = spen.exclusive_blocks(n_train=60, n_test=20, n_features=8, n_blocks=2)
    messages = spen.BeliefPropagation(max_steps=1, tolerance=0.0)
    clf = spen.SPENClassifier(
        "pairwise", messages, spen.Hinge(), hidden=(), epochs=4, folds=1, random_state=0
    )
    clf.fit(data.train.X, data.train.Y)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        clf.predict(data.test.X)
