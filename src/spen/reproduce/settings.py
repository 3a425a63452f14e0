"""Settings files: small TOML tables read into frozen dataclasses.

An unknown key is an error that suggests the nearest one, because a typo that changes
an experiment in silence is worse than a stop.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

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
        initial: how its measurements start.
        inference: the solver of predictions.
        training_steps: its step limit in training; 0 keeps the one of predictions.
        stages: the training.
    """

    title: str
    stages: tuple[Stage, ...]
    inference: Descent = field(default_factory=Descent)
    training_steps: int = 0
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    block_size: int = 0
    measurements: int = 0
    nonlinearity: str = "hardtanh"
    initial: Literal["signed", "counting"] = "signed"

    def build(self, n_inputs: int, n_labels: int, seed: int) -> SPEN:
        """Return a new model of the right sizes."""
        widths = (n_inputs, *self.hidden)
        features = MLP(*widths, dropout=self.dropout) if self.hidden else Identity(n_inputs)
        energy = LocalEnergy(features.n_features, n_labels)
        if self.measurements:
            label = LabelEnergy(
                n_labels, self.measurements, self.nonlinearity, initial=self.initial
            )
            energy = energy + label
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


def read_methods(name: str, column: int = 0) -> dict[str, Method]:
    """Read the methods of a table from ``settings/NAME.toml``.

    A method that says ``like = "other"`` has that one's settings but for its own.

    Args:
        name: of the file.
        column: which of the table's columns is wanted. A number of a stage that is given
            as a list has one value per column.
    """
    tables = read_toml(Path(__file__).parent / "settings" / f"{name}.toml")
    methods = {}
    for key, table in tables.items():
        where = f"{name}.toml, [{key}]"
        whole = dict(table)
        if like := whole.pop("like", None):
            whole = choose(like, tables, f"method in {where}") | whole
        methods[key] = method(whole, where, column)
    return methods


def method(table: dict[str, Any], where: str, column: int = 0) -> Method:
    """Make a method of one table of a settings file."""
    inference = _inference(table.get("inference", {}), f"{where} inference")
    training = inference
    if steps := table.get("training_steps"):
        training = replace(inference, stopping=replace(inference.stopping, max_steps=steps))
    stages = [
        _stage(_of_column(stage, column), training, f"{where} stages")
        for stage in table.get("stages", [])
    ]
    return build(Method, table | {"inference": inference, "stages": stages}, where)


def _of_column(stage: dict[str, Any], column: int) -> dict[str, Any]:
    per_column = {"epochs", "lr", "weight_decay"}
    return {
        key: value[column] if key in per_column and isinstance(value, list) else value
        for key, value in stage.items()
    }


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
