"""Initial weights, drawn from a generator that is handed in: the global one stays untouched.

They are drawn on the CPU in float32, so that one seed gives one model on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def fill_uniform(weight: Tensor, low: float, high: float, generator: torch.Generator) -> None:
    """Fill with U(low, high)."""
    weight.copy_(low + (high - low) * torch.rand(weight.shape, generator=generator))


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, generator: torch.Generator) -> None:
    """Fill with N(0, scale²)."""
    weight.copy_(scale * torch.randn(weight.shape, generator=generator))


def fill_fan_in(weight: Tensor, generator: torch.Generator, gain: float = 1.0) -> None:
    """Fill a layer (outputs, inputs) with U(−s, s), s = gain/√inputs."""
    scale = gain * weight.shape[1] ** -0.5
    fill_uniform(weight, -scale, scale, generator)
