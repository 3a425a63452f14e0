"""Decoding against plain loops and enumeration."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import spen
from spen.estimators import decoding
from spen.estimators.decoding import (
    THRESHOLDS,
    apply_threshold,
    expected_f1,
    tune_empty,
    tune_label_thresholds,
    tune_macro_thresholds,
    tune_row_threshold,
    tune_threshold,
)
from spen.metrics import macro_f1

sizes = st.tuples(st.integers(1, 30), st.integers(1, 7), st.integers(0, 10_000))


def draw(rows, labels, seed, *, missing=0.0, dtype=np.float32):
    """Labels and soft predictions that know something of them, some on a threshold exactly."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((rows, labels)) < 0.35).astype(float)
    soft = np.clip(rng.beta(0.6, 1.5, truth.shape) + 0.3 * truth * rng.random(truth.shape), 0, 1)
    on_a_threshold = rng.random(truth.shape) < 0.3
    soft = np.where(on_a_threshold, rng.choice(THRESHOLDS, truth.shape), soft).astype(dtype)
    return np.where(rng.random(truth.shape) < missing, np.nan, truth), soft


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_value_on_the_threshold_is_not_above_it(dtype):
    on_them = np.array([THRESHOLDS], dtype=dtype)
    for i, threshold in enumerate(THRESHOLDS):
        labels = apply_threshold(on_them, threshold)[0]
        assert labels.tolist() == [0] * (i + 1) + [1] * (len(THRESHOLDS) - i - 1)
    assert not apply_threshold(on_them, THRESHOLDS).any()
    assert not apply_threshold(torch.tensor(on_them), np.array(THRESHOLDS)).any()
    assert apply_threshold(np.nextafter(on_them, dtype(1)), THRESHOLDS).all()


def test_a_threshold_for_each_label():
    soft = np.array([[0.2, 0.6], [0.3, 0.4]])
    assert apply_threshold(soft, [0.25, 0.5]).tolist() == [[0, 1], [1, 0]]
    for threshold in ([0.1, 0.2, 0.3], [[0.1, 0.2]]):
        with pytest.raises(spen.InputError, match="one for each label"):
            apply_threshold(soft, threshold)
    with pytest.raises(spen.InputError, match="received nan"):
        apply_threshold(soft, np.nan)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=40)
@given(sizes)
def test_the_tuned_threshold_is_that_of_the_plain_loop(missing, dtype, size):
    truth, soft = draw(*size, missing=missing, dtype=dtype)
    truth[0, 0] = 1  # something is known
    # Another object than example_f1, so that the loop over candidates is taken.
    plain = tune_threshold(truth, soft, score=lambda t, p: spen.example_f1(t, p))
    assert tune_threshold(truth, torch.tensor(soft)) == plain
    assert tune_threshold(sparse.csr_array(truth), soft) == plain
    threshold, score = plain
    assert score == spen.example_f1(truth, apply_threshold(soft, threshold))


def test_candidates_in_any_order():
    truth, soft = draw(40, 5, 0)
    for candidates in ([0.5, 0.1, 0.3], np.array([0.2]), [0.3, 0.3], [-1.0, 2.0]):
        plain = tune_threshold(
            truth, soft, candidates=candidates, score=lambda t, p: spen.example_f1(t, p)
        )
        assert tune_threshold(truth, soft, candidates=candidates) == plain
        thresholds, _ = tune_label_thresholds(truth, soft, candidates=candidates, shrink=0)
        assert set(thresholds) <= set(map(float, candidates))


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
    only = spen.tune_threshold([[1, 0]], [[0.9, 0.5]], candidates=np.array([0.6]))
    assert only == (0.6, 1.0)


def test_the_middle_of_a_plateau_is_taken():
    truth = np.eye(3)
    threshold, score = spen.tune_threshold(truth, 0.001 + 0.998 * truth)
    assert score == 1.0
    assert threshold == 0.3


