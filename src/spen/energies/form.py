"""The canonical form: what most energies look like once they are bound to a batch.

Per example,

    e0 + a·y + ½ y·(q∘y) + Σ_blocks c·g(C y + b) − τ H(y)

with a, q, b, τ per example and C, c shared. Sums of forms are forms. Value and
gradient are written once, here, for every energy that has the form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import take
from spen.batch.groups import linear
from spen.batch.positions import at_positions, sum_positions
from spen.domains import Domain, UnitBox
from spen.energies.base import Problem, RecordProblem
from spen.errors import InputError, choose

MOVED_AT_ONCE = 2**19
"""Measurements of flipped labels that are looked at together: few enough for a core's cache, where
it takes half as long as with 64 MiB of them."""


class Nonlinearity(NamedTuple):
    """A function g and its derivative g', both applied to each coordinate.

    Attributes:
        name: by which settings call it.
        value: g.
        derivative: g'.
        is_smooth: whether g' has no jumps.
        is_convex: whether g' never falls.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    is_smooth: bool = True
    is_convex: bool = False


def _sigmoid_derivative(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 - s)


_ALL = (
    Nonlinearity(
        "relu", torch.relu, lambda z: (z > 0).to(z.dtype), is_smooth=False, is_convex=True
    ),
    Nonlinearity("hardtanh", F.hardtanh, lambda z: (z.abs() < 1).to(z.dtype), is_smooth=False),
    Nonlinearity("softplus", F.softplus, torch.sigmoid, is_convex=True),
    Nonlinearity("sigmoid", torch.sigmoid, _sigmoid_derivative),
    Nonlinearity("square", torch.square, lambda z: 2 * z, is_convex=True),
)
NONLINEARITIES = {g.name: g for g in _ALL}


def nonlinearity(name: str) -> Nonlinearity:
    """Return a nonlinearity by name: relu, hardtanh, softplus, sigmoid or square.

    >>> import torch
    >>> nonlinearity("hardtanh").value(torch.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    return choose(name, NONLINEARITIES, "nonlinearity")


@dataclass(frozen=True)
class Block:
    """One term of a ``Form``, a number for each row: c·g(C y + b) = Σ_k c_k g(C_k·y + b_k).

    Attributes:
        measurements: C, (m, L), shared by all rows; of k models side by side, (k, m, L), and of n
            rows each with labels of its own, (n, m, L).
        bias: b, (m,) when shared or (n, m) when it depends on x.
        readout: c, (m,), shared by all rows; (n, m) of models side by side, and in training
            where each row drops measurements of its own.
        nonlinearity: g.
        never_negative: whether c cannot be below zero, whatever training does.
        by_row: whether each row has measurements of its own.

    >>> import torch
    >>> from spen.energies.form import nonlinearity
    >>> ones, zero = torch.ones(1, 3), torch.zeros(1)
    >>> block = Block(ones, zero - 1, zero + 2, nonlinearity("relu"))       # 2 max(0, Σ y − 1)
    >>> Form(linear=torch.zeros(1, 3), blocks=(block,)).value(torch.tensor([[1.0, 1.0, 0.5]]))
    tensor([3.])
    """

    measurements: Tensor
    bias: Tensor
    readout: Tensor
    nonlinearity: Nonlinearity
    never_negative: bool = False
    by_row: bool = False

    def _own(self) -> dict[str, Tensor]:
        """Return what each row has for itself, by name."""
        either = {"bias": self.bias, "readout": self.readout}
        own = {name: each for name, each in either.items() if each.ndim == 2}
        return own | {"measurements": self.measurements} if self.by_row else own

    def select(self, rows: Tensor) -> Block:
        """Return the block of some rows."""
        return replace(self, **{name: each[rows] for name, each in self._own().items()})

    def of_labels(self, chosen: Tensor) -> Block:
        """Return the block of some labels of each row, (n, k): the others are zero."""
        if self.measurements.ndim > 2:
            raise InputError("Models side by side have no shortlist. Leave shortlist out.")
        # Not F.embedding of Cᵀ, which copies all of C, however few columns are wanted.
        columns = self.measurements.index_select(1, chosen.flatten())
        by_row = columns.unflatten(1, chosen.shape).transpose(0, 1)
        return replace(self, measurements=by_row, by_row=True)

    def flips(self, z: Tensor, steps: Tensor) -> Tensor:
        """Return c·[g(z + dⱼ Cⱼ) − g(z)] for each label j, whose column of C is Cⱼ: (n, L).

        Args:
            z: (n, m) C y + b, of one model.
            steps: (n, L) d, how far each label is moved.
        """
        labels = steps.shape[1]
        at_once = max(1, MOVED_AT_ONCE // max(1, z.numel()))
        before = (self.nonlinearity.value(z) * self.readout).sum(1, keepdim=True)
        readout = self.readout.expand_as(z)[:, :, None]
        changes = torch.empty_like(steps)
        for some in torch.arange(labels, device=z.device).split(at_once):
            # (n, some labels, m)
            moved = z[:, None] + steps[:, some, None] * self.measurements.mT[..., some, :]
            changes[:, some] = (self.nonlinearity.value(moved) @ readout)[:, :, 0] - before
        return changes

    def stack(self, other: Block) -> Block:
        """Return the block of these rows and then those of another."""
        pairs = {name: (each, getattr(other, name)) for name, each in self._own().items()}
        return replace(self, **{name: torch.cat(pair) for name, pair in pairs.items()})

    @property
    def is_convex(self) -> bool:
        """Whether the term is known to be convex in y: a convex g, and no readout below zero.

        On a GPU readouts are not looked at, since the host would have to wait for them: there
        it is known of what is ``never_negative`` alone.
        """
        if not self.nonlinearity.is_convex or self.never_negative:
            return self.nonlinearity.is_convex
        # Every prediction asks. For so few numbers NumPy takes a fraction of what PyTorch does.
        return not self.readout.is_cuda and not (self.readout.detach().numpy() < 0).any()


@dataclass(frozen=True)
class Form(RecordProblem):
    """A problem in canonical form; absent terms are None.

        E(y) = e0 + a·y + ½ y·(q∘y) + Σ_blocks c·g(C y + b) − τ H(y)

    with y, a and q (n, L), e0 and τ (n,), and a ``Block`` for each C (m, L), b and c (m,).

    At least one term must have rows: a form of blocks alone takes a constant of zeros.

    >>> import torch
    >>> form = Form(linear=torch.tensor([[1.0, -2.0]]), quadratic=torch.tensor([[2.0, 0.0]]))
    >>> y = torch.tensor([[0.5, 1.0]])
    >>> form.value(y), form.gradient(y)
    (tensor([-1.2500]), tensor([[ 2., -2.]]))
    """

    constant: Tensor | None = None
    linear: Tensor | None = None
    quadratic: Tensor | None = None
    blocks: tuple[Block, ...] = ()
    tau: Tensor | None = None
    domain: Domain | None = None
    """Says which entropy H is; set exactly when τ is."""
    mask: Tensor | None = None
    """(n, T) where there are positions, whose columns count; None without positions."""
    with_rows = ("linear", "constant", "quadratic", "tau")

    def value(self, y: Tensor) -> Tensor:
        y = self._at_positions(y)
        return self._value(y, self._measure(y))

    def gradient(self, y: Tensor) -> Tensor:
        y = self._at_positions(y)
        return self._gradient(y, self._measure(y))

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        y = self._at_positions(y)
        measured = self._measure(y)
        return self._value(y, measured), self._gradient(y, measured)

    def flips(self, y: Tensor) -> Tensor:
        # A labelling has no entropy, flipped or not.
        steps = 1 - 2 * y
        changes = torch.zeros_like(y) if self.linear is None else steps * self.linear
        if self.quadratic is not None:
            changes = changes + steps * self.quadratic * (y + 0.5 * steps)
        for block, z in zip(self.blocks, self._measure(y), strict=True):
            changes = changes + block.flips(z, steps)
        return changes

    def _measure(self, y: Tensor) -> list[Tensor]:
        """Return C y + b of each block."""
        return [linear(y, block.measurements) + block.bias for block in self.blocks]

    def _value(self, y: Tensor, measured: list[Tensor]) -> Tensor:
        value = y.new_zeros(y.shape[0]) if self.constant is None else self.constant
        if self.linear is not None:
            value = value + self._sum(self.linear * y)
        if self.quadratic is not None:
            value = value + 0.5 * self._sum(self.quadratic * y * y)
        for block, z in zip(self.blocks, measured, strict=True):
            value = value + (block.nonlinearity.value(z) * block.readout).sum(1)
        if self.tau is not None and self.domain is not None:
            value = value + self.tau * self.domain.negative_entropy(y)
        return value

    def _gradient(self, y: Tensor, measured: list[Tensor]) -> Tensor:
        gradient = torch.zeros_like(y) if self.linear is None else self.linear
        if self.quadratic is not None:
            gradient = gradient + self.quadratic * y
        for block, z in zip(self.blocks, measured, strict=True):
            slopes = block.nonlinearity.derivative(z) * block.readout
            gradient = gradient + linear(slopes, block.measurements.mT)
        if self.tau is not None and self.domain is not None:
            gradient = gradient + self.tau[:, None] * self.domain.negative_entropy_gradient(y)
        return self._at_positions(gradient)

    def _at_positions(self, values: Tensor) -> Tensor:
        return at_positions(values, self.mask)

    def _sum(self, terms: Tensor) -> Tensor:
        return terms.sum(1) if self.mask is None else sum_positions(terms, self.mask.shape[1])

    def select(self, rows: Tensor) -> Form:
        terms = {name: term[rows] for name, term in self._row_terms().items()}
        blocks, mask = tuple(block.select(rows) for block in self.blocks), take(self.mask, rows)
        return replace(self, blocks=blocks, mask=mask, **terms)

    def of_labels(self, chosen: Tensor) -> Form:
        """Return the form of some labels of each row, (n, k): what it is where the others are zero.

        >>> import torch
        >>> form = Form(linear=torch.tensor([[1.0, -2.0, 3.0]]))
        >>> form.of_labels(torch.tensor([[0, 2]])).value(torch.ones(1, 2))
        tensor([4.])
        """
        columns = (("linear", self.linear), ("quadratic", self.quadratic))
        terms = {name: term.gather(1, chosen) for name, term in columns if term is not None}
        blocks = tuple(block.of_labels(chosen) for block in self.blocks)
        domain = None if self.domain is None else UnitBox(chosen.shape[1])
        return replace(self, **terms, blocks=blocks, domain=domain)

    def settle(self) -> Form:
        if self.mask is None or type(self) is not Form:
            return self
        return SettledForm(**{each.name: getattr(self, each.name) for each in fields(self)})

    @property
    def form(self) -> Form:
        return self

    @property
    def entropy_weight(self) -> Tensor | None:
        return self.tau

    def without_entropy(self) -> Form:
        return replace(self, tau=None, domain=None)

    @property
    def is_smooth(self) -> bool:
        return all(block.nonlinearity.is_smooth for block in self.blocks)

    @property
    def is_convex(self) -> bool:
        # Blocks first: mostly they say no, and a GPU need not be asked about the rest.
        return all(block.is_convex for block in self.blocks) and not any(
            term is not None and bool((term < 0).any()) for term in (self.quadratic, self.tau)
        )

    def merge(self, other: Problem) -> Form | None:
        if not isinstance(other, Form):
            return None
        sums = self._row_terms()
        for name, term in other._row_terms().items():
            sums[name] = sums[name] + term if name in sums else term
        domain = self.domain or other.domain
        mask = other.mask if self.mask is None else self.mask
        settled = isinstance(self, SettledForm) and isinstance(other, SettledForm)
        kind = SettledForm if settled else Form
        return kind(**sums, blocks=self.blocks + other.blocks, domain=domain, mask=mask)

    def stack(self, other: Problem) -> Form | None:
        if not isinstance(other, Form):
            return None
        mine, theirs = (each._row_terms(mask=True) for each in (self, other))
        if mine.keys() != theirs.keys() or len(self.blocks) != len(other.blocks):
            return None
        rows = {name: torch.cat([mine[name], theirs[name]]) for name in mine}
        blocks = tuple(a.stack(b) for a, b in zip(self.blocks, other.blocks, strict=True))
        return replace(self, blocks=blocks, **rows)

    def _row_terms(self, mask: bool = False) -> dict[str, Tensor]:
        """Return the terms that have rows and are present, by name; the mask is no term."""
        names = (*self.with_rows, "mask") if mask else self.with_rows
        return {name: t for name in names if (t := getattr(self, name)) is not None}


class SettledForm(Form):
    """A form that leaves columns without a position alone (see ``Problem.settle``)."""

    def settle(self) -> SettledForm:
        return self

    def _at_positions(self, values: Tensor) -> Tensor:
        return values

    @property
    def is_linear(self) -> bool:
        """Whether there is nothing but a·y."""
        return self._row_terms().keys() == {"linear"} and not self.blocks
