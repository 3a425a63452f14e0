"""A temporal convolution over y: what some neighbouring positions are together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.positions import at_positions, sum_positions
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.chain import NeighbourProblem, mask_of
from spen.energies.form import Nonlinearity, SettledForm
from spen.energies.form import nonlinearity as named_nonlinearity
from spen.errors import check_settings, check_whole
from spen.features import fill_fan_in, fill_normal


class ConvolutionEnergy(Energy):
    """E^conv(y) = Σ_t c·g(Σ_m C_m y_{t+m−⌊M/2⌋} + d): the label energy of windows of positions.

    Each position's window holds M positions, and measures them as ``LabelEnergy`` measures a set
    of labels; beyond the ends of a row y is zero. With features it measures those of position t
    too: D F(x_t) is added inside of g, which is a ``ConditionalEnergy`` of the window.

    Exact inference does not know it, so descend, best from the marginals of the chain beside it
    (``start="chain"``). A new energy has a small readout, and changes next to nothing.

    Args:
        n_labels: K, the number of classes of each position.
        window: M.
        measurements: the number of rows of each C_m.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> energy = ConvolutionEnergy(n_labels=3, window=2, measurements=4)
    >>> y = torch.eye(3)[[0, 2, 2, 1]].reshape(1, 12)
    >>> energy.bind(Context(torch.zeros(1, 4, 1))).value(y).shape
    torch.Size([1])
    """

    def __init__(
        self, n_labels: int, window: int = 3, measurements: int = 32, nonlinearity: str = "softplus"
    ) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.window = window
        check_settings(self, n_labels="whole", window="whole")
        check_whole(measurements, "measurements")
        self.nonlinearity = named_nonlinearity(nonlinearity)
        self.measurements = nn.Parameter(torch.empty(measurements, window, n_labels))
        self.bias = nn.Parameter(torch.empty(measurements))
        self.readout = nn.Parameter(torch.empty(measurements))
        self.reset(torch.Generator().manual_seed(0))

    def offsets(self, context: Context) -> Tensor:
        """Return what is added to the measurements of each position, (m,) or (n, T, m)."""
        return self.bias

    def bind(self, context: Context, generator: torch.Generator | None = None) -> WindowProblem:
        mask = mask_of(context, self)
        return WindowProblem(
            self.offsets(context).expand(*mask.shape, -1),
            self.measurements,
            self.readout,
            self.nonlinearity,
            mask,
        )

    def reset(self, generator: torch.Generator) -> None:
        fill_normal(self.measurements, self.window**-0.5, generator)
        nn.init.zeros_(self.bias)
        fill_normal(self.readout, 0.01, generator)

    def extra_repr(self) -> str:
        return (
            f"n_labels={self.n_labels}, window={self.window}, "
            f"measurements={len(self.bias)}, nonlinearity={self.nonlinearity.name!r}"
        )


class ConditionalConvolutionEnergy(ConvolutionEnergy):
    """E(y) = Σ_t c·g(Σ_m C_m y_{t+m−⌊M/2⌋} + D F(x_t) + d): windows of y together with features.

    Args:
        n_features: f, the width of F(x).
        n_labels: K, the number of classes of each position.
        window: M.
        measurements: the number of rows of each C_m.
        nonlinearity: g: relu, hardtanh, softplus or sigmoid.

    >>> energy = ConditionalConvolutionEnergy(n_features=5, n_labels=3, window=2, measurements=4)
    >>> y = torch.eye(3)[[0, 2, 2, 1]].reshape(1, 12)       # (n, T K)
    >>> energy.bind(Context(torch.zeros(1, 4, 5))).value(y).shape
    torch.Size([1])
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        window: int = 3,
        measurements: int = 32,
        nonlinearity: str = "softplus",
    ) -> None:
        super().__init__(n_labels, window, measurements, nonlinearity)
        self.n_features = n_features
        check_settings(self, n_features="whole")
        self.feature_weight = nn.Parameter(torch.empty(measurements, n_features))
        fill_fan_in(self.feature_weight, torch.Generator().manual_seed(0))

    def offsets(self, context: Context) -> Tensor:
        return F.linear(context.features, self.feature_weight, self.bias)

    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        # Not there yet while the parent's own weights are drawn.
        if hasattr(self, "feature_weight"):
            fill_fan_in(self.feature_weight, generator)


