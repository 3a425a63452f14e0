"""Rules that were tried for fewer steps and dropped, for the table of ``steps.py``.

They are written for reading, not for use: on the unit box, without known labels or entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from spen.domains import Domain
from spen.inference.rule import Iterate, Rule, State, at_dual


@dataclass(frozen=True)
class Tried(Rule):
    """A dual rule: ``move`` returns the next dual and what to remember."""

    lr: float = 1.0
    uses_value: ClassVar[bool] = True

    def init(self, y: Tensor, domain: Domain) -> State:
        """Start at y."""
        return self._start(domain.clamp_dual(domain.to_dual(y)))

    def step(
        self,
        state: State,
        here: Iterate,
        tau: Tensor | None,
        known: Tensor | None,
        domain: Domain,
    ) -> tuple[State, Tensor]:
        """Make one step."""
        dual, *memory = self.move(state, here)
        after, y = at_dual(state, dual, known, domain)
        return after._replace(memory=tuple(memory)), y

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Return the next dual, and what to remember of this step."""
        raise NotImplementedError

    def rates(self, like: Tensor) -> Tensor:
        """Return the first step size of each row, (n, 1)."""
        return torch.full_like(like[:, :1], self.lr)


def dot(u: Tensor, v: Tensor) -> Tensor:
    """Return the inner products of rows, (n, 1)."""
    return (u * v).sum(1, keepdim=True)


@dataclass(frozen=True)
class CoordinateRestart(Tried):
    """Momentum, of which a label loses its own when the gradient turns against it."""

    momentum: float = 0.9

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Drop the velocities that point uphill."""
        velocity = state.point - state.previous
        kept = velocity * (velocity * here.gradient < 0)
        return (state.point - self.lr * here.gradient + self.momentum * kept,)


@dataclass(frozen=True)
class AdaptiveRestart(Tried):
    """Nesterov's momentum, begun anew in a row when it points uphill."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Extrapolate from the last two gradient steps."""
        last, count = state.memory or (state.point, torch.zeros_like(state.point[:, :1]))
        stepped = (state.point - self.lr * here.gradient).clamp(-15, 15)
        velocity = stepped - last
        count = (count + 1) * (dot(velocity, here.gradient) <= 0)
        return stepped + (count / (count + 3)).clamp(max=0.9) * velocity, stepped, count


@dataclass(frozen=True)
class LabelSteps(Tried):
    """A step size for each label: half as long when its gradient changes sign."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Adapt the step sizes by the signs."""
        rate, last = state.memory or (self.rates(state.point), torch.zeros_like(here.gradient))
        turned = last * here.gradient
        rate = rate * (1 + 0.2 * (turned > 0).float() - 0.5 * (turned < 0).float())
        return state.point - rate * here.gradient, rate, here.gradient


@dataclass(frozen=True)
class RowSteps(Tried):
    """A step size for each row: half as long when a step went too far."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Adapt the step size by the slope at its end."""
        rate, last = state.memory or (self.rates(state.point), here.y)
        slope = dot(here.y - last, here.gradient)
        rate = rate * (1 + 0.2 * (slope < 0).float() - 0.5 * (slope > 0).float())
        return state.point - rate * here.gradient, rate, here.y


@dataclass(frozen=True)
class BarzilaiBorwein(Tried):
    """A step size for each row, from the curvature along its last step."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Divide the step's length in the mirror map by the change of the gradient."""
        if not state.memory:
            rate = self.rates(state.point)
        else:
            rate, last_y, last_gradient = state.memory
            moved = here.y - last_y
            length = dot(state.point - state.previous, moved)
            bend = dot(here.gradient - last_gradient, moved)
            straight = torch.full_like(rate, 5.0)
            found = torch.where(bend > 1e-12, length / bend.clamp(min=1e-12), straight)
            rate = torch.minimum(found, 2 * rate).clamp(0.02, 5)
        return state.point - rate * here.gradient, rate, here.y, here.gradient


@dataclass(frozen=True)
class Secant(Tried):
    """A quasi-Newton step: a secant along the last change of the gradient, full steps across."""

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Take the part along the change out of the gradient, as far as the secant says."""
        slope = here.gradient
        if state.memory:
            last_y, last_slope = state.memory
            change, weight = slope - last_slope, here.y * (1 - here.y)
            bend = dot(change, here.y - last_y)
            across = dot(change * weight, slope)
            share = across / (bend / self.lr + dot(change * weight, change)).clamp(min=1e-12)
            slope = slope - share.clamp(0, 1) * (bend > 0) * change
        return state.point - self.lr * slope, here.y, here.gradient


@dataclass(frozen=True)
class BundleVariant(Tried):
    """The default's two cuts with a fixed step, and one of its parts left out.

    Args:
        lr: the step size.
        aggregate: False: the second cut is the gradient before, and stands for no older ones.
        values: False: how far the old cut lies below is guessed from the gradients alone.
    """

    aggregate: bool = True
    values: bool = True

    def move(self, state: State, here: Iterate) -> tuple[Tensor, ...]:
        """Mix the slopes of the two cuts."""
        assert here.value is not None
        value, slope = here.value[:, None], here.gradient
        cut = value
        if state.memory:
            last_y, last_slope, last_cut = state.memory
            change, moved = slope - last_slope, here.y - last_y
            weighted = here.y * (1 - here.y) * change
            gap = value - last_cut - dot(last_slope, moved)
            if not self.values:
                gap = dot(change, moved) / 2
            share = (dot(weighted, slope) - gap / self.lr) / dot(weighted, change).clamp(min=1e-12)
            share = share.clamp(0, 1) * (gap > 0)
            slope, cut = slope - share * change, value - share * gap
        dual = state.point - self.lr * slope
        return (
            (dual, here.y, slope, cut) if self.aggregate else (dual, here.y, here.gradient, value)
        )
