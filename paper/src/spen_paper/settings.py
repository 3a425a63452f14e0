"""Settings files: small TOML tables made into classifiers, energies, solvers and stages.

An unknown key is an error that suggests the nearest one, because a typo that changes
an experiment in silence is worse than a stop.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, TypeVar

import torch

import spen
from spen import Descent, Inference, InputError, Objective, Stage, Stopping, baselines
from spen.batch.context import Context
from spen.energies.form import Form
from spen.errors import choose, did_you_mean
from spen.estimators.base import LabelClassifier
from spen.estimators.plan import Plan, Shape
from spen.inference.rules import RULES

T = TypeVar("T")


class RawSPENClassifier(spen.SPENClassifier):
    """The paper's protocol to the letter: one threshold on outputs that nothing has corrected.

    No label's frequency to start from, no shift or scale that is fitted afterwards.
    """

    def plan(self, shape: Shape) -> Plan:
        return replace(super().plan(shape), raw=True)


class NoEnergy(spen.Energy):
    """E(y) = 0.

    >>> NoEnergy(2).bind(Context(torch.ones(1, 2))).value(torch.ones(1, 2)).tolist()
    [0.0]
    """

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.n_features = self.n_labels = n_labels

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        return Form(constant=context.features.new_zeros(context.n_rows))

    def reset(self, generator: torch.Generator) -> None:
        """There is nothing to reset."""


CLASSIFIERS: dict[str, type[LabelClassifier]] = {
    kind.__name__: kind for kind in (spen.SPENClassifier, *baselines.ALL, RawSPENClassifier)
}
ENERGIES: dict[str, type[spen.Energy]] = {
    kind.__name__: kind
    for kind in (
        spen.ChainEnergy,
        spen.ConditionalChainEnergy,
        spen.ConditionalConvolutionEnergy,
        spen.ConditionalEnergy,
        spen.ConditionalPairwiseEnergy,
        spen.ConditionalScoreEnergy,
        spen.ConvexEnergy,
        spen.ConvolutionEnergy,
        spen.LabelEnergy,
        spen.LanguageEnergy,
        spen.LocalEnergy,
        NoEnergy,
        spen.PairwiseEnergy,
        spen.ScoreEnergy,
        spen.SkipChainEnergy,
        spen.StepRates,
        spen.SurpriseEnergy,
    )
}
OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": spen.CrossEntropy,
    "end_to_end": spen.EndToEnd,
    "hinge": spen.Hinge,
    "likelihood": spen.Likelihood,
    "n_best": spen.NBestLikelihood,
    "squared": spen.SquaredError,
    "unrolled": spen.UnrolledLikelihood,
}
BACKWARDS: dict[str, type[Any]] = {
    "detached": spen.Detached,
    "implicit": spen.Implicit,
    "truncated": spen.Truncated,
    "unrolled": spen.Unrolled,
}
SOLVERS: dict[str, type[Inference]] = {
    "descent": Descent,
    "exact": spen.Exact,
    "lbp": spen.BeliefPropagation,
    "lp": spen.LinearRelaxation,
}
TAG_SOLVERS: dict[str, type[Inference]] = {
    "best_of": spen.BestOf,
    "descent": Descent,
    "structured": spen.StructuredDescent,
    "viterbi": spen.Viterbi,
}
NOT_SETTINGS = ("device", "random_state")
"""What the command line says, and no settings file."""


def read_settings(name: str) -> dict[str, Any]:
    """Read the tables of ``settings/NAME.toml`` as they stand there."""
    path = Path(__file__).parent / "settings" / f"{name}.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{path.name} is not valid TOML: {problem}.") from None


def settings_of(dataset: str, name: str = "table1") -> dict[str, dict[str, Any]]:
    """Return the table of each method for a data set, by the method's name.

    Args:
        dataset: whose section is wanted.
        name: of the settings file.

    A method is like one that stands before it: ``like = "mlp"``, or of another data set
    ``like = "bibtex.mlp"``. A file that begins with ``over = "table1"`` replaces some tables of
    that one.

    >>> settings_of("bibtex")["mlp"]["classifier"]
    'MLPClassifier'
    """
    where, read = f"{name}.toml", read_settings(name)
    if "over" in read:
        # In the place where they stand there: others may be like them.
        below = read_settings(read.pop("over"))
        read = {of_set: tables | read.get(of_set, {}) for of_set, tables in below.items()}
    sections: dict[str, dict[str, dict[str, Any]]] = {}
    others: dict[str, dict[str, Any]] = {}
    for of_set, section in read.items():
        sections[of_set] = inherit(section, f"{where}, [{of_set}]", others)
        others |= {f"{of_set}.{method}": table for method, table in sections[of_set].items()}
    return choose(dataset, sections, "data set")


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


def read_rows(name: str, read: Callable[[dict[str, Any], str], T]) -> dict[str, T]:
    """Read the rows of a table from ``settings/NAME.toml``, by name; one may be like another.

    Args:
        name: of the file.
        read: makes a row, given its settings and where they stand.
    """
    tables = inherit(read_settings(name), f"{name}.toml")
    return {key: read(table, f"{name}.toml, [{key}]") for key, table in tables.items()}


def classifier(
    table: dict[str, Any], *, seed: int, device: str, where: str, **changes: Any
) -> LabelClassifier:
    """Make a classifier of a table of settings, which has its constructor's arguments.

    Args:
        table: the arguments, and ``classifier``, the name of the class. ``training_steps`` is
            the step limit of inference in the stages, where it is not that of predictions.
        seed: the random_state.
        device: where to compute.
        where: the table stands, for errors.
        changes: arguments to change, written like the table's or as the constructor takes them.

    >>> table = {"classifier": "MLPClassifier", "hidden": [8, 8], "dropout": 0.5}
    >>> classifier(table, seed=0, device="cpu", where="here", dropout=0.0)
    MLPClassifier(decoding='expected_f1', device='cpu', dropout=0.0, hidden=(8, 8), random_state=0)
    """
    # Decoded in both ways in the end; a record's identity has what was said when it was made.
    settings: dict[str, Any] = {"decoding": "expected_f1"} | table | changes
    kind = choose(settings.pop("classifier", ""), CLASSIFIERS, f"classifier in {where}")
    steps = settings.pop("training_steps", 0)
    known = [name for name in inspect.signature(kind).parameters if name not in NOT_SETTINGS]
    for key in settings:
        if key not in known:
            raise InputError(f"Unknown key {key!r} in {where}. {did_you_mean(key, known)}")
    said: dict[str, Any] = {"device": device, "random_state": seed}
    return kind(**_arguments(settings, steps, where), **said)


def _arguments(settings: dict[str, Any], training_steps: int, where: str) -> dict[str, Any]:
    """Turn what TOML can say into what a constructor takes."""
    ready = dict(settings)
    if isinstance(energy := settings.get("energy"), list):
        ready["energy"] = read_energy(energy, where)
    if isinstance(inference := settings.get("inference"), dict):
        ready["inference"] = read_inference(inference, f"{where} inference")
    if isinstance(objective := settings.get("objective"), dict):
        ready["objective"] = read_objective(objective, where)
    if isinstance(stages := settings.get("stages"), list):
        solver = ready.get("inference", Descent())
        training = shortened(solver if isinstance(solver, Descent) else Descent(), training_steps)
        ready["stages"] = tuple(
            read_stage(stage, training, f"{where} stages") if isinstance(stage, dict) else stage
            for stage in stages
        )
    elif training_steps:
        raise InputError(f"{where} has training_steps, but no stages that would take them.")
    return {name: tuple(v) if isinstance(v, list) else v for name, v in ready.items()}


def read_energy(terms: list[dict[str, Any]], where: str) -> spen.UnsizedEnergy:
    """Make a sum of energies of their tables, each with the name of its class.

    >>> read_energy([{"name": "LocalEnergy"}, {"name": "PairwiseEnergy", "rank": 2}], "here")
    LocalEnergy.unsized() + PairwiseEnergy.unsized(rank=2)
    """
    energies = []
    for term in terms:
        settings = dict(term)
        kind = choose(settings.pop("name", ""), ENERGIES, f"energy in {where}")
        energies.append(kind.unsized(**settings))
    return reduce(add, energies)


def shortened(inference: Descent, steps: int) -> Descent:
    """Return the solver with another step limit; 0 leaves it as it is."""
    if not steps:
        return inference
    return replace(inference, stopping=replace(inference.stopping, max_steps=steps))


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


def read_inference(table: dict[str, Any], where: str, of: type[Descent] = Descent) -> Descent:
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
    return build(of, table | ready, where)


def read_solver(table: dict[str, Any], where: str) -> Inference:
    """Make any solver of a table with its name; one without a name is a descent.

    >>> read_solver({"name": "lbp", "damping": 0.25}, "here").damping
    0.25
    """
    settings = dict(table)
    kind = choose(settings.pop("name", "descent"), SOLVERS, f"solver in {where}")
    return read_inference(settings, where) if kind is Descent else build(kind, settings, where)


def read_tag_solver(table: dict[str, Any], where: str) -> Inference:
    """Make a solver over tags of a table with its name.

    >>> read_tag_solver({"name": "best_of", "n": 4}, "here")
    BestOf(n=4)
    """
    settings = dict(table)
    kind = choose(settings.pop("name", ""), TAG_SOLVERS, f"solver in {where}")
    if issubclass(kind, Descent):
        return read_inference(settings, where, kind)
    return build(kind, settings, where)


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
