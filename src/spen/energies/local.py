"""Energies that score each label by itself: of features alone, or told of labels that are known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.groups import linear
from spen.batch.positions import at_positions
from spen.energies.base import Energy
from spen.energies.form import Form
from spen.errors import check_settings, check_whole
from spen.features import HE, drop, fill_fan_in


class LocalEnergy(Energy):
    """E^local(y) = Σ_i y_i (b_i·F(x) + b0_i), the paper's equation 4 with a bias.

    Alone, with entropy weight 1, it is logistic regression on F(x): its minimiser
    is σ(−(B F(x) + b0)).

    Features with positions, (n, T, f), give each position scores of its own, (n, T L).

    Args:
        n_features: f, the width of F(x).
        n_labels: L; with positions, the number of classes of each.

    >>> energy = LocalEnergy(n_features=8, n_labels=4)
    >>> features, y = torch.ones(2, 8), torch.full((2, 4), 0.5)
    >>> energy(features, y).shape
    torch.Size([2])
    """

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_labels = n_labels
        check_settings(self, n_features="whole", n_labels="whole")
        self.weight = nn.Parameter(torch.empty(n_labels, n_features))
        self.bias = nn.Parameter(torch.empty(n_labels))
        self.reset(torch.Generator().manual_seed(0))

    def scores(self, context: Context, generator: torch.Generator | None = None) -> Tensor:
        """Return a = B F(x) + b0, (n, L); its negative is the label-wise logit.

        A generator means training: subclasses draw their dropout masks from it.
        """
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


class KnownLabelsEnergy(LocalEnergy):
    """E(y) = Σ_i y_i a_i(F(x), k): label by label, by a network that is told the known labels k.

        h₀ = max(0, F(x) + U k),   h_j = max(0, W_j h_{j−1} + v_j),   a = B h + D k + b0

    k (2 L) marks the labels that are known to be on with 1, and then those that are known to be off
    with ``zeros``; it is 0 where nothing is known. With F(x) linear in x, this is a feed-forward
    network of x and k. Its minimiser with entropy weight 1 is σ(−a), at once: known labels change
    the scores of the others, and nothing has to be inferred.

    Args:
        n_features: f, the width of F(x), which is that of h₀.
        n_labels: L.
        hidden: the widths of the layers after h₀.
        dropout: the share of units zeroed in training, in each layer.
        zeros: what marks a known zero. Known zeros of thousands of labels all say much the same,
            and at 1 each the step that they take together drowns all else.

    >>> energy = KnownLabelsEnergy(8, 4, hidden=(8,))
    >>> known = torch.tensor([[1.0, 0.0, torch.nan, torch.nan]])
    >>> energy.scores(Context(torch.ones(1, 8), known=known)).shape
    torch.Size([1, 4])
    """

    MOST_LINKED = 2000
    """Labels up to which D is there; it has 2 L² weights."""

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        hidden: Sequence[int] = (),
        dropout: float = 0.0,
        zeros: float = 1.0,
    ) -> None:
        nn.Module.__init__(self)
        self.n_features = n_features
        self.n_labels = n_labels
        self.dropout = dropout
        self.zeros = zeros
        rules = {"n_features": "whole", "n_labels": "whole", "dropout": "share"}
        check_settings(self, **rules, zeros="zero or more")
        for width in hidden:
            check_whole(width, "hidden")
        self.hidden = tuple(hidden)
        widths = (n_features, *self.hidden)
        self.told = nn.Parameter(torch.empty(n_features, 2 * n_labels))
        self.layers = nn.ParameterList(
            torch.empty(wide, narrow) for narrow, wide in itertools.pairwise(widths)
        )
        self.layer_biases = nn.ParameterList(torch.empty(width) for width in self.hidden)
        self.weight = nn.Parameter(torch.empty(n_labels, widths[-1]))
        self.bias = nn.Parameter(torch.empty(n_labels))
        few = n_labels <= self.MOST_LINKED
        self.links = nn.Parameter(torch.empty(n_labels, 2 * n_labels)) if few else None
        self.reset(torch.Generator().manual_seed(0))

    def scores(self, context: Context, generator: torch.Generator | None = None) -> Tensor:
        hidden, known, told = context.features, context.known, None
        if known is not None:
            ones, zeros = ((known == value).to(hidden.dtype) for value in (1, 0))
            told = torch.cat([ones, zeros if self.zeros == 1 else self.zeros * zeros], 1)
            hidden = hidden + F.linear(told, self.told)
        hidden = self._dropped(torch.relu(hidden), generator)
        for layer, bias in zip(self.layers, self.layer_biases, strict=True):
            hidden = self._dropped(torch.relu(F.linear(hidden, layer, bias)), generator)
        scores = F.linear(hidden, self.weight, self.bias)
        return scores if told is None or self.links is None else scores + F.linear(told, self.links)

    def _dropped(self, hidden: Tensor, generator: torch.Generator | None) -> Tensor:
        if not self.dropout or generator is None:
            return hidden
        return drop(hidden, self.dropout, generator)

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        return Form(linear=self.scores(context, generator))

    def reset(self, generator: torch.Generator) -> None:
        fill_fan_in(self.told, generator)
        for layer, bias in zip(self.layers, self.layer_biases, strict=True):
            fill_fan_in(layer, generator, HE)
            nn.init.zeros_(bias)
        super().reset(generator)
        if self.links is not None:
            nn.init.zeros_(self.links)

    def extra_repr(self) -> str:
        shown = f"{super().extra_repr()}, hidden={self.hidden}, dropout={self.dropout}"
        return f"{shown}, zeros={self.zeros:g}"
