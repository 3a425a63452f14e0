"""The energy of a chain: what it costs that one class follows another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.positions import at_positions, sum_positions
from spen.energies.base import Energy, Problem, RecordProblem
from spen.energies.form import SettledForm
from spen.errors import InputError, check_settings, check_whole

OUTSIDE = -1
"""In a forbidden transition, what is before the first position and after the last one."""

Transition = tuple[int, int]


class ChainEnergy(Energy):
    """E^chain(y) = s·y_1 + Σ_t y_t·A y_{t+1} + e·y_T, over the positions of each row.

    y is (n, T K).

    With a ``LocalEnergy`` it is a linear-chain CRF, for which ``Viterbi`` and ``ForwardBackward``
    are exact. Where y lies between labels, the energy is linear in each position, so its gradient
    holds what the neighbours say. All weights start at zero, so a new energy is zero.

    Args:
        n_labels: K, the number of classes of each position.
        forbidden: pairs (i, j) of classes of which j may not follow i, such as
            ``forbidden_transitions`` finds for BIO tags; −1 stands for the outside, so (−1, j)
            says that no row begins with j, and (i, −1) that none ends with i. Exact inference
            never takes them.
        penalty: what a forbidden transition costs in the energy itself, whose y may lie between
            labels.
        forced: pairs (i, j) of classes of which i is followed by j alone: nothing else may follow
            i, but what other pairs of the same i name. With −1 as i, rows begin with j alone.

    >>> energy = ChainEnergy(3, forbidden=[(0, 2), (-1, 2)])
    >>> y = torch.eye(3)[[0, 2, 2]].reshape(1, 9)
    >>> energy.bind(Context(torch.zeros(1, 3, 1))).value(y)
    tensor([100.], grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        n_labels: int,
        forbidden: Sequence[Transition] = (),
        penalty: float = 100.0,
        forced: Sequence[Transition] = (),
    ) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.penalty = penalty
        check_settings(self, n_labels="whole", penalty="positive")
        table = torch.zeros(n_labels + 1, n_labels + 1, dtype=torch.bool)
        wanted = torch.zeros_like(table)
        for kind, pairs, marks in (("forbidden", forbidden, table), ("forced", forced, wanted)):
            for pair in pairs:
                if len(pair) != 2 or not all(OUTSIDE <= each < n_labels for each in pair):
                    raise InputError(
                        f"A {kind} transition must be two classes from 0 to {n_labels - 1}, or "
                        f"{OUTSIDE} for the outside; received {tuple(pair)!r}."
                    )
                marks[tuple(pair)] = True
        # What is forced rules out all else. No row is without positions.
        table |= wanted.any(1, keepdim=True) & ~wanted
        table[OUTSIDE, OUTSIDE] = False
        # The settings tell it, so it need not be in files.
        self.register_buffer("_forbidden", table, persistent=False)
        # To look into the table makes a GPU's host wait.
        self._forbids = len(forbidden) + len(forced) > 0
        self.transitions = nn.Parameter(torch.zeros(n_labels, n_labels))
        self.start = nn.Parameter(torch.zeros(n_labels))
        self.end = nn.Parameter(torch.zeros(n_labels))

    @property
    def forbidden(self) -> Tensor | None:
        """(K + 1, K + 1) True where a transition is forbidden, the outside last; None if none."""
        return self.get_buffer("_forbidden") if self._forbids else None

    def pairs(self, context: Context) -> Tensor:
        """Return A, (K, K), or one for each two neighbours, (n, T − 1, K, K)."""
        return self.transitions

    def bind(self, context: Context, generator: torch.Generator | None = None) -> ChainProblem:
        mask, zeros = mask_of(context, self), self.start.new_zeros(context.n_rows)
        ends = self.start, self.end
        return ChainProblem(self.pairs(context), *ends, zeros, mask, self.forbidden, self.penalty)

    def reset(self, generator: torch.Generator) -> None:
        for weight in (self.transitions, self.start, self.end):
            nn.init.zeros_(weight)

    def extra_repr(self) -> str:
        table = self.forbidden
        return f"n_labels={self.n_labels}, forbidden={0 if table is None else int(table.sum())}"


