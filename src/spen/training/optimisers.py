"""Optimisers by name, and L-BFGS: for a loss of all rows at once that is smooth and not random."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MEMORY = 10
"""Pairs of a step and the change of gradient along it that L-BFGS remembers."""

TOLERANCE = 1e-6
"""L-BFGS ends where another step promises to lower f by this share of it, or less.

For logistic regressions on Bibtex f is then within 1e-4 of its minimum, relatively, and the
F1 of held-out rows within 0.1 points of what it is there.
"""

DECREASE, CURVATURE = 1e-4, 0.9
"""Of the slope where a line search starts: what f must fall by, and what may be left of it."""

LONGEST_SEARCH = 30
"""Evaluations before a line search gives up."""


@dataclass(frozen=True)
class _Point:
    """What an evaluation gave: the loss, f = the loss with its penalty, and the gradient of f."""

    loss: float
    value: float
    gradient: Tensor


class LBFGS(torch.optim.Optimizer):
    """Limited-memory BFGS (Liu & Nocedal, 1989): one iteration a ``step``, nothing random.

    It minimises f(w) = loss(w) + Σ ½ weight_decay |w|². A line search ends where f has fallen
    enough and its slope is flat enough (the weak Wolfe conditions, bracketed as by Lewis &
    Overton, 2013). Near the minimum f changes by less than it is rounded; there the slopes
    alone decide, as in Hager & Zhang (2005).

    The whole state is tensors, so that a run can be saved and go on.

    Args:
        params: parameters, or groups of them with a ``weight_decay`` each.
        tolerance: the share of f that a step must promise to be worth it.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> def closure():
    ...     loss = (weight - torch.tensor([3.0, -1.0])).square().sum()
    ...     loss.backward()
    ...     return loss.item()
    >>> optimiser = LBFGS([weight])
    >>> while not optimiser.ended:
    ...     loss = optimiser.step(closure)
    >>> weight.data
    tensor([ 3., -1.])
    """

    def __init__(self, params: Iterable[Any], tolerance: float = TOLERANCE) -> None:
        super().__init__(params, {"weight_decay": 0.0})
        self.tolerance = tolerance

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to gain."""
        return bool(self._state.get("ended", False))

    @torch.no_grad()
    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        """Make one iteration; return the loss, without the penalty, where it ends.

        Args:
            closure: returns the loss, and adds its gradient to that of the parameters.
        """
        state = self._state
        if "gradient" not in state:
            state["pairs"] = torch.tensor(0)
            self._continue_from(self._evaluate(closure))
        loss, value = state["loss and value"].tolist()
        here, weights = _Point(loss, value, state["gradient"]), self._weights()
        found = self._search(closure, here, weights, state["direction"])
        if found is None and self._pairs:
            # What is remembered misleads: forget it, and go straight downhill.
            state["pairs"] = torch.tensor(0)
            found = self._search(closure, here, weights, -here.gradient)
        if found is None:
            self._move_to(weights)
            state["ended"] = torch.tensor(True)
            return here.loss
        self._remember(self._weights() - weights, found.gradient - here.gradient)
        self._continue_from(found)
        return found.loss

    def _search(
        self, closure: Callable[[], float], here: _Point, weights: Tensor, direction: Tensor
    ) -> _Point | None:
        """Return the point where a line search ends, or None if it finds none that is better."""
        slope = float(here.gradient @ direction)
        if not slope < 0:
            return None
        noise = 10 * torch.finfo(direction.dtype).eps * abs(here.value)
        low, high, step = 0.0, math.inf, 1.0
        for _ in range(LONGEST_SEARCH):
            self._move_to(weights + step * direction)
            there = self._evaluate(closure)
            slope_there = float(there.gradient @ direction)
            fallen = there.value <= here.value + DECREASE * step * slope
            level = there.value <= here.value + noise and slope_there <= (2 * DECREASE - 1) * slope
            if not (fallen or level):
                high = step
                # Where a parabola with what is known of f is least; half way if that is outside.
                bend = there.value - here.value - step * slope
                least = -0.5 * slope * step**2 / bend if math.isfinite(bend) and bend > 0 else 0.0
                room = 0.1 * (high - low)
                step = least if low + room < least < high - room else 0.5 * (low + high)
            elif slope_there < CURVATURE * slope:
                low = step
                step = 0.5 * (low + high) if high < math.inf else 4 * step
            else:
                return there
        return None

    def _direction(self, gradient: Tensor) -> Tensor:
        """Return −H g, with H the inverse Hessian that the remembered pairs make."""
        pairs = [
            (self._state[f"step {k % MEMORY}"], self._state[f"change {k % MEMORY}"])
            for k in range(max(0, self._pairs - MEMORY), self._pairs)
        ]
        direction = -gradient
        shares = []
        for step, change in reversed(pairs):
            shares.append((step @ direction) / (step @ change))
            direction -= shares[-1] * change
        if pairs:
            step, change = pairs[-1]
            direction *= (step @ change) / (change @ change)
        for step, change in pairs:
            direction += (shares.pop() - (change @ direction) / (step @ change)) * step
        return direction

    def _remember(self, step: Tensor, change: Tensor) -> None:
        bend, tiny = step @ change, torch.finfo(step.dtype).eps
        # With no curvature but that of rounding, H would not stay positive.
        if bend > tiny * step.norm() * change.norm():
            place = self._pairs % MEMORY
            self._state[f"step {place}"], self._state[f"change {place}"] = step, change
            self._state["pairs"] = torch.tensor(self._pairs + 1)

    @property
    def _state(self) -> dict[str, Tensor]:
        """All that one iteration hands to the next, kept with the first parameter."""
        return self.state[self.param_groups[0]["params"][0]]

    @property
    def _pairs(self) -> int:
        return int(self._state["pairs"])

    def _continue_from(self, point: _Point) -> None:
        """Keep a point and the direction to search from it, and whether that is worth it."""
        direction = self._direction(point.gradient)
        promised = -0.5 * float(point.gradient @ direction)
        # Until the memory is full, a promise says little.
        sure = self._pairs >= MEMORY
        self._state["ended"] = torch.tensor(sure and promised <= self.tolerance * abs(point.value))
        self._state["gradient"], self._state["direction"] = point.gradient, direction
        self._state["loss and value"] = torch.tensor([point.loss, point.value], dtype=torch.float64)

    def _evaluate(self, closure: Callable[[], float]) -> _Point:
        self.zero_grad()
        with torch.enable_grad():
            loss = value = float(closure())
        gradients = []
        for parameter, decay in self._decayed():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            if decay:
                value += 0.5 * decay * float(parameter.square().sum(dtype=torch.float64))
                gradient = gradient + decay * parameter
            gradients.append(gradient.flatten())
        return _Point(loss, value, torch.cat(gradients))

    def _decayed(self) -> list[tuple[Tensor, float]]:
        return [(p, group["weight_decay"]) for group in self.param_groups for p in group["params"]]

    def _weights(self) -> Tensor:
        return torch.cat([parameter.flatten() for parameter, _ in self._decayed()])

    def _move_to(self, weights: Tensor) -> None:
        parameters = [parameter for parameter, _ in self._decayed()]
        parts = weights.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))


OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "lbfgs": LBFGS,
    "sgd": torch.optim.SGD,
}