@dataclass(frozen=True)
class WindowProblem(RecordProblem):
    """Σ_t c·g(C [y of the window at t] + b_t).

    Attributes:
        offsets: b, (n, T, m).
        measurements: C, (m, M, K).
        readout: c, (m,).
        nonlinearity: g.
        mask: (n, T) True where there is a position.
    """

    offsets: Tensor
    measurements: Tensor
    readout: Tensor
    nonlinearity: Nonlinearity
    mask: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    with_rows = ("offsets", "mask")

    def settle(self) -> Problem:
        if type(self) is not WindowProblem:
            return self
        measured, window, classes = self.measurements.shape
        nothing = self.measurements.new_zeros(classes, window * classes)
        return SettledWindows(
            linear=self.offsets.new_zeros(*self.mask.shape, classes),
            offsets=at_positions(self.offsets, self.mask),
            weights=torch.cat([self.measurements.flatten(1), nothing]),
            # What the window at t says of its m-th position goes to t + m − behind.
            heard=self.measurements.flip(1).permute(2, 1, 0).reshape(classes, window * measured),
            readout=self.readout * self.mask[:, :, None],
            nonlinearity=self.nonlinearity,
            mask=self.mask,
        )

    def value(self, y: Tensor) -> Tensor:
        return self._value(self._measure(y))

    def gradient(self, y: Tensor) -> Tensor:
        return self._gradient(self._measure(y))

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        measured = self._measure(y)
        return self._value(measured), self._gradient(measured)

    def _measure(self, y: Tensor) -> Tensor:
        """Return what the window at each position measures, (n, T, m)."""
        positions = at_positions(y, self.mask).reshape(*self.mask.shape, -1)
        seen = windows_of(positions, self.measurements.shape[1], self._behind)
        return F.linear(seen, self.measurements.flatten(1)) + self.offsets

    @property
    def _behind(self) -> int:
        return self.measurements.shape[1] // 2

    def _value(self, measured: Tensor) -> Tensor:
        each = at_positions(self.nonlinearity.value(measured) * self.readout, self.mask)
        return sum_positions(each.flatten(1), self.mask.shape[1])

    def _gradient(self, measured: Tensor) -> Tensor:
        slopes = at_positions(self.nonlinearity.derivative(measured) * self.readout, self.mask)
        gradient = said_to_windows(slopes, self.measurements, self._behind)
        return at_positions(gradient, self.mask).flatten(1)

    @property
    def is_smooth(self) -> bool:
        return self.nonlinearity.is_smooth


