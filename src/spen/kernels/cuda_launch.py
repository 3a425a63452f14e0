"""Launching a Triton kernel again, without asking Triton once more which version to take.

Triton looks at some thirty arguments at every launch, for longer than a small batch takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_COMPILED: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


def launch(
    kernel: Any,
    device: torch.device,
    programs: int,
    arguments: Sequence[Tensor | float | None],
    constants: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Launch a kernel.

    Args:
        kernel: a function for ``triton.jit`` whose last arguments are the constants.
        device: the current device.
        programs: how many programs to run.
        arguments: the others, in their order.
        constants: what it is compiled for, by name.
        options: how it is compiled.
    """
    kinds = tuple(map(_kind, arguments))
    key = (kernel.__name__, device, kinds, *constants.values(), *options.values())
    if key in _COMPILED:
        compiled, rest = _COMPILED[key]
        compiled[(programs, 1, 1)](*arguments, *rest)
        return
    compiled = kernel[(programs,)](*arguments, **constants, **options)
    # Triton's interpreter compiles nothing.
    if compiled is not None:
        _COMPILED[key] = compiled, [constants[name] for name in kernel.arg_names[len(arguments) :]]


def _kind(argument: Tensor | float | None) -> object:
    """Return what Triton compiles different versions for."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0
    return type(argument)
