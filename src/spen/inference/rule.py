"""What a rule is: a pair of functions, ``init`` and ``step``, and what passes between them.

A rule's state is a tuple of tensors with rows first, the step count included, so that
dropping finished rows is one index operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from spen.domains import Domain


class State(NamedTuple):
    """What a rule remembers: the current and the previous point, and the steps made.

    Attributes:
        point: (n, L) the point in the rule's own space (dual or primal).
        previous: (n, L) the one before.
        steps: (n, 1) how many steps were made.
        memory: what else a rule remembers, each tensor rows first.
    """

    point: Tensor
    previous: Tensor
    steps: Tensor
    memory: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> State:
        """Return the state of some rows."""
        memory = tuple(tensor[rows] for tensor in self.memory)
        return State(self.point[rows], self.previous[rows], self.steps[rows], memory)


class Iterate(NamedTuple):
    """Where a descent stands, for its rule.

    Attributes:
        y: (n, L) with the known labels held.
        value: (n,) the objective there, entropy included; None for rules that do not use it.
        gradient: (n, L) what the rule asks for (see ``applies_entropy``), zero at known labels.
    """

    y: Tensor
    value: Tensor | None
    gradient: Tensor


class Rule(ABC):
    """How one step is made. A subclass is a frozen dataclass whose fields are its settings."""

    applies_entropy: ClassVar[bool] = False
    """Whether ``step`` applies the entropy weight τ, and so wants a gradient without it."""

    uses_value: ClassVar[bool] = False
    """Whether ``step`` looks at the objective's value."""

    @abstractmethod
    def init(self, y: Tensor, domain: Domain) -> State:
        """Return the state that starts at y."""

    @abstractmethod
    def step(
        self,
        state: State,
        here: Iterate,
        tau: Tensor | None,
        known: Tensor | None,
        domain: Domain,
    ) -> tuple[State, Tensor]:
        """Return the next state and its y, in which the known labels are held."""

    def _start(self, point: Tensor) -> State:
        return State(point, point, point.new_zeros(point.shape[0], 1))


def at_dual(
    state: State, dual: Tensor, known: Tensor | None, domain: Domain
) -> tuple[State, Tensor]:
    """Return the state at a new dual, and its y with the known labels held."""
    if known is not None:
        # What is held has no say in how the others share a position.
        dual = torch.where(torch.isnan(known), dual, -1e4)
    dual = domain.clamp_dual(dual)
    y = domain.to_primal(dual)
    if known is not None:
        y = domain.hold(y, known)
    return State(dual, state.point, state.steps + 1), y
