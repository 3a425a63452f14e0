"""One row at a time: the same answers as in a batch, in whatever form the row comes."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import spen
from spen.estimators.plan import Prediction

FORMS = {
    "ndarray": lambda row: row,
    "float32": lambda row: row.astype(np.float32),
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "list": lambda row: row.tolist(),
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = np.round((rng.random((90, 30)) < 0.15) * rng.integers(1, 4, (90, 30)), 1).astype(float)
    Y = X @ rng.standard_normal((30, 6)) > 1
    return X, Y.astype(int)


@pytest.fixture(scope="module", params=["unrolled", "hinge"])
def fitted(request, data):
    clf = spen.SPENClassifier(
        objective=request.param, hidden=(16,), epochs=3, dropout=0.1, folds=1, random_state=0
    )
    return clf.fit(*data)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("form", FORMS)
def test_a_row_alone_is_predicted_as_in_a_batch(fitted, data, form):
    X = data[0][:20]
    soft, labels = fitted.predict_proba(X), fitted.predict(X)
    for i in range(len(X)):
        row = FORMS[form](X[i : i + 1])
        np.testing.assert_allclose(fitted.predict_proba(row), soft[i : i + 1], atol=1e-5)
        assert np.array_equal(fitted.predict(row), labels[i : i + 1])
    sets = fitted.predict(FORMS[form](X), sparse=True)
    assert np.array_equal(sets.toarray(), labels)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fit_at_once", [4096, 20])
def test_more_rows_than_fit_at_once_are_cut_and_joined(fitted, data, monkeypatch, fit_at_once):
    X = sparse.csr_matrix(data[0])
    known = np.full((len(data[0]), 6), np.nan)
    known[::2, 1] = 1
    truth = sparse.csr_matrix(data[1])

    def answers():
        yield from (fitted.predict(X), fitted.predict(X, known=known))
        yield from (fitted.predict(X, polish=True), fitted.predict(X, sparse=True).toarray())
        yield from (fitted.predict_proba(X), fitted.predict_proba(X, known=known))
        yield from (fitted.decision_function(X), fitted.energy(X, truth))
        found = fitted.diagnose(X, truth)
        yield from (found.steps, np.array([found.converged, found.search_errors]))
        yield np.array([len(names) for names in fitted.predict_labels(X)])

    # Very wide rows are cut once more, inside of each chunk.
    monkeypatch.setattr(spen.batch.rows, "LARGEST_DENSE_BATCH", fit_at_once * X.shape[1])
    whole = list(answers())
    # 6 labels of 4 bytes; never fewer than 32 rows, which is where the bits would change.
    for rows, chunks in ((1, 3), (37, 3), (64, 2)):
        monkeypatch.setattr(spen.limits, "chunk", rows * 6 * 4)
        assert len(list(fitted.predictor_.chunks(X))) == chunks
        for part, expected in zip(answers(), whole, strict=True):
            assert np.array_equal(part, expected)
            assert part.dtype == expected.dtype


def test_all_chunks_warn_together(fitted, data, monkeypatch):
    slow = spen.Descent(spen.MirrorDescent(1e-3, 0.0), spen.Stopping(2, 0.0, 1e-9))
    predictor = replace(fitted.predictor_, prediction=Prediction(spen.Hinge(), slow))
    monkeypatch.setattr(fitted, "predictor_", predictor)
    monkeypatch.setattr(spen.limits, "chunk", 32 * 6 * 4)
    for ask in (fitted.predict, fitted.predict_proba, fitted.decision_function):
        with pytest.warns(ConvergenceWarning, match="did not converge for 90 of 90 rows") as told:
            ask(data[0])
        assert [each.filename for each in told] == [__file__]
