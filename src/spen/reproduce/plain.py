"""Runs an experiment from ``python -m``, without the command-line package."""

from __future__ import annotations

import argparse
import inspect
import sys
import typing
from collections.abc import Callable

from spen.errors import SpenError


def run_plain(function: Callable[..., None], arguments: list[str] | None = None) -> None:
    """Call a function whose parameters all have defaults with the command line's options."""
    hints = typing.get_type_hints(function)
    parser = argparse.ArgumentParser(description=(inspect.getdoc(function) or "").split("\n")[0])
    for name, parameter in inspect.signature(function).parameters.items():
        kinds = [kind for kind in typing.get_args(hints[name]) if kind is not type(None)]
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=kinds[0] if kinds else hints[name],
            default=parameter.default,
        )
    try:
        function(**vars(parser.parse_args(arguments)))
    except SpenError as problem:
        print(f"spen: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
