"""The local energy: one linear score per label."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.groups import linear
from spen.batch.positions import at_positions
from spen.energies.base import Energy
from spen.energies.form import Form
from spen.errors import check_settings
from spen.features import fill_fan_in


class LocalEnergy(Energy):
    """E^local(y) = Σ_i y_i (b_i·F(x) + b0_i), the paper's equation 4 with a bias.

    Alone, with entropy weight 1, it is logistic regression on F(x): its minimiser
    is σ(−(B F(x) + b0)).

    Features with positions, (n, T, f), give each position scores of its own, (n, T L).

    Args:
        n_features: f, the width of F(x).
        n_labels: L; with positions, the number of classes of each.
    """

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_labels = n_labels
        check_settings(self, n_features="whole", n_labels="whole")
        self.weight = nn.Parameter(torch.empty(n_labels, n_features))
        self.bias = nn.Parameter(torch.empty(n_labels))
        self.reset(torch.Generator().manual_seed(0))

    def scores(self, context: Context) -> Tensor:
        """Return a = B F(x) + b0, (n, L); its negative is the label-wise logit."""
        features, mask = context.features, context.mask
        if mask is None:
            return linear(features, self.weight, self.bias)
        scores = linear(features.flatten(0, 1), self.weight, self.bias)
        return at_positions(scores.reshape(len(features), -1), mask)

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        return Form(linear=self.scores(context), mask=context.mask)

    def reset(self, generator: torch.Generator) -> None:
        fill_fan_in(self.weight, generator)
        nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"n_features={self.n_features}, n_labels={self.n_labels}"
