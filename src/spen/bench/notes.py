"""What a bench tells while it runs."""

from __future__ import annotations

import sys


def note(text: str) -> None:
    """Print a line on the error output, so that the standard output holds figures alone."""
    print(f"spen: {text}", file=sys.stderr, flush=True)  # noqa: T201
