"""Variants of a classifier, one change at a time, as constructor arguments."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import spen
from spen import Split, Stage
from spen.energies.base import UnsizedTerm
from spen.estimators.base import LabelClassifier
from spen.estimators.plan import Plan
from spen.estimators.recipe import is_auto
from spen.model import PARTS
from spen.training.checkpoint import describe
from spen_paper.fits import plan_of

MEASUREMENTS = (1, 4, 16, 64, 256)
TEMPERATURES = (0.5, 1.0, 2.0)
MARGINS = (0.3, 1.0, 3.0)
ENTROPIES = (0.0, 1.0)

Changes = dict[str, Any]
"""Constructor arguments of a classifier that differ from its settings'."""

STAGES_ONLY: Changes = {"epochs": "auto", "batch_size": "auto", "weight_decay": "auto"}
"""Stages of one's own say what these would say."""


def changed(
    classifier: LabelClassifier, changes: Changes, kind: type[LabelClassifier] | None = None
) -> LabelClassifier:
    """Return a classifier like this one but for some constructor arguments, not fitted.

    With a kind of its own it has the arguments that both kinds take.

    >>> import spen
    >>> made = spen.SPENClassifier(epochs=3, linear_member=False)
    >>> changed(made, {"dropout": 0.5}, spen.baselines.MLPClassifier)
    MLPClassifier(dropout=0.5, epochs=3)
    """
    kind = kind or type(classifier)
    settings = classifier.get_params(deep=False) | changes
    taken = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in settings.items() if name in taken})


def longer(classifier: LabelClassifier, factor: float) -> Changes:
    """Return the changes that multiply every number of epochs that the settings name.

    Epochs that are left to the recipe stay so: it looks at the number of rows by itself.

    >>> import spen
    >>> longer(spen.SPENClassifier(epochs=3), 4)
    {'epochs': 12}
    """
    given = classifier.get_params(deep=False)
    changes: Changes = {}
    if not is_auto(given.get("epochs", "auto")):
        changes["epochs"] = round(factor * given["epochs"])
    if not is_auto(given.get("stages", "auto")):
        changes["stages"] = tuple(
            replace(stage, epochs=round(factor * stage.epochs)) for stage in given["stages"]
        )
    return changes


def likelihood_variants(classifier: LabelClassifier, rows: Split) -> dict[str, Changes]:
    """Return the changes to a SPEN that is trained by its unrolled likelihood, by title.

    A change that changes nothing, because the settings have it already, is left out.
    """
    plan = plan_of(classifier, rows)
    if not isinstance(plan.prediction.objective, spen.UnrolledLikelihood):
        raise spen.InputError(
            "These variants are of a SPEN with objective 'unrolled' or 'f1'; "
            f"received {plan.prediction.objective!r}."
        )
    variants = {
        "trained jointly, not cross-fitted": _jointly(plan),
        "without the F1 term": _objective(classifier, plan, f1=0.0),
        "without revealed labels": _objective(classifier, plan, reveal=0.0),
    }
    for value in TEMPERATURES:
        variants[f"temperature {value:g}"] = _objective(classifier, plan, entropy=value)
    if not _has(plan, spen.LabelEnergy):
        variants["label energy"] = {
            "energy": with_energy(plan, spen.LabelEnergy, initial="neutral")
        }
    if not _has(plan, spen.ConditionalEnergy):
        kind = spen.ConditionalScoreEnergy if plan.cross_fit else spen.ConditionalEnergy
        variants["conditional energy"] = {"energy": with_energy(plan, kind)}
    for count in MEASUREMENTS:
        variants["1 measurement" if count == 1 else f"{count} measurements"] = {
            "energy": with_measurements(plan, count)
        }
    return _that_change(classifier, plan, rows, variants)


def hinge_variants(classifier: LabelClassifier, rows: Split) -> dict[str, Changes]:
    """Return the changes to a SPEN that is trained in the paper's three stages, by title."""
    plan = plan_of(classifier, rows)
    if not isinstance(plan.prediction.objective, spen.Hinge):
        raise spen.InputError(
            f"These variants are of a SPEN with a hinge; received {plan.prediction.objective!r}."
        )
    first, others = _label_wise_stage(plan), _hinge_stages(plan)
    variants = {
        "pre-training alone (an MLP)": pre_training_alone(plan),
        "without pre-training": _stages([_hinge_from_the_start(first, others[0]), *others]),
        "features never clamped": _stages([first, *_unclamped(others)]),
        "without the joint stage": without_joint_stage(plan),
    }
    for value in MARGINS:
        variants[f"margin {value:g}"] = _objective(classifier, plan, margin=value)
    for value in ENTROPIES:
        variants[f"test-time entropy {value:g}"] = _objective(classifier, plan, entropy=value)
    return _that_change(classifier, plan, rows, variants)


