"""The public names of spen with their signatures, as a list that is checked in.

``python tests/public_names.py`` writes it anew. A line that is new is a new promise; one that
changes or goes breaks an old one, and docs/promise.md says what is owed then.
"""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import spen

LIST = Path(__file__).parent / "files" / "public-names.txt"
MODULES = ("metrics", "baselines", "ray")


def lines() -> Iterator[str]:
    """Yield a line for each name, function, class, method, field and command."""
    for name in dir(spen):
        if name in MODULES:
            module = getattr(spen, name)
            for inner in sorted(module.__all__):
                yield from _thing(f"{name}.{inner}", getattr(module, inner))
        elif name != "__version__":
            yield from _thing(name, getattr(spen, name))
    yield from _commands()


def _thing(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, type):
        yield f"{name}{_signature(thing)}"
        yield from sorted(_members(name, thing))
    elif callable(thing):
        yield f"{name}{_signature(thing)}"
    else:
        for field in fields(thing) if is_dataclass(thing) else ():
            yield f"{name}.{field.name}"


def _members(name: str, kind: type) -> Iterator[str]:
    """Yield what a class has of spen's own, and not of torch's or scikit-learn's."""
    if issubclass(kind, Enum):
        yield from (f"{name}.{member}" for member in kind.__members__)
    if is_dataclass(kind):
        yield from (f"{name}.{field.name}" for field in fields(kind) if field.name[0] != "_")
    seen = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("spen."):
            continue
        for member, value in vars(base).items():
            if member.startswith("_") or member in seen:
                continue
            seen.add(member)
            value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if inspect.isfunction(value):
                yield f"{name}.{member}{_signature(value)}"
            elif isinstance(value, property) or hasattr(value, "func"):
                yield f"{name}.{member}"


def _signature(thing: Any) -> str:
    """Write the parameters with their defaults, without types."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return ""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()
    ]
    kept = [
        each.replace(default=_Shown(each.default)) if each.default is not each.empty else each
        for each in parameters
    ]
    return str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))


class _Shown:
    """A default as it is written in every process: without addresses."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        words = repr(self.value)
        return f"<{type(self.value).__name__}>" if " at 0x" in words else words


def _commands() -> Iterator[str]:
    """Yield each command of spen itself with its options."""
    from spen.cli import app, data

    for function in (*app.COMMANDS, data.list_sets, data.show, data.fetch):
        place = "spen data " if function.__module__ == data.__name__ else "spen "
        name = place + function.__name__.removesuffix("_sets")
        yield f"{name}{_signature(function)}"


if __name__ == "__main__":
    LIST.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    sys.stdout.write(f"{LIST.name}: {len(LIST.read_text(encoding='utf-8').splitlines())} lines\n")
