"""Energies that are convex in y: inference finds their minimum, and can prove it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.energies.base import Energy, Problem
from spen.energies.form import Block, Form, Nonlinearity
from spen.energies.form import nonlinearity as named_nonlinearity
from spen.errors import check_settings, check_whole, one_of
from spen.features import fill_fan_in, fill_normal


class ConvexEnergy(Energy):
    """E(y) = c·z_k with z_{i+1} = g(W_i z_i + C_i y + D_i F(x) + d_i), c ≥ 0 and W ≥ 0.

    y is (n, L) and F(x) (n, f). Convex in y, whatever F(x) is: g is convex and rises, and what it
    is fed convex functions with is not negative (Amos, Xu & Kolter, "Input Convex Neural Networks",
    ICML 2017). C and D have any sign. Each non-negative weight is softplus(r + r₀) of a free
    parameter r that starts at zero, so training needs no clipping, and weight decay draws to the
    initial weights.

    A local energy, an entropy and other convex energies may be added, and the sum is convex. The
    descent then says in ``Solution.gap`` how far its answer may be above the minimum.

    With one layer the energy has the canonical form, and the fused kernels apply.

    Args:
        n_features: f, the width of F(x).
        n_labels: L.
        measurements: the units of the first layer.
        nonlinearity: g: softplus or relu.
        hidden: the widths of further layers.

    >>> import spen
    >>> energy = spen.LocalEnergy(3, 4) + ConvexEnergy(3, 4, measurements=5)
    >>> model = spen.SPEN(spen.Identity(3), energy, spen.UnitBox(4), seed=0)
    >>> solution = model.solve([[1.0, 2.0, 3.0]], entropy=1.0)
    >>> bool(solution.gap < 1e-2)
    True
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        measurements: int,
        nonlinearity: Literal["softplus", "relu"] = "softplus",
        hidden: Sequence[int] = (),
    ) -> None:
        super().__init__()
        one_of(nonlinearity, ("softplus", "relu"), "nonlinearity")
        check_whole(measurements, "measurements")
        for width in hidden:
            check_whole(width, "hidden")
        self.n_features = n_features
        self.n_labels = n_labels
        check_settings(self, n_features="whole", n_labels="whole")
        self.nonlinearity = named_nonlinearity(nonlinearity)
        self.widths = (measurements, *hidden)
        self.measurements = nn.Parameter(torch.empty(measurements, n_labels))
        self.feature_weight = nn.Parameter(torch.empty(measurements, n_features))
        self.bias = nn.Parameter(torch.empty(measurements))
        measured = [torch.empty(width, n_labels) for width in hidden]
        weights = [torch.empty(width, n_features) for width in hidden]
        self.further_measurements = nn.ParameterList(measured)
        self.further_feature_weights = nn.ParameterList(weights)
        self.further_biases = nn.ParameterList(torch.empty(width) for width in hidden)
        self.raw_weights = nn.ParameterList(
            torch.zeros(wide, narrow) for narrow, wide in itertools.pairwise(self.widths)
        )
        self.raw_readout = nn.Parameter(torch.zeros(self.widths[-1]))
        self.reset(torch.Generator().manual_seed(0))

    @property
    def readout(self) -> Tensor:
        """c, (units of the last layer,): above zero."""
        return _above_zero(self.raw_readout, self.widths[-1] ** -0.5)

    @property
    def weights(self) -> list[Tensor]:
        """W of each layer after the first: above zero."""
        # A mean of the layer below: its units are about as large as those.
        return [_above_zero(raw, 1 / raw.shape[1]) for raw in self.raw_weights]

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        offsets = [F.linear(context.features, weight, bias) for _, weight, bias in self._layers()]
        if len(self.widths) == 1:
            block = Block(
                self.measurements, offsets[0], self.readout, self.nonlinearity, never_negative=True
            )
            return Form(constant=context.features.new_zeros(context.n_rows), blocks=(block,))
        measured = (self.measurements, *self.further_measurements)
        layers = zip([None, *self.weights], measured, offsets, strict=True)
        return ConvexProblem(tuple(map(ConvexLayer._make, layers)), self.readout, self.nonlinearity)

    def _layers(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return C, D and d of each layer: what it sees of y and of F(x)."""
        lists = (self.further_measurements, self.further_feature_weights, self.further_biases)
        further = zip(*lists, strict=True)
        return [(self.measurements, self.feature_weight, self.bias), *further]

    def reset(self, generator: torch.Generator) -> None:
        for raw in (*self.raw_weights, self.raw_readout):
            nn.init.zeros_(raw)
        for measured, weight, bias in self._layers():
            fill_normal(measured, 1.2 * self.n_labels**-0.5, generator)
            fill_fan_in(weight, generator)
            nn.init.zeros_(bias)

    def extra_repr(self) -> str:
        return (
            f"n_features={self.n_features}, n_labels={self.n_labels}, "
            f"measurements={self.widths[0]}, nonlinearity={self.nonlinearity.name!r}, "
            f"hidden={self.widths[1:]}"
        )


class ConvexLayer(NamedTuple):
    """z ↦ g(W z + C y + b).

    Attributes:
        weight: W, not negative; None in the first layer, which sees y alone.
        measurements: C.
        offset: b, (n, units): what F(x) and the bias come to.
    """

    weight: Tensor | None
    measurements: Tensor
    offset: Tensor


@dataclass(frozen=True)
class ConvexProblem(Problem):
    """A convex energy of several layers, with back-propagation written out."""

    layers: tuple[ConvexLayer, ...]
    readout: Tensor
    nonlinearity: Nonlinearity

    def value(self, y: Tensor) -> Tensor:
        return (self.nonlinearity.value(self._measure(y)[-1]) * self.readout).sum(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        fed = self._measure(y)
        value = (self.nonlinearity.value(fed[-1]) * self.readout).sum(1)
        gradient, back = torch.zeros_like(y), self.readout.expand_as(fed[-1])
        for layer, before in zip(reversed(self.layers), reversed(fed), strict=True):
            back = back * self.nonlinearity.derivative(before)
            gradient = gradient + back @ layer.measurements
            if layer.weight is not None:
                back = back @ layer.weight
        return value, gradient

    def _measure(self, y: Tensor) -> list[Tensor]:
        """Return what g of each layer is applied to."""
        fed: list[Tensor] = []
        for layer in self.layers:
            before = F.linear(y, layer.measurements) + layer.offset
            if layer.weight is not None:
                before = before + F.linear(self.nonlinearity.value(fed[-1]), layer.weight)
            fed.append(before)
        return fed

    def select(self, rows: Tensor) -> ConvexProblem:
        chosen = (layer._replace(offset=layer.offset[rows]) for layer in self.layers)
        return replace(self, layers=tuple(chosen))

    @property
    def rows_like(self) -> Tensor:
        return self.layers[0].offset

    @property
    def is_smooth(self) -> bool:
        return self.nonlinearity.is_smooth

    @property
    def is_convex(self) -> bool:
        return True


def _above_zero(raw: Tensor, initial: float) -> Tensor:
    """Return softplus(raw + r₀), which is ``initial`` where raw is zero."""
    return F.softplus(raw + math.log(math.expm1(initial)))
