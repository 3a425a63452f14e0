"""Descriptions of energies that do not know their sizes yet: a fit sizes them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from spen.domains import Domain
from spen.energies.base import Energy, SumEnergy
from spen.errors import InputError, did_you_mean

SIZES = ("n_features", "n_labels", "domain")
"""The constructor arguments of an energy that a fit knows and the user need not give."""


@dataclass(frozen=True)
class UnsizedTerm:
    """One energy: its class, and all of its settings but the sizes."""

    kind: type[Energy]
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        known = _parameters(self.kind)
        for name in self.settings:
            if name not in known or name in SIZES:
                others = [each for each in known if each not in SIZES]
                raise InputError(
                    f"{self.kind.__name__} has no setting {name!r} to describe. "
                    f"{did_you_mean(name, others)}"
                )

    def size(self, n_features: int, domain: Domain) -> Energy:
        """Make the energy."""
        sizes = {"n_features": n_features, "n_labels": domain.size, "domain": domain}
        wanted = {name: sizes[name] for name in SIZES if name in _parameters(self.kind)}
        try:
            return self.kind(**wanted, **self.settings)
        except TypeError as problem:
            raise InputError(
                f"{self.kind.__name__} cannot be made of {self.settings}: {problem}."
            ) from None


@dataclass(frozen=True)
class UnsizedEnergy:
    """A sum of energies without sizes, as ``Energy.unsized`` makes it. Descriptions add.

    >>> import spen
    >>> description = spen.LocalEnergy.unsized() + spen.LabelEnergy.unsized(measurements=2)
    >>> description.size(3, spen.UnitBox(4)).n_labels
    4
    """

    terms: tuple[UnsizedTerm, ...]

    def size(self, n_features: int, domain: Domain) -> Energy:
        """Make the energy for features of this width and outputs in this domain."""
        sized = [term.size(n_features, domain) for term in self.terms]
        return sized[0] if len(sized) == 1 else SumEnergy(*sized)

    def __add__(self, other: UnsizedEnergy) -> UnsizedEnergy:
        return UnsizedEnergy(self.terms + other.terms)

    def __repr__(self) -> str:
        return " + ".join(
            f"{term.kind.__name__}.unsized("
            f"{', '.join(f'{name}={value!r}' for name, value in term.settings.items())})"
            for term in self.terms
        )


def _parameters(kind: type[Energy]) -> list[str]:
    return list(inspect.signature(kind).parameters)
