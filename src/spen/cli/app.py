"""The command line. This module alone imports cyclopts; commands import torch when they run."""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, convert

import spen
from spen.cli import data as data_commands
from spen.cli.ask import ask
from spen.cli.compare import compare
from spen.cli.demo import demo
from spen.cli.doctor import doctor
from spen.cli.evaluate import evaluate
from spen.cli.export import export
from spen.cli.fit import fit
from spen.cli.predict import predict
from spen.cli.report import report
from spen.cli.show import visible
from spen.errors import SpenError

OF_THE_PAPER = {
    "reproduce": "Make a table or figure of the paper. Needs a second package: pip install ./paper",
    "bench": "Measure inference on this machine. Needs a second package: pip install ./paper",
}
"""Commands that the package spen-paper adds, in words."""


def _missing(name: str) -> Callable[..., None]:
    """Return a command that says what to install."""

    def command(*options: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
        raise SpenError(
            f"spen {name} is in another package: pip install spen-paper, or from a checkout "
            "pip install ./paper."
        )

    return command


def _exactly(type_: Any, tokens: Sequence[Any]) -> Any:
    """Convert what was typed; cyclopts by itself rounds 1.5 where a whole number is wanted."""
    for token in tokens if type_ is int else ():
        try:
            whole = float(token.value).is_integer()
        except ValueError:
            continue  # what else an int may look like, cyclopts knows
        if not whole:
            raise SpenError(f"{token.keyword} must be a whole number; received {token.value}.")
    return convert(type_, tokens)


app = App(
    name="spen",
    default_parameter=Parameter(converter=_exactly),
    help="A classifier for several labels at once, which learns how they depend on each other.\n\n"
    "Begin with: spen fit TABLE.csv --labels COLUMN",
    version=spen.__version__,
    suppress_keyboard_interrupt=False,
)
COMMANDS = (demo, fit, predict, ask, evaluate, compare, report, export, doctor)
for command in COMMANDS:
    app.command(command)
# Another package may add commands; what they need is imported when they run.
_added = {entry.name: entry.load() for entry in entry_points(group="spen.cli")}
for name, words in OF_THE_PAPER.items():
    if name not in _added:
        app.command(_missing(name), name=name, help=words)
for name, added in _added.items():
    app.command(added, name=name)
data = App(name="data", help="Data sets: which there are, what is in them, and getting them.")
data.command(data_commands.list_sets, name="list")
data.command(data_commands.show)
data.command(data_commands.fetch)
app.command(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake, or too little memory, is one line and exit code 2."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    while "-" in tokens[1:]:
        # A lone hyphen would be taken for an option of its own.
        place = tokens.index("-", 1)
        tokens[place - 1 : place + 1] = [f"{tokens[place - 1]}=-"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal cannot show is escaped, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    shown = warnings.showwarning
    warnings.showwarning = lambda message, *place, **_: _tell(in_options(message, tokens))
    try:
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except BrokenPipeError:
        # The reader, such as `head`, has had enough; nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except SpenError as problem:
        _fail(in_options(problem, tokens))
    except FileNotFoundError as problem:
        _fail(f"There is no file {problem.filename or problem}.")
    except MissingArgumentError as problem:
        argument, chain = problem.argument, " ".join(problem.command_chain or ())
        if argument is None or not argument.field_info.is_positional:
            _fail(str(problem))
        # What has no option's name where it is typed has none here.
        _fail(f"{chain} needs {argument.name.lstrip('-').upper()}: see spen {chain} --help.")
    except (CycloptsError, OSError) as problem:
        _fail(str(problem))
    except RecursionError:
        _fail("a file is nested too deeply to be read. It is damaged, or made to do harm.")
    except (MemoryError, RuntimeError) as problem:
        # torch says so in words of its own.
        if isinstance(problem, RuntimeError) and not _NO_MEMORY.search(str(problem)):
            raise
        _fail(
            "there is not enough memory for this. Take fewer rows, features or labels, or smaller "
            f"settings. ({problem or 'MemoryError'})"
        )
    finally:
        warnings.showwarning = shown


_NO_MEMORY = re.compile("(can't|cannot) allocate memory|not enough memory|out of memory")


def _options(tokens: Sequence[str]) -> dict[str, str]:
    """Return the options of the command that is called, by the names of the settings they set."""
    command = app.parse_commands(tokens)[1][-1].default_command
    parameters = inspect.signature(command).parameters.values() if command else ()
    names = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    found = {name: f"--{name.replace('_', '-')}" for name in names}
    # What Python calls otherwise.
    others = {"seed": "random_state", "labels": "n_labels"}
    return {other: found[name] for name, other in others.items() if name in found} | found


def in_options(problem: Exception | str, tokens: Sequence[str]) -> str:
    """Return an error that speaks of a command's options where it spoke of Python's arguments.

    Settings are told from other words by what stands beside them, or by an underscore.

    >>> in_options("cross_fit=True needs two folds; received folds=1.", ["fit"])
    '--cross-fit needs two folds; received --folds 1.'
    >>> in_options("labels must be names, such as sun. Leave cross_fit out.", ["fit"])
    '--labels must be names, such as sun. Leave --cross-fit out.'
    """
    words = str(problem)
    for name, option in _options(tokens).items():
        words = re.sub(rf"\b{name}=True\b", option, words)
        words = re.sub(rf"\b{name}=False\b", option.replace("--", "--no-"), words)
        words = re.sub(rf"\b{name}='([^']*)'", rf"{option} \1", words)
        words = re.sub(rf"\b{name}=(?=\w)", f"{option} ", words)
        words = re.sub(rf"\b{name}=", option, words)
        before = r"\b" if "_" in name else r"(?:^|(?<=[.;:] ))"
        after = r"\b" if "_" in name else r"(?= (?:must|is|names|cannot|and|works|'))"
        words = re.sub(rf"{before}{name}{after}", option, words)
    # Where it is no option, it is what the model was fitted on.
    return re.sub(r"\bn_(?:features|labels) says (\d+)", r"the model has \1", words)


def _tell(words: str) -> None:
    print(f"spen: {visible(words)}", file=sys.stderr)  # noqa: T201


def _fail(words: str) -> NoReturn:
    _tell(words)
    sys.exit(2)
