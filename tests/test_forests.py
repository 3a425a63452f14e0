"""Forests of scikit-learn as tensors: the same leaves, the same shares, no way out of the file."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import spen
from spen.batch.rows import SparseRows, whole_batch
from spen.estimators import forests
from spen.estimators.forests import Forest, floor32

KINDS = {
    "extra trees": ExtraTreesClassifier(7, random_state=0),
    "forest": RandomForestClassifier(7, min_samples_leaf=3, random_state=0),
    # Nodes of such trees are not numbered from left to right.
    "best first": ExtraTreesClassifier(7, max_leaf_nodes=9, random_state=0),
}


def rows_and_labels(n: int = 120, labels: int = 3):
    draw = np.random.default_rng(0)
    # Few different values, so that many rows lie next to a threshold.
    X = draw.integers(-4, 5, (n, 6)).astype(np.float32) / 3
    X[draw.random(X.shape) < 0.4] = 0
    Y = (X[:, :labels] + 0.3 * draw.normal(size=(n, labels)) > 0.2).astype(int)
    return X, Y


def fitted(kind: str, labels: int):
    X, Y = rows_and_labels(labels=labels)
    sklearn = KINDS[kind].fit(X, Y.ravel() if labels == 1 else Y)
    return sklearn, Forest.from_sklearn(sklearn, labels), X


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_end_in_the_leaves_of_scikit_learn(kind, labels, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(forests, "find_leaves", lambda *tree: None)
    sklearn, forest, X = fitted(kind, labels)
    # On every threshold, and a step to each side of it.
    thresholds = np.concatenate([each.tree_.threshold for each in sklearn.estimators_])
    near = floor32(thresholds[:300])[:, None].repeat(6, axis=1)
    rows = [X, near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))]
    rows = np.concatenate(rows).astype(np.float32)
    expected = sklearn.apply(rows)
    found = forest.leaves(torch.from_numpy(rows)) - forest.roots
    assert np.array_equal(found.numpy(), expected)
    assert np.array_equal(sklearn.apply(sparse.csr_matrix(rows)), expected)


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_log_odds_are_those_of_the_smoothed_mean_of_trees(kind, labels):
    sklearn, forest, X = fitted(kind, labels)
    said = sklearn.predict_proba(X)
    share = np.stack([each[:, 1] for each in (said if labels > 1 else [said])], axis=1)
    smooth = (share * 7 + 0.5) / 8
    found = forest.of(torch.from_numpy(X))
    np.testing.assert_allclose(found.numpy(), np.log(smooth / (1 - smooth)), atol=1e-5)
    of_sparse = forest.of(whole_batch(SparseRows(sparse.csr_array(X))))
    assert torch.equal(of_sparse, found)
    # A row alone, and another type of numbers, change nothing.
    assert torch.equal(forest.of(torch.from_numpy(X[:1])), found[:1])
    doubled = forest.double().of(torch.from_numpy(X).double())
    torch.testing.assert_close(doubled.float(), found, atol=1e-5, rtol=0)


def test_labels_that_never_or_always_occur():
    X, Y = rows_and_labels()
    Y[:, 0], Y[:, 2] = 0, 1
    forest = Forest.from_sklearn(ExtraTreesClassifier(5, random_state=0).fit(X, Y), 3)
    scores = forest.of(torch.from_numpy(X))
    assert torch.allclose(scores[:, 0], torch.tensor(0.5 / 6).logit())
    assert torch.allclose(scores[:, 2], torch.tensor(5.5 / 6).logit())


def test_the_largest_float32_below_a_number_splits_float32_alike():
    draw = np.random.default_rng(0)
    numbers = np.concatenate([draw.normal(size=500) * 10.0 ** draw.integers(-30, 30, 500), [0.0]])
    below = floor32(numbers)
    assert below.dtype == np.float32
    for x in (below, np.nextafter(below, np.float32(np.inf))):
        assert np.array_equal(x <= numbers, x <= below)


DAMAGE = {
    "a circle": ("left", 0, 0),
    "another tree": ("right", 0, -1),
    "out of the tensors": ("right", 0, 10**6),
    "no such feature": ("feature", 0, 6),
    "no such value": ("left", -1, 10**6),
    "below the values": ("left", -1, -1),
    "roots in disorder": ("roots", 1, 0),
    "a root that is not there": ("roots", -1, 10**6),
    "no probability": ("values", 0, 2.0),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_trees_that_lead_out_of_a_file_are_refused(damage):
    _, forest, _ = fitted("extra trees", 3)
    state = {name: tensor.clone() for name, tensor in forest.state_dict().items()}
    name, place, value = damage
    state[name][place] = len(forest.feature) - 1 if value == -1 and name == "right" else value
    with pytest.raises(spen.errors.CheckpointError, match="lead out of the file"):
        Forest(6, 3, *forest.sizes).load_state_dict(state)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_gpu_finds_the_same_leaves():
    _, forest, X = fitted("extra trees", 3)
    rows = torch.from_numpy(X)
    expected, scores = forest.leaves(rows), forest.of(rows)
    there = forest.cuda()
    assert torch.equal(there.leaves(rows.cuda()).cpu(), expected)
    torch.testing.assert_close(there.of(rows.cuda()).cpu(), scores)