@given(sizes, st.sampled_from([0.0, 5.0, 50.0]), st.sampled_from([0.0, 0.3]))
def test_label_thresholds_are_never_worse_than_the_global_one(size, shrink, missing):
    truth, soft = draw(*size, missing=missing)
    truth[0, 0] = 1
    _, at_global = tune_threshold(truth, soft)
    thresholds, score = tune_label_thresholds(truth, soft, shrink=shrink)
    assert thresholds.shape == (truth.shape[1],)
    assert score == spen.example_f1(truth, apply_threshold(soft, thresholds))
    assert score >= at_global


@given(
    st.integers(1, 12),
    st.integers(1, 2),
    st.integers(0, 10_000),
    st.sampled_from([THRESHOLDS, (0.2, 0.5, 0.8)]),
)
def test_no_single_label_threshold_could_be_better(rows, labels, seed, candidates):
    """After the last sweep, every one-label change was tried and did not help."""
    truth, soft = draw(rows, labels, seed)
    thresholds, score = tune_label_thresholds(
        truth, soft, shrink=0, sweeps=100, candidates=candidates
    )
    for label, other in product(range(labels), candidates):
        changed = thresholds.copy()
        if truth[:, label].any():
            changed[label] = other
        assert spen.example_f1(truth, apply_threshold(soft, changed)) <= score + 1e-9


@given(sizes, st.sampled_from([0.0, 0.3]))
def test_thresholds_of_rows_are_the_best_of_all_that_are_tried(size, missing):
    truth, soft = draw(*size, missing=missing)
    truth[0, 0] = 1
    tuned, score = tune_row_threshold(truth, soft)
    assert score == spen.example_f1(truth, decoding.decode(soft, "row_threshold", tuned))
    largest = np.maximum(soft.max(1, keepdims=True), np.finfo(soft.dtype).tiny)
    for power, threshold in product(decoding.POWERS, THRESHOLDS):
        labels = soft / largest**power > np.asarray(threshold, soft.dtype)
        assert spen.example_f1(truth, labels) <= score
    assert score >= tune_threshold(truth, soft)[1]


def test_a_row_threshold_follows_rows_of_different_scale():
    truth = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]])
    soft = np.array([[0.9, 0.7, 0.3], [0.3, 0.1, 0.0], [0.9, 0.8, 0.3], [0.3, 0.1, 0.0]])
    assert tune_threshold(truth, soft)[1] < 1
    assert tune_row_threshold(truth, soft)[1] == 1
    assert decoding.decode(np.zeros((1, 3)), "row_threshold", np.array([0.2, 1.0])).sum() == 0


def test_what_decodings_choose_is_what_their_own_functions_do():
    truth, soft = draw(40, 5, 2)
    found = decoding.tune_decodings(truth, soft, decoding.DECODINGS, "f1")
    assert found["threshold"] == tune_threshold(truth, soft)[0]
    assert found["expected_f1"] == tune_empty(truth, soft)
    assert np.array_equal(found["label_thresholds"], tune_label_thresholds(truth, soft)[0])
    assert np.array_equal(found["row_threshold"], tune_row_threshold(truth, soft)[0])


def test_labels_are_gone_over_again_while_that_helps():
    truth, soft = draw(12, 4, 16)
    scores = [tune_label_thresholds(truth, soft, shrink=0, sweeps=k)[1] for k in (1, 2, 3, 20)]
    assert scores[0] < scores[1] <= scores[2] <= scores[3]


def by_turns(truth, soft, order):
    """Return the score where labels in turn move to the best threshold, by trying each."""
    thresholds = np.full(truth.shape[1], tune_threshold(truth, soft)[0])
    for label in order:

        def score(threshold, label=label):
            moved = thresholds.copy()
            moved[label] = threshold
            return spen.example_f1(truth, soft > moved)

        best = max(THRESHOLDS, key=score)
        if score(best) > score(thresholds[label]) + 1e-12:
            thresholds[label] = best
    return spen.example_f1(truth, soft > thresholds)


@pytest.mark.parametrize("seed", [11, 18, 19])
def test_frequent_labels_move_first(seed):
    rng = np.random.default_rng(seed)
    truth = (rng.random((12, 4)) < [0.2, 0.4, 0.6, 0.8]).astype(int)
    soft = rng.random((12, 4)).round(2)
    frequent_first = np.argsort(-truth.sum(0))
    found = tune_label_thresholds(truth, soft, shrink=0, sweeps=1)[1]
    assert found == pytest.approx(by_turns(truth, soft, frequent_first))
    assert found != pytest.approx(by_turns(truth, soft, frequent_first[::-1]))


