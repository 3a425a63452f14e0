"""The command line where cyclopts is not installed: ``python -m spen_paper``."""

from __future__ import annotations

import argparse
import inspect
import sys
import typing

from spen.errors import SpenError
from spen_paper.cli import EXPERIMENTS, bench


def main(arguments: list[str] | None = None) -> None:
    """Call the command that the first argument names with the options that follow."""
    parser = argparse.ArgumentParser(prog="python -m spen_paper")
    commands = parser.add_subparsers(dest="command", required=True)
    functions = {function.__name__: function for function in (*EXPERIMENTS, bench)}
    for name, function in functions.items():
        hints = typing.get_type_hints(function)
        command = commands.add_parser(name, help=(inspect.getdoc(function) or "").split("\n")[0])
        for option, parameter in inspect.signature(function).parameters.items():
            flag = f"--{option.replace('_', '-')}"
            kinds = [kind for kind in typing.get_args(hints[option]) if kind is not type(None)]
            kind = kinds[0] if kinds else hints[option]
            if kind is bool:
                command.add_argument(flag, action="store_true")
            else:
                command.add_argument(flag, type=kind, default=parameter.default)
    options = vars(parser.parse_args(arguments))
    try:
        functions[options.pop("command")](**options)
    except SpenError as problem:
        print(f"spen: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
