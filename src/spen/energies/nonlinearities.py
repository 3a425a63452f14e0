"""Coordinate-wise nonlinearities with their derivatives, in plain tensor operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.errors import choose


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
