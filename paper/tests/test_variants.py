"""What an ablation changes, and that it changes nothing else."""

from dataclasses import fields, replace

import pytest
import tiny_settings as tiny

import spen
from spen.energies.scores import ConditionalScoreEnergy, ScoreEnergy
from spen.estimators.plan import Plan
from spen.training.checkpoint import describe
from spen_paper.fits import plan_of
from spen_paper.settings import classifier, settings_of
from spen_paper.studies.variants import (
    changed,
    hinge_variants,
    likelihood_variants,
    longer,
    without_joint_stage,
)

ROWS = tiny.DATA.train


def made(method: str):
    return classifier(tiny.TABLES[method], seed=0, device="cpu", where="here")


def differs_in(method: str, changes: dict) -> tuple[Plan, set[str]]:
    """Return the plan of a variant, and the parts of the plan that are not as they were."""
    before, after = plan_of(made(method), ROWS), plan_of(changed(made(method), changes), ROWS)
    names = [field.name for field in fields(Plan)]
    differ = {n for n in names if describe(getattr(before, n)) != describe(getattr(after, n))}
    return after, differ


def kinds(plan: Plan) -> list[type]:
    return [term.kind for term in plan.energy.terms]


def test_a_likelihood_trained_spen_changes_one_thing_at_a_time():
    variants = likelihood_variants(made("spen-single"), ROWS)
    assert list(variants) == [
        "trained jointly, not cross-fitted",
        "without the F1 term",
        "without revealed labels",
        "temperature 0.5",
        "temperature 2",
        "label energy",
        "1 measurement",
        "16 measurements",
        "64 measurements",
        "256 measurements",
    ], "4 measurements and temperature 1 are the settings"
    original = plan_of(made("spen-single"), ROWS).prediction.objective
    expected = {
        "without the F1 term": replace(original, f1=0.0),  # type: ignore[type-var]
        "without revealed labels": replace(original, reveal=0.0),  # type: ignore[type-var]
        "temperature 2": replace(original, entropy=2.0),  # type: ignore[type-var]
    }
    for title, objective in expected.items():
        plan, differ = differs_in("spen-single", variants[title])
        assert differ == {"stages", "prediction"}
        assert plan.prediction.objective == objective
        assert [stage.objective for stage in plan.stages] == [objective]
    plan, differ = differs_in("spen-single", variants["16 measurements"])
    assert differ == {"energy"}
    assert plan.energy.terms[1].settings["measurements"] == 16
    plan, differ = differs_in("spen-single", variants["label energy"])
    assert differ == {"energy"}
    assert kinds(plan) == [ScoreEnergy, spen.LabelEnergy]
    assert plan.energy.terms[1].settings["measurements"] == 4
    plan, differ = differs_in("spen-single", variants["trained jointly, not cross-fitted"])
    assert kinds(plan) == [spen.LocalEnergy, spen.ConditionalEnergy]
    assert differ == {"energy", "stages", "cross_fit", "held_out"}
    assert plan.stages[0].parts == ("features", "local", "global")


def test_a_label_energy_is_changed_into_a_conditional_one():
    other = changed(made("spen-single"), {"energy": "label"})
    variants = likelihood_variants(other, ROWS)
    assert "label energy" not in variants
    plan = plan_of(changed(other, variants["conditional energy"]), ROWS)
    assert kinds(plan) == [ScoreEnergy, ConditionalScoreEnergy]


def test_a_hinge_spen_changes_one_thing_at_a_time():
    variants = hinge_variants(made("spen-paper"), ROWS)
    assert list(variants) == [
        "pre-training alone (an MLP)",
        "without pre-training",
        "features never clamped",
        "without the joint stage",
        "margin 0.3",
        "margin 3",
        "test-time entropy 1",
    ]
    before = plan_of(made("spen-paper"), ROWS).stages
    plan, differ = differs_in("spen-paper", variants["without the joint stage"])
    assert differ == {"stages"}
    assert plan.stages == before[:2]
    plan, _ = differs_in("spen-paper", variants["pre-training alone (an MLP)"])
    assert kinds(plan) == [spen.LocalEnergy]
    assert plan.stages == before[:1]
    plan, differ = differs_in("spen-paper", variants["features never clamped"])
    assert differ == {"stages"}
    assert [stage.parts for stage in plan.stages[1:]] == [("features", "local", "global")] * 2
    assert (plan.stages[1].lr, plan.stages[1].global_lr) == (0.003, 0.02)
    plan, _ = differs_in("spen-paper", variants["without pre-training"])
    assert all(isinstance(stage.objective, spen.Hinge) for stage in plan.stages)
    assert plan.stages[0].epochs == before[0].epochs
    plan, differ = differs_in("spen-paper", variants["margin 3"])
    assert plan.stages[1].objective == spen.Hinge(margin=3.0)
    assert plan.stages[0] == before[0]
    plan, differ = differs_in("spen-paper", variants["test-time entropy 1"])
    assert plan.prediction.objective == spen.Hinge(entropy=1.0)


def test_epochs_that_the_settings_name_grow_and_others_do_not():
    assert longer(made("mlp"), 2.6) == {"epochs": 3}
    stages = longer(made("spen-paper"), 3)["stages"]
    assert [stage.epochs for stage in stages] == [12, 3, 3]
    assert longer(spen.SPENClassifier(), 4) == {}


def test_variants_of_the_wrong_model_are_refused():
    with pytest.raises(spen.InputError, match="objective 'unrolled' or 'f1'"):
        likelihood_variants(made("spen-paper"), ROWS)
    with pytest.raises(spen.InputError, match="a SPEN with a hinge"):
        hinge_variants(made("spen-single"), ROWS)
    joint = changed(made("spen-paper"), {"stages": plan_of(made("spen-paper"), ROWS).stages[:1]})
    with pytest.raises(spen.InputError, match="no stage that trains the energy"):
        without_joint_stage(plan_of(joint, ROWS))


@pytest.mark.parametrize("dataset", ["bibtex", "delicious", "bookmarks"])
def test_the_shipped_settings_can_be_ablated(dataset):
    tables = settings_of(dataset)
    for method, variants_of, least in (
        ("spen-single", likelihood_variants, 8),
        ("spen-paper", hinge_variants, 7),
    ):
        made = classifier(tables[method], seed=0, device="cpu", where="here")
        assert len(variants_of(made, ROWS)) >= least
