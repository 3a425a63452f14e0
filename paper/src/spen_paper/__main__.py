"""The command line where cyclopts is not installed: ``python -m spen_paper``."""

from __future__ import annotations

import argparse
import inspect
import sys
import typing
from collections.abc import Callable, Sequence

from spen.errors import SpenError
from spen_paper.cli import EXPERIMENTS, bench


def main(
    functions: Sequence[Callable[..., None]] = (*EXPERIMENTS, bench),
    program: str = "python -m spen_paper",
    about: str | None = None,
) -> None:
    """Call the function that the first argument names with the options that follow.

    Args:
        functions: whose parameters are the options, each with a default.
        program: what a message calls it.
        about: its help; the first line is shown.
    """
    parser = argparse.ArgumentParser(prog=program, description=(about or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    named = {function.__name__: function for function in functions}
    for name, function in named.items():
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
    options = vars(parser.parse_args())
    try:
        named[options.pop("command")](**options)
    except (SpenError, OSError) as problem:
        print(f"spen: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
