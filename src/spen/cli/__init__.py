"""The command line: one file a command."""


def main() -> None:
    """Run the command line; cyclopts is imported here alone, so that all else works without."""
    from spen.cli.app import main

    main()
