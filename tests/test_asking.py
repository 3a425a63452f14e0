"""Which label to ask next: against brute force over ``predict_proba``, label by label."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import spen
from spen.batch.limits import limits

L = 6
NAMES = [f"label {k}" for k in range(L)]


def rows(n, seed=0, zeros=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8)) * (rng.random((n, 8)) >= zeros)
    one = rng.integers(0, L, n)
    Y = (rng.random((n, L)) < 0.3).astype(int)
    Y[:, 1] = Y[:, 0] ^ (rng.random(n) < 0.05)
    Y[:, 2] = Y[:, 0] | Y[:, 3]
    Y[np.arange(n), one] |= X[:, 0] > 0
    return X, Y


SETTINGS = {
    "the default": {},
    "cross-fitted": {"cross_fit": True, "folds": 2, "base": None},
    "a descent that converges": {
        "objective": spen.Hinge(entropy=1.0),
        "inference": spen.Descent(stopping=spen.Stopping(2000)),
    },
    "conditional": {"energy": "conditional"},
}


def model(**settings):
    X, Y = rows(300)
    quick = {"hidden": (), "epochs": 15, "random_state": 0}
    return spen.SPENClassifier(**(quick | settings)).fit(X, Y, label_names=NAMES)


@pytest.fixture(scope="module", params=SETTINGS)
def fitted(request):
    return model(**SETTINGS[request.param])


@pytest.fixture(scope="module")
def plain():
    return model()


def entropy(p):
    p = p.astype(np.float64)
    return -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum()


def by_hand(clf, x, known, label):
    """Return p and the gain of one label of one row, by three calls of ``predict_proba``."""
    others = np.isnan(known)
    others[label] = False
    yes, no = known.copy(), known.copy()
    yes[label], no[label] = 1, 0
    now, on, off = (clf.predict_proba(x[None], held[None])[0] for held in (known, yes, no))
    p, on, off = float(now[label]), on[others], off[others]
    return p, entropy(p * on + (1 - p) * off) - p * entropy(on) - (1 - p) * entropy(off)


def some_known(n):
    known = np.full((n, L), np.nan)
    known[0, 2], known[1, :3], known[2, 5] = 1, 0, 1
    return known


def test_gains_are_those_of_brute_force(fitted):
    X, known = rows(5, seed=1)[0], some_known(5)
    for held in (None, known):
        found = fitted.next_question(X, known=held, k=L)
        given = np.full((5, L), np.nan) if held is None else held
        assert [len(each) for each in found] == np.isnan(given).sum(1).tolist()
        for row, each in enumerate(found):
            assert sorted(q.index for q in each) == np.flatnonzero(np.isnan(given[row])).tolist()
            for question in each:
                p, gain = by_hand(fitted, X[row], given[row], question.index)
                assert question.label == NAMES[question.index]
                assert question.probability == pytest.approx(p, abs=1e-5)
                assert question.gain == pytest.approx(gain, abs=2e-5)
            gains = [q.gain for q in each]
            assert gains == sorted(gains, reverse=True)
            assert min(gains) > -1e-9


def test_of_one_joint_distribution_the_gain_is_the_entropy_that_an_answer_takes_off(monkeypatch):
    """The probabilities are those of a table of all labellings, by enumeration."""
    clf = model(epochs=1)
    every = np.array(list(np.ndindex(*[2] * L)), dtype=np.float32)
    weight = np.random.default_rng(5).random(len(every)) ** 4

    def marginals(self, y, known=None):
        given = np.full((len(y), L), np.nan) if known is None else np.asarray(known)
        fits = (np.isnan(given)[:, None] | (given[:, None] == every)).all(2) * weight
        return torch.from_numpy((fits @ every / fits.sum(1, keepdims=True)).astype(np.float32))

    monkeypatch.setattr(spen.Predictor, "calibrate", marginals)
    known = np.full((2, L), np.nan)
    known[1, 3] = 1
    for row, each in enumerate(clf.next_question(rows(2)[0], known, k=L)):
        now = marginals(None, np.zeros((1, L)), known[row : row + 1])[0].numpy()
        for question in each:
            others = np.isnan(known[row])
            others[question.index] = False
            expected = entropy(now[others])
            for value, share in ((1, question.probability), (0, 1 - question.probability)):
                held = known[row : row + 1].copy()
                held[0, question.index] = value
                after = marginals(None, np.zeros((1, L)), held)[0].numpy()
                expected -= share * entropy(after[others])
            assert question.gain == pytest.approx(expected, abs=1e-5)


def test_a_label_that_decides_others_is_asked_before_one_that_stands_alone():
    """Inputs say nothing; labels 0 to 3 are one coin, labels 4 and 5 are coins of their own."""
    rng = np.random.default_rng(0)
    X, coins = rng.standard_normal((600, 4)), rng.integers(0, 2, (600, 3))
    settings = {"hidden": (), "epochs": 40, "random_state": 0}
    clf = spen.SPENClassifier(**settings).fit(X, coins[:, [0, 0, 0, 0, 1, 2]])
    for each in clf.next_question(rng.standard_normal((20, 4)), k=L):
        gains = {q.index: q.gain for q in each}
        assert min(gains[i] for i in range(4)) > 0.5 > 5 * max(gains[4], gains[5])
    # Once one of them is known, the others have told it, and the coins apart tell nothing yet.
    for each in clf.next_question(X[:5], known={0: 1}, k=L):
        gains = {q.index: q.gain for q in each}
        assert min(gains[i] for i in range(1, 4)) > 5 * max(gains[4], gains[5])


def test_a_row_alone_and_rows_cut_anywhere_have_the_same_answer(plain, monkeypatch):
    X, known = rows(40, seed=3)[0], some_known(40)

    def values(found):
        return np.array([(q.index, q.probability, q.gain) for each in found for q in each])

    whole = plain.next_question(X, known, k=3)
    alone = [plain.next_question(X[i : i + 1], known[i : i + 1], k=3)[0] for i in range(40)]
    assert np.allclose(values(whole), values(alone), atol=1e-5)
    monkeypatch.setattr(limits, "chunk", 1)  # 32 rows and 16 candidates at a time
    assert np.allclose(values(whole), values(plain.next_question(X, known, k=3)), atol=1e-6)


def test_only_what_may_be_asked_is_asked(plain):
    X, known = rows(6, seed=4)[0], some_known(6)
    may = np.random.default_rng(0).random((6, L)) < 0.5
    may[5] = False
    everything = plain.next_question(X, known, k=L)
    for among, allowed in (
        (may, may),
        (may[0], np.tile(may[0], (6, 1))),
        (["label 1", "label 4"], np.tile(np.isin(range(L), [1, 4]), (6, 1))),
        (np.array([1, 4]), np.tile(np.isin(range(L), [1, 4]), (6, 1))),
        ("label 2", np.tile(np.isin(range(L), [2]), (6, 1))),
        ([], np.zeros((6, L), bool)),
    ):
        found = plain.next_question(X, known, k=L, among=among)
        for row, (some, all_of_them) in enumerate(zip(found, everything, strict=True)):
            expected = [q for q in all_of_them if allowed[row, q.index]]
            assert [q.index for q in some] == [q.index for q in expected]
            assert [q.gain for q in some] == pytest.approx([q.gain for q in expected], abs=1e-6)
    for wrong, words in (
        (["label 9"], "Did you mean"),
        ([6], "no label of this model"),
        ([1.5], "no label of this model"),
        (may[:, 1:], r"among must have shape \(6,\) or \(6, 6\)"),
        ([[1, 2]], "must be a list of labels"),
    ):
        with pytest.raises(spen.InputError, match=words):
            plain.next_question(X, among=wrong)


def test_known_labels_come_in_every_form(plain):
    X = rows(3, seed=5)[0]
    known = np.full((3, L), np.nan)
    known[:, 1], known[:, 3] = 1, 0
    expected = plain.next_question(X, known, k=2)
    by_name = {"label 1": 1, "label 3": 0}
    for form in (by_name, [by_name] * 3, pd.DataFrame([by_name] * 3), known.tolist()):
        assert plain.next_question(X, form, k=2) == expected
    assert plain.next_question(X, np.ones((3, L)), k=2) == [[], [], []]


def test_the_shortlist_is_of_the_most_uncertain_labels(plain):
    X = rows(8, seed=6)[0]
    soft = plain.predict_proba(X)
    for row, each in enumerate(plain.next_question(X, k=1, shortlist=2)):
        nearest = np.argsort(np.abs(soft[row] - 0.5))[:2]
        allowed = plain.next_question(X[row : row + 1], k=2, among=nearest)[0]
        assert each[0].index == allowed[0].index
    assert plain.next_question(X, k=L, shortlist=1) == plain.next_question(X, k=L, shortlist=None)


def test_a_model_that_links_no_labels_gains_nothing_and_asks_what_is_most_uncertain():
    clf = model(energy="local")
    X = rows(4, seed=7)[0]
    doubt = np.abs(clf.predict_proba(X).astype(float) - 0.5)
    for row, each in enumerate(clf.next_question(X, k=L)):
        assert [q.gain for q in each] == [0.0] * L
        assert [q.index for q in each] == np.argsort(doubt[row], kind="stable").tolist()


def test_sparse_rows_and_tables_are_asked_about_too():
    X, Y = rows(200, zeros=0.8)
    quick = {"hidden": (8,), "epochs": 3, "random_state": 0, "cross_fit": True, "folds": 2}
    clf = spen.SPENClassifier(**quick).fit(sparse.csr_matrix(X), Y)
    some = X[:3]
    assert clf.next_question(sparse.csr_matrix(some)) == clf.next_question(some)
    assert {q.label for q in clf.next_question(some, k=L)[0]} == set(range(L))
    table = pd.DataFrame({"words": np.where(X[:, 0] > 0, "sun", "sea"), "number": X[:, 1]})
    clf = spen.SPENClassifier(hidden=(), epochs=2, random_state=0).fit(table, Y)
    assert [len(each) for each in clf.next_question(table[:2])] == [5, 5]


def test_what_cannot_be_asked_is_refused_in_words(plain):
    X, Y = rows(60)
    classes = spen.SPENClassifier(hidden=(), epochs=1).fit(X, Y[:, 0] + Y[:, 3])
    with pytest.raises(spen.InputError, match="predicts one class a row"):
        classes.next_question(X)
    with pytest.raises(spen.InputError, match="For a mask give True and False"):
        plain.next_question(X, among=np.array([0, 1, 0, 0, 1, 0]))
    with pytest.raises(spen.InputError, match="one of 1, 0 or nan for each name"):
        plain.next_question(X[:2], known={NAMES[0]: [1, 0]})
    for wrong in ({"k": 0}, {"k": 1.5}, {"shortlist": 0}):
        with pytest.raises(spen.InputError, match="must be a whole number"):
            plain.next_question(X, **wrong)
