"""A language model over labels as an energy: how likely each label is after those before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.positions import at_positions, sum_positions
from spen.energies.base import Energy, RecordProblem
from spen.energies.chain import mask_of
from spen.energies.convolution import said_to_windows, windows_of
from spen.energies.form import Nonlinearity
from spen.energies.form import nonlinearity as named_nonlinearity
from spen.errors import check_settings, check_whole
from spen.features import fill_normal


class LanguageEnergy(Energy):
    """E^lm(y) = −Σ_t y_t·log p(y_t | y_{t−M}, …, y_{t−1}), of all labels and of the end.

    The model is a network with one layer (Bengio et al. 2003) over the last M labels,

        p(· | y_{t−M}, …, y_{t−1}) = softmax(R g(Σ_m C_m y_{t−m} + b) + r)

    over K labels and the end of the row; y is (n, T K). On labels the energy is minus the
    log-probability of the whole row, so it learns from labels alone too: its own value at them is
    the loss. Between labels it is as in Tu, Liu & Gimpel (EMNLP 2020). With M as long as the
    longest row it can spell.

    Exact inference does not know it: descend from the chain's marginals, or choose among its best
    taggings with ``BestOf``. A new energy has a small readout: all labels are about as likely.

    Args:
        n_labels: K, the number of classes of each position.
        window: M.
        hidden: the width of the layer.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> energy = LanguageEnergy(n_labels=3, window=2, hidden=8)
    >>> nn.init.zeros_(energy.readout)[0, 0].item()             # all of 4, the end too, are alike
    0.0
    >>> y = torch.eye(3)[[0, 2, 2, 1]].reshape(1, 12)
    >>> energy.bind(Context(torch.zeros(1, 4, 1))).value(y).exp().round()
    tensor([1024.], grad_fn=<RoundBackward0>)
    """

    def __init__(
        self, n_labels: int, window: int = 3, hidden: int = 64, nonlinearity: str = "softplus"
    ) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.window = window
        check_settings(self, n_labels="whole", window="whole")
        check_whole(hidden, "hidden")
        self.nonlinearity = named_nonlinearity(nonlinearity)
        self.measurements = nn.Parameter(torch.empty(hidden, window, n_labels))
        self.bias = nn.Parameter(torch.empty(hidden))
        self.readout = nn.Parameter(torch.empty(n_labels + 1, hidden))
        self.frequency = nn.Parameter(torch.empty(n_labels + 1))
        self.reset(torch.Generator().manual_seed(0))

    def bind(self, context: Context, generator: torch.Generator | None = None) -> LanguageProblem:
        return LanguageProblem(
            self.measurements,
            self.bias,
            self.readout,
            self.frequency,
            self.nonlinearity,
            self.bias.new_zeros(context.n_rows),
            mask_of(context, self),
        )

    def reset(self, generator: torch.Generator) -> None:
        fill_normal(self.measurements, self.window**-0.5, generator)
        nn.init.zeros_(self.bias)
        fill_normal(self.readout, 0.01, generator)
        nn.init.zeros_(self.frequency)

    def extra_repr(self) -> str:
        return (
            f"n_labels={self.n_labels}, window={self.window}, hidden={len(self.bias)}, "
            f"nonlinearity={self.nonlinearity.name!r}"
        )


@dataclass(frozen=True)
class LanguageProblem(RecordProblem):
    """−Σ_t y_t·log p(y_t | the M labels before), of all labels and of the end.

    Attributes:
        measurements: C, (h, M, K), the label just before last.
        bias: b, (h,).
        readout: R, (K + 1, h), the end last.
        frequency: r, (K + 1,).
        nonlinearity: g.
        zeros: (n,).
        mask: (n, T) True where there is a position.
    """

    measurements: Tensor
    bias: Tensor
    readout: Tensor
    frequency: Tensor
    nonlinearity: Nonlinearity
    zeros: Tensor
    mask: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    with_rows = ("zeros", "mask")

    def value(self, y: Tensor) -> Tensor:
        return self._value(*self._read(y)[:3])

    def gradient(self, y: Tensor) -> Tensor:
        return self._gradient(*self._read(y)[1:])

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        first, follows, logs, measured = self._read(y)
        return self._value(first, follows, logs), self._gradient(follows, logs, measured)

    def _read(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the first label of each row (n, K), what follows each position (n, T, K + 1),
        how likely each label is to follow, in logarithms, and what was measured, (n, T, h)."""
        positions = at_positions(y, self.mask).reshape(*self.mask.shape, -1)
        is_last = self.mask & ~F.pad(self.mask[:, 1:], (0, 1))
        after = F.pad(positions[:, 1:], (0, 0, 0, 1))
        follows = torch.cat([after, is_last[:, :, None].to(after)], 2)
        window = self.measurements.shape[1]
        seen = windows_of(positions, window, behind=window - 1)
        measured = F.linear(seen, self.measurements.flatten(1)) + self.bias
        return positions[:, 0], follows, self._logs(measured), measured

    def _logs(self, measured: Tensor) -> Tensor:
        scores = F.linear(self.nonlinearity.value(measured), self.readout) + self.frequency
        return torch.log_softmax(scores, -1)

    def _value(self, first: Tensor, follows: Tensor, logs: Tensor) -> Tensor:
        likely = sum_positions((follows * logs).flatten(1), self.mask.shape[1])
        return self.zeros - likely - (first * self._of_first).sum(1)

    def _gradient(self, follows: Tensor, logs: Tensor, measured: Tensor) -> Tensor:
        whole = follows.sum(2, keepdim=True)
        slopes = F.linear(whole * logs.exp() - follows, self.readout.T)
        slopes = at_positions(slopes * self.nonlinearity.derivative(measured), self.mask)
        said = said_to_windows(slopes, self.measurements, self.measurements.shape[1] - 1)
        first = self._of_first.expand(len(logs), 1, -1)
        expected = torch.cat([first, logs[:, :-1, :-1]], 1)
        return at_positions(said - expected, self.mask).flatten(1)

    @property
    def _of_first(self) -> Tensor:
        """How likely each label is to come first, in logarithms, (K,)."""
        return self._logs(self.bias)[:-1]

    @property
    def is_smooth(self) -> bool:
        return self.nonlinearity.is_smooth
