"""When a descent ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from spen.errors import InputError, check_positive, check_whole, choose


@dataclass(frozen=True)
class Stopping:
    """When a descent ends. Either tolerance ends an example; zero turns one off.

    Args:
        max_steps: the most steps.
        objective_rtol: the relative change of the objective below which an example ends.
        iterate_atol: the largest change of any label below which an example ends.
        scope: "example": an example that has converged is frozen, so its answer does
            not depend on its neighbours. "batch": all go on until the batch ends.
        fraction: the share of the batch that must converge before the batch ends; below 1
            it is the paper's way to cut off slow examples.

    >>> Stopping(max_steps=20, objective_rtol=1e-3).scope
    'example'
    """

    max_steps: int = 100
    objective_rtol: float = 1e-5
    iterate_atol: float = 1e-4
    scope: Literal["example", "batch"] = "example"
    fraction: float = 1.0

    def __post_init__(self) -> None:
        check_whole(self.max_steps, "max_steps")
        check_positive(self.objective_rtol, "objective_rtol", zero=True)
        check_positive(self.iterate_atol, "iterate_atol", zero=True)
        choose(self.scope, {"example": 0, "batch": 0}, "scope")
        check_positive(self.fraction, "fraction")
        if self.fraction > 1:
            raise InputError(f"fraction must be above 0 and at most 1; received {self.fraction!r}.")

    def met(self, y: Tensor, last_y: Tensor, value: Tensor, last_value: Tensor) -> Tensor:
        """Return which examples meet a tolerance, (n,)."""
        change = (value - last_value).abs()
        scale = torch.maximum(value.abs(), last_value.abs())
        settled = change < self.objective_rtol * scale
        return settled | ((y - last_y).abs().amax(1) < self.iterate_atol)
