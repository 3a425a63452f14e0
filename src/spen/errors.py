"""Errors that say what is wrong, what was received and what to do.

Every error is also the standard type that Python programmers expect, so
``except ValueError`` keeps working.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

LISTED_CHOICES = 30
"""Choices that an error lists; of a thousand labels it names the first."""


MOST_STEPS = 1_000_000
"""The most steps that an inference may be told to make, in a program or in a model file."""


class SpenError(Exception):
    """The base of all errors that spen raises on purpose.

    >>> issubclass(InputError, SpenError), issubclass(MissingPackageError, SpenError)
    (True, True)
    """


class InputError(SpenError, ValueError):
    """A value, shape or data set that cannot be used.

    It is a ValueError too, and says what is wrong, what was received and what to do.

    >>> from spen.errors import check_positive
    >>> check_positive(-1, "lr")
    Traceback (most recent call last):
    ...
    spen.errors.InputError: lr must be a number above zero; received -1.
    """


class UnknownNameError(InputError):
    """A name that is not one of those on offer.

    It names what is nearest.

    >>> from spen.errors import one_of
    >>> one_of("hamm", ("hamming", "log"), "delta")
    Traceback (most recent call last):
    ...
    spen.errors.UnknownNameError: ...
    """


class CheckpointError(SpenError, ValueError):
    """A file of weights or training state that cannot be used here.

    >>> import spen, tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".spen") as file:
    ...     spen.load(file.name)
    Traceback (most recent call last):
    ...
    spen.errors.CheckpointError: ...
    """


class EnergyCheckError(SpenError, AssertionError):
    """An energy that breaks the contract that solvers rely on.

    >>> import spen
    >>> class Wrong(spen.Energy):
    ...     n_labels = 2
    ...     def forward(self, features, y):
    ...         return y.sum()
    >>> spen.check_energy(Wrong())
    Traceback (most recent call last):
    ...
    spen.errors.EnergyCheckError: Wrong: value(y) must have shape (5,), one number per row; ...
    """


class MissingPackageError(SpenError, ImportError):
    """An optional package that the call needs is not installed.

    The sentence names the extra that brings it.

    >>> from spen.errors import require
    >>> require("no_such_package", "fast")
    Traceback (most recent call last):
    ...
    spen.errors.MissingPackageError: ...
    """


class UndertrainedWarning(UserWarning):
    """A model that has plainly not learned what there is to learn."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return the nearest choice as a hint, and all of them where they are not too many.

    >>> did_you_mean("hardtan", ["relu", "hardtanh"])
    "Did you mean 'hardtanh'? Choose from: hardtanh, relu."
    """
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    listed, rest = choices[:LISTED_CHOICES], len(choices) - LISTED_CHOICES
    more = f", and {rest} more" if rest > 0 else ""
    return f"{hint}Choose from: {', '.join(listed)}{more}."


def choose(name: str, choices: Mapping[str, T], what: str) -> T:
    """Look a name up, or raise an error that suggests the nearest one.

    >>> choose("relu", {"relu": 1}, "nonlinearity")
    1
    """
    # A list or a dict as a name would otherwise fail with a bare TypeError.
    if isinstance(name, str) and name in choices:
        return choices[name]
    raise UnknownNameError(f"Unknown {what} {name!r}. {did_you_mean(name, choices)}")


def one_of(name: Any, choices: Iterable[str], what: str) -> None:
    """Raise an error that suggests the nearest choice unless the name is one of them.

    >>> one_of("relu", ("relu", "hardtanh"), "nonlinearity")
    """
    choose(name, dict.fromkeys(choices), what)


def check_positive(value: Any, name: str, *, zero: bool = False) -> None:
    """Raise unless ``value`` is a finite number above zero (or zero, if allowed)."""
    number = isinstance(value, numbers.Real) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):
        bound = "zero or more" if zero else "above zero"
        raise InputError(f"{name} must be a number {bound}; received {value!r}.")


def check_share(value: Any, name: str) -> None:
    """Raise unless ``value`` is a number of at least 0 and below 1."""
    if not isinstance(value, numbers.Real) or not 0 <= float(value) < 1:
        raise InputError(f"{name} must be at least 0 and below 1; received {value!r}.")


def check_whole(value: Any, name: str, *, least: int = 1, most: float = math.inf) -> None:
    """Raise unless ``value`` is a whole number of ``least`` or more, up to ``most``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of {least} or more; received {value!r}.")
    if int(value) > most:
        raise InputError(f"{name} must be {most:,} at most; received {value!r}.")


def check_settings(thing: Any, *optional: str, **rules: Any) -> None:
    """Check some attributes of an object, each by a rule; the optional ones may be None.

    Args:
        thing: whose attributes are checked.
        optional: the names of attributes that may be None.
        rules: by attribute: "positive" (a number above zero), "zero or more", "share" (at least 0
            and below 1), "share above zero", "whole" (a whole number above zero), "steps" (the
            same, up to a million: who asks for more waits for ever), or the choices there are.

    >>> from types import SimpleNamespace
    >>> check_settings(SimpleNamespace(lr=0.1, clip=None), "clip", lr="positive", clip="positive")
    """
    for name, rule in rules.items():
        value = getattr(thing, name)
        if value is None and name in optional:
            continue
        if not isinstance(rule, str):
            one_of(value, rule, name)
        elif rule in ("whole", "steps"):
            check_whole(value, name, most=MOST_STEPS if rule == "steps" else math.inf)
        else:
            if rule != "share":
                check_positive(value, name, zero=rule == "zero or more")
            if rule.startswith("share"):
                check_share(value, name)


def require(package: str, extra: str) -> None:
    """Raise an error that names the extra when an optional package is missing."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(
            f"This needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'spen[{extra}]'"
        )
