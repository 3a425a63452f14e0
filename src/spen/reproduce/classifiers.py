"""The classifiers of the paper's first table, from a settings file, and one run of one of them.

A classifier holds rows out, chooses on them, and trains on all training rows in the end, all
by itself. ``run`` fits it, and reads the test rows once for both decodings.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from spen import baselines
from spen.data.dataset import Dataset, join
from spen.data.load import load_dataset
from spen.energies.base import Energy
from spen.energies.conditional import ConditionalEnergy
from spen.energies.convex import ConvexEnergy
from spen.energies.label import LabelEnergy
from spen.energies.local import LocalEnergy
from spen.energies.pairwise import ConditionalPairwiseEnergy, PairwiseEnergy
from spen.energies.rates import StepRates
from spen.energies.unsized import UnsizedEnergy
from spen.errors import InputError, choose, did_you_mean
from spen.estimators.base import LabelClassifier
from spen.estimators.classifier import SPENClassifier
from spen.estimators.fit import SHARED
from spen.estimators.plan import Shape
from spen.estimators.scaling import Scaling
from spen.files import versions
from spen.inference.descent import Descent
from spen.metrics import score_all
from spen.reproduce.protocol import F1_RULE
from spen.reproduce.records import Record, Records, brief
from spen.reproduce.settings import (
    inherit,
    read_inference,
    read_objective,
    read_settings,
    read_stage,
    shortened,
)
from spen.stacking import ConditionalScoreEnergy, ScoreEnergy

SETTINGS = "table1"
DECODINGS = ("threshold", "expected_f1")
CLASSIFIERS: dict[str, type[LabelClassifier]] = {
    kind.__name__: kind for kind in (SPENClassifier, *baselines.ALL)
}
ENERGIES: dict[str, type[Energy]] = {
    kind.__name__: kind
    for kind in (
        ConditionalEnergy,
        ConditionalPairwiseEnergy,
        ConditionalScoreEnergy,
        ConvexEnergy,
        LabelEnergy,
        LocalEnergy,
        PairwiseEnergy,
        ScoreEnergy,
        StepRates,
    )
}
NOT_SETTINGS = ("device", "random_state")
"""What the command line says, and no settings file."""

SHORT_NAMES = {"example_f1": "f1", "hamming_error": "hamming"}
"""Metrics that records call by another name."""


def settings_of(dataset: str, name: str = SETTINGS) -> dict[str, dict[str, Any]]:
    """Return the table of each method for a data set, by the method's name.

    Args:
        dataset: whose section is wanted.
        name: of the settings file.

    A method is like one that stands before it: ``like = "mlp"``, or of another data set
    ``like = "bibtex.mlp"``.

    >>> settings_of("bibtex")["mlp"]["classifier"]
    'MLPClassifier'
    """
    where = f"{name}.toml"
    sections: dict[str, dict[str, dict[str, Any]]] = {}
    others: dict[str, dict[str, Any]] = {}
    for of_set, section in read_settings(name).items():
        sections[of_set] = inherit(section, f"{where}, [{of_set}]", others)
        others |= {f"{of_set}.{method}": table for method, table in sections[of_set].items()}
    return choose(dataset, sections, "data set")


def dataset_of(name: str) -> Dataset:
    """Load a data set with its official split; a validation part belongs to the training rows."""
    data = load_dataset(name)
    if data.valid is None:
        return data
    return replace(data, train=join([data.train, data.valid]), valid=None)


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
    MLPClassifier(device='cpu', dropout=0.0, hidden=(8, 8), random_state=0)
    """
    settings = table | changes
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


def read_energy(terms: list[dict[str, Any]], where: str) -> UnsizedEnergy:
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


