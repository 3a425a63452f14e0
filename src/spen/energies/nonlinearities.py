"""Coordinate-wise nonlinearities with their derivatives, in plain tensor operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.errors import choose


class Nonlinearity(NamedTuple):
    """A function g and its derivative g', both applied to each coordinate."""

    name: str
    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


def _sigmoid_derivative(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 - s)


_ALL = (
    Nonlinearity("relu", torch.relu, lambda z: (z > 0).to(z.dtype)),
    Nonlinearity("hardtanh", F.hardtanh, lambda z: (z.abs() < 1).to(z.dtype)),
    Nonlinearity("softplus", F.softplus, torch.sigmoid),
    Nonlinearity("sigmoid", torch.sigmoid, _sigmoid_derivative),
    Nonlinearity("square", torch.square, lambda z: 2 * z),
)
NONLINEARITIES = {g.name: g for g in _ALL}


def nonlinearity(name: str) -> Nonlinearity:
    """Return a nonlinearity by name: relu, hardtanh, softplus, sigmoid or square.

    >>> import torch
    >>> nonlinearity("hardtanh").value(torch.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    return choose(name, NONLINEARITIES, "nonlinearity")
