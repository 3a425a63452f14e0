"""Steps that torch.compile has put together, for energies that no kernel knows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

Step = Callable[..., Any]

_made: dict[Step, Step] = {}


def compiled(step: Step) -> Step:
    """Return a step that torch.compile makes at its first call, and that works in any case.

    Making it takes half a minute, once a process, and needs a C++ compiler on a CPU or Triton
    on a GPU. Where it cannot be made, that is said once, and the step stays as it is.

    Args:
        step: the function of tensors to make faster.

    >>> double = compiled(lambda x: 2 * x)
    >>> compiled(double) is compiled(double)
    True
    """
    if step not in _made:
        _made[step] = _WithNotice(step)
    return _made[step]


class _WithNotice:
    def __init__(self, plain: Step) -> None:
        self.plain = plain
        self.fast: Step | None = None
        self.failed = False

    def __call__(self, *arguments: Any) -> Any:
        if self.failed:
            return self.plain(*arguments)
        try:
            with warnings.catch_warnings():
                # Torch's own compiler is built with parts of torch that it warns of.
                warnings.simplefilter("ignore", DeprecationWarning)
                # Batches shrink while rows end, and each size would be compiled for itself.
                self.fast = self.fast or torch.compile(self.plain, dynamic=True)
                return self.fast(*arguments)
        except Exception as problem:
            # What is wrong with the step itself is raised here, by the step itself.
            answer = self.plain(*arguments)
            self.failed = True
            reason = str(problem).strip().splitlines() or [type(problem).__name__]
            warnings.warn(
                "torch.compile could not compile the steps of inference, which go on uncompiled: "
                f"{reason[0]}",
                RuntimeWarning,
                stacklevel=2,
            )
            return answer
