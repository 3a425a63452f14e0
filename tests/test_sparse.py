"""Sparse inputs and labels: the same numbers as dense ones, and never made dense."""

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import spen
from spen.batch.rows import (
    PaddedRows,
    SparseRows,
    affine,
    compressed_rows,
    densify,
    filled_batch,
    whole_batch,
)
from spen.batch.splits import RowDigests, Split

MATRICES = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 5)),
    elements=st.sampled_from([0.0, 0.0, 1.0, -2.5]),
)


@given(MATRICES, st.data())
def test_rows_of_a_sparse_matrix_are_those_of_the_dense_one(dense, data):
    index = data.draw(st.lists(st.integers(0, len(dense) - 1), max_size=8))
    rows = torch.tensor(index, dtype=torch.int64)
    batch = SparseRows(sparse.csr_array(dense))[rows]
    assert batch.shape == (len(index), dense.shape[1])
    assert torch.equal(densify(batch), torch.from_numpy(dense)[rows])
    weight = torch.arange(dense.shape[1] * 3.0).reshape(-1, 3)
    bias = torch.tensor([1.0, 0.0, -1.0])
    expected = affine(torch.from_numpy(dense)[rows], weight, bias)
    assert torch.allclose(affine(batch, weight, bias), expected)


@given(MATRICES, st.data())
def test_consecutive_rows_are_filled_up_alike_sparse_and_dense(dense, data):
    first = data.draw(st.integers(0, len(dense) - 1))
    last = data.draw(st.integers(first + 1, len(dense)))
    tile = data.draw(st.integers(1, 4))
    rows = SparseRows(sparse.csr_array(dense))
    expected = torch.from_numpy(dense[first:last])
    while len(expected) % tile:
        expected = torch.cat([expected, expected[-1:]])
    batch = filled_batch(rows, first, last, tile)
    assert batch.shape == expected.shape
    assert torch.equal(densify(batch), expected)
    assert torch.equal(filled_batch(torch.from_numpy(dense), first, last, tile), expected)
    # What a GPU holds of a sparse matrix, here on the CPU.
    rows._copy = PaddedRows.of(rows.matrix, torch.device("cpu"))
    assert torch.equal(densify(filled_batch(rows, first, last, tile)), expected)
    assert torch.equal(densify(whole_batch(rows)), torch.from_numpy(dense))


def test_repeated_entries_add_up_and_the_users_matrix_stays_as_it_is():
    matrix = sparse.csr_array((np.ones(3), [1, 1, 0], [0, 3]), shape=(1, 2))
    batch = SparseRows(matrix)[torch.tensor([0])]
    assert densify(batch).tolist() == [[1.0, 2.0]]
    assert matrix.nnz == 3


LABELS = np.array([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 1, 0, 0]] * 8)


def unlike(matrix, *, repeated=False):
    """The same matrix with its entries out of order, room at its end, and entries in two parts."""
    plain = sparse.csr_array(matrix, dtype=float)
    parts = [
        (plain.indices[span][::-1], plain.data[span][::-1])
        for span in map(slice, plain.indptr[:-1], plain.indptr[1:])
    ]
    if repeated:
        parts = [(np.r_[c, c], np.r_[v, v] / 2) for c, v in parts]
    result = sparse.csr_array(plain.shape)
    result.indptr = np.cumsum([0, *(len(c) for c, _ in parts)])
    result.indices = np.concatenate([*(c for c, _ in parts), [99]]).astype(np.int64)
    result.data = np.concatenate([*(v for _, v in parts), [np.nan]])
    return result


def parts_of(matrix):
    return [part.tobytes() for part in (matrix.indptr, matrix.indices, matrix.data)]


def fitted(X, Y):
    clf = spen.SPENClassifier("local", hidden=(), epochs=1, folds=1, random_state=0)
    return clf.set_params(remember_rows=True).fit(X, Y)


@pytest.mark.parametrize("repeated", [False, True])
def test_fit_and_predict_leave_sparse_matrices_as_they_are(repeated):
    X = sparse.random(32, 6, density=0.5, format="csr", random_state=0)
    own = [unlike(each, repeated=repeated) for each in (X, LABELS)]
    before = [parts_of(matrix) for matrix in own]
    clf, expected = fitted(*own), fitted(X, LABELS.astype(float))
    assert np.array_equal(clf.predict_proba(own[0]), expected.predict_proba(X))
    assert np.array_equal(clf.predict(own[0]), expected.predict(X))
    assert np.array_equal(clf.energy(*own), expected.energy(X, LABELS))
    assert str(clf.diagnose(*own)) == str(expected.diagnose(X, LABELS))
    assert expected.seen_in_training(own[0]).all()
    assert spen.example_f1(own[1], clf.predict(X)) == spen.example_f1(LABELS, clf.predict(X))
    assert [parts_of(matrix) for matrix in own] == before