@dataclass(frozen=True)
class SettledWindows(RecordProblem):
    """Σ_t (a_t + ½ B s_t)·y_t + c_t·g(C s_t + b_t), s_t what the window at t holds: a settled
    ``WindowProblem`` and the local scores and chain beside it, which look at the same windows.

    Attributes:
        linear: a, (n, T, K).
        offsets: b, (n, T, m).
        weights: C and then B, (m + K, M K).
        heard: C as positions hear of it, (K, M m): the transpose of measuring.
        readout: c, (n, T, m), zero where there is no position.
        nonlinearity: g.
        mask: (n, T) True where there is a position.
    """

    linear: Tensor
    offsets: Tensor
    weights: Tensor
    heard: Tensor
    readout: Tensor
    nonlinearity: Nonlinearity
    mask: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    with_rows = ("linear", "offsets", "readout", "mask")

    def value(self, y: Tensor) -> Tensor:
        return self._value(y, *self._read(y))

    def gradient(self, y: Tensor) -> Tensor:
        return self._gradient(*self._read(y))

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        read = self._read(y)
        return self._value(y, *read), self._gradient(*read)

    def merge(self, other: Problem) -> Problem | None:
        if isinstance(other, SettledForm) and other.is_linear and other.linear is not None:
            return replace(self, linear=self.linear + other.linear.reshape(self.linear.shape))
        if isinstance(other, NeighbourProblem) and self._behind and self._behind < self._window - 1:
            before, after = other.table.chunk(2, 1)
            pairs = [torch.zeros_like(before)] * self._window
            pairs[self._behind - 1], pairs[self._behind + 1] = before, after
            nothing = torch.zeros_like(self.weights[: self.offsets.shape[2]])
            return replace(self, weights=self.weights + torch.cat([nothing, torch.cat(pairs, 1)]))
        return None

    @property
    def _window(self) -> int:
        return self.weights.shape[1] // self.linear.shape[2]

    @property
    def _behind(self) -> int:
        return self._window // 2

    def _read(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each window measures (n, T, m), and B times what it holds, (n, T, K)."""
        seen = windows_of(y.reshape(self.linear.shape), self._window, self._behind)
        found, measurements = F.linear(seen, self.weights), self.offsets.shape[2]
        return found[:, :, :measurements] + self.offsets, found[:, :, measurements:]

    def _value(self, y: Tensor, measured: Tensor, said: Tensor) -> Tensor:
        each = self.nonlinearity.value(measured) * self.readout
        alone = (self.linear + 0.5 * said) * y.reshape(said.shape)
        return sum_positions(torch.cat([each, alone], 2).flatten(1), self.mask.shape[1])

    def _gradient(self, measured: Tensor, said: Tensor) -> Tensor:
        slopes = self.nonlinearity.derivative(measured) * self.readout
        around = windows_of(slopes, self._window, self._window - 1 - self._behind)
        return (self.linear + said + F.linear(around, self.heard)).flatten(1)

    @property
    def is_smooth(self) -> bool:
        return self.nonlinearity.is_smooth


def windows_of(positions: Tensor, window: int, behind: int) -> Tensor:
    """Return what the window of each position holds, (n, T, window K).

    Args:
        positions: (n, T, K).
        window: how many positions a window has.
        behind: how many of them lie before the position itself; beyond the ends are zeros.

    >>> windows_of(torch.tensor([[[1.0], [2.0], [3.0]]]), window=2, behind=1)
    tensor([[[0., 1.],
             [1., 2.],
             [2., 3.]]])
    """
    longest = positions.shape[1]
    padded = F.pad(positions, (0, 0, behind, window - 1 - behind))
    return torch.cat([padded[:, m : m + longest] for m in range(window)], 2)


def said_to_windows(slopes: Tensor, measurements: Tensor, behind: int) -> Tensor:
    """Return what measurements of the windows of all positions say to each position, (n, T, K):
    the transpose of measuring ``windows_of`` them.

    Args:
        slopes: (n, T, m).
        measurements: (m, window, K).
        behind: as in ``windows_of``.

    >>> said_to_windows(torch.tensor([[[1.0], [10.0]]]), torch.tensor([[[1.0], [2.0]]]), behind=1)
    tensor([[[12.],
             [20.]]])
    """
    longest, window = slopes.shape[1], measurements.shape[1]
    pulls = F.linear(slopes, measurements.flatten(1).T).unflatten(2, (window, -1))
    # What the window at t says of its m-th position goes to t + m − behind.
    padded = F.pad(pulls, (0, 0, 0, 0, window - 1 - behind, behind))
    said = padded[:, window - 1 : window - 1 + longest, 0]
    for m in range(1, window):
        first = window - 1 - m
        said = said + padded[:, first : first + longest, m]
    return said
