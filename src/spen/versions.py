"""Which versions made a result."""

from __future__ import annotations

import platform


def versions() -> dict[str, str]:
    """Return the versions that records and model files name."""
    import numpy
    import torch

    import spen

    return {
        "spen": spen.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
