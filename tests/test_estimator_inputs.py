"""Whatever holds the numbers, the answer is that of plain arrays; `make torture` tries more."""

import numpy as np
import pytest
from scipy import sparse
from torture.estimators import figures

import spen


def test_containers_types_masks_and_extremes_give_the_answer_of_plain_arrays_or_a_sentence():
    for what, goal, found, reached in figures(0.02):
        assert reached, f"{what}: {found}, not {goal}"


def small() -> spen.SPENClassifier:
    return spen.SPENClassifier("local", hidden=(), epochs=1, folds=1, random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    return X, (X[:, :3] > 0).astype(int)


def test_a_masked_x_is_refused_where_it_hides_something(data):
    X, Y = data
    hidden = np.ma.array(X, mask=np.zeros(X.shape))
    clf = small().fit(hidden, Y)
    assert np.array_equal(clf.predict_proba(hidden), small().fit(X, Y).predict_proba(X))
    hidden[3, 1] = np.ma.masked
    for ask in (lambda: small().fit(hidden, Y), lambda: clf.predict(hidden)):
        with pytest.raises(ValueError, match="NaN"):
            ask()
    for ask in (clf.model_.solve, clf.model_.context):
        with pytest.raises(spen.InputError, match="finite numbers; row 3, column 1"):
            ask(hidden)


def test_hidden_labels_train_and_force_nothing(data):
    X, Y = data
    hide = np.zeros(Y.shape, bool)
    hide[::3, 1] = True
    with_nan = np.where(hide, np.nan, Y)
    for kind in (int, bool, np.float32):
        masked = np.ma.array(Y.astype(kind), mask=hide)
        clf, expected = small().fit(X, masked), small().fit(X, with_nan)
        assert np.array_equal(clf.predict_proba(X), expected.predict_proba(X))
        soft = clf.predict_proba(X, known=masked)
        assert np.array_equal(soft, clf.predict_proba(X, known=with_nan))
        assert ((soft[hide] > 0) & (soft[hide] < 1)).all()


def test_hidden_weights_are_refused(data):
    weight = np.ma.array(np.ones(30), mask=np.arange(30) == 4)
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        small().fit(*data, sample_weight=weight)


def test_rows_are_remembered_only_where_it_was_asked_for(data, tmp_path):
    X, Y = data
    forgets = small().fit(X, Y)
    forgets.save(tmp_path / "forgets.spen")
    for clf in (forgets, spen.load(tmp_path / "forgets.spen")):
        with pytest.raises(spen.InputError, match="remember_rows=True"):
            clf.seen_in_training(X)
    remembers = small().set_params(remember_rows=True).fit(X, Y)
    remembers.save(tmp_path / "remembers.spen")
    for clf in (remembers, spen.load(tmp_path / "remembers.spen")):
        assert clf.seen_in_training(sparse.csr_array(X)).all()
        assert not clf.seen_in_training(X + 1).any()
    digests = remembers.training_rows_.values
    for name, held in (("forgets", False), ("remembers", True)):
        content = (tmp_path / f"{name}.spen").read_bytes()
        assert all((digest.tobytes() in content) == held for digest in digests)
