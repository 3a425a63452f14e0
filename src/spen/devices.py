"""Where to compute."""

from __future__ import annotations

import torch

from spen.errors import InputError


def usable_device(name: str) -> torch.device:
    """Return a device by name, or say that this machine does not have it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, TypeError) as problem:
        raise InputError(
            f"device {name!r} cannot be used here ({str(problem).splitlines()[0]}). "
            "Choose 'auto' or 'cpu'."
        ) from None