def run(
    experiment: str,
    method: str,
    make: Callable[[], LabelClassifier],
    data: Dataset,
    seed: int,
    records: Records,
    *,
    variant: str | None = None,
    progress: bool = False,
) -> dict[str, Record]:
    """Return the two records of one fit, by decoding; make them if they are not there yet.

    Args:
        experiment: what the run belongs to, such as "table1".
        method: its name there.
        make: returns the classifier, not fitted.
        data: with test rows, which are read once.
        seed: of the classifier.
        records: where the records are kept.
        variant: what a study calls this run; the classifier and the rows decide the result.
        progress: show a bar while it is fitted.
    """
    made = make()
    settings = identity_of(made, data)
    identity: Record = {
        "experiment": experiment,
        "dataset": data.name,
        "method": method,
        "n_train": len(data.train),
        "seed": seed,
        "fold": None,
        "settings": settings if variant is None else settings | {"variant": variant},
    }
    wanted = {name: identity | {"decoding": name} for name in DECODINGS}
    # A study's cell that changes nothing is a fit of the table, and need not be made twice.
    of_table = identity | {"experiment": "table1", "settings": settings}
    for each in (identity, of_table):
        found = {name: records.find(each | {"decoding": name}) for name in DECODINGS}
        if all(found.values()):
            return {name: record for name, record in found.items() if record is not None}
    title = f"{method}, {data.name}, {len(data.train):,} rows, seed {seed}" if progress else ""
    seconds = timed_fit(made, data, title)
    common = {
        "seconds": round(seconds, 3),
        "parameters": sum(p.numel() for p in made.model_.parameters()),
        "rule": F1_RULE,
        "device": device_in_words(made.model_.reference.device),
        "versions": versions(),
    }
    results = tested(made, data)
    both = {name: wanted[name] | common | results[name] for name in DECODINGS}
    for record in both.values():
        records.add(record)
    return both


def timed_fit(made: LabelClassifier, data: Dataset, title: str = "") -> float:
    """Fit on the training rows and return the seconds; with a title, show it and a bar."""
    if title:
        print(title, file=sys.stderr, flush=True)  # noqa: T201
        made.set_params(verbose=1)
    shared = SHARED.get()
    before = shared.saved if shared else 0.0
    began = time.perf_counter()
    made.fit(data.train.X, data.train.Y)
    # A run that another fit had made already is counted all the same.
    return time.perf_counter() - began + (shared.saved - before if shared else 0.0)


def identity_of(made: LabelClassifier, data: Dataset) -> dict[str, Any]:
    """Return what decides the result beside the rows and the seed: all of the plan."""
    (rows, features), labels = data.train.X.shape, data.train.Y.shape[1]
    shape = Shape(rows, features, labels, Scaling.of(data.train.X).sparse, exclusive=False)
    identity = {"classifier": type(made).__name__, "plan": brief(made.plan(shape))}
    if made.label_weight is not None:
        identity["label_weight"] = brief(made.label_weight)
    return identity | {"n_test": len(data.test)}


def tested(made: LabelClassifier, data: Dataset) -> dict[str, Record]:
    """Return what each decoding comes to on the test rows."""
    with warnings.catch_warnings(record=True) as caught:
        # Kept in the record, where it is of more use than on a terminal that scrolls.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConvergenceWarning)
        began = time.perf_counter()
        probabilities = made.predict_proba(data.test.X)
        seconds = time.perf_counter() - began
    results = {}
    for name in DECODINGS:
        began = time.perf_counter()
        labels = made.decode(probabilities, name)
        decoding = time.perf_counter() - began
        scores = score_all(data.test.Y, labels, probabilities)
        results[name] = {
            "metrics": {
                SHORT_NAMES.get(metric, metric): round(100 * score.value, 4)
                for metric, score in scores.items()
            },
            "predict_seconds": round(seconds + decoding, 4),
            "chosen": brief(made.plan_.chosen)
            | {
                "tuned": brief(made.predictor_.tuned[name]),
                "held_out_f1": round(100 * made.held_out_score_, 4),
                "held_out_decoding": made.plan_.decoding,
            },
            "notes": sorted({str(each.message) for each in caught}),
        }
    return results


def device_in_words(device: torch.device) -> str:
    """Return what computed, as far as it matters for times.

    >>> device_in_words(torch.device("cpu")).startswith("cpu, ")
    True
    """
    if device.type == "cuda":
        return f"cuda, {torch.cuda.get_device_name(device)}"
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' if threads > 1 else ''}"
