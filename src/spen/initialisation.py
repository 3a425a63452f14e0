"""Initial weights, drawn from a generator that is handed in: the global one stays untouched."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def fill_uniform(weight: Tensor, fan_in: int, generator: torch.Generator) -> None:
    """Fill with U(−s, s), s = 1/√fan_in, wherever the weight lives.

    Drawn on the CPU in float32, so that one seed gives one model on every device.
    """
    scale = max(fan_in, 1) ** -0.5
    drawn = torch.rand(weight.shape, generator=generator) * (2 * scale) - scale
    weight.copy_(drawn)


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, generator: torch.Generator) -> None:
    """Fill with N(0, scale²), wherever the weight lives."""
    weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