def test_flags_that_are_out_of_date_do_not_deceive():
    matrix = unlike(np.eye(3) + 1)
    matrix.has_canonical_format = True
    assert compressed_rows(matrix, "X").indices.tolist() == [0, 1, 2] * 3


def broken(kind, part, place, value=None):
    """A matrix with one number of one of its parts changed, or without its last."""
    matrix = kind(LABELS * 1.0)
    changed = getattr(matrix, part).copy()
    if value is None:
        changed = changed[:-1]
    else:
        changed[place] = value
    setattr(matrix, part, changed)
    return matrix


BROKEN = [
    *((sparse.csr_array, "indices", place, bad) for place in (0, 3, -1) for bad in (-1, 5, 10**9)),
    *((sparse.csr_matrix, "indptr", place, bad) for place in (0, 3, -1) for bad in (-4, 60, 10**9)),
    *((sparse.csr_array, part, 0, None) for part in ("indices", "indptr", "data")),
    *((sparse.csc_array, "indices", 0, bad) for bad in (-1, 32, 10**9)),
    (sparse.csc_matrix, "indptr", 3, 10**9),
    (lambda _: sparse.csr_array((32, 5)), "indptr", 3, 9),
    *((sparse.coo_array, part, 0, bad) for part in ("row", "col") for bad in (-1, 10**9)),
    (sparse.coo_matrix, "data", 0, None),
    (sparse.bsr_array, "indices", 0, 10**6),
    (sparse.dia_array, "offsets", 0, None),
    (sparse.lil_array, "data", 1, [1.0]),
    (sparse.lil_array, "rows", 1, [1, 10**9]),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case[0].__name__} {case[1:]}")
def test_indices_outside_of_a_matrix_are_refused_wherever_it_comes_in(case, labelled):
    clf, X = labelled
    bad = broken(*case)
    model = clf.model_
    stage = spen.Stage("all", spen.CrossEntropy(), parts=("local",), epochs=1)
    for entrance in (
        lambda: compressed_rows(bad, "it"),
        lambda: fitted(bad, LABELS),
        lambda: fitted(X, bad),
        lambda: clf.predict(bad),
        lambda: clf.predict_proba(bad),
        lambda: clf.energy(bad, LABELS),
        lambda: clf.energy(X, bad),
        lambda: clf.diagnose(X, bad),
        lambda: clf.seen_in_training(bad),
        lambda: model.solve(bad),
        lambda: model.energy_of(bad, LABELS),
        lambda: model.context(bad),
        lambda: spen.train(model, [stage], (bad, LABELS)),
        lambda: spen.train(model, [stage], (X, bad)),
        lambda: RowDigests.of(bad),
        lambda: spen.hold_out(Split(bad, LABELS), 0.5, seed=0),
        lambda: spen.example_f1(bad, LABELS),
        lambda: spen.metrics.precision_at_k(bad, LABELS, 1),
        lambda: spen.estimators.decoding.tune_threshold(bad, LABELS),
    ):
        with pytest.raises(spen.InputError, match="not a sound sparse matrix"):
            entrance()


@pytest.fixture(scope="module")
def labelled():
    X = np.random.default_rng(0).standard_normal((32, 5))
    return fitted(X, LABELS), X


def model_of(features: spen.Features) -> spen.SPEN:
    energy = spen.LocalEnergy(features.n_features, 4) + spen.LabelEnergy(4, 3, "softplus")
    return spen.SPEN(features, energy, spen.UnitBox(4), seed=0)


@pytest.fixture
def sparse_rows() -> Split:
    rng = np.random.default_rng(0)
    X = (rng.random((60, 12)) < 0.2) * rng.standard_normal((60, 12))
    return Split(sparse.csr_matrix(X), sparse.csr_matrix(rng.random((60, 4)) < 0.3))


