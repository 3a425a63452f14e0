"""The short way past scikit-learn's checks: the same rows, errors and warnings as the long one."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

import spen.estimators.scaling
from spen.estimators.scaling import CHECKS, checked_rows


class Fitted(BaseEstimator):
    def __init__(self, names=None):
        self.names = names

    def fit(self, X):
        self.n_features_in_ = 3
        if self.names is not None:
            self.feature_names_in_ = np.array(self.names, dtype=object)
        return self


DENSE = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, -1.0]])
HUGE = np.full((1, 3), np.finfo(np.float64).max)


def with_entry(matrix, value):
    changed = matrix.copy()
    changed[0, 1] = value
    return changed


class Subclass(np.ndarray):
    pass


GOOD = [
    DENSE,
    DENSE[:1],
    DENSE.astype(np.float32),
    np.asfortranarray(DENSE),
    np.repeat(DENSE, 2, axis=0)[::2],
    sparse.csr_array(DENSE),
    sparse.csr_matrix(DENSE.astype(np.float32)),
    sparse.csr_array((1, 3)),
    sparse.csr_array((np.ones(2), [1, 1], [0, 2]), shape=(1, 3)),
]
OTHERS = [
    HUGE,
    sparse.csr_array(HUGE),
    DENSE.tolist(),
    DENSE.astype(int),
    DENSE.astype(">f8"),
    DENSE.astype(np.float16),
    DENSE.astype(object),
    DENSE.view(Subclass),
    sparse.coo_array(DENSE),
    sparse.csc_matrix(DENSE),
    sparse.csr_array(DENSE.astype(int)),
]
BAD = [
    with_entry(DENSE, np.nan),
    with_entry(DENSE, np.inf),
    np.array([[np.inf, -np.inf, 0.0]]),
    sparse.csr_array(with_entry(DENSE, np.nan)),
    sparse.csr_matrix(with_entry(DENSE, -np.inf)),
    DENSE[:, :2],
    sparse.csr_array(DENSE[:, :2]),
    DENSE[:0],
    sparse.csr_array((0, 3)),
    DENSE[0],
    DENSE[None],
    np.float64(1.0),
    DENSE.astype(complex),
    np.array([["a", "b", "c"]]),
    np.matrix(DENSE),
    None,
]


def outcome(check: Any, X: Any) -> tuple[Any, Any, list[Any]]:
    """What a check returns, raises and warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result, error = check(X), None
        except Exception as problem:
            result, error = None, (type(problem), str(problem))
    return result, error, [(each.category, str(each.message)) for each in told]


@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("X", GOOD + OTHERS + BAD, ids=repr)
def test_every_input_comes_out_as_scikit_learn_has_it(X, names):
    clf = Fitted(names).fit(DENSE)
    got, error, told = outcome(lambda X: checked_rows(clf, X), X)
    expected, expected_error, expected_told = outcome(
        lambda X: validate_data(clf, X, reset=False, **CHECKS), X
    )
    assert (error, told) == (expected_error, expected_told)
    if error is None:
        assert type(got) is type(expected)
        assert got.dtype == expected.dtype
        assert (got is X) == (expected is X)
        if sparse.issparse(got):
            got, expected = got.toarray(), expected.toarray()
        np.testing.assert_array_equal(got, expected)


def test_plain_good_rows_skip_the_long_way(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the long way was taken")

    clf = Fitted().fit(DENSE)
    monkeypatch.setattr(spen.estimators.scaling, "validate_data", refuse)
    for X in GOOD:
        assert checked_rows(clf, X) is X
    for X in OTHERS + BAD:
        with pytest.raises(AssertionError, match="the long way"):
            checked_rows(clf, X)


def test_before_fit_there_is_nothing_to_compare_with():
    for X in (DENSE, None):
        with pytest.raises(NotFittedError):
            checked_rows(Fitted(), X)
