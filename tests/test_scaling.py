"""Scaling goes by numbers: not by what holds them, nor by how large they are."""

import numpy as np
import pytest
from scipy import sparse

import spen
from spen.estimators.scaling import Scaling

RNG = np.random.default_rng(0)
SETTINGS = {"hidden": (8,), "epochs": 2, "dropout": 0.0, "input_dropout": 0.3, "random_state": 0}
SETTINGS |= {"device": "cpu", "folds": 1, "cross_fit": False, "linear_member": False}


def with_zeros_written_out(X):
    rows, columns = np.indices(X.shape)
    return sparse.csr_array((X.ravel(), (rows.ravel(), columns.ravel())), shape=X.shape)


CONTAINERS = {
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "columns first": np.asfortranarray,
    "zeros written out": with_zeros_written_out,
    "every second row": lambda X: np.repeat(X, 2, axis=0)[::2],
}


def rows(density, add):
    X = RNG.normal(size=(80, 9)) * (RNG.random((80, 9)) < density) + add
    return X, (X[:, :3] + RNG.normal(size=(80, 3)) > add).astype(int)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("density", "add"), [(0.1, 0.0), (0.6, 0.0), (0.1, 10.0)])
def test_the_same_numbers_give_the_same_model(container, density, add):
    X, Y = rows(density, add)
    held = CONTAINERS[container](X)
    plain = spen.SPENClassifier(**SETTINGS).fit(X, Y)
    other = spen.SPENClassifier(**SETTINGS).fit(held, Y)
    weights = other.model_.state_dict()
    assert all((weights[name] == t).all() for name, t in plain.model_.state_dict().items())
    assert (other.predict_proba(held) == plain.predict_proba(X)).all()


@pytest.mark.parametrize("size", [1e160, 1e300, 1e-200, 1e-310])
@pytest.mark.parametrize(("density", "add"), [(0.1, 0.0), (0.6, 0.0), (0.1, 10.0)])
def test_very_large_and_very_small_numbers_keep_what_they_say(size, density, add):
    X, _ = rows(density, add)
    plain = Scaling.of(X).transform(X)
    scaled = Scaling.of(X * size).transform(X * size)
    if sparse.issparse(plain):
        plain, scaled = plain.toarray(), scaled.toarray()
    assert np.abs(plain).max() > 0.9
    np.testing.assert_allclose(scaled, plain, rtol=1e-3, atol=1e-3)


def test_opposite_ends_of_what_a_number_can_be_are_far_apart():
    X = np.array([[1.7e308], [-1.7e308], [1.7e308], [-1.7e308]])
    scaling = Scaling.of(X)
    np.testing.assert_allclose(scaling.transform(X).ravel(), [1, -1, 1, -1])


def test_columns_are_measured_a_few_at_a_time(monkeypatch):
    X, _ = rows(0.6, 1.0)
    X = np.tile(X, (1, 5))
    at_once = Scaling.of(X)
    monkeypatch.setattr("spen.estimators.scaling.COLUMNS_AT_ONCE", 1)
    some = Scaling.of(sparse.csr_array(X))
    assert (at_once.shift == some.shift).all()
    assert (at_once.scale == some.scale).all()
