"""Calibration and scaling: against what they are meant to minimise and to keep."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

from spen.estimators.calibration import RIDGE, Calibration, log_odds
from spen.estimators.scaling import Scaling


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def log_loss(truth, p):
    return -(truth * np.log(p) + (1 - truth) * np.log(1 - p)).sum()


def test_the_scale_and_the_shift_are_those_of_least_penalised_loss():
    """The oracle is a general minimiser of the same loss."""
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((200, 4))
    truth = (rng.random(z.shape) < sigmoid(0.5 * z - 0.4)).astype(float)

    def loss(theta):
        p = sigmoid(theta[0] * z + theta[1])
        return log_loss(truth, p) + RIDGE / 2 * ((theta[0] - 1) ** 2 + theta[1] ** 2)

    scale, shift = minimize(loss, [1.0, 0.0], method="Nelder-Mead", tol=1e-8).x
    fitted = Calibration.of(truth, sigmoid(z), exclusive=False)
    assert fitted.scale == pytest.approx(scale, abs=1e-3)

    def label_loss(delta, label):
        p = sigmoid(scale * z[:, label] + shift + delta[0])
        return log_loss(truth[:, label], p) + RIDGE / 2 * delta[0] ** 2

    own = [minimize(label_loss, [0.0], args=(label,)).x[0] for label in range(4)]
    assert fitted.shift == pytest.approx(shift + np.array(own), abs=5e-3)


def test_shifts_of_few_rows_are_those_of_least_penalised_loss_too():
    """There the ridge is larger than what the rows say."""
    truth, soft = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), np.full((3, 2), 0.5)
    fitted = Calibration.of(truth, soft, exclusive=False)

    def loss(deltas, shift):
        p = sigmoid(shift + deltas)
        return log_loss(truth, np.broadcast_to(p, truth.shape)) + RIDGE / 2 * (deltas**2).sum()

    def common(shift):
        p = np.full(truth.shape, sigmoid(shift[0]))
        return log_loss(truth, p) + RIDGE / 2 * shift[0] ** 2

    shift = minimize(common, [0.0]).x[0]
    own = minimize(loss, [0.0, 0.0], args=(shift,)).x
    assert fitted.shift == pytest.approx(shift + own, abs=5e-3)


def test_overconfident_probabilities_are_softened_and_good_ones_left_alone():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4000, 3))
    truth = (rng.random(z.shape) < sigmoid(z)).astype(float)
    for sharpness in (1.0, 3.0):
        soft = sigmoid(sharpness * z)
        fitted = Calibration.of(truth, soft, exclusive=False)
        assert fitted.scale == pytest.approx(1 / sharpness, rel=0.1)
        assert np.abs(fitted.apply(soft) - sigmoid(z)).max() < 0.05


def test_missing_labels_do_not_count():
    rng = np.random.default_rng(0)
    soft = rng.uniform(0.1, 0.9, (50, 3))
    truth = (rng.random((50, 3)) < soft).astype(float)
    seen = truth.copy()
    seen[30:, 1] = np.nan
    a, b = (
        Calibration.of(t, soft, exclusive=False) for t in (seen, np.where(np.isnan(seen), 1, seen))
    )
    assert a.shift[1] != pytest.approx(b.shift[1], abs=1e-3)
    other = np.where(np.isnan(seen), 1 - 0.1 * soft, soft)
    c = Calibration.of(seen, other, exclusive=False)
    assert c.scale == pytest.approx(a.scale, abs=1e-12), "what is predicted there says nothing"
    assert c.shift == pytest.approx(a.shift, abs=1e-12)
    seen[:, 1] = np.nan
    shared = Calibration.of(seen, soft, exclusive=False).shift
    assert np.isfinite(shared).all()


def test_classes_are_scaled_and_stay_a_distribution():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((3000, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    truth = np.eye(4)[[rng.choice(4, p=row) for row in p]]
    sharp = p**3 / (p**3).sum(1, keepdims=True)
    fitted = Calibration.of(truth, sharp, exclusive=True)
    assert fitted.scale == pytest.approx(1 / 3, rel=0.15)
    soft = fitted.apply(sharp)
    assert np.allclose(soft.sum(1), 1, atol=1e-6)
    assert np.array_equal(soft.argmax(1), sharp.argmax(1))


def test_probabilities_stay_strictly_inside():
    fitted = Calibration(3.0, np.array([40.0, -40.0]), exclusive=False)
    soft = fitted.apply(np.array([[1e-9, 1 - 1e-9], [0.0, 1.0]]))
    assert ((soft > 0) & (soft < 1)).all()
    classes = Calibration(3.0, np.zeros(2), exclusive=True).apply(np.array([[1.0, 0.0]]))
    assert ((classes > 0) & (classes < 1)).all()


def test_dense_features_are_standardised_and_cut_off():
    rng = np.random.default_rng(0)
    X = 1e9 + 5 * rng.standard_normal((500, 3))
    X[:, 2] = 7.0
    X[0, 0] = 1e12
    scaling = Scaling.of(X)
    assert not scaling.sparse
    scaled = scaling.transform(X)
    assert scaled.dtype == np.float32
    assert scaled[:, 1].mean() == pytest.approx(0, abs=1e-3)
    assert scaled[:, 1].std() == pytest.approx(1, abs=1e-3)
    assert (scaled[:, 2] == 0).all()
    assert scaled.max() == 6


def test_sparse_features_stay_sparse_and_rows_have_one_length():
    X = sparse.random(60, 20, 0.2, format="csr", random_state=0) * 100
    before = X.copy()
    scaling = Scaling.of(X)
    scaled = scaling.transform(X)
    assert sparse.issparse(scaled)
    assert (abs(X - before)).nnz == 0, "the user's matrix is not touched"
    assert scaled.nnz == X.nnz
    norms = np.sqrt(scaled.multiply(scaled).sum(1))
    assert np.allclose(norms[np.diff(X.indptr) > 0], np.sqrt(X.nnz / 60), rtol=1e-5)
    dense = scaling.transform(X.toarray())
    assert np.array_equal(dense.toarray(), scaled.toarray())
    # Mostly zero, so the same rule, whatever the matrix is kept in.
    same = Scaling.of(X.toarray())
    assert same.sparse
    assert np.allclose(same.scale, scaling.scale)
    # A row's scaling does not depend on its neighbours.
    assert np.array_equal(scaling.transform(X[:1]).toarray(), scaled[:1].toarray())


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
def test_sparse_scaling_is_its_formula_whatever_the_matrix_is_kept_in(kind):
    dense = sparse.random(30, 12, 0.3, random_state=0).toarray() * 100
    dense = np.round(dense).astype(kind)
    dense[3] = 0
    scaling = Scaling.of(sparse.csr_array(dense))
    wide = dense / scaling.scale
    norms = np.sqrt((wide**2).sum(1, keepdims=True))
    expected = wide * scaling.length / np.where(norms > 0, norms, 1)
    # Entries out of order, and some in two parts.
    parts = sparse.coo_array(dense)
    rows, columns = (np.concatenate([a, a])[::-1] for a in parts.coords)
    half = (parts.data // 2).astype(kind)
    values = np.concatenate([half, parts.data - half])[::-1]
    order = np.argsort(rows, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=30))])
    untidy = sparse.csr_array((values[order], columns[order], offsets), shape=dense.shape)
    before = untidy.copy()
    for X in (dense, sparse.csr_matrix(dense), sparse.csc_array(dense), untidy):
        scaled = scaling.transform(X)
        assert scaled.dtype == np.float32
        assert scaled.has_canonical_format
        np.testing.assert_allclose(scaled.toarray(), expected, rtol=1e-6)
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(untidy, name), getattr(before, name))


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e150, 1e290])
def test_sparse_rows_of_any_size_have_the_same_length(size):
    """And the rows beside them, an empty one among them, are what they are without them."""
    rng = np.random.default_rng(0)
    X = rng.random((20, 30)) * (rng.random((20, 30)) < 0.2)
    X[3] = 0
    scaling = Scaling.of(sparse.csr_array(X))
    plain = scaling.transform(sparse.csr_array(X)).toarray()
    X[5] *= size
    mixed = scaling.transform(sparse.csr_array(X)).toarray()
    others = np.delete(np.arange(20), 5)
    np.testing.assert_array_equal(mixed[others], plain[others])
    np.testing.assert_allclose(mixed[5], plain[5], rtol=1e-6)
    assert not mixed[3].any()


def test_calibration_is_its_formula_and_leaves_what_it_is_given():
    rng = np.random.default_rng(0)
    soft = rng.random((20, 3)).astype(np.float32)
    soft[0] = [0.0, 1.0, 0.5]
    before, shift = soft.copy(), np.array([0.3, -0.2, 0.0])
    got = Calibration(0.7, shift, exclusive=False).apply(soft)
    p = np.clip(soft.astype(float), 1e-7, 1 - 1e-7)
    expected = sigmoid(np.clip(0.7 * np.log(p / (1 - p)) + shift, -15, 15))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert np.array_equal(soft, before)
    assert shift.tolist() == [0.3, -0.2, 0.0]


def test_between_nothing_known_and_half_of_it_the_calibration_is_between():
    soft = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    half = Calibration(0.5, np.array([1.0, 0.0, -1.0, 0.5]), exclusive=False)
    nothing = Calibration(1.0, np.zeros(4), exclusive=False)
    both = replace(nothing, half=half)
    known = torch.full((3, 4), torch.nan)
    known[1, 0], known[2, :3] = 1.0, 0.0
    got = both.apply(soft, known)
    z = np.log(soft.astype(float) / (1 - soft.astype(float)))
    np.testing.assert_allclose(got[0], soft[0], rtol=1e-5)
    # A quarter is half of the way; beyond a half there is nothing more.
    np.testing.assert_allclose(got[1], sigmoid(0.75 * z[1] + 0.5 * half.shift), rtol=1e-5)
    np.testing.assert_allclose(got[2], half.apply(soft)[2], rtol=1e-5)


def test_log_odds_are_finite_at_both_ends():
    low, high = log_odds(0.0), log_odds(1.0)
    assert np.isfinite([low, high]).all()
    assert high == pytest.approx(53 * np.log(2))
    assert low < -700
