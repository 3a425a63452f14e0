"""The command line. This module alone imports cyclopts; commands import torch when they run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

import spen
from spen.cli import data as data_commands
from spen.cli.bench import bench
from spen.cli.demo import demo
from spen.cli.evaluate import evaluate
from spen.cli.fit import fit
from spen.cli.predict import predict
from spen.cli.report import report
from spen.cli.reproduce import claims, convergence, objectives, structure, table1, table2, table3
from spen.errors import SpenError

app = App(
    name="spen",
    help="Structured Prediction Energy Networks: learned energies for structured prediction.",
    version=spen.__version__,
)
app.command(demo)
for command in (fit, predict, evaluate, report, bench):
    app.command(command)
reproduce = App(name="reproduce", help="Make a table or figure of the paper.")
reproduce.command(table1)
reproduce.command(table2)
reproduce.command(table3)
reproduce.command(structure)
reproduce.command(claims)
reproduce.command(convergence)
reproduce.command(objectives)
app.command(reproduce)
data = App(name="data", help="Data sets: which there are, what is in them, and getting them.")
data.command(data_commands.list_sets, name="list")
data.command(data_commands.show)
data.command(data_commands.fetch)
app.command(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    tokens = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal cannot show is escaped, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except KeyboardInterrupt:
        print("spen: stopped", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except BrokenPipeError:
        # The reader, such as `head`, has had enough; nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (SpenError, CycloptsError, OSError) as problem:
        print(f"spen: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
