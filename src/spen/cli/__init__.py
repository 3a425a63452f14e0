"""The command line: one file a command."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; cyclopts is imported here alone, so that all else works without."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    try:
        from spen.cli.app import main

        main(arguments)
    except KeyboardInterrupt:
        # Whoever is in a hurry ends the process at once, without another word.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("spen: stopped", file=sys.stderr)  # noqa: T201
        sys.exit(130)


def _stop(number: int, frame: FrameType | None) -> None:
    """End what runs as Ctrl-C does; an import at once, as libraries abort on an exception there."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"spen: stopped\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt
