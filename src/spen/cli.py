"""The command line. This module alone imports cyclopts; commands import torch when they run."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

import spen
from spen.commands.demo import demo
from spen.commands.reproduce import structure, table3
from spen.errors import SpenError

app = App(
    name="spen",
    help="Structured Prediction Energy Networks: learned energies for structured prediction.",
    version=spen.__version__,
)
app.command(demo)
reproduce = App(name="reproduce", help="Make a table or figure of the paper.")
reproduce.command(table3)
reproduce.command(structure)
app.command(reproduce)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    try:
        app(exit_on_error=False, print_error=False, result_action="return_value")
    except (SpenError, CycloptsError, OSError) as problem:
        print(f"spen: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
