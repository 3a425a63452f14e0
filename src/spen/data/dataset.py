"""The records that hold a data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spen.errors import InputError


@dataclass(frozen=True)
class Split:
    """Rows of inputs and labels.

    Attributes:
        X: (n, features) numbers.
        Y: (n, labels) of 0 and 1; nan marks a missing label.
        weight: (n,) the weight of each row in training; None means one.
    """

    X: Any
    Y: Any
    weight: Any = None

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, index: Any) -> Split:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[index]
        return Split(self.X[index], self.Y[index], weight)


@dataclass(frozen=True)
class Dataset:
    """A training and a test part, with names."""

    name: str
    train: Split
    test: Split
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]


def hold_out(split: Split, share: float, seed: int) -> tuple[Split, Split]:
    """Return (kept, held out), a random split of the rows that depends on the seed alone.

    >>> kept, held = hold_out(Split(np.zeros((10, 2)), np.zeros((10, 1))), 0.2, seed=0)
    >>> len(kept), len(held)
    (8, 2)
    """
    cut = round(share * len(split)) if 0 < share < 1 else 0
    if not 0 < cut < len(split):
        raise InputError(
            f"Holding out a share of {share} of {len(split)} rows must leave rows on both sides. "
            "Give a share between 0 and 1, or more rows."
        )
    order = np.random.default_rng(seed).permutation(len(split))
    return split.rows(np.sort(order[cut:])), split.rows(np.sort(order[:cut]))
