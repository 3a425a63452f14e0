"""The recipe of SPENClassifier: sizes and training that it chooses from the shape of the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from spen.energies.base import Energy, UnsizedEnergy
from spen.energies.convex import ConvexEnergy
from spen.energies.label import ConditionalEnergy, LabelEnergy
from spen.energies.local import LocalEnergy
from spen.energies.pairwise import PairwiseEnergy
from spen.energies.scores import ConditionalScoreEnergy, ScoreEnergy, SurpriseEnergy
from spen.errors import (
    InputError,
    check_settings,
    check_whole,
    choose,
    one_of,
)
from spen.estimators.bases import NETWORK, read_base
from spen.estimators.decoding import DECODINGS
from spen.estimators.plan import HELD_OUT, Choice, Plan, Prediction, Shape
from spen.features import DTYPES
from spen.inference.base import Inference
from spen.inference.descent import Descent, Stopping
from spen.inference.rules import MirrorDescent
from spen.metrics import METRICS
from spen.objectives.base import Objective
from spen.objectives.hinge import Hinge
from spen.objectives.label_wise import CrossEntropy
from spen.objectives.unrolled import EndToEnd, UnrolledLikelihood
from spen.training.stage import Stage

MEASUREMENTS = 64
RATE, ENERGY_RATE, DECAY = 1e-3, 1e-2, 1e-2
DROPOUTS = ((0.25, 0.0), (0.5, 0.2), (0.7, 0.2))
"""Of units and of inputs. No one of them is good on all data, and held-out rows can tell."""

SMOOTH: dict[str, Any] = {"nonlinearity": "softplus", "measurements": MEASUREMENTS}
ENERGIES: dict[str, UnsizedEnergy | None] = {
    "auto": LabelEnergy.unsized(**SMOOTH, initial="neutral"),
    "label": LabelEnergy.unsized(**SMOOTH, initial="neutral"),
    "conditional": ConditionalEnergy.unsized(**SMOOTH),
    "convex": ConvexEnergy.unsized(measurements=MEASUREMENTS),
    "pairwise": PairwiseEnergy.unsized(rank=MEASUREMENTS),
    "local": None,
}
THROUGH_INFERENCE = (UnrolledLikelihood, EndToEnd)
"""Objectives that train everything at once, without a label-wise model to start from."""

WIDTHS = (64, 256)
"""Measurements of energies that are trained on cross-fitted scores: wider ones where they pay."""

SURPRISES = tuple(SurpriseEnergy.unsized(measurements=width, dropout=0.25) for width in WIDTHS)
CROSS_FITTED = ENERGIES | {
    "auto": SURPRISES[0],
    "conditional": ConditionalScoreEnergy.unsized(**SMOOTH),
}
CROSS_FIT_FOLDS = 3
MISSING = (0.1, 0.25, 0.5)
"""Shares of missing labels that are tried where they are to be chosen."""

AUTO = ("inference", "hidden", "dropout", "input_dropout", "weight_decay", "epochs", "batch_size")
DEFAULTS: dict[str, Any] = dict.fromkeys((*AUTO, "lr", "stages"), "auto")
DEFAULTS |= {"preset": "default", "early_stopping": False}
DEFAULTS |= {"energy": "auto", "objective": "unrolled", "missing": 0.0}
DEFAULTS |= {"cross_fit": False, "members": 1, "linear_member": False, "base": None}
DEFAULTS |= {"features": None, "features_lr": None, "features_dtype": None, "warmup": 0.0}
"""What make_plan takes where a classifier has no such setting."""


PRESETS = ("fast", "default", "best")
"""How much time a fit may take: about a third, once, and up to three times as long."""

PATIENCE = 5
"""Epochs without a better score before a stage ends, where early stopping is asked for."""


def make_plan(settings: dict[str, Any], shape: Shape) -> Plan:
    """Fill in what the user left open, and check what they did not.

    Args:
        settings: the constructor's arguments, by name.
        shape: of the data.
    """
    settings = DEFAULTS | settings
    own_way = settings["cross_fit"] is True
    settings |= preset_of(settings, shape)
    if is_auto(settings["base"]):
        settings["base"] = TREES_BESIDE if _wants_trees(settings, shape) else None
    check_whole(settings["members"], "members")
    networks, bases = settings["members"], ()
    if has_base(settings):
        named = averaging_by_base(settings, shape)
        networks, bases = named.pop("members"), named.pop("bases")
        settings |= named
    settings |= averaging_of(settings, shape)
    own = own_settings(settings)
    common = training_of(own, shape)
    hidden = own.get("hidden", hidden_of(shape))
    common["features_lr"] = settings["features_lr"]
    features = settings["features"]
    if shape.passed and (bases or settings["linear_member"]):
        raise InputError(
            "base and linear_member take a matrix of numbers, and X is none. Leave them out."
        )
    if features is not None:
        hidden = ()
        common["lr"] = own.get("lr", RATE)
    cross_fit = bool(settings["cross_fit"])
    # Chosen on held-out rows, it is set in every stage later.
    missing = own.get("missing", 0.0)
    objective = _objective(settings["objective"], shape, missing, settings["inference"])
    energy = _energy(settings["energy"], cross_fit)
    if cross_fit and settings["objective"] == "unrolled":
        # Scores that are given do not learn, so the energy may learn from hidden labels alone.
        objective = replace(objective, free=not objective.reveal)  # type: ignore[type-var]
    inference = _inference(settings["inference"], objective)
    first = ("features", "local") if hidden or features is not None else ("local",)
    label_wise = CrossEntropy(missing=missing)
    local = Stage("label by label", label_wise, parts=first, **common)
    stages: tuple[Stage, ...] = (local,)
    prediction = Prediction(label_wise, inference)
    if len(energy.terms) > 1:
        prediction = Prediction(objective, inference)
        every = Stage("all", objective, inference, parts=(*first, "global"), **common)
        stages = (every,)
        if cross_fit:
            own_pace = {"parts": ("local", "global"), "name": "energy"} | _pace(own, shape)
            stages = (replace(every, **own_pace),)
        elif not isinstance(objective, THROUGH_INFERENCE):
            # The paper's recipe: a margin wants a label-wise model to start from.
            fewer = max(1, common["epochs"] // 4)
            apart = replace(every, name="global", parts=("global",), epochs=fewer)
            low = {"lr": every.lr / 10, "global_lr": ENERGY_RATE / 10, "epochs": fewer}
            low["features_lr"] = every.features_lr and every.features_lr / 10
            stages = (local, apart, replace(every, **low))
    if shape.exclusive:
        check_for_classes(settings)
    check_missing(settings, len(energy.terms) > 1)
    if cross_fit and len(energy.terms) == 1:
        raise InputError(
            "cross_fit=True trains an energy on the scores of a label-wise model, and "
            "energy='local' has none. Choose another energy, or leave cross_fit out."
        )
    averaged = settings["members"] > 1 or settings["linear_member"]
    if averaged and len(energy.terms) > 1 and not cross_fit:
        raise InputError(
            "members and linear_member average label-wise models, but here the energy is trained "
            "together with its features. Add cross_fit=True, or leave them out."
        )
    if "stages" in own:
        stages = own["stages"]
        # What the last stage trains is what predicts.
        solver = stages[-1].inference if is_auto(settings["inference"]) else inference
        prediction = Prediction(stages[-1].objective, solver)
        if isinstance(stages[0].objective, CrossEntropy) and not cross_fit:
            local = stages[0]
    if settings["early_stopping"]:
        if cross_fit or bases or settings["members"] > 1 or settings["linear_member"]:
            raise InputError(
                "early_stopping stops a training run by held-out rows, and cross_fit=True, base, "
                "members and linear_member have many runs, some without such rows. Leave one of "
                "the two out."
            )
        epochs = PATIENCE if settings["early_stopping"] is True else settings["early_stopping"]
        stages = tuple(replace(each, patience=int(epochs), keep="best") for each in stages)
        local = stages[0] if len(stages) == 1 and len(energy.terms) == 1 else local
    choices = tuple(
        replace(choice, missing=part)
        for choice in _choices(own, hidden, shape, settings["base"] is TREES_BESIDE)
        for part in ((None,) if "missing" in own else MISSING)
    )
    plan = Plan(
        # Without networks there is nothing to choose.
        choices=choices if networks else (Choice(()),),
        energy=energy,
        trial=local,
        stages=stages,
        prediction=prediction,
        decoding=settings["decoding"],
        metric=metric_of(settings, shape),
        **folds_of(settings, shape),
        cross_fit=cross_fit,
        members=networks,
        linear_member=bool(settings["linear_member"]),
        bases=bases,
        **_energies(settings, energy, shape),
    )
    if hidden and is_auto(settings["hidden"]) and len(energy.terms) > 1 and not own_way:
        return replace(plan, rivals=_rivals(settings, shape))
    return plan


def _pace(own: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Return rates, batches and epochs of an energy over scores that are given.

    It learns best by many small steps, however long the label-wise models took. The scales and
    shifts of labels, which rare ones would fit to the few rows that have them, learn slowly.
    """
    batch = int(np.clip(2 ** round(math.log2(shape.rows / 16)), 32, 256))
    batch = own.get("batch_size", batch)
    epochs = own.get("epochs", max(4, round(ENERGY_STEPS * batch / shape.rows)))
    decay = own.get("weight_decay", STRONG_DECAY if has_thousands(shape) else DECAY)
    pace = {"batch_size": batch, "epochs": epochs, "weight_decay": decay}
    return pace | {"lr": RATE, "global_lr": SURPRISE_RATES[0]}