def pre_training_alone(plan: Plan) -> Changes:
    """Return the changes that leave the label-wise model which a hinge starts from."""
    return _stages([_label_wise_stage(plan)]) | {"energy": "local"}


def without_joint_stage(plan: Plan) -> Changes:
    """Return the changes that keep the features clamped once they are pre-trained."""
    clamped = [stage for stage in _hinge_stages(plan) if "features" not in stage.parts]
    if not clamped:
        raise spen.InputError("There is no stage that trains the energy with clamped features.")
    return _stages([_label_wise_stage(plan), *clamped])


def with_energy(plan: Plan, kind: type[spen.Energy], **settings: Any) -> spen.UnsizedEnergy:
    """Return the plan's energy with another kind of global one, of as many measurements."""
    terms = []
    for term in plan.energy.terms:
        if not issubclass(term.kind, spen.LocalEnergy):
            common = {k: v for k, v in term.settings.items() if k in _SHARED}
            term = UnsizedTerm(kind, common | settings)
        terms.append(term)
    return spen.UnsizedEnergy(tuple(terms))


def with_measurements(plan: Plan, count: int) -> spen.UnsizedEnergy:
    """Return the plan's energy with another number of measurements."""
    terms = []
    for term in plan.energy.terms:
        counted = {name: count for name in ("measurements", "rank") if name in term.settings}
        terms.append(replace(term, settings=term.settings | counted))
    return spen.UnsizedEnergy(tuple(terms))


_SHARED = ("measurements", "nonlinearity")


def _has(plan: Plan, kind: type[spen.Energy]) -> bool:
    return any(issubclass(term.kind, kind) for term in plan.energy.terms)


def _jointly(plan: Plan) -> Changes:
    """Return the changes that train features and energy together, on the same rows."""
    twins: dict[type[spen.Energy], type[spen.Energy]] = {
        spen.ScoreEnergy: spen.LocalEnergy,
        spen.ConditionalScoreEnergy: spen.ConditionalEnergy,
    }
    terms = [replace(term, kind=twins.get(term.kind, term.kind)) for term in plan.energy.terms]
    # The stages of a cross-fitted energy are no training of features.
    return {"cross_fit": False, "energy": spen.UnsizedEnergy(tuple(terms)), "stages": "auto"}


def _objective(classifier: LabelClassifier, plan: Plan, **fields: Any) -> Changes:
    """Return the changes that set some fields of the objective, in stages of one's own too."""
    objective: Any = plan.prediction.objective
    changes: Changes = {"objective": replace(objective, **fields)}
    own = classifier.get_params(deep=False)["stages"]
    if not is_auto(own):
        changes["stages"] = tuple(
            replace(stage, objective=replace(stage.objective, **fields))
            if isinstance(stage.objective, type(objective))
            else stage
            for stage in own
        )
    return changes


def _stages(stages: list[Stage]) -> Changes:
    return {"stages": tuple(stages), **STAGES_ONLY}


def _label_wise_stage(plan: Plan) -> Stage:
    if not isinstance(plan.stages[0].objective, spen.CrossEntropy):
        raise spen.InputError(
            "The first stage must be label by label; there is nothing to compare."
        )
    return plan.stages[0]


def _hinge_stages(plan: Plan) -> list[Stage]:
    return [stage for stage in plan.stages if isinstance(stage.objective, spen.Hinge)]


def _hinge_from_the_start(first: Stage, hinge: Stage) -> Stage:
    """Return a stage as long as pre-training, of everything, by the hinge.

    It has the rates of both: that of pre-training for features and local energy. A hinge at
    random features has large gradients, so they are clipped.
    """
    return replace(
        hinge,
        name="hinge from the start",
        parts=PARTS,
        epochs=first.epochs,
        lr=first.lr,
        global_lr=hinge.global_lr or hinge.lr,
        optimiser=first.optimiser,
        clip=hinge.clip or 1.0,
    )


def _unclamped(hinge: list[Stage]) -> list[Stage]:
    """Return stages that train everything: what was clamped at the last stage's small rate."""
    last = hinge[-1]
    return [
        stage
        if "features" in stage.parts
        else replace(stage, parts=PARTS, lr=last.lr, global_lr=stage.global_lr or stage.lr)
        for stage in hinge
    ]


def _that_change(
    classifier: LabelClassifier, plan: Plan, rows: Split, variants: dict[str, Changes]
) -> dict[str, Changes]:
    unchanged = describe(plan)
    return {
        title: changes
        for title, changes in variants.items()
        if describe(plan_of(changed(classifier, changes), rows)) != unchanged
    }
