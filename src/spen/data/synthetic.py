"""The paper's synthetic task: labels that exclude each other within blocks."""

from __future__ import annotations

import numpy as np

from spen.batch.splits import Split
from spen.data.dataset import Dataset
from spen.errors import check_whole


def exclusive_blocks(
    n_train: int,
    n_test: int,
    *,
    n_features: int = 64,
    n_blocks: int = 4,
    block_size: int = 4,
    seed: int = 0,
) -> Dataset:
    """Draw the task of the paper's section on structure learning.

    X ~ N(0, 1), one weight matrix A ~ N(0, 1) for train and test, Z = X A, and within
    each block of consecutive columns the largest entry of Z is labelled 1, the others 0.
    The weights and the test rows of a seed do not depend on ``n_train``.

    Returns:
        Rows X (n, n_features) and their labels Y (n, n_blocks · block_size).

    >>> data = exclusive_blocks(100, 50)
    >>> data.train.X.shape, data.train.Y.sum(1).min(), data.train.Y.sum(1).max()
    ((100, 64), np.float32(4.0), np.float32(4.0))
    """
    sizes = {"n_train": n_train, "n_test": n_test, "n_features": n_features}
    for name, value in (sizes | {"n_blocks": n_blocks, "block_size": block_size}).items():
        check_whole(value, name)
    check_whole(seed, "seed", least=0)
    n_labels = n_blocks * block_size
    streams = np.random.SeedSequence(seed).spawn(3)
    weights = np.random.default_rng(streams[0]).standard_normal((n_features, n_labels))

    def draw(rows: int, stream: np.random.SeedSequence) -> Split:
        X = np.random.default_rng(stream).standard_normal((rows, n_features))
        blocks = (X @ weights).reshape(rows, n_blocks, block_size)
        Y = np.arange(block_size) == blocks.argmax(2)[..., None]
        return Split(X.astype(np.float32), Y.reshape(rows, n_labels).astype(np.float32))

    return Dataset(
        name="synthetic",
        train=draw(n_train, streams[1]),
        test=draw(n_test, streams[2]),
        feature_names=tuple(f"x{i}" for i in range(n_features)),
        label_names=tuple(f"block{b}.{i}" for b in range(n_blocks) for i in range(block_size)),
    )


def block_membership(n_blocks: int = 4, block_size: int = 4) -> np.ndarray:
    """Return the indicator of each block, (blocks, labels)."""
    return np.kron(np.eye(n_blocks), np.ones(block_size))


def block_score(matrix: np.ndarray, blocks: np.ndarray | None = None) -> float:
    """Return how far each measurement weighs a single block evenly, between 0 and 1.

    The mean over rows of the largest squared cosine with a block's indicator.

    >>> block_score(np.kron(np.eye(4), np.ones(4)))
    1.0
    """
    blocks = block_membership() if blocks is None else blocks
    return float(_squared_cosines(matrix, blocks).max(1).mean())


def block_span_score(matrix: np.ndarray, blocks: np.ndarray | None = None) -> float:
    """Return how far measurements are constant within every block, between 0 and 1.

    The mean over rows of the squared cosine with the space that the indicators span, so
    that a measurement may weigh several blocks.
    """
    blocks = block_membership() if blocks is None else blocks
    return float(_squared_cosines(matrix, blocks).sum(1).mean())


def _squared_cosines(matrix: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    rows = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    directions = blocks / np.linalg.norm(blocks, axis=1, keepdims=True)
    return (rows @ directions.T) ** 2