def has_thousands(shape: Shape) -> bool:
    """Return whether labels are thousands, with rows enough to learn them from."""
    return shape.labels >= THOUSANDS and shape.rows > VERY_MANY_ROWS and not shape.exclusive


ENERGY_STEPS = 1500
SURPRISE_RATES = (1e-2, 3e-2)
"""Which is better depends on the data, by more than most other settings do."""

MANY_LABELS, ENERGY_MEMBERS = 400, 4
"""From how many labels on so many energies are averaged: most labels are rare then."""

THOUSANDS, STRONG_DECAY, LONG = 2000, 0.1, 1.4
"""From how many labels on, of many rows, networks are twice as wide and trained for longer, and the
energy's weights decay more."""


def _energies(settings: dict[str, Any], narrow: UnsizedEnergy, shape: Shape) -> dict[str, Any]:
    """Return energies that are worth a trial, their rates and number, by Plan's arguments.

    Of many labels several energies are averaged, and make more measurements together.
    """
    if not (settings["cross_fit"] and is_auto(settings["energy"])):
        return {}
    members = ENERGY_MEMBERS if shape.labels >= MANY_LABELS else 1
    local = UnsizedEnergy(narrow.terms[:1])
    energies = tuple(local + energy for energy in SURPRISES)
    return {"energies": energies, "energy_rates": SURPRISE_RATES, "energy_members": members}


