"""Metrics against scikit-learn and brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import accuracy_score, f1_score, hamming_loss

import spen
from spen.metrics import (
    calibration_error,
    macro_f1,
    micro_f1,
    ndcg_at_k,
    precision_at_k,
    score_all,
    subset_accuracy,
)

ZERO_DIVISION = {"one": 1.0, "zero": 0.0, "skip": np.nan}
sizes = st.tuples(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10_000))
LABEL_METRICS = [spen.example_f1, micro_f1, macro_f1, spen.hamming_error, subset_accuracy]


def draw(rows, labels, seed, density=0.3):
    rng = np.random.default_rng(seed)
    return (rng.random((2, rows, labels)) < density).astype(int)


def holes(truth, seed, share=0.3):
    """Hide labels, all of row 0 and all of column 0 among them."""
    hidden = np.random.default_rng(seed).random(truth.shape) < share
    hidden[0] = hidden[:, 0] = True
    return np.where(hidden, np.nan, truth)


@pytest.mark.parametrize("empty", ["one", "zero", "skip"])
@given(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10_000), st.floats(0.05, 0.6))
def test_example_f1_is_sklearns(empty, rows, labels, seed, density):
    rng = np.random.default_rng(seed)
    truth, guess = (rng.random((2, rows, labels)) < density).astype(int)
    truth[0] = guess[0] = 0  # a row that is empty in both
    truth[1, 0] = 1  # and one that is not
    ours = spen.example_f1(truth, guess, empty=empty)
    theirs = f1_score(truth, guess, average="samples", zero_division=ZERO_DIVISION[empty])
    assert ours == pytest.approx(theirs)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 10_000))
def test_hamming_error_is_sklearns(rows, labels, seed):
    truth, guess = np.random.default_rng(seed).integers(0, 2, (2, rows, labels))
    assert spen.hamming_error(torch.tensor(truth), guess) == pytest.approx(
        hamming_loss(truth, guess) if labels > 1 else (truth != guess).mean()
    )


@pytest.mark.parametrize("empty", ["one", "zero", "skip"])
@pytest.mark.parametrize(("ours", "average"), [(micro_f1, "micro"), (macro_f1, "macro")])
@settings(max_examples=40)
@given(sizes, st.floats(0.0, 0.6))
def test_micro_and_macro_f1_are_sklearns(ours, average, empty, size, density):
    truth, guess = draw(*size, density)
    truth[:, 0] = guess[:, 0] = 0  # a label that is empty in both
    theirs = f1_score(truth, guess, average=average, zero_division=ZERO_DIVISION[empty])
    assert ours(truth, guess, empty=empty) == pytest.approx(theirs, nan_ok=True)


@settings(max_examples=30)
@given(sizes)
def test_micro_and_macro_f1_by_default_are_sklearns(size):
    truth, guess = draw(*size, 0.1)
    for ours, average in ((micro_f1, "micro"), (macro_f1, "macro")):
        theirs = f1_score(truth, guess, average=average, zero_division=0.0)
        assert ours(truth, guess) == pytest.approx(theirs)


@given(sizes)
def test_subset_accuracy_is_sklearns(size):
    truth, guess = draw(*size, 0.15)
    assert subset_accuracy(truth, guess) == pytest.approx(accuracy_score(truth, guess))


@pytest.mark.parametrize("metric", LABEL_METRICS)
@settings(max_examples=15)
@given(sizes, st.booleans())
def test_every_kind_of_matrix_gives_the_same(metric, size, missing):
    truth, guess = draw(*size)
    truth = holes(truth, size[2]) if missing else truth
    expected = metric(truth, guess)
    for as_truth in (torch.tensor, sparse.csr_array, sparse.coo_matrix, np.asfortranarray):
        for as_guess in (torch.tensor, sparse.csr_matrix, sparse.csc_array, np.ndarray.tolist):
            given_truth, given_guess = as_truth(truth), as_guess(guess)
            found = metric(given_truth, given_guess)
            assert found == pytest.approx(expected, nan_ok=True)


def test_sparse_matrices_stay_sparse_and_as_they_were():
    wide = sparse.csr_array(([1, 1], ([0, 200_000], [5, 900_000])), shape=(300_000, 1_000_000))
    for metric, value in zip(LABEL_METRICS[1:], [1.0, 2e-6, 0.0, 1.0], strict=True):
        assert metric(wide, wide) == pytest.approx(value)
    odd = sparse.csr_array(
        (np.array([0.5, 0.5, 0.0]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2)
    )
    assert spen.example_f1(odd, [[0, 1]]) == 1.0
    assert odd.nnz == 3


@pytest.mark.parametrize("empty", ["one", "zero", "skip"])
@settings(max_examples=40)
@given(sizes)
def test_missing_labels_are_left_out_of_every_score(empty, size):
    truth, guess = draw(*size)
    truth = holes(truth, size[2])
    probabilities = np.random.default_rng(size[2]).random(truth.shape)
    known = ~np.isnan(truth)
    rows = [(truth[i, k], guess[i, k]) for i, k in enumerate(known) if k.any()]
    columns = [(truth[k, j], guess[k, j]) for j, k in enumerate(known.T) if k.any()]

    def f1(pairs):
        values = [
            2 * (t * p).sum() / (t.sum() + p.sum()) if t.any() or p.any() else ZERO_DIVISION[empty]
            for t, p in pairs
        ]
        values = [value for value in values if not np.isnan(value)]
        return np.mean(values) if values else np.nan

    def same(found, expected):
        return found == pytest.approx(expected, nan_ok=True)

    flat = [(truth[known], guess[known])] if known.any() else []
    assert same(spen.example_f1(truth, guess, empty=empty), f1(rows))
    assert same(macro_f1(truth, guess, empty=empty), f1(columns))
    assert same(micro_f1(truth, guess, empty=empty), f1(flat))
    wrong = (truth != guess)[known]
    assert same(spen.hamming_error(truth, guess), wrong.mean() if wrong.size else np.nan)
    right = [(t == p).all() for t, p in rows]
    assert same(subset_accuracy(truth, guess), np.mean(right) if right else np.nan)
    hits = []
    for t, s, k in zip(truth, probabilities, known, strict=True):
        order = np.argsort(-s[k], kind="stable")[:2]
        hits += [t[k][order].sum() / 2] if k.any() else []
    assert same(precision_at_k(truth, probabilities, 2), np.mean(hits) if hits else np.nan)
    error = np.nan
    if known.any():
        error = calibration_error(truth[known][None], probabilities[known][None])
    assert same(calibration_error(truth, probabilities), error)


@given(sizes, st.integers(1, 8), st.booleans())
def test_precision_at_k_is_that_of_a_stable_sort(size, k, ties):
    truth, _ = draw(*size)
    scores = np.random.default_rng(size[2]).normal(size=truth.shape)
    scores = np.round(scores) if ties else scores
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(truth, order, 1).sum(1) / k
    assert precision_at_k(truth, scores, k) == pytest.approx(expected.mean())
    assert precision_at_k(sparse.csr_array(truth), torch.tensor(scores), k) == pytest.approx(
        expected.mean()
    )


@given(sizes, st.integers(1, 20))
def test_calibration_error_is_that_of_a_plain_loop(size, bins):
    truth, _ = draw(*size)
    p = np.random.default_rng(size[2]).choice([0.0, 0.1, 0.2, 0.55, 1.0], truth.shape)
    total = 0.0
    for b in range(bins):
        inside = np.minimum((p * bins).astype(int), bins - 1) == b
        if inside.any():
            total += inside.sum() * abs(truth[inside].mean() - p[inside].mean())
    assert calibration_error(truth, p, bins=bins) == pytest.approx(total / truth.size)


def test_calibration_of_the_true_probabilities_and_of_bad_ones():
    rng = np.random.default_rng(0)
    p = rng.random((2000, 50))
    truth = rng.random(p.shape) < p
    assert calibration_error(truth, p) < 0.01
    assert calibration_error(truth, np.full(p.shape, 0.9)) == pytest.approx(0.4, abs=0.01)
    assert calibration_error(truth, truth.astype(float)) == 0
    assert calibration_error(truth, 1.0 - truth) == 1


def test_blocks_of_rows_make_no_difference(monkeypatch):
    truth, _ = draw(50, 6, 0)
    p = np.random.default_rng(0).random(truth.shape).astype(np.float32)
    expected = precision_at_k(truth, p, 3), calibration_error(truth, p)
    monkeypatch.setattr("spen.metrics.BLOCK", 20)
    found = precision_at_k(sparse.csr_array(truth), p, 3), calibration_error(truth, p)
    assert found == pytest.approx(expected)


def test_all_scores_at_once_with_their_rules():
    truth, guess = draw(40, 6, 1)
    p = np.random.default_rng(1).random(truth.shape)
    scores = score_all(sparse.csr_array(truth), sparse.csr_array(guess), p)
    expected = {
        "example_f1": spen.example_f1(truth, guess),
        "micro_f1": micro_f1(truth, guess),
        "macro_f1": macro_f1(truth, guess),
        "hamming_error": spen.hamming_error(truth, guess),
        "subset_accuracy": subset_accuracy(truth, guess),
        "precision_at_1": precision_at_k(truth, p, 1),
        "precision_at_3": precision_at_k(truth, p, 3),
        "precision_at_5": precision_at_k(truth, p, 5),
        "ndcg_at_3": ndcg_at_k(truth, p, 3),
        "ndcg_at_5": ndcg_at_k(truth, p, 5),
        "calibration_error": calibration_error(truth, p),
    }
    assert list(scores) == list(expected)
    for name, score in scores.items():
        assert score.value == pytest.approx(expected[name])
        assert len(score.rule) > 10


def test_the_rule_for_empty_rows_matters():
    truth, guess = [[1, 0], [0, 0]], [[0, 1], [0, 0]]
    rules = ("one", "zero", "skip")
    assert [spen.example_f1(truth, guess, empty=rule) for rule in rules] == [0.5, 0.0, 0.0]
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'zero'"):
        spen.example_f1(truth, guess, empty="zeros")


def test_search_errors_need_a_clear_difference():
    found = [-1.0, -1.0, -1.0, 2.0]
    truth = [-1.0005, -1.1, -0.5, 1.0]
    assert spen.search_error_rate(truth, found) == 0.5


@pytest.mark.parametrize(
    ("truth", "guess", "words"),
    [
        ([[1, 0]], [[1, 0, 0]], "one shape"),
        ([1, 0], [1, 0], "one shape"),
        ([[]], [[]], "not empty"),
        ([[1, 2]], [[1, 0]], "truth must hold only 0 and 1"),
        ([[1, 0]], [[1, 0.5]], "Decode"),
        ([["a", "b"]], [[1, 0]], "arrays of numbers"),
        ([[1, 0], [1]], [[1, 0]], "arrays of numbers"),
    ],
)
def test_bad_input(truth, guess, words):
    for metric in LABEL_METRICS:
        with pytest.raises(spen.InputError, match=words):
            metric(truth, guess)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: spen.example_f1(sparse.csr_array([[2.0]]), [[1]]), "truth must hold only 0 and 1"),
        (lambda: spen.example_f1([[1]], sparse.csr_array([[np.nan]])), "prediction must hold"),
        (lambda: spen.example_f1(sparse.csr_array([[1.0]]), [1]), "one shape"),
        (lambda: precision_at_k([[1, 0]], [[0.5, 0.2]], 0), "k must be"),
        (lambda: precision_at_k([[1, 0]], [[0.5, np.nan]], 1), "finite"),
        (lambda: precision_at_k([[1, 0]], [[0.5, 0.2, 0.1]], 1), "one shape"),
        (lambda: precision_at_k([[1, 3]], [[0.5, 0.2]], 1), "only 0 and 1"),
        (lambda: calibration_error([[1, 0]], [[0.5, 1.5]]), "between 0 and 1"),
        (lambda: calibration_error([[1, 0]], [[0.5, 0.5]], bins=0), "bins must be"),
        (lambda: macro_f1([[1]], [[1]], empty="none"), "Choose from: one, skip, zero"),
    ],
)
def test_bad_input_of_other_kinds(call, words):
    with pytest.raises(spen.InputError, match=words):
        call()


def test_energies_that_are_not_numbers_are_refused():
    with pytest.raises(spen.InputError, match="finite"):
        spen.search_error_rate([np.nan], [1.0])
