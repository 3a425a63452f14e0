"""Energies over the scores of a label-wise model, which can be trained on unseen rows' scores.

A label-wise model is too sure of the rows that it was trained on, and an energy that is
trained on its scores of those rows learns to trust them too much. Trained on the scores
of rows that were held out (cross-fitting), it sees what it will see in prediction. For
that the energy must know of the label-wise model nothing but its scores: each fold has a
model of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.groups import in_turns
from spen.energies.label import ConditionalEnergy
from spen.energies.local import LocalEnergy
from spen.errors import check_whole
from spen.features import fill_normal


class ScoreEnergy(LocalEnergy):
    """E(y) = −Σ_i y_i (a_i z_i + b_i), where the features z are the labels' log-odds.

    It is the local energy of a model whose features are ``LabelScores``: a scale and a shift
    for each label. It starts at a = 1, b = 0, so that alone it repeats the label-wise model.

    Args:
        n_labels: L.

    >>> ScoreEnergy(4).bind(Context(torch.ones(1, 4))).value(torch.ones(1, 4)).tolist()
    [-4.0]
    """

    def __init__(self, n_labels: int) -> None:
        nn.Module.__init__(self)
        check_whole(n_labels, "n_labels")
        self.n_features = self.n_labels = n_labels
        # Not "weight": a weight decay would draw the scale to zero, and nothing is neutral there.
        self.scale_bias = nn.Parameter(torch.zeros(n_labels))
        self.bias = nn.Parameter(torch.zeros(n_labels))

    def scores(self, context: Context) -> Tensor:
        """Return −(a z + b), (n, L)."""
        scale, shift = (in_turns(each, context.n_rows) for each in (self.scale_bias, self.bias))
        return -((1 + scale) * context.features + shift)

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.scale_bias)
        nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}"


class ConditionalScoreEnergy(ConditionalEnergy):
    """E(y) = d₂·g(D₁ [y; σ(z)] + d), where the features z are the labels' log-odds.

    Its measurements can compare a labelling with what the label-wise model says of all
    labels: how many there should be, and which. It starts as an energy of y alone, and so
    small that it changes next to nothing.

    Args:
        n_labels: L.
        measurements: the number of rows of D₁.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> ConditionalScoreEnergy(4, measurements=2).n_features
    4
    """

    def __init__(self, n_labels: int, measurements: int, nonlinearity: str = "softplus") -> None:
        super().__init__(n_labels, n_labels, measurements, nonlinearity)

    def view(self, features: Tensor) -> Tensor:
        # Log-odds of rare labels are large and say little; probabilities are where counts are.
        return features.sigmoid()

    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        nn.init.zeros_(self.feature_weight)
        fill_normal(self.readout, 0.01, generator)
