"""Learned measurements of the output, alone or together with the features, through a nonlinearity.

The label energy measures y, the conditional energy y and F(x).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.groups import in_turns
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.form import Block, Form, Nonlinearity
from spen.energies.form import nonlinearity as named_nonlinearity
from spen.errors import check_settings, check_whole
from spen.features import fill_fan_in, fill_normal, fill_uniform


class LabelEnergy(Energy):
    """E^label(y) = c₂·g(C₁ y + d), the paper's equation 5; C₁ is the measurement matrix.

    Further layers put g(W · + v) between the measurements and the readout.

    Args:
        n_labels: L.
        measurements: the number of rows of C₁.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.
        hidden: the widths of further layers; () is the paper's two-layer energy.
        initial: how C₁ starts. "signed": weights of both signs. "counting": weights above
            zero, so that each measurement starts as a weighted count of labels, which
            suits labels that exclude each other. "neutral": signed, with a readout so small
            that a new energy changes next to nothing.

    >>> energy = LabelEnergy(n_labels=4, measurements=3, nonlinearity="softplus")
    >>> energy.measurements.shape, energy.readout.shape     # C₁ (m, L) and c₂ (m,)
    (torch.Size([3, 4]), torch.Size([3]))
    >>> energy(torch.zeros(2, 1), torch.rand(2, 4)).shape   # it does not look at x
    torch.Size([2])
    """

    def __init__(
        self,
        n_labels: int,
        measurements: int,
        nonlinearity: str = "hardtanh",
        hidden: Sequence[int] = (),
        initial: Literal["signed", "counting", "neutral"] = "signed",
    ) -> None:
        super().__init__()
        check_whole(measurements, "measurements")
        for width in hidden:
            check_whole(width, "hidden")
        self.n_labels = n_labels
        self.n_measurements = measurements
        self.nonlinearity = named_nonlinearity(nonlinearity)
        self.hidden = tuple(hidden)
        self.initial = initial
        check_settings(self, n_labels="whole", initial=("signed", "counting", "neutral"))
        self.measurements = nn.Parameter(torch.empty(measurements, n_labels))
        self.bias = nn.Parameter(torch.empty(measurements))
        widths = (measurements, *self.hidden)
        self.layers = nn.ParameterList(
            torch.empty(wide, narrow) for narrow, wide in itertools.pairwise(widths)
        )
        self.layer_biases = nn.ParameterList(torch.empty(width) for width in widths[1:])
        self.readout = nn.Parameter(torch.empty(widths[-1]))
        self.reset(torch.Generator().manual_seed(0))

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Problem:
        rows = context.n_rows
        zeros = self.bias.new_zeros(rows)
        first = (self.measurements, self.bias)
        if not self.hidden:
            bias, readout = (in_turns(vector, rows) for vector in (self.bias, self.readout))
            block = Block(self.measurements, bias, readout, self.nonlinearity)
            return Form(constant=zeros, blocks=(block,))
        layers = (first, *zip(self.layers, self.layer_biases, strict=True))
        return DeepProblem(tuple(layers), self.readout, self.nonlinearity, zeros)

    def reset(self, generator: torch.Generator) -> None:
        # Scaled so that at y = ½ a measurement is where every g is steep.
        if self.initial != "counting":
            fill_normal(self.measurements, 1.2 * self.n_labels**-0.5, generator)
            nn.init.zeros_(self.bias)
        else:
            fill_uniform(self.measurements, 0.0, 12 / self.n_labels, generator)
            nn.init.constant_(self.bias, 0.4 - 12 / 4)
        for layer, bias in zip(self.layers, self.layer_biases, strict=True):
            fill_fan_in(layer, generator)
            nn.init.zeros_(bias)
        if self.initial == "neutral":
            fill_normal(self.readout, 0.01, generator)
        else:
            nn.init.constant_(self.readout, self.readout.shape[0] ** -0.5)

    def extra_repr(self) -> str:
        return (
            f"n_labels={self.n_labels}, measurements={self.n_measurements}, "
            f"nonlinearity={self.nonlinearity.name!r}, hidden={self.hidden}, "
            f"initial={self.initial!r}"
        )


@dataclass(frozen=True)
class DeepProblem(RecordProblem):
    """c·g(W_k g(… g(W_1 y + v_1) …) + v_k), with back-propagation written out."""

    layers: tuple[tuple[Tensor, Tensor], ...]
    readout: Tensor
    nonlinearity: Nonlinearity
    zeros: Tensor
    with_rows = ("zeros",)

    def value(self, y: Tensor) -> Tensor:
        for weight, bias in self.layers:
            y = self.nonlinearity.value(F.linear(y, weight, bias))
        return (y * self.readout).sum(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        slopes = []
        for weight, bias in self.layers:
            z = F.linear(y, weight, bias)
            slopes.append(self.nonlinearity.derivative(z))
            y = self.nonlinearity.value(z)
        gradient = self.readout.expand_as(y)
        for (weight, _), slope in zip(reversed(self.layers), reversed(slopes), strict=True):
            gradient = (gradient * slope) @ weight
        return (y * self.readout).sum(1), gradient

    @property
    def is_smooth(self) -> bool:
        return self.nonlinearity.is_smooth


class ConditionalEnergy(Energy):
    """E^cond(y) = d₂·g(D₁ [y; F(x)] + d), the paper's equation 6.

    D₁ F(x) does not depend on y, so binding folds it into the bias of each example.

    Args:
        n_features: f, the width of F(x).
        n_labels: L.
        measurements: the number of rows of D₁.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> energy = ConditionalEnergy(n_features=8, n_labels=4, measurements=3)
    >>> energy(torch.ones(2, 8), torch.rand(2, 4)).shape
    torch.Size([2])
    """

    def __init__(
        self, n_features: int, n_labels: int, measurements: int, nonlinearity: str = "hardtanh"
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.n_labels = n_labels
        check_settings(self, n_features="whole", n_labels="whole")
        check_whole(measurements, "measurements")
        self.nonlinearity = named_nonlinearity(nonlinearity)
        self.measurements = nn.Parameter(torch.empty(measurements, n_labels))
        self.feature_weight = nn.Parameter(torch.empty(measurements, n_features))
        self.bias = nn.Parameter(torch.empty(measurements))
        self.readout = nn.Parameter(torch.empty(measurements))
        self.reset(torch.Generator().manual_seed(0))

    def view(self, features: Tensor) -> Tensor:
        """Return what is measured beside y: here F(x) as it is."""
        return features

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        bias = F.linear(self.view(context.features), self.feature_weight, self.bias)
        block = Block(self.measurements, bias, self.readout, self.nonlinearity)
        return Form(constant=bias.new_zeros(context.n_rows), blocks=(block,))

    def reset(self, generator: torch.Generator) -> None:
        fill_normal(self.measurements, 1.2 * self.n_labels**-0.5, generator)
        fill_fan_in(self.feature_weight, generator)
        nn.init.zeros_(self.bias)
        nn.init.constant_(self.readout, self.readout.shape[0] ** -0.5)

    def extra_repr(self) -> str:
        return (
            f"n_features={self.n_features}, n_labels={self.n_labels}, "
            f"measurements={self.measurements.shape[0]}, nonlinearity={self.nonlinearity.name!r}"
        )
