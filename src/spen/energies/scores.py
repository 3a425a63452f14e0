"""Energies over the scores of a label-wise model, which can be trained on unseen rows' scores.

A label-wise model is too sure of the rows that it was trained on, and an energy that is
trained on its scores of those rows learns to trust them too much. Trained on the scores
of rows that were held out (cross-fitting), it sees what it will see in prediction. For
that the energy must know of the label-wise model nothing but its scores: each fold has a
model of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.groups import in_turns, linear
from spen.batch.positions import at_positions
from spen.energies.base import Energy, SumEnergy
from spen.energies.form import Block, Form
from spen.energies.form import nonlinearity as named_nonlinearity
from spen.energies.label import ConditionalEnergy
from spen.energies.local import LocalEnergy
from spen.errors import check_settings, check_whole
from spen.features import drop, fill_normal


class ScoreEnergy(LocalEnergy):
    """E(y) = −Σ_i y_i (a_i z_i + b_i), where the features z (n, L) are the labels' log-odds.

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

    def scores(self, context: Context, generator: torch.Generator | None = None) -> Tensor:
        """Return −(a z + b), (n, L)."""
        scale, shift = (in_turns(each, context.n_rows) for each in (self.scale_bias, self.bias))
        scores = -((1 + scale) * context.features + shift)
        return scores if context.mask is None else at_positions(scores.flatten(1), context.mask)

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.scale_bias)
        nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}"


class ConditionalScoreEnergy(ConditionalEnergy):
    """E(y) = d₂·g(D₁ [y; σ(z)] + d), where the features z (n, L) are the labels' log-odds.

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


class SurpriseEnergy(Energy):
    """E(y) = c·g(C y − s∘(C σ(z)) + d), where the features z (n, L) are the labels' log-odds.

    A measurement with s = 1 sees by how much a labelling differs from what the label-wise model
    expects: it is at rest where y is as expected, whatever x is, so a label that is known speaks
    by its surprise. One with s = 0 sees y alone: which labels are on, and how many. s is learned,
    and starts at 0 and 1 in turns; either alone is worse on some data.

    Measurements are dropped in training, the same ones in all steps of an inference run: labels
    are to say much about each other through many of them, none of which fits the rows alone.

    Args:
        n_labels: L.
        measurements: the number of rows of C.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.
        dropout: the share of measurements that each row does without in training.

    >>> energy, z = SurpriseEnergy(4, measurements=2), torch.randn(1, 4)
    >>> _ = energy.surprise_bias.data.fill_(1.0)
    >>> at_rest = energy.bind(Context(z)).value(z.sigmoid())
    >>> torch.allclose(at_rest, energy.bind(Context(-z)).value((-z).sigmoid()))
    True
    """

    SCALE = 0.5
    """Of C at first, whatever L is: one known label among thousands has to move a measurement to
    where g bends."""

    def __init__(
        self,
        n_labels: int,
        measurements: int,
        nonlinearity: str = "softplus",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_whole(measurements, "measurements")
        self.n_features = self.n_labels = n_labels
        self.nonlinearity = named_nonlinearity(nonlinearity)
        self.dropout = dropout
        check_settings(self, n_labels="whole", dropout="share")
        self.measurements = nn.Parameter(torch.empty(measurements, n_labels))
        self.bias = nn.Parameter(torch.empty(measurements))
        # A "bias": a weight decay would draw it to zero, and neither end is neutral.
        self.surprise_bias = nn.Parameter(torch.empty(measurements))
        self.readout = nn.Parameter(torch.empty(measurements))
        self.reset(torch.Generator().manual_seed(0))

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        rows = context.n_rows
        bias, share, readout = (
            in_turns(vector, rows) for vector in (self.bias, self.surprise_bias, self.readout)
        )
        bias = bias - share * linear(context.features.sigmoid(), self.measurements)
        if self.dropout and generator is not None:
            readout = drop(readout.expand(rows, -1), self.dropout, generator)
        block = Block(self.measurements, bias, readout, self.nonlinearity)
        return Form(constant=bias.new_zeros(rows), blocks=(block,))

    def reset(self, generator: torch.Generator) -> None:
        fill_normal(self.measurements, self.SCALE, generator)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.surprise_bias.copy_(torch.arange(len(self.bias)) % 2)
        fill_normal(self.readout, 0.01, generator)

    def extra_repr(self) -> str:
        return (
            f"n_labels={self.n_labels}, measurements={len(self.bias)}, "
            f"nonlinearity={self.nonlinearity.name!r}, dropout={self.dropout}"
        )


@torch.no_grad()
def mean_energy(energies: Sequence[Energy]) -> Energy:
    """Return E = (E₁ + … + E_k) / k, of energies that differ in their weights alone, as one energy.

    Scales and shifts of scores are averaged. Surprises keep all of their measurements, k times as
    many, each with a k-th of its readout.
    """
    first = energies[0]
    if isinstance(first, SumEnergy):
        terms = zip(*(each.terms for each in cast("Sequence[SumEnergy]", energies)), strict=True)
        return SumEnergy(*map(mean_energy, terms))
    if isinstance(first, ScoreEnergy):
        whole: Energy = ScoreEnergy(first.n_labels).to(first.bias)
        for name, weight in whole.named_parameters():
            weight.copy_(torch.stack([getattr(each, name) for each in energies]).mean(0))
        return whole
    assert isinstance(first, SurpriseEnergy), f"the mean of {type(first).__name__}s is not known"
    width = sum(len(each.bias) for each in cast("Sequence[SurpriseEnergy]", energies))
    settings: Any = {"nonlinearity": first.nonlinearity.name, "dropout": first.dropout}
    whole = SurpriseEnergy(first.n_labels, width, **settings).to(first.bias)
    for name, weight in whole.named_parameters():
        weight.copy_(torch.cat([getattr(each, name) for each in energies]))
    whole.readout.copy_(whole.readout / len(energies))
    return whole