TREES_BESIDE = ("extra_trees", "network")
"""What scores labels of small dense tables, of which trees and networks learn different things."""

MOST_ROWS_OF_TREES = 5000
MOST_LABELS_OF_TREES = 50
"""Each leaf holds a number for each label."""


def _wants_trees(settings: dict[str, Any], shape: Shape) -> bool:
    most = MOST_ROWS_OF_TREES if settings["preset"] == "best" else FEW_ROWS
    few = VERY_FEW_ROWS <= shape.rows < most and shape.labels <= MOST_LABELS_OF_TREES
    own = any(not is_auto(settings[k]) for k in ("hidden", "epochs", "cross_fit", "linear_member"))
    return (
        few
        and shape.complete
        and settings["preset"] != "fast"
        and not (own or shape.sparse or shape.exclusive or shape.held_given)
        and not settings["early_stopping"]
        and _trains_apart(settings)
    )


def _rivals(settings: dict[str, Any], shape: Shape) -> tuple[Plan, ...]:
    """Return the plans whose whole training is tried beside that of a network.

    Where labels exclude each other, scores that are linear in x and an energy that has learned
    the labels well beat a network, which fits the rows before the energy has learned anything.
    """
    own = any(not is_auto(settings[name]) for name in ("epochs", "stages", "lr"))
    # What is chosen with the network's trials would not be chosen for a rival.
    if own or settings["preset"] == "fast" or is_auto(settings["missing"]):
        return ()
    if shape.sparse or shape.exclusive or shape.rows > VERY_MANY_ROWS or shape.streamed:
        return ()
    batch = settings["batch_size"]
    if is_auto(batch):
        batch = int(np.clip(2 ** round(math.log2(shape.rows / 2)), 16, 256))
    linear = {"hidden": (), "epochs": LINEAR_EPOCHS, "batch_size": batch}
    plain = {"base": None, "members": 1, "cross_fit": False, "linear_member": False}
    plans = [make_plan(settings | plain | linear, shape)]
    if settings["preset"] == "best":
        plans.append(make_plan(settings | plain | {"hidden": hidden_of(shape)}, shape))
    return tuple(plans)


