"""Domains: where the relaxed output lives, and its geometry.

A domain keeps y as a flat (n, size) matrix, so that every energy and solver
works on any domain. The mirror map of entropic mirror descent goes from the
dual (any real numbers) to the primal (inside the domain) and back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import Context, masked
from spen.batch.positions import sum_positions
from spen.errors import InputError, check_whole

DUAL_LIMIT = 15.0
"""Duals stay within ±15: beyond that a float32 sigmoid is 0 or 1 and log losses diverge."""

_LOWEST = 1 / (1 + math.exp(DUAL_LIMIT))


class Domain(ABC):
    """The set over which an energy is minimised, and its geometry; points are y (n, L).

    A mirror step is a gradient step in dual space: y = to_primal(to_dual(y) − η ∇E).

    >>> box = UnitBox(2)
    >>> box.to_primal(torch.tensor([[0.0, 2.0]])), box.round(torch.tensor([[0.2, 0.9]]))
    (tensor([[0.5000, 0.8808]]), tensor([[0., 1.]]))
    """

    wrong_entries_per_error: int
    """How many entries of y differ when one label is wrong, so that losses count labels."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of columns of y."""

    def of_batch(self, context: Context) -> Domain:
        """Return the domain of one batch: the same one, unless its size is the batch's."""
        return self

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of each row, (n,); padding changes no bit of it."""
        return values.sum(1)

    @abstractmethod
    def to_primal(self, dual: Tensor) -> Tensor:
        """Map duals (n, size) into the domain."""

    @abstractmethod
    def to_dual(self, y: Tensor) -> Tensor:
        """Map points of the domain to duals; the boundary is moved inside first."""

    @abstractmethod
    def clamp_dual(self, dual: Tensor) -> Tensor:
        """Bound duals so that their primal stays strictly inside the domain."""

    @abstractmethod
    def project(self, y: Tensor) -> Tensor:
        """Return the nearest point of the domain, in Euclidean distance."""

    @abstractmethod
    def round(self, y: Tensor) -> Tensor:
        """Return the nearest vertex: labels of 0 and 1."""

    @abstractmethod
    def negative_entropy(self, y: Tensor) -> Tensor:
        """Return −H(y) for each row."""

    @abstractmethod
    def negative_entropy_gradient(self, y: Tensor) -> Tensor:
        """Return the gradient of −H at y."""

    @abstractmethod
    def spread(self, y: Tensor, direction: Tensor) -> Tensor:
        """Return (∂y/∂θ)v, (n, size): how y moves when its dual moves along v.

        Labels that are held do not move: y is 0 or 1 there.
        """

    def covariance(self, y: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return u·(∂y/∂θ)v for each row: the covariance of u and v when labels are drawn by y."""
        return self.sum(self.spread(y, u) * v)

    @abstractmethod
    def frank_wolfe_gap(self, y: Tensor, gradient: Tensor, known: Tensor | None = None) -> Tensor:
        """Return max over v of g·(y − v) for each row, (n,).

        A convex energy with gradient g at y is at most this far above its minimum over all v
        that agree with the known labels.
        """

    def entropic_gap(
        self, y: Tensor, gradient: Tensor, tau: Tensor, known: Tensor | None = None
    ) -> Tensor:
        """Return the same for E − τH, with the gradient of E alone and τ > 0, (n,).

        Only E is replaced by its tangent, the entropy stays: the minimum of that is p =
        to_primal(−g/τ), and y is τ KL(y, p) above it. That is below the Frank–Wolfe gap of the
        whole, far below where labels are rare, and tends to it as τ → 0.
        """
        dual = -gradient / tau[:, None]
        if known is not None:
            # So far out that what is held is certain, and adds nothing.
            dual = torch.where(torch.isnan(known), dual, (2 * known - 1) * 1e4)
        gap = self.sum(self.log_loss_of_dual(dual, y)) + self.negative_entropy(y)
        return tau * gap.clamp_min(0)

    @abstractmethod
    def log_loss_of_dual(self, dual: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of each label (n, size), from the dual of y."""

    @abstractmethod
    def log_loss_gradient(self, y: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        """Return the gradient, with respect to y, of the log loss summed over what counts."""

    @abstractmethod
    def complete_known(self, known: Tensor) -> Tensor:
        """Fill in the labels that the known ones decide; raise where they contradict."""

    @abstractmethod
    def hold(self, y: Tensor, known: Tensor) -> Tensor:
        """Set the known labels of y, leaving the others inside the domain."""

    def at_dual(self, dual: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return a dual within its bounds, and its y with the known labels held."""
        if known is not None:
            # What is held has no say in how the others share a position.
            dual = torch.where(torch.isnan(known), dual, -1e4)
        dual = self.clamp_dual(dual)
        y = self.to_primal(dual)
        return dual, y if known is None else self.hold(y, known)

    def complete_target(
        self, target: Tensor, observed: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Check a target of labels, and fill in what the observed ones decide."""
        missing = torch.zeros_like(target, dtype=torch.bool) if observed is None else ~observed
        known = self.complete_known(torch.where(missing, torch.nan, target))
        seen = ~torch.isnan(known)
        return torch.nan_to_num(known, nan=0.0), None if seen.all() else seen

    def uniform(self, like: Tensor) -> Tensor:
        """Return the centre of the domain, (rows, size), like another matrix of rows."""
        return self.to_primal(like.new_zeros(like.shape[0], self.size))

    def log_loss(self, y: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of each label (n, size); finite also at the boundary."""
        return self.log_loss_of_dual(self.to_dual(y), target)

    def check_shape(self, y: Tensor, rows: int, name: str) -> None:
        """Raise unless y is a tensor of so many rows and the domain's columns."""
        shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        if shape != (rows, self.size):
            raise InputError(
                f"{name} must be a tensor of shape ({rows}, {self.size}); received {shape}."
            )


@dataclass(frozen=True)
class UnitBox(Domain):
    """The box [0, 1]^L: a set of labels, each on or off.

    Points y and duals θ are (n, L). Mirror map: y = σ(θ), θ = log y − log(1 − y).

    >>> import torch
    >>> UnitBox(2).to_primal(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    n_labels: int
    wrong_entries_per_error = 1

    def __post_init__(self) -> None:
        check_whole(self.n_labels, "n_labels")

    @property
    def size(self) -> int:
        """The number of labels."""
        return self.n_labels

    def uniform(self, like: Tensor) -> Tensor:
        # One number, seen as a matrix: kernels neither write it out nor read it n times.
        return like.new_full((1, 1), 0.5).expand(like.shape[0], self.size)

    def to_primal(self, dual: Tensor) -> Tensor:
        return torch.sigmoid(self.clamp_dual(dual))

    def to_dual(self, y: Tensor) -> Tensor:
        inside = y.clamp(_LOWEST, 1 - _LOWEST)
        dual = torch.log(inside) - torch.log1p(-inside)
        # Floats are far apart near 1: what the limit is mapped to would come back 0.16 short of it,
        # and a sum of log losses is off by that for each such label. Slopes stay as they are.
        full = y >= 1 - _LOWEST - torch.finfo(y.dtype).eps / 2
        return dual + ((DUAL_LIMIT - dual) * full).detach()

    def at_dual(self, dual: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
        # Labels share nothing, so the duals of held ones may be anything; and one clamp will do.
        dual = self.clamp_dual(dual)
        y = self.to_primal(dual)
        return dual, y if known is None else self.hold(y, known)

    def clamp_dual(self, dual: Tensor) -> Tensor:
        return dual.clamp(-DUAL_LIMIT, DUAL_LIMIT)

    def project(self, y: Tensor) -> Tensor:
        return y.clamp(0, 1)

    def round(self, y: Tensor) -> Tensor:
        return (y > 0.5).to(y.dtype)

    def negative_entropy(self, y: Tensor) -> Tensor:
        return (torch.xlogy(y, y) + torch.xlogy(1 - y, 1 - y)).sum(1)

    def negative_entropy_gradient(self, y: Tensor) -> Tensor:
        return self.to_dual(y)

    def spread(self, y: Tensor, direction: Tensor) -> Tensor:
        return y * (1 - y) * direction

    def frank_wolfe_gap(self, y: Tensor, gradient: Tensor, known: Tensor | None = None) -> Tensor:
        gap = gradient.clamp_min(0) * y + (-gradient).clamp_min(0) * (1 - y)
        return gap.sum(1) if known is None else masked(gap, torch.isnan(known)).sum(1)

    def log_loss_of_dual(self, dual: Tensor, target: Tensor) -> Tensor:
        return F.softplus(dual) - target * dual

    def log_loss_gradient(self, y: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        inside = y.clamp(_LOWEST, 1 - _LOWEST)
        return masked((inside - target) / (inside * (1 - inside)), counted)

    def complete_known(self, known: Tensor) -> Tensor:
        _check_known(known)
        return known

    def hold(self, y: Tensor, known: Tensor) -> Tensor:
        return torch.where(torch.isnan(known), y, known)


@dataclass(frozen=True)
class Simplex(Domain):
    """A product of simplices: one class out of ``n_classes`` at each position.

    y is flat, (n, T K): the classes of position 0, then those of position 1, and so on.
    Mirror map: y = softmax(θ) at each position, θ = log y.

    With ``positions=None`` there are as many as a batch has, and ``of_batch`` returns its domain.
    Rows that are shorter than the longest of a batch have a mask (see ``Context``); where there
    is no position, y is zero for every class, and stays so.

    Args:
        n_classes: K.
        positions: T, or None for as many as a batch has.

    >>> import torch
    >>> Simplex(2, positions=2).round(torch.tensor([[0.9, 0.1, 0.4, 0.6]]))
    tensor([[1., 0., 0., 1.]])
    >>> from spen import Context
    >>> Simplex(2, positions=None).of_batch(Context(torch.zeros(1, 5, 3)))
    Simplex(n_classes=2, positions=5)
    """

    n_classes: int
    positions: int | None = 1
    wrong_entries_per_error = 2

    def __post_init__(self) -> None:
        check_whole(self.n_classes, "n_classes", least=2)
        if self.positions is not None:
            check_whole(self.positions, "positions")

    @property
    def size(self) -> int:
        """Classes times positions; those of one position where a batch decides on the number."""
        return self.n_classes * (1 if self.positions is None else self.positions)

    def of_batch(self, context: Context) -> Simplex:
        if self.positions is not None:
            return self
        if context.mask is None:
            raise InputError(
                f"{self} takes as many positions as the features have, (n, T, f); received "
                f"features of shape {tuple(context.features.shape)}."
            )
        return replace(self, positions=context.mask.shape[1])

    def sum(self, values: Tensor) -> Tensor:
        positions = values.shape[1] // self.n_classes
        return values.sum(1) if positions == 1 else sum_positions(values, positions)

    def _split(self, y: Tensor) -> Tensor:
        return y.reshape(y.shape[0], y.shape[1] // self.n_classes, self.n_classes)

    def to_primal(self, dual: Tensor) -> Tensor:
        return self._softmax(self.clamp_dual(dual))

    def _softmax(self, dual: Tensor) -> Tensor:
        return torch.softmax(self._split(dual), 2).reshape(dual.shape)

    def to_dual(self, y: Tensor) -> Tensor:
        return torch.log(y.clamp_min(_LOWEST**2))

    def clamp_dual(self, dual: Tensor) -> Tensor:
        """Shift the largest dual of a position to 0, and bound the others from below."""
        split = self._split(dual)
        shifted = split - split.amax(2, keepdim=True).detach()
        return shifted.clamp_min(-DUAL_LIMIT).reshape(dual.shape)

    def at_dual(self, dual: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
        if known is None:
            dual = self.clamp_dual(dual)
            return dual, self._softmax(dual)
        # Not what is nan. What is held has no say in how the others share a position.
        held = known >= 0
        dual = self.clamp_dual(dual.masked_fill(held, -1e4))
        return dual, torch.where(held, known, self._softmax(dual.masked_fill(held, -1e4)))

    def project(self, y: Tensor) -> Tensor:
        """Sort, find how many classes stay above zero, and subtract their common excess."""
        # Shifting a position changes nothing, and keeps large numbers from swallowing the 1.
        split = self._split(y)
        split = split - split.amax(2, keepdim=True)
        ordered = split.sort(2, descending=True).values
        excess = ordered.cumsum(2) - 1
        counts = torch.arange(1, self.n_classes + 1, dtype=y.dtype, device=y.device)
        # At least one, also for rows of nan, which stay nan.
        kept = (ordered * counts > excess).sum(2, keepdim=True).clamp_min(1)
        shift = excess.gather(2, kept - 1) / kept
        return (split - shift).clamp_min(0).reshape(y.shape)

    def round(self, y: Tensor) -> Tensor:
        split = self._split(y)
        labels = F.one_hot(split.argmax(2), self.n_classes).to(y.dtype)
        # Where there is no position, there stays none.
        return (labels * (split != 0).any(2, keepdim=True)).reshape(y.shape)

    def negative_entropy(self, y: Tensor) -> Tensor:
        return self.sum(torch.xlogy(y, y))

    def negative_entropy_gradient(self, y: Tensor) -> Tensor:
        return self.to_dual(y) + 1

    def spread(self, y: Tensor, direction: Tensor) -> Tensor:
        weight, along = self._split(y), self._split(direction)
        centred = along - (weight * along).sum(2, keepdim=True)
        return (weight * centred).reshape(y.shape)

    def frank_wolfe_gap(self, y: Tensor, gradient: Tensor, known: Tensor | None = None) -> Tensor:
        slope = gradient if known is None else gradient.masked_fill(known == 0, torch.inf)
        lowest = self._split(slope).amin(2)
        # Where nothing is allowed, there is no position.
        lowest = torch.where(lowest == torch.inf, 0.0, lowest)
        return self.sum(gradient * y) - sum_positions(lowest, lowest.shape[1])

    def log_loss_of_dual(self, dual: Tensor, target: Tensor) -> Tensor:
        return -target * torch.log_softmax(self._split(dual), 2).reshape(dual.shape)

    def log_loss_gradient(self, y: Tensor, target: Tensor, counted: Tensor | None) -> Tensor:
        wanted = masked(target, counted)
        split = self._split(y)
        whole = split.sum(2, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)
        mass = self._split(wanted).sum(2, keepdim=True) / whole
        return mass.expand_as(split).reshape(y.shape) - wanted / y.clamp_min(_LOWEST**2)

    def complete_known(self, known: Tensor) -> Tensor:
        _check_known(known)
        split = self._split(known)
        ones = (split == 1).sum(2, keepdim=True)
        zeros = (split == 0).sum(2, keepdim=True)
        wrong = ((ones > 1) | (zeros == self.n_classes)).squeeze(2)
        if not torch.compiler.is_compiling() and wrong.any():
            row, position = wrong.nonzero()[0].tolist()
            raise InputError(
                "The labels contradict the domain: each position of a Simplex takes exactly one "
                f"class, but position {position} of row {row} has two classes set to 1, or all "
                "set to 0."
            )
        unknown = torch.isnan(split)
        split = torch.where(unknown & (ones == 1), 0.0, split)
        split = torch.where(unknown & (ones == 0) & (zeros == self.n_classes - 1), 1.0, split)
        return split.reshape(known.shape)

    def hold(self, y: Tensor, known: Tensor) -> Tensor:
        """Set the known classes, and rescale the others so that each position sums to 1."""
        fixed = self._split(known) >= 0
        value = torch.nan_to_num(self._split(known), nan=0.0)
        free = self._split(y).masked_fill(fixed, 0.0)
        room = 1 - value.sum(2, keepdim=True)
        scale = room / free.sum(2, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)
        return (value + free * scale).reshape(y.shape)


def held_labels(
    domain: Domain, known: Tensor | None, like: Tensor, mask: Tensor | None
) -> Tensor | None:
    """Return the labels to hold, (n, L), or None: those that are known, what they decide, and
    zeros wherever the rows have no position.

    Args:
        domain: where y lives.
        known: (n, L) 1, 0, or nan for labels to infer.
        like: a tensor of the wanted rows, type and device.
        mask: (n, T) True where there is a position; None without positions.
    """
    if known is not None:
        domain.check_shape(known, like.shape[0], "known")
        known = known.to(like)
    if mask is None:
        return None if known is None else domain.complete_known(known)
    absent = ~mask[:, :, None].expand(-1, -1, domain.size // mask.shape[1]).reshape(len(mask), -1)
    if known is None:
        # Nothing follows from it, and to find that out a GPU would make the host wait.
        return like.new_full(absent.shape, torch.nan).masked_fill(absent, 0.0)
    return domain.complete_known(known.masked_fill(absent, torch.nan)).masked_fill(absent, 0.0)


def _check_known(known: Tensor) -> None:
    if torch.compiler.is_compiling():
        return  # A graph that is being traced has no numbers to look at.
    if not ((known == 0) | (known == 1) | torch.isnan(known)).all():
        raise InputError("known must hold only 0 and 1, or nan for a label to infer.")