def test_a_label_that_no_row_has_keeps_the_threshold_of_all():
    truth, soft = draw(60, 4, 3)
    truth[:, 2] = 0
    start, _ = tune_threshold(truth, soft, score=macro_f1)
    thresholds, _ = tune_macro_thresholds(truth, soft, shrink=0)
    assert thresholds[2] == start
    assert (thresholds != start).any()


def test_labels_of_different_scale_get_different_thresholds():
    rng = np.random.default_rng(0)
    truth = (rng.random((500, 2)) < 0.3).astype(float)
    soft = (0.1 + 0.5 * truth + 0.2 * rng.random(truth.shape)) * [1.0, 0.2]
    _, at_global = tune_threshold(truth, soft)
    thresholds, score = tune_label_thresholds(truth, soft, shrink=0)
    assert score == 1.0 > at_global
    assert thresholds[1] < thresholds[0]


def test_rare_labels_stay_near_the_global_threshold():
    truth, soft = draw(400, 4, 1)
    truth[:, 3] = 0
    truth[:2, 3] = 1
    soft[:2, 3] = 0.9
    start, _ = tune_threshold(truth, soft)
    free, _ = tune_label_thresholds(truth, soft, shrink=0)
    drawn, _ = tune_label_thresholds(truth, soft, shrink=50)
    assert free[3] > start
    assert 0 < drawn[3] - start < 0.05
    truth[:2, 3] = 0
    assert tune_label_thresholds(truth, soft)[0][3] == tune_threshold(truth, soft)[0]


def plain_expected_f1(p, empty):
    """The documented rule for one row, in plain Python."""
    q = min(empty * float(np.prod([1 - x for x in p])), 1 - max(p))
    size = max(1.0, sum(p) / (1 - q)) if q < 1 else 1.0
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    best, best_k = -1.0, 0
    for k in range(1, len(p) + 1):
        value = 2 * sum(p[i] for i in order[:k]) / (k + size)
        if value > best * (1 + 1e-12):
            best, best_k = value, k
    if q > best * (1 + 1e-12):
        best_k = 0
    return [int(i in order[:best_k] and p[i] > 0) for i in range(len(p))]


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
)
def test_expected_f1_follows_its_rule(p, empty):
    assert expected_f1([p], empty=empty).tolist() == [plain_expected_f1(p, empty)]


@pytest.mark.parametrize("shape", [(0.05, 2), (0.02, 0.1), (2, 2)])
def test_expected_f1_of_many_labels_follows_its_rule(shape):
    """Few of many labels are worth a look, and the others must not be missed."""
    p = np.random.default_rng(0).beta(*shape, (40, 120)).astype(np.float32)
    p[7] = 0
    p[8] = 0.25
    for empty in (0.0, 1.0):
        expected = [plain_expected_f1(row.tolist(), empty) for row in p]
        assert expected_f1(p, empty=empty).tolist() == expected


def exact_expected_f1(p):
    """The expected F1 of the k most probable labels for each k, if labels are independent."""
    labels = p.shape[1]
    sets = np.array(list(product([0, 1], repeat=labels)))
    chance = np.where(sets == 1, p[:, None], 1 - p[:, None]).prod(2)
    order = np.argsort(-p, axis=1, kind="stable")
    values = [chance[:, 0]]
    for k in range(1, labels + 1):
        chosen = np.zeros_like(p)
        np.put_along_axis(chosen, order[:, :k], 1, 1)
        values.append((chance * 2 * (chosen @ sets.T) / (k + sets.sum(1))).sum(1))
    return np.stack(values, 1)


@pytest.mark.parametrize("labels", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(0.3, 1), (1, 3), (1, 1), (0.2, 0.2)])
def test_expected_f1_is_near_the_best_there_is(labels, shape):
    """Against enumeration: how much expected F1 the plug-in gives away, in mean and at worst."""
    p = np.random.default_rng(0).beta(*shape, (300, labels))
    exact = exact_expected_f1(p)
    chosen = expected_f1(p).sum(1)
    lost = exact.max(1) - exact[np.arange(len(p)), chosen]
    assert lost.mean() < 0.002
    assert lost.max() < 0.06
    if labels == 1:
        assert lost.max() < 1e-12
    always_something = expected_f1(p, empty=0).sum(1)
    assert (always_something > 0).all()


