"""The figures of a data set against brute force."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import spen
from spen.batch.splits import RowDigests
from spen.data.dataset import repeated_rows, summarise


def draw(rows, features, labels, seed, missing=0.0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (rows, features)) * rng.choice([1.0, 0.5, -2.0], (rows, features))
    Y = (rng.random((rows, labels)) < 0.3).astype(float)
    return X, np.where(rng.random(Y.shape) < missing, np.nan, Y)


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
)
def test_the_figures_are_those_of_a_plain_count(
    n_train, n_test, features, labels, seed, as_sparse, missing, with_valid
):
    X, Y = draw(n_train + n_test + 2, features, labels, seed, missing)
    form = sparse.csr_array if as_sparse else np.asarray
    cuts = [0, n_train, n_train + n_test, len(X)]
    train, test, valid = (spen.Split(form(X[a:b]), form(Y[a:b])) for a, b in pairwise(cuts))
    names = tuple(f"label {i}" for i in range(labels))
    data = spen.Dataset("set", train, test, (), names, valid if with_valid else None)
    figures = summarise(data, top=4)

    if not with_valid:
        Y = Y[: n_train + n_test]
    sets = [tuple(np.flatnonzero(row == 1)) for row in Y]
    assert figures.rows["train"] == n_train
    assert figures.rows["test"] == n_test
    assert figures.rows.get("valid", 0) == (2 if with_valid else 0)
    assert figures.cardinality == pytest.approx(np.mean([len(s) for s in sets]))
    assert figures.density == pytest.approx(np.nanmean(Y) if not np.isnan(Y).all() else 0)
    assert figures.missing == pytest.approx(np.isnan(Y).mean())
    assert figures.unlabelled == pytest.approx(np.mean([not s for s in sets]))
    assert figures.labelsets == len(set(sets))
    labels_on = Counter(i for s in sets for i in s)
    ranked = sorted(labels_on.items(), key=lambda item: (-item[1], item[0]))[:4]
    assert figures.top_labels == tuple((names[i], count) for i, count in ranked)
    pairs = Counter(pair for s in sets for pair in combinations(s, 2))
    ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:4]
    assert figures.top_pairs == tuple((names[i], names[j], count) for (i, j), count in ranked)
    known = {tuple(row) for row in X[:n_train]}
    repeats = [tuple(row) in known for row in X[n_train : n_train + n_test]]
    assert repeated_rows(train.X, test.X).tolist() == repeats
    assert figures.repeated == sum(repeats)


def test_a_data_set_without_a_test_part_or_without_labels():
    X, Y = draw(5, 3, 2, 0)
    figures = summarise(spen.Dataset("set", spen.Split(X, Y), None, (), ("a", "b")))
    assert figures.repeated is None
    assert figures.rows == {"train": 5}
    with pytest.raises(spen.InputError, match="no labels"):
        summarise(spen.Dataset("set", spen.Split(X, None), None, (), ("a", "b")))


def test_a_row_is_the_same_in_every_form():
    rows = np.array([[0.0, 0.1, -0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [np.nan, 0.0, 1e300, 0.0]])
    odd = sparse.csr_array(
        # Duplicates, unsorted columns and explicit zeros.
        (np.array([1.5, 0.5, 0.1, 0.0]), np.array([3, 3, 1, 0]), np.array([0, 4])),
        shape=(1, 4),
    )
    seen = RowDigests.of(rows)
    assert len(seen.values) == 3
    forms = (
        rows.copy("F"),
        sparse.csr_matrix(rows),
        sparse.coo_array(rows),
        sparse.csc_array(rows),
    )
    for form in forms:
        assert seen.contains(form).all()
    assert seen.contains(odd).all()
    assert odd.nnz == 4, "the caller's matrix is left as it was"
    with np.errstate(over="ignore"):
        assert seen.contains(rows.astype(np.float32)).all()
    assert not seen.contains(rows[:, ::-1].copy())[[0, 2]].any()
    assert RowDigests.of(np.array([[1.0, 0], [0, 1]])).contains([[1, 1], [0, 1]]).tolist() == [
        False,
        True,
    ]


def test_digests_of_pieces_are_those_of_the_whole():
    X, _ = draw(10_000, 6, 1, 3)
    whole = RowDigests.of(X)
    pieces = RowDigests.of(X[:4000]) | RowDigests.of(sparse.csr_array(X[4000:]))
    assert np.array_equal(whole.values, pieces.values)
    assert len(whole.values) == len({tuple(row) for row in X})
    assert RowDigests.of(np.zeros((0, 6))).contains(X[:3]).tolist() == [False] * 3
    with pytest.raises(spen.InputError, match="matrix"):
        RowDigests.of(np.zeros(3))


def test_digests_never_change():
    """They are stored in model files, so they must be the same in every version."""
    assert RowDigests.of([[0.0, 1.0, 0.25]]).values.tolist() == [48711863557109991]
