"""The conditional energy: measurements of the output together with the features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.energies.base import Energy
from spen.energies.form import Block, Form
from spen.energies.form import nonlinearity as named_nonlinearity
from spen.errors import check_settings, check_whole
from spen.features import fill_fan_in, fill_normal


class ConditionalEnergy(Energy):
    """E^cond(y) = d₂·g(D₁ [y; F(x)] + d), the paper's equation 6.

    D₁ F(x) does not depend on y, so binding folds it into the bias of each example.

    Args:
        n_features: f, the width of F(x).
        n_labels: L.
        measurements: the number of rows of D₁.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.
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
