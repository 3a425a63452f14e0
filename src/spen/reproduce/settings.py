"""Settings files: small TOML tables read into frozen dataclasses.

An unknown key is an error that suggests the nearest one, because a typo that changes
an experiment in silence is worse than a stop.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from spen.domains import Domain, Simplex, UnitBox
from spen.energies.label import LabelEnergy
from spen.energies.local import LocalEnergy
from spen.errors import InputError, choose, did_you_mean
from spen.features import MLP, Identity
from spen.inference.descent import Descent, Stopping
from spen.inference.rules import RULES
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.objectives.hinge import Hinge
from spen.objectives.likelihood import CrossEntropy
from spen.objectives.unrolled import UnrolledLikelihood
from spen.training import Stage

T = TypeVar("T")

OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "hinge": Hinge,
    "unrolled": UnrolledLikelihood,
}


@dataclass(frozen=True)
class Method:
    """One row of a table: a model and how it is trained.

    Attributes:
        title: what the table calls it.
        hidden: the widths of the feature network; () means F(x) = x.
        dropout: of the feature network.
        block_size: 0 for label sets; k for one label out of each k consecutive ones.
        measurements: the rows of the measurement matrix; 0 leaves the label energy out.
        nonlinearity: of the label energy.
        inference: the solver, in training and in prediction.
        stages: the training.
        restarts: how many initialisations are trained; the held-out score picks one.
    """

    title: str
    stages: tuple[Stage, ...]
    inference: Descent = field(default_factory=Descent)
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    block_size: int = 0
    measurements: int = 0
    nonlinearity: str = "hardtanh"
    restarts: int = 1

    def build(self, n_inputs: int, n_labels: int, seed: int) -> SPEN:
        """Return a new model of the right sizes."""
        widths = (n_inputs, *self.hidden)
        features = MLP(*widths, dropout=self.dropout) if self.hidden else Identity(n_inputs)
        energy = LocalEnergy(features.n_features, n_labels)
        if self.measurements:
            energy = energy + LabelEnergy(n_labels, self.measurements, self.nonlinearity)
        domain: Domain = UnitBox(n_labels)
        if self.block_size:
            domain = Simplex(self.block_size, positions=n_labels // self.block_size)
        return SPEN(features, energy, domain, seed=seed)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a settings file, or say what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{path.name} is not valid TOML: {problem}.") from None


def read_methods(name: str) -> dict[str, Method]:
    """Read the methods of a table from ``settings/NAME.toml``."""
    tables = read_toml(Path(__file__).parent / "settings" / f"{name}.toml")
    return {key: method(table, f"{name}.toml, [{key}]") for key, table in tables.items()}


def method(table: dict[str, Any], where: str) -> Method:
    """Make a method of one table of a settings file."""
    inference = _inference(table.get("inference", {}), f"{where} inference")
    stages = [_stage(stage, inference, f"{where} stages") for stage in table.get("stages", [])]
    return build(Method, table | {"inference": inference, "stages": stages}, where)


def _stage(table: dict[str, Any], inference: Descent, where: str) -> Stage:
    objective = dict(table.get("objective", {}))
    kind = choose(objective.pop("name", ""), OBJECTIVES, f"objective in {where}")
    ready = {"objective": build(kind, objective, f"{where} objective"), "inference": inference}
    return build(Stage, table | ready, where)


def _inference(table: dict[str, Any], where: str) -> Descent:
    rule = dict(table.get("rule", {}))
    kind = choose(rule.pop("name", "mirror"), RULES, f"rule in {where}")
    ready = {
        "rule": build(kind, rule, f"{where} rule"),
        "stopping": build(Stopping, table.get("stopping", {}), f"{where} stopping"),
    }
    return build(Descent, table | ready, where)


def build(kind: type[T], table: dict[str, Any], where: str) -> T:
    """Make a dataclass of a table, refusing keys that it does not have.

    >>> build(Stopping, {"max_step": 3}, "here")
    Traceback (most recent call last):
    spen.errors.InputError: Unknown key 'max_step' in here. Did you mean 'max_steps'? ...
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise InputError(f"Unknown key {key!r} in {where}. {did_you_mean(key, known)}")
    for name, one in known.items():
        if name not in table and one.default is MISSING and one.default_factory is MISSING:
            raise InputError(f"The key {name!r} is missing in {where}.")
    # TOML has lists where frozen dataclasses have tuples.
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return kind(**plain)