@pytest.mark.parametrize("features", [spen.MLP(12, 6), spen.Identity(12), spen.Linear(12, 3)])
def test_training_and_predicting_on_sparse_rows_is_that_on_dense_rows(features, sparse_rows):
    dense_rows = Split(sparse_rows.X.toarray(), sparse_rows.Y.toarray().astype(float))
    few_steps = spen.Descent(stopping=spen.Stopping(8))
    stage = spen.Stage("all", spen.UnrolledLikelihood(1.0), few_steps, epochs=2, batch_size=16)
    # To the end and in double precision: by which step a tolerance is met, and which of two
    # iterates near a flat minimum is the better one, is decided by rounding.
    inference = spen.Descent(stopping=spen.Stopping(200, objective_rtol=0, iterate_atol=1e-6))
    answers = []
    for rows in (sparse_rows, dense_rows):
        model = model_of(features).double()
        history = spen.train(model, [stage], rows, rows, seed=0)
        energy = model.energy_of(rows.X, np.ones((60, 4)))
        y = model.solve(rows.X, inference, entropy=1.0).y
        answers.append((history.epochs[-1].loss, y, energy))
    (loss, y, energy), (dense_loss, dense_y, dense_energy) = answers
    assert loss == pytest.approx(dense_loss, rel=1e-6)
    assert torch.allclose(y, dense_y, atol=1e-6)
    assert torch.allclose(energy, dense_energy, atol=1e-6)


def test_a_checkpoint_knows_sparse_rows_apart(tmp_path, sparse_rows):
    stage = spen.Stage("all", spen.CrossEntropy(), parts=("features", "local"), epochs=1)
    path = tmp_path / "run.ckpt"
    spen.train(model_of(spen.MLP(12, 6)), [stage], sparse_rows, checkpoint=path)
    other = Split(sparse_rows.X * 2, sparse_rows.Y)
    with pytest.raises(spen.CheckpointError, match="differs in training rows"):
        spen.train(model_of(spen.MLP(12, 6)), [stage], other, checkpoint=path, resume=True)


def test_bad_sparse_input_is_named(sparse_rows):
    model = model_of(spen.MLP(12, 6))
    bad = sparse_rows.X.copy()
    bad.data[0] = np.inf
    with pytest.raises(spen.InputError, match="X must hold finite numbers"):
        model.solve(bad)
    with pytest.raises(spen.InputError, match="must have 12 columns"):
        model.solve(sparse_rows.X[:, :5])
    stage = spen.Stage("all", spen.CrossEntropy(), parts=("local",))
    with pytest.raises(spen.InputError, match="only 0 and 1"):
        spen.train(model, [stage], (sparse_rows.X, sparse_rows.Y * 2.0))


@pytest.mark.parametrize(
    "objective", [spen.CrossEntropy(), spen.UnrolledLikelihood(), spen.Hinge()]
)
@pytest.mark.parametrize("domain", [spen.UnitBox(4), spen.Simplex(4)])
def test_a_label_of_no_weight_does_not_matter(objective, domain):
    """Its target may be anything: the loss is the same. With weight two it counts double."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 3)).astype(np.float32)
    model = spen.SPEN(spen.Identity(3), spen.LocalEnergy(3, 4), domain, seed=0)
    target = np.eye(4, dtype=np.float32)[[0, 1, 2, 0, 1, 2]]

    def loss(target, weight):
        context = model.context(X, target)
        context = spen.Context(context.features, context.target, label_weight=torch.tensor(weight))
        return objective.loss(model, spen.Descent(), context)

    if isinstance(domain, spen.UnitBox) and not isinstance(objective, spen.Hinge):
        flipped = target.copy()
        flipped[:, 3] = 1
        without = [1.0, 1.0, 1.0, 0.0]
        assert torch.allclose(loss(target, without), loss(flipped, without))
    plain, double = loss(target, [1.0] * 4), loss(target, [2.0] * 4)
    if isinstance(objective, spen.Hinge):
        assert (double >= plain).all()
    else:
        assert torch.allclose(double, 2 * plain)


def test_rows_filled_up_to_one_length_are_the_same_rows():
    """What a GPU holds of a sparse matrix, here on the CPU."""
    matrix = sparse.random(40, 30, 0.2, format="csr", random_state=0, dtype=np.float32)
    matrix = sparse.vstack([matrix, sparse.csr_matrix((2, 30), dtype=np.float32)], format="csr")
    copy = PaddedRows.of(matrix, torch.device("cpu"))
    rows = torch.tensor([41, 3, 3, 0, 40])
    np.testing.assert_array_equal(copy[rows].numpy(), matrix[rows.numpy()].toarray())
    assert PaddedRows.fits(matrix)
    assert not PaddedRows.fits(sparse.csr_matrix((1, 10**6)))