LINEAR_EPOCHS = 100
"""Passes over the data for a linear model with an energy, which has to learn slowly and well."""


def preset_of(settings: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the settings that a preset has for what was left open."""
    preset, stopped = settings["preset"], settings["early_stopping"]
    one_of(preset, PRESETS, "preset")
    if not isinstance(stopped, bool | np.bool_):
        check_whole(stopped, "early_stopping")
    chosen: dict[str, Any] = {"members": 1}
    if preset == "fast":
        # What most data like, tried once.
        if settings["features"] is None:
            chosen["dropout"], chosen["input_dropout"] = DROPOUTS[shape.sparse]
        if settings["cross_fit"] is not True and not has_base(settings):
            chosen |= {"cross_fit": False, "folds": 1, "linear_member": False}
    elif preset == "best" and _wants_trees(settings, shape):
        chosen |= {"members": BEST_MEMBERS, "base": TREES_BESIDE}
    elif (
        preset == "best"
        and _trains_apart(settings)
        and not (shape.exclusive or shape.held_given or stopped)
    ):
        linear = shape.sparse and shape.features <= LARGEST_LINEAR // shape.labels
        chosen |= {"members": BEST_MEMBERS, "cross_fit": True, "linear_member": linear}
    return {name: value for name, value in chosen.items() if is_auto(settings[name])}


BEST_MEMBERS = 3


def averaging_of(settings: dict[str, Any], shape: Shape) -> dict[str, bool]:
    """Decide cross_fit and linear_member where they are "auto".

    An energy that is trained apart, on scores of rows that were held out, learns more of what
    labels say about each other: features cannot explain it away by fitting the rows. Of inputs
    that are many and mostly absent a logistic regression and a network learn different things, so
    that their average is better than either.
    """
    given = {name: settings[name] for name in ("cross_fit", "linear_member")}
    for name, value in given.items():
        if not (is_auto(value) or isinstance(value, bool | np.bool_)):
            raise InputError(f"{name} must be True, False or 'auto'; received {value!r}.")
    apart = (
        is_auto(given["cross_fit"])
        and _trains_apart(settings)
        and not (shape.exclusive or shape.held_given or settings["early_stopping"])
        and shape.rows >= VERY_FEW_ROWS
    )
    linear = (
        apart
        and shape.sparse
        and WIDE_INPUTS <= shape.features <= LARGEST_LINEAR // shape.labels
        and shape.rows <= VERY_MANY_ROWS
    )
    auto = {"cross_fit": apart, "linear_member": linear}
    return {name: auto[name] if is_auto(v) else bool(v) for name, v in given.items()}


def has_base(settings: dict[str, Any]) -> bool:
    """Return whether something else than networks, or beside them, is to score labels."""
    base = settings.get("base")
    return not (base is None or is_auto(base))


def averaging_by_base(settings: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Return what a base says of members, bases, linear_member and cross_fit."""
    if shape.exclusive:
        raise InputError("base is for sets of labels; y holds classes. Leave it out.")
    networks, linear, bases = read_base(settings["base"])
    if settings["missing"]:
        raise InputError(
            f"missing={settings['missing']!r} is for networks: a base takes every 0 in y as it is. "
            "Leave one of the two out."
        )
    if settings["members"] > 1 and not networks:
        raise InputError(
            f"members={settings['members']} averages networks, and base has none. Add "
            f"{NETWORK!r} to its list, or leave members out."
        )
    has_energy = len(_energy(settings["energy"], True).terms) > 1
    if has_energy and settings["cross_fit"] is False:
        raise InputError(
            "An energy over a base is trained on scores of rows that the base has not seen, and "
            "cross_fit=False leaves that out. Leave it at 'auto', or choose energy='local'."
        )
    return {
        "members": int(settings["members"]) if networks else 0,
        "bases": bases,
        "linear_member": linear or settings["linear_member"] is True,
        "cross_fit": has_energy,
    }


def _trains_apart(settings: dict[str, Any]) -> bool:
    """Return whether no setting stands against training the energy apart."""
    words = {"energy": "auto", "objective": "unrolled", "inference": "auto", "stages": "auto"}
    own = any(not isinstance(settings[k], str) or settings[k] != words[k] for k in words)
    # Cross-fitting holds out every row once, and ends with models of all rows.
    shares = settings["folds"] == 1 or settings["held_out"] != HELD_OUT or not settings["refit"]
    linear = not is_auto(settings["hidden"]) and np.size(settings["hidden"]) == 0
    # Measured with networks of ours alone.
    foreign = settings["features"] is not None
    return not (own or shares or linear or foreign or settings["missing"])


def training_of(own: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Return what the stages of a network have in common, by the name of Stage's arguments."""
    batch = own.get("batch_size", _batch_size(shape))
    hidden = own.get("hidden", hidden_of(shape))
    return {
        "epochs": own.get("epochs", _epochs(shape, batch)),
        "batch_size": batch,
        "weight_decay": own.get("weight_decay", DECAY),
        "lr": own.get("lr", _rate(hidden, shape)),
        "global_lr": ENERGY_RATE,
        "optimiser": "adamw",
        "schedule": "cosine",
        # Measured: cutting such a schedule short costs more than it brings.
        "keep": "last",
        "warmup": own.get("warmup", 0.0),
    }


def _rate(hidden: tuple[int, ...], shape: Shape) -> float:
    """Return the rate of a feature network: narrow layers take, and need, a larger one."""
    if not hidden:
        # A linear model has no layers that a large rate could upset.
        return ENERGY_RATE
    narrower = round(math.log2(WIDTH / max(hidden)))
    # The fewer steps of few rows are to lead as far.
    return RATE * 2.0 ** np.clip(narrower + (shape.rows < FEW_ROWS), 0, 2)


def folds_of(settings: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """Return how rows are held out, by the name of Plan's arguments."""
    folds, refit = settings["folds"], bool(settings["refit"])
    cross_fit = bool(settings.get("cross_fit")) or has_base(settings)
    asked = "base" if has_base(settings) else "cross_fit=True"
    if cross_fit and not refit:
        raise InputError(
            f"{asked} ends with models that are trained on all rows, and refit=False "
            "leaves that out. Leave one of the two out."
        )
    if is_auto(folds) and settings.get("early_stopping"):
        folds = 1
    if is_auto(folds):
        # One held-out share of few rows says little; but classes need no fine calibration.
        few = VERY_FEW_ROWS <= shape.rows < FEW_ROWS and not shape.exclusive
        folds = 3 if few and refit else 1
        folds = CROSS_FIT_FOLDS if cross_fit else folds
    check_whole(folds, "folds")
    if folds > 1 and not refit:
        raise InputError(
            f"refit=False keeps the one model that was tuned, but folds={folds} would train "
            "several. Leave one of the two out."
        )
    if cross_fit and folds < 2:
        raise InputError(f"{asked} needs at least two folds; received folds={folds}.")
    held_out = 1 / folds if cross_fit else settings["held_out"]
    # Of many rows one share tells choices apart.
    tried = folds if shape.rows < FEW_ROWS else 1
    return {"folds": folds, "trial_folds": tried, "held_out": held_out, "refit": refit}


FEW_ROWS, VERY_FEW_ROWS, MANY_ROWS, VERY_MANY_ROWS = 1000, 100, 2500, 20_000
WIDTH = 512
WIDE_INPUTS = 1000
LARGEST_LAYER = 20_000_000
"""Weights of a first layer: with its gradient and two moments, 320 MB of float32; three times as
many where labels are thousands."""

LARGEST_LINEAR = 3_000_000
"""Weights of a logistic regression: L-BFGS keeps 25 numbers for each, 300 MB of float32."""


def hidden_of(shape: Shape) -> tuple[int, ...]:
    """Return the widths of the feature network."""
    if not shape.sparse and shape.rows < MANY_ROWS:
        # Held-out scores of small dense tables are the same, and it takes a quarter of the time.
        return (WIDTH // 2, WIDTH // 2)
    width, most = (2 * WIDTH, 3 * LARGEST_LAYER) if has_thousands(shape) else (WIDTH, LARGEST_LAYER)
    return (min(width, max(16, most // shape.features)), width)


def _batch_size(shape: Shape) -> int:
    # A step of few rows takes no longer than one of fewer.
    wanted = max(min(64, shape.rows / 8), shape.rows / 16)
    if wanted > 128:
        # Beyond some thousand rows, larger batches keep the number of steps in hand.
        wanted = max(128, shape.rows / 160)
    return int(np.clip(2 ** round(math.log2(wanted)), 16, 1024))


def _epochs(shape: Shape, batch: int) -> int:
    """Return passes over the data: about as many steps for few rows as for many."""
    steps = max(1, round(shape.rows / batch))
    if shape.rows < MANY_ROWS:
        return int(np.clip(660 // steps, 16, 36))
    wanted = round(2400 * LONG) if has_thousands(shape) else 2400
    return int(np.clip(wanted // steps, 5, 30))


def _choices(
    own: dict[str, Any], hidden: tuple[int, ...], shape: Shape, trees: bool
) -> tuple[Choice, ...]:
    """Return the choices that are worth a trial."""
    if own["features"] is not None:
        return (Choice((), features=own["features"], features_dtype=own["features_dtype"]),)
    if "dropout" in own:
        inputs = own.get("input_dropout", 0.2 if own["dropout"] >= 0.5 else 0.0)
        return (Choice(hidden, own["dropout"], inputs),)
    if "input_dropout" in own and hidden:
        rates = [(units, own["input_dropout"]) for units, _ in DROPOUTS]
        return tuple(Choice(hidden, *rate) for rate in rates)
    rates = DROPOUTS
    if not hidden:
        # Features that are linear in x have nothing to drop.
        rates = DROPOUTS[:1]
    elif trees:
        # Averaged with trees, networks of any of them are as good.
        rates = DROPOUTS[1:2]
    elif shape.rows > VERY_MANY_ROWS or shape.streamed:
        # With so many rows trials take long, and there is less to choose.
        rates = DROPOUTS[1:2]
    elif not (shape.sparse or (shape.rows < FEW_ROWS and not shape.exclusive)):
        # The strong one is for few rows, and for many features that are mostly absent.
        rates = DROPOUTS[:2]
    return tuple(Choice(hidden, *rate) for rate in rates)


def _objective(value: Any, shape: Shape, missing: float, inference: Any) -> Objective:
    if isinstance(value, Objective):
        return value
    # Solvers that look for labellings have no use for entropy, and say so.
    softened = is_auto(inference) or isinstance(inference, Descent)
    # One class says all about the others, so revealing some would teach nothing.
    reveal = 0.0 if shape.exclusive else 0.9
    unrolled = partial(UnrolledLikelihood, 1.0, "local", reveal, missing=missing)
    named: dict[str, Callable[[], Objective]] = {
        "unrolled": unrolled,
        "f1": partial(unrolled, f1=5.0),
        "end_to_end": partial(EndToEnd, "log", "all", 1.0, "local"),
        "hinge": partial(Hinge, entropy=1.0 if softened else 0.0, start="local"),
    }
    return choose(value, named, "objective")()


def _energy(value: Any, cross_fit: bool) -> UnsizedEnergy:
    """Return the energy with a local one in it."""
    local = (ScoreEnergy if cross_fit else LocalEnergy).unsized()
    if isinstance(value, UnsizedEnergy):
        has_local = any(issubclass(term.kind, LocalEnergy) for term in value.terms)
        return value if has_local else local + value
    if not isinstance(value, str):
        kind = value if isinstance(value, type) else type(value)
        example = "spen.LabelEnergy.unsized(measurements=15)"
        if issubclass(kind, Energy):
            example = f"{kind.__name__}.unsized(...), without sizes"
        raise InputError(
            f"energy must be a name or a description such as {example}; received {value!r}."
        )
    other = choose(value, CROSS_FITTED if cross_fit else ENERGIES, "energy")
    return local if other is None else local + other


def _inference(value: Any, objective: Objective) -> Inference:
    if isinstance(value, Inference):
        return value
    if not is_auto(value):
        raise InputError(f"inference must be 'auto' or an Inference; received {value!r}.")
    if isinstance(objective, EndToEnd):
        return Descent(MirrorDescent(lr=0.5, momentum=0.0), Stopping(max_steps=10))
    if isinstance(objective, UnrolledLikelihood):
        steps = 5 if objective.free else 3
        return Descent(MirrorDescent(lr=1.0, momentum=0.0), Stopping(max_steps=steps))
    return Descent(MirrorDescent(lr=0.05, momentum=0.8), Stopping(max_steps=100))


RULES = {
    "dropout": "share",
    "input_dropout": "share",
    "weight_decay": "zero or more",
    "lr": "positive",
    "epochs": "whole",
    "batch_size": "whole",
    "missing": "share",
    "warmup": "share",
}


def own_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Check the settings that have a value of the user's own, and return those."""
    own = {name: value for name, value in settings.items() if not is_auto(value)}
    if "hidden" in own:
        hidden = own["hidden"]
        if isinstance(hidden, str) or not hasattr(hidden, "__len__"):
            raise InputError(
                "hidden must be 'auto' or a tuple of widths, such as (256,) for one layer; "
                f"received {hidden!r}."
            )
        for width in hidden:
            check_whole(width, "hidden")
        own["hidden"] = tuple(int(width) for width in hidden)
    check_settings(SimpleNamespace(**own), **{k: r for k, r in RULES.items() if k in own})
    sizes = [name for name in ("hidden", "dropout", "input_dropout") if name in own]
    if sizes and own["features"] is not None:
        raise InputError(
            f"features is a whole network, so it says itself what {' and '.join(sizes)} would say. "
            "Leave one of the two out."
        )
    if own["features_dtype"] is not None:
        one_of(own["features_dtype"], DTYPES, "features_dtype")
        if own["features"] is None:
            raise InputError(
                "features_dtype is for a network of your own, and features is None. Leave it out."
            )
    if "stages" in own:
        own["stages"] = _stages(own, bool(settings["cross_fit"]))
    check_decoding(settings)
    return own


def check_decoding(settings: dict[str, Any]) -> None:
    """Check the settings of held-out rows and decoding."""
    allowed = ("auto", *DECODINGS)
    check_settings(SimpleNamespace(**settings), decoding=allowed, held_out="share above zero")


def metric_of(settings: dict[str, Any], shape: Shape) -> str:
    """Return what is to be maximised; the F1 of a row that has one class is its accuracy."""
    metric = settings["metric"]
    one_of(metric, (*METRICS, "accuracy"), "metric")
    if shape.exclusive and metric not in ("f1", "accuracy"):
        raise InputError(
            f"metric={metric!r} is for sets of labels; y holds classes, which are scored by their "
            "accuracy. Leave it out."
        )
    if metric == "accuracy" and not shape.exclusive:
        raise InputError(
            "metric='accuracy' is for classes; Y holds sets of labels. Say 'subset' for the share "
            "of rows with every label right, or 'hamming' for the share of labels that are."
        )
    return "f1" if shape.exclusive else metric


def _stages(own: dict[str, Any], cross_fit: bool) -> tuple[Stage, ...]:
    """Return the user's own stages: all of the training, or with cross_fit the energy's."""
    stages = own["stages"]
    if not isinstance(stages, Sequence) or not all(isinstance(each, Stage) for each in stages):
        raise InputError(f"stages must be 'auto' or a sequence of spen.Stage; received {stages!r}.")
    if not stages:
        raise InputError("stages is empty: give at least one Stage, or 'auto'.")
    if any(each.patience is not None for each in stages):
        raise InputError(
            "A stage of a classifier cannot have patience: held-out rows calibrate and tune, so "
            "they must not stop training too. Set its epochs, and leave patience out."
        )
    both = [name for name in ("epochs", "batch_size", "weight_decay", "lr") if name in own]
    both += ["early_stopping"] if own["early_stopping"] else []
    both += ["features_lr"] if own["features_lr"] is not None else []
    both += ["warmup"] if own["warmup"] else []
    if both and not cross_fit:
        raise InputError(
            f"stages say what {' and '.join(both)} would say. Leave one of the two out."
        )
    # For the same reason the last epoch is kept, not the one that held-out rows like best.
    return tuple(replace(each, keep="last") for each in stages)


def check_missing(settings: dict[str, Any], has_energy: bool) -> None:
    """Refuse a share of missing labels that nothing would look at."""
    if not settings["missing"]:
        return
    if not is_auto(settings["stages"]):
        raise InputError("stages say themselves what is missing, in their objectives.")
    if has_energy and settings["objective"] not in ("unrolled", "f1"):
        raise InputError(
            f"missing={settings['missing']!r} works with objective 'unrolled' or 'f1'; received "
            f"{settings['objective']!r}. An objective of your own takes it as its own setting."
        )


def check_for_classes(settings: dict[str, Any]) -> None:
    """Refuse what is for sets of labels alone."""
    if settings["decoding"] == "joint":
        raise InputError("decoding='joint' is for sets of labels; y holds classes. Leave it out.")
    neutral = {"cross_fit": False, "linear_member": False, "missing": 0.0, "members": 1}
    for name, value in neutral.items():
        if settings[name] != value:
            raise InputError(
                f"{name}={settings[name]!r} is for sets of labels; y holds classes. Leave it out."
            )


def is_auto(value: Any) -> bool:
    """Return whether a setting is to be chosen from the data."""
    return isinstance(value, str) and value == "auto"
