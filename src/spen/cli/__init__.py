"""The command line: one file a command."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; cyclopts is imported here alone, so that all else works without."""
    from spen.cli.app import main

    main(arguments)