class ConditionalChainEnergy(ChainEnergy):
    """E(y) = s·y_1 + Σ_t y_t·A_{t+1}(x) y_{t+1} + e·y_T with A_t(x) = A + W F(x_t).

    What may follow what depends on the features of the position that follows. All weights start
    at zero.

    Args:
        n_features: f, the width of F(x).
        n_labels: K, the number of classes of each position.
        forbidden: as in ``ChainEnergy``.
        penalty: as in ``ChainEnergy``.
        forced: as in ``ChainEnergy``.

    >>> energy = ConditionalChainEnergy(n_features=2, n_labels=3)
    >>> energy.pairs(Context(torch.zeros(5, 4, 2))).shape
    torch.Size([5, 3, 3, 3])
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        forbidden: Sequence[Transition] = (),
        penalty: float = 100.0,
        forced: Sequence[Transition] = (),
    ) -> None:
        super().__init__(n_labels, forbidden, penalty, forced)
        self.n_features = n_features
        check_settings(self, n_features="whole")
        self.feature_weight = nn.Parameter(torch.zeros(n_labels * n_labels, n_features))

    def pairs(self, context: Context) -> Tensor:
        scores = F.linear(context.features, self.feature_weight)[:, 1:]
        return self.transitions + scores.unflatten(2, self.transitions.shape)

    def reset(self, generator: torch.Generator) -> None:
        super().reset(generator)
        nn.init.zeros_(self.feature_weight)


@dataclass(frozen=True)
class ChainProblem(RecordProblem):
    """s·y_1 + Σ_t y_t·A_t y_{t+1} + e·y_T, and a penalty for each forbidden transition.

    Attributes:
        pairs: A, (K, K) of all, or (n, T − 1, K, K); without penalties.
        start: s, (K,).
        end: e, (K,).
        zeros: (n,).
        mask: (n, T) True where there is a position.
        forbidden: (K + 1, K + 1) True where a transition is forbidden, the outside last.
        penalty: what each of these costs.
    """

    pairs: Tensor
    start: Tensor
    end: Tensor
    zeros: Tensor
    mask: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    forbidden: Tensor | None = None
    penalty: float = 0.0
    with_rows = ("zeros", "mask")

    def select(self, rows: Tensor) -> Problem:
        pairs = self.pairs if self.pairs.ndim == 2 else self.pairs[rows]
        return replace(self, pairs=pairs, zeros=self.zeros[rows], mask=self.mask[rows])

    def value(self, y: Tensor) -> Tensor:
        return self.value_and_gradient(y)[0]

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        positions = at_positions(y, self.mask).reshape(*self.mask.shape, -1)
        outward, pairs = self.costs_of_ends, self.costs_of_pairs
        if pairs.ndim == 2:
            # Of all positions, as many rows as before: products of fewer are rounded differently.
            after, before = F.linear(positions, pairs)[:, 1:], F.linear(positions, pairs.T)[:, :-1]
        else:
            after = (pairs @ positions[:, 1:, :, None]).squeeze(3)
            before = (positions[:, :-1, None, :] @ pairs).squeeze(2)
        said = F.pad(after, (0, 0, 0, 1)) + outward
        gradient = at_positions(said + F.pad(before, (0, 0, 1, 0)), self.mask)
        value = sum_positions((said * positions).flatten(1), self.mask.shape[1])
        return value + self.zeros, gradient.flatten(1)

    def settle(self) -> Problem:
        if self.pairs.ndim == 4 or type(self) is not ChainProblem:
            return self
        table = self.costs_of_pairs
        ends = SettledForm(linear=self.costs_of_ends.flatten(1), mask=self.mask)
        return ends + NeighbourProblem(torch.cat([table.T, table], 1), self.zeros, self.mask)

    @property
    def is_last(self) -> Tensor:
        """(n, T) True at the last position of each row."""
        return self.mask & ~F.pad(self.mask[:, 1:], (0, 1))

    @property
    def costs_of_pairs(self) -> Tensor:
        """The pairs with their penalties."""
        if self.forbidden is None:
            return self.pairs
        return self.pairs + self.penalty * self.forbidden[:-1, :-1]

    @property
    def costs_of_ends(self) -> Tensor:
        """What the first and the last position of each row cost, (n, T, K)."""
        start, end = self.start, self.end
        if self.forbidden is not None:
            start = start + self.penalty * self.forbidden[-1, :-1]
            end = end + self.penalty * self.forbidden[:-1, -1]
        last = self.is_last[:, :, None] * end
        return torch.cat([last[:, :1] + start, last[:, 1:]], 1)


@dataclass(frozen=True)
class NeighbourProblem(RecordProblem):
    """Σ_t y_t·A y_{t+1}, the inner part of a settled ``ChainProblem``.

    Attributes:
        table: [Aᵀ, A], (K, 2 K): what those before and after say to a position.
        zeros: (n,).
        mask: (n, T) True where there is a position.
    """

    table: Tensor
    zeros: Tensor
    mask: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    with_rows = ("zeros", "mask")

    def value(self, y: Tensor) -> Tensor:
        return self.value_and_gradient(y)[0]

    def gradient(self, y: Tensor) -> Tensor:
        padded = F.pad(y.reshape(*self.mask.shape, -1), (0, 0, 1, 1))
        around = torch.cat([padded[:, :-2], padded[:, 2:]], 2)
        return F.linear(around, self.table).flatten(1)

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        gradient = self.gradient(y)
        # Each two neighbours are counted by both.
        return 0.5 * sum_positions(gradient * y, self.mask.shape[1]), gradient


class SkipChainEnergy(Energy):
    """E^skip(y) = Σ_s Σ_t y_t·A^s y_{t+s}: what it costs that one class comes s positions after
    another.

    y is (n, T K), A^s is (K, K). With ``ChainEnergy`` beside it each position has a say in those
    around it, one and s away (Tu, Liu & Gimpel, EMNLP 2020). Exact inference does not know it:
    descend from the chain's marginals, or choose among its best taggings with ``BestOf``. All
    weights start at zero, so a new energy is zero.

    Args:
        n_labels: K, the number of classes of each position.
        skips: how far apart, each s at least 1.

    >>> energy = SkipChainEnergy(3, skips=(2, 3))
    >>> y = torch.eye(3)[[0, 2, 2, 1]].reshape(1, 12)
    >>> energy.bind(Context(torch.zeros(1, 4, 1))).value(y)
    tensor([0.], grad_fn=<AddBackward0>)
    """

    def __init__(self, n_labels: int, skips: Sequence[int] = (2, 3)) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.skips = tuple(skips)
        check_settings(self, n_labels="whole")
        for skip in self.skips:
            check_whole(skip, "skips")
        if not self.skips:
            raise InputError("skips must name at least one distance, such as (2,); received none.")
        self.transitions = nn.Parameter(torch.zeros(len(self.skips), n_labels, n_labels))

    def bind(self, context: Context, generator: torch.Generator | None = None) -> SkipProblem:
        mask = mask_of(context, self)
        zeros = self.transitions.new_zeros(context.n_rows)
        return SkipProblem(self.transitions, self.skips, zeros, mask)

    def reset(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.transitions)

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}, skips={self.skips}"


@dataclass(frozen=True)
class SkipProblem(RecordProblem):
    """Σ_s Σ_t y_t·A^s y_{t+s}.

    Attributes:
        transitions: A, (number of skips, K, K).
        skips: s.
        zeros: (n,).
        mask: (n, T) True where there is a position.
    """

    transitions: Tensor
    skips: tuple[int, ...]
    zeros: Tensor
    mask: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    with_rows = ("zeros", "mask")

    def value(self, y: Tensor) -> Tensor:
        return self.value_and_gradient(y)[0]

    def value_and_gradient(self, y: Tensor) -> tuple[Tensor, Tensor]:
        positions = at_positions(y, self.mask).reshape(*self.mask.shape, -1)
        said = heard = torch.zeros_like(positions)
        for skip, table in zip(self.skips, self.transitions, strict=True):
            if skip < self.mask.shape[1]:
                said = said + F.pad(F.linear(positions, table)[:, skip:], (0, 0, 0, skip))
                heard = heard + F.pad(F.linear(positions, table.T)[:, :-skip], (0, 0, skip, 0))
        gradient = at_positions(said + heard, self.mask)
        value = sum_positions((said * positions).flatten(1), self.mask.shape[1])
        return value + self.zeros, gradient.flatten(1)


def mask_of(context: Context, energy: Energy) -> Tensor:
    """Return where a batch has positions, or say that this energy needs some."""
    if context.mask is None:
        raise InputError(
            f"{type(energy).__name__} is for rows with positions, whose features are (n, T, f); "
            f"received features of shape {tuple(context.features.shape)}."
        )
    return context.mask


SPANS = {"B": "B", "I": "I", "E": "E", "L": "E", "S": "S", "U": "S", "O": "O"}
"""What the letter before a tag's type says, in BIO, BIOES and BILOU: a span begins, goes on, ends,
is a single position, or there is none."""


def forbidden_transitions(tags: Sequence[str]) -> list[Transition]:
    """Return the transitions that tags of spans rule out, for ``ChainEnergy``.

    A span goes on (I-x, E-x) only where one of its type has begun (B-x, I-x). Where some tags
    say that spans end or stand alone (E and S, or L and U), one that has begun must also end.

    Args:
        tags: the name of each class in BIO, BIOES or BILOU, such as "O", "B-NP" or "I".

    >>> forbidden_transitions(["O", "B-NP", "I-NP"])
    [(0, 2), (-1, 2)]
    """
    parts = [tag.split("-", 1) for tag in tags]
    unknown = [tag for tag, part in zip(tags, parts, strict=True) if part[0] not in SPANS]
    if unknown:
        raise InputError(
            f"The tag {unknown[0]!r} does not say what part of a span it is. Tags must be O, or "
            "begin with B, I, E, S, L or U, and a hyphen before a type: B-NP, I-NP."
        )
    spans = [(SPANS[part[0]], part[1] if len(part) > 1 else "") for part in parts]
    must_end = any(letter in "ES" for letter, _ in spans)
    outside = ("O", "")

    def allowed(one: tuple[str, str], other: tuple[str, str]) -> bool:
        is_open, goes_on = one[0] in "BI", other[0] in "IE"
        if goes_on:
            return is_open and one[1] == other[1]
        return not (is_open and must_end)

    around = [*enumerate(spans), (OUTSIDE, outside)]
    return [
        (i, j)
        for i, one in around
        for j, other in around
        if (i, j) != (OUTSIDE, OUTSIDE) and not allowed(one, other)
    ]