def test_expected_f1_of_a_row_depends_on_that_row_alone(monkeypatch):
    rng = np.random.default_rng(0)
    p = rng.choice([0.1, 0.25, 1 / 3, 0.5], (500, 9)).astype(np.float32)
    whole = expected_f1(p)
    assert np.array_equal(expected_f1(np.asfortranarray(p)), whole)
    assert np.array_equal(expected_f1(torch.tensor(p)), whole)
    assert np.array_equal(np.concatenate([expected_f1(row[None]) for row in p]), whole)
    monkeypatch.setattr(decoding, "BLOCK", 40)
    assert np.array_equal(expected_f1(p), whole)


def test_a_row_that_has_labels_has_one_at_least():
    """With m = 1 the second label needs half the first one's probability, not 0.3 / 1.48."""
    assert expected_f1([[0.3, 0.18]], empty=0).tolist() == [[1, 1]]
    assert expected_f1([[0.3, 0.14]], empty=0).tolist() == [[1, 0]]


def test_ties_go_to_the_earlier_column():
    assert expected_f1([[0.6, 0.6, 0.6, 0.0]], empty=0).tolist() == [[1, 1, 1, 0]]
    assert expected_f1([[0.05] * 8], empty=0).tolist() == [plain_expected_f1([0.05] * 8, 0)]
    assert expected_f1([[0.0, 0.0]]).tolist() == [[0, 0]]
    assert expected_f1([[1.0, 0.0, 1.0]]).tolist() == [[1, 0, 1]]
    assert expected_f1([[0.5]]).tolist() == [[1]], (
        "a label rather than none where both are worth it"
    )


def test_the_chance_of_empty_rows_is_learned():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.4, (4000, 6))
    independent = (rng.random(p.shape) < p).astype(float)
    assert tune_empty(independent, p) == pytest.approx(1, abs=0.05)
    some = independent[independent.any(1)]
    assert tune_empty(some, p[: len(some)]) == 0
    assert tune_empty(np.zeros((5, 2)), np.full((5, 2), 0.99)) == decoding.LARGEST_EMPTY
    assert tune_empty(np.zeros((5, 2)), np.ones((5, 2))) == decoding.LARGEST_EMPTY
    holes = np.where(rng.random(p.shape) < 0.5, np.nan, independent)
    assert tune_empty(holes, p) == pytest.approx(1, abs=0.05)


def test_learning_it_pays_where_no_row_is_empty():
    """One label of 20 on each row: the product rule would leave most rows empty."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(20, 0.3), 2000)
    truth = np.eye(20)[[rng.choice(20, p=row) for row in p]]
    learned = spen.example_f1(truth, expected_f1(p, empty=tune_empty(truth, p)))
    assert learned > spen.example_f1(truth, expected_f1(p)) + 0.02
    threshold, _ = tune_threshold(truth, p)
    assert learned > spen.example_f1(truth, apply_threshold(p, threshold)) + 0.01


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expected_f1([[0.5, 1.2]]), "between 0 and 1"),
        (lambda: expected_f1([[0.5, np.nan]]), "between 0 and 1"),
        (lambda: expected_f1([0.5]), r"received shape \(1,\)"),
        (lambda: expected_f1(np.zeros((0, 3))), "not empty"),
        (lambda: expected_f1([[0.5]], empty=-1), "empty must be"),
        (lambda: tune_label_thresholds([[1]], [[0.5]], shrink=-1), "shrink must be"),
        (lambda: tune_label_thresholds([[1, 0]], [[0.5]]), "one shape"),
        (lambda: tune_threshold([[2.0]], [[0.5]]), "only 0 and 1"),
        (lambda: tune_threshold([[np.nan]], [[0.5]]), "score is nan"),
        (lambda: tune_empty([[1, 0]], [[0.5, 2]]), "between 0 and 1"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(spen.InputError, match=words):
        call()
