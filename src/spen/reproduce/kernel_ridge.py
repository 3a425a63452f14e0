"""Kernel ridge regression as a feature network, with scores of rows that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spen.errors import InputError, choose
from spen.features import Features

MEASURED = 500
"""Training rows whose distances say how wide a kernel is."""

SURE = 0.02
"""The regression may leave (0, 1); as probabilities its values end this far from 0 and 1."""


def _squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(rows, others).square()


def _city_block_distances(rows: Tensor, others: Tensor) -> Tensor:
    return torch.cdist(rows, others, p=1)


DISTANCES = {"rbf": _squared_distances, "laplacian": _city_block_distances}
"""The distances that kernels are functions of: each is exp(−γ distance)."""


@dataclass(frozen=True)
class Kernels:
    """Kernels on groups of features, and how much a regression with them is smoothed.

    Attributes:
        widths: γ of each kernel ("rbf", "laplacian"), times the median distance of two rows.
        groups: the first feature and the one after the last of each group. Every group has every
            kernel, and their mean is the kernel; none stands for one group of all features.
        ridge: what is added to the diagonal; more is smoother.
    """

    widths: dict[str, float]
    groups: tuple[tuple[int, int], ...] = ()
    ridge: float = 0.1


class KernelRidge(Features):
    """F(x) = log-odds of kernel ridge regression on labels of 0 and 1, (n, L).

    All training rows are centres. So the weights have a closed form, (K + ridge I) w = Y − ½, and
    so have the values that each training row would get from a regression on all others. A
    constant in the kernel does for a bias.

    Args:
        kernels: what K is made of.
        X: training rows (n, d), scaled.
        Y: their labels (n, L).

    Attributes:
        unseen: log-odds (n, L) of each training row by a regression on all the others.

    >>> X = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    >>> ridge = KernelRidge(Kernels({"rbf": 1.0}), X, (X > 0).astype(np.float32))
    >>> [round(float(each), 1) for each in ridge(torch.tensor([[-0.2], [1.0]]))]
    [-1.7, 3.9]
    """

    centres: Tensor
    weights: Tensor

    def __init__(self, kernels: Kernels, X: np.ndarray, Y: np.ndarray) -> None:
        super().__init__()
        # With a small ridge the system is nearly singular, hence float64.
        rows, labels = (torch.as_tensor(each, dtype=torch.float64) for each in (X, Y))
        self.n_inputs, self.n_features = rows.shape[1], labels.shape[1]
        some = rows[:MEASURED]
        self.terms: list[tuple[slice, str, float]] = []
        for first, end in kernels.groups or ((0, self.n_inputs),):
            if not 0 <= first < end <= self.n_inputs:
                raise InputError(
                    f"A group of features must lie within 0 and {self.n_inputs}, the number of "
                    f"features; received {first} to {end}."
                )
            group = slice(first, end)
            for name, width in kernels.widths.items():
                distances = choose(name, DISTANCES, "kernel")(some[:, group], some[:, group])
                self.terms.append((group, name, width / float(distances.median())))
        system = self._kernel(rows, rows)
        system.diagonal().add_(kernels.ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(system))
        weights = inverse @ (labels - 0.5)
        # What a row is missed by when it is left out is its weight over its entry of the inverse.
        self.unseen = _log_odds(labels - weights / inverse.diagonal()[:, None]).float()
        self.register_buffer("centres", rows.float())
        self.register_buffer("weights", weights.float())

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _log_odds(self._kernel(inputs, self.centres) @ self.weights + 0.5)

    def _kernel(self, rows: Tensor, others: Tensor) -> Tensor:
        total = torch.zeros(len(rows), len(others), dtype=rows.dtype, device=rows.device)
        for group, name, gamma in self.terms:
            total += torch.exp(-gamma * DISTANCES[name](rows[:, group], others[:, group]))
        return 1 + total / len(self.terms)


def _log_odds(values: Tensor) -> Tensor:
    return values.clamp(SURE, 1 - SURE).logit()
