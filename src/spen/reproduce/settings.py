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
from spen.inference.backward import Backward, Detached, Truncated, Unrolled
from spen.inference.base import Inference
from spen.inference.belief import BeliefPropagation
from spen.inference.descent import Descent, Stopping
from spen.inference.exact import Exact
from spen.inference.implicit import Implicit
from spen.inference.relaxed import LinearRelaxation
from spen.inference.rules import RULES
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.objectives.end_to_end import EndToEnd
from spen.objectives.hinge import Hinge
from spen.objectives.likelihood import CrossEntropy
from spen.objectives.squared import SquaredError
from spen.objectives.unrolled import UnrolledLikelihood
from spen.training.stage import Stage

T = TypeVar("T")

OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "end_to_end": EndToEnd,
    "hinge": Hinge,
    "squared": SquaredError,
    "unrolled": UnrolledLikelihood,
}
BACKWARDS: dict[str, type[Backward]] = {
    "detached": Detached,
    "implicit": Implicit,
    "truncated": Truncated,
    "unrolled": Unrolled,
}

SOLVERS: dict[str, type[Inference]] = {
    "descent": Descent,
    "exact": Exact,
    "lbp": BeliefPropagation,
    "lp": LinearRelaxation,
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

    A method may be like another (see ``inherit``).

    Args:
        name: of the file.
        column: which of the table's columns is wanted. A number of a stage that is given
            as a list has one value per column.
    """
    tables = inherit(read_settings(name), f"{name}.toml")
    return {key: method(table, f"{name}.toml, [{key}]", column) for key, table in tables.items()}


def read_settings(name: str) -> dict[str, Any]:
    """Read the tables of ``settings/NAME.toml`` as they stand there."""
    return read_toml(Path(__file__).parent / "settings" / f"{name}.toml")


def inherit(
    tables: dict[str, Any], where: str, others: dict[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Give each table that says ``like = "other"`` the settings of that one but for its own.

    Args:
        tables: by name. The other one stands before the one that is like it.
        where: the tables are, for errors.
        others: tables from elsewhere that may be named too.

    >>> inherit({"a": {"x": 1, "y": 2}, "b": {"like": "a", "y": 3}}, "here")["b"]
    {'x': 1, 'y': 3}
    """
    whole: dict[str, dict[str, Any]] = {}
    for key, table in tables.items():
        own = {name: value for name, value in table.items() if name != "like"}
        known = {**(others or {}), **whole}
        if "like" in table:
            own = choose(table["like"], known, f"method before [{key}] in {where}") | own
        whole[key] = own
    return whole


def method(table: dict[str, Any], where: str, column: int = 0) -> Method:
    """Make a method of one table of a settings file."""
    inference = read_inference(table.get("inference", {}), f"{where} inference")
    training = shortened(inference, table.get("training_steps", 0))
    stages = [
        read_stage(_of_column(stage, column), training, f"{where} stages")
        for stage in table.get("stages", [])
    ]
    return build(Method, table | {"inference": inference, "stages": stages}, where)


def shortened(inference: Descent, steps: int) -> Descent:
    """Return the solver with another step limit; 0 leaves it as it is."""
    if not steps:
        return inference
    return replace(inference, stopping=replace(inference.stopping, max_steps=steps))


def _of_column(stage: dict[str, Any], column: int) -> dict[str, Any]:
    per_column = {"epochs", "lr", "weight_decay"}
    return {
        key: value[column] if key in per_column and isinstance(value, list) else value
        for key, value in stage.items()
    }


def read_stage(table: dict[str, Any], inference: Inference, where: str) -> Stage:
    """Make a stage of its table; it takes this solver unless it has its own.

    >>> table = {"name": "all", "objective": {"name": "hinge"}, "parts": ["global"]}
    >>> read_stage(table, Descent(), "here").parts
    ('global',)
    """
    if "inference" in table:
        inference = read_inference(table["inference"], f"{where} inference")
    objective = read_objective(table.get("objective", {}), where)
    return build(Stage, table | {"objective": objective, "inference": inference}, where)


def read_objective(table: dict[str, Any], where: str) -> Objective:
    """Make an objective of a table with its name.

    >>> read_objective({"name": "hinge", "entropy": 1.0}, "here").entropy
    1.0
    """
    settings = dict(table)
    kind = choose(settings.pop("name", ""), OBJECTIVES, f"objective in {where}")
    return build(kind, settings, f"{where} objective")


def read_inference(table: dict[str, Any], where: str) -> Descent:
    """Make a solver of a table with its rule, its stopping and how it is differentiated.

    >>> read_inference({"rule": {"lr": 0.05}, "stopping": {"max_steps": 20}}, "here").rule.lr
    0.05
    """
    rule, backward = dict(table.get("rule", {})), dict(table.get("backward", {}))
    kind = choose(rule.pop("name", "mirror"), RULES, f"rule in {where}")
    way = choose(backward.pop("name", "detached"), BACKWARDS, f"backward in {where}")
    ready = {
        "rule": build(kind, rule, f"{where} rule"),
        "stopping": build(Stopping, table.get("stopping", {}), f"{where} stopping"),
        "backward": build(way, backward, f"{where} backward"),
    }
    return build(Descent, table | ready, where)


def read_solver(table: dict[str, Any], where: str) -> Inference:
    """Make any solver of a table with its name; one without a name is a descent.

    >>> read_solver({"name": "lbp", "damping": 0.25}, "here").damping
    0.25
    """
    settings = dict(table)
    kind = choose(settings.pop("name", "descent"), SOLVERS, f"solver in {where}")
    return read_inference(settings, where) if kind is Descent else build(kind, settings, where)


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
