"""Metrics against scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, hamming_loss

import spen
from spen.decoding import THRESHOLDS, apply_threshold

ZERO_DIVISION = {"one": 1.0, "zero": 0.0, "skip": np.nan}


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
    with pytest.raises(spen.InputError, match=words):
        spen.example_f1(truth, guess)


def test_the_tuned_threshold_is_the_best_of_those_tried():
    rng = np.random.default_rng(0)
    truth = rng.random((200, 8)) < 0.2
    soft = np.clip(0.3 * truth + 0.5 * rng.random((200, 8)), 0, 1)
    threshold, score = spen.tune_threshold(truth, torch.tensor(soft))
    tried = {t: spen.example_f1(truth, apply_threshold(soft, t)) for t in THRESHOLDS}
    assert score == max(tried.values()) == tried[threshold]


def test_scores_that_are_not_numbers_are_refused():
    with pytest.raises(spen.InputError, match="nan"):
        spen.tune_threshold([[1, 0]], [[np.nan, 0.5]])
    with pytest.raises(spen.InputError, match="candidates is empty"):
        spen.tune_threshold([[1, 0]], [[0.1, 0.5]], candidates=[])
    with pytest.raises(spen.InputError, match="finite"):
        spen.search_error_rate([np.nan], [1.0])
    only = spen.tune_threshold([[1, 0]], [[0.9, 0.5]], candidates=np.array([0.6]))
    assert only == (0.6, 1.0)


def test_the_middle_of_a_plateau_is_taken():
    truth = np.eye(3)
    threshold, score = spen.tune_threshold(truth, 0.001 + 0.998 * truth)
    assert score == 1.0
    assert threshold == 0.3
