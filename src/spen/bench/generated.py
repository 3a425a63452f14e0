"""Rows that look like Bibtex's, for machines that do not have it."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.data.dataset import Dataset

LABELS_OF_A_GROUP = 8
WORDS_OF_A_LABEL = 12
COMMON_WORDS = 0.03
"""The share of words that a row has for no reason; like Bibtex's it has 60 to 70 in all."""


def words_and_tags(
    n_train: int = 4880,
    n_test: int = 2515,
    n_features: int = 1836,
    n_labels: int = 159,
    seed: int = 0,
) -> Dataset:
    """Draw sparse rows of zeros and ones with labels that depend on each other.

    A row is about one group of labels, of which it has a few, frequent ones more often, and
    now and then it has a label from elsewhere. Each label makes some words likely.

    >>> data = words_and_tags(n_train=100, n_test=50)
    >>> data.train.X.shape, data.test.Y.shape, bool((data.train.Y.sum(1) > 0).all())
    ((100, 1836), (50, 159), True)
    """
    rng = np.random.default_rng(seed)
    groups = max(1, n_labels // LABELS_OF_A_GROUP)
    group = np.arange(n_labels) % groups
    frequency = 1 / (1 + np.arange(n_labels) // groups)
    words = rng.permuted(np.tile(np.arange(n_features), (n_labels, 1)), axis=1)
    own = np.zeros((n_labels, n_features), np.float32)
    np.put_along_axis(own, words[:, :WORDS_OF_A_LABEL], 0.5, axis=1)
    common = 1 / (20 + np.arange(n_features))
    common = np.minimum(0.5, common * COMMON_WORDS * n_features / common.sum())

    def draw(rows: int) -> Split:
        about = group[None, :] == rng.integers(0, groups, (rows, 1))
        chance = np.where(about, 0.6 * frequency, 0.002)
        labels = rng.random((rows, n_labels)) < chance
        # Every row has a label, as Bibtex's have: the most frequent one of its group.
        labels |= about & (frequency == 1) & ~labels.any(1, keepdims=True)
        said = 1 - (1 - common) * np.exp(labels.astype(np.float32) @ np.log1p(-own))
        present = rng.random((rows, n_features)) < said
        return Split(
            sparse.csr_matrix(present.astype(np.float32)),
            sparse.csr_matrix(labels.astype(np.int8)),
        )

    return Dataset(
        name="generated",
        train=draw(n_train),
        test=draw(n_test),
        feature_names=tuple(f"word{i}" for i in range(n_features)),
        label_names=tuple(f"tag{i}" for i in range(n_labels)),
    )
