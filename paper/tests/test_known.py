"""The study of known labels over five sets, on a generated data set with tiny classifiers."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tiny_settings as tiny
from sklearn.metrics import f1_score, log_loss

import spen
from spen.baselines import KnownLabelsClassifier
from spen.estimators.plan import Shape
from spen.estimators.recipe import ENERGY_STEPS, make_plan
from spen_paper.records import Records
from spen_paper.studies import known
from spen_paper.studies.known import (
    NAMED,
    REVEALINGS,
    SHARES,
    Revealing,
    decide,
    gap,
    hidden_scores,
)

TINY = {"hidden": (6,), "dropout": 0.1, "epochs": 2, "folds": 2}
MADE = {
    "spen": lambda **own: spen.SPENClassifier(**TINY, **own),
    "conditional": lambda **own: KnownLabelsClassifier(**TINY, **own),
    "local": lambda **own: spen.SPENClassifier(energy="local", **TINY, **own),
}


@pytest.mark.filterwarnings("ignore::spen.errors.UndertrainedWarning")
def test_the_study_measures_draws_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(known, "MADE", MADE)
    monkeypatch.setattr(known.sets, "load", lambda name: tiny.DATA)
    known.known("bibtex", 2, "cpu", tmp_path)
    shown = capsys.readouterr().out
    for each in ("told network", "| 25 %", "| 3 named", "2 seeds", "nothing of the others"):
        assert each in shown
    for suffix in ("png", "svg"):
        assert (tmp_path / f"known-bibtex.{suffix}").stat().st_size > 5000
    found = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [(each["method"], each["seed"]) for each in found] == [
        (method, seed) for seed in range(2) for method in MADE
    ]
    for each in found:
        assert len(each["metrics"]) == 3 * (len(SHARES) + len(NAMED))
        assert each["fit_seconds"] > 0
        assert each["chosen"]["measurements"] == (64 if each["method"] == "spen" else 0)
    metrics = {each["method"]: each["metrics"] for each in found[:3]}
    less = found[1]["log_loss_of_spen_less_this"]["25 %"][0]
    expected = metrics["spen"]["log_loss, 25 %"] - metrics["conditional"]["log_loss, 25 %"]
    assert less == pytest.approx(expected, abs=1e-6)
    # What is known tells nothing to the label-wise model, and all the same rows are drawn.
    assert found[0]["log_loss_of_spen_less_this"]["50 %"] == [0, 0]

    def fitted_again(*_, **__):
        raise AssertionError("a run that is there is not made again")

    monkeypatch.setattr(known, "timed_fit", fitted_again)
    known.known("bibtex", 2, "cpu", tmp_path)
    assert capsys.readouterr().out == shown
    assert len(Records(tmp_path).path.read_text().splitlines()) == 6


def test_bad_options_are_refused_before_any_work(tmp_path):
    with pytest.raises(spen.InputError, match="Did you mean 'yeast'"):
        known.known("yest", 1, "cpu", tmp_path)
    with pytest.raises(spen.InputError, match="seeds must be 1 or more"):
        known.known("yeast", 0, "cpu", tmp_path)


def test_none_of_the_hidden_labels_may_be_named_where_another_is_on():
    class NeverEmpty:
        def decode(self, p, decoding):
            return spen.expected_f1(p, empty=0)

    p = np.array([[1.0, 0.1, 0.2], [0.0, 0.1, 0.2], [1.0, 0.9, 0.2]])
    told = np.array([[1, np.nan, np.nan], [0, np.nan, np.nan], [1, np.nan, np.nan]])
    assert decide(NeverEmpty(), p, told, "expected_f1").tolist() == [
        [0, 0, 0],
        [0, 1, 1],
        [0, 1, 0],
    ]


def test_what_less_reveals_more_reveals_too():
    truth = np.random.default_rng(0).integers(0, 2, (400, 9)).astype(np.float32)
    told = {words: way.known(truth, [0, 0]) for words, way in REVEALINGS.items()}
    for each in told.values():
        assert (np.isnan(each) | (each == truth)).all()
    assert np.isnan(told["0 %"]).all()
    for share in SHARES:
        assert (~np.isnan(told[f"{share} %"])).mean() == pytest.approx(share / 100, abs=0.03)
    for less, more in (("10 %", "25 %"), ("25 %", "50 %"), ("1 named", "2 named")):
        assert (np.isnan(told[less]) >= np.isnan(told[more])).all()
    assert (np.nansum(told["2 named"], 1) == np.minimum(truth.sum(1), 2)).all()


class Planted:
    """Predicts planted numbers, and what it is told; decodes at .4 if asked for half."""

    def __init__(self, soft):
        self.soft = soft

    def predict_proba(self, X, known=None):
        soft = self.soft[X[:, 0].astype(int)]
        return soft if known is None else np.where(np.isnan(known), soft, known)

    def decode(self, probabilities, decoding):
        assert decoding == "half"
        return (probabilities > 0.4).astype(np.int8)


@pytest.mark.parametrize("way", [Revealing(share=0.5), Revealing(named=1), Revealing()])
def test_scores_are_those_of_hidden_labels_alone(way, monkeypatch):
    monkeypatch.setattr(known, "CHUNK", 16)
    rng = np.random.default_rng(3)
    soft = rng.uniform(0.01, 0.99, (40, 12)).astype(np.float32)
    truth = (rng.random(soft.shape) < soft**2).astype(np.float32)
    rows = spen.Split(np.arange(40.0)[:, None], truth)
    found = hidden_scores(Planted(soft), rows, way, seed=5, decoding="half")
    hidden = np.concatenate(
        [np.isnan(way.known(truth[k : k + 16], [5, k])) for k in range(0, 40, 16)]
    )
    assert found.metrics["log_loss"] == pytest.approx(
        log_loss(truth[hidden], soft[hidden].astype(float)), abs=1e-6
    )
    f1 = [
        f1_score(truth[i][hidden[i]], soft[i][hidden[i]] > 0.4, zero_division=1.0)
        for i in range(40)
    ]
    assert found.metrics["f1"] == pytest.approx(100 * np.mean(f1), abs=1e-3)
    interval = np.minimum((soft * 15).astype(int), 14)
    error = (
        sum(abs((truth - soft)[hidden & (interval == k)].sum()) for k in range(15)) / hidden.sum()
    )
    assert found.metrics["calibration_error"] == pytest.approx(100 * error, abs=1e-2)
    np.testing.assert_array_equal(found.losses[1], hidden.sum(1))


def test_the_error_of_a_gap_is_that_of_many_draws_of_rows():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 20, 300).astype(float)
    ours, theirs = (counts * rng.gamma(2.0, scale, 300) for scale in (0.1, 0.12))
    mean, error = gap(np.stack([ours, counts]), np.stack([theirs, counts]))
    assert mean == pytest.approx((ours - theirs).sum() / counts.sum())
    draws = rng.integers(0, 300, (4000, 300))
    means = (ours - theirs)[draws].sum(1) / counts[draws].sum(1)
    assert error == pytest.approx(means.std(), rel=0.06)


def test_an_energy_is_trained_as_the_log_of_the_search_says():
    path = Path(__file__).parents[1] / "search" / "known.py"
    search = runpy.run_path(str(path))
    best = search["winner"]()
    plan = make_plan(
        spen.SPENClassifier().get_params(deep=False), Shape(5000, 2000, 50, True, False)
    )
    for energy in plan.energies:
        assert energy.terms[-1].settings["dropout"] == best["dropout"]
    assert plan.stages[-1].lr == best["lr"]
    assert plan.energy_rates == search["GRID"]["global_lr"]
    # No longer, and no damping for all: thousands of labels have one by the log of many.jsonl.
    assert search["steps"]() == search["STEPS"][0] == ENERGY_STEPS
    assert search["damping"]() == {}
    assert plan.stages[-1].weight_decay == 0.01


def test_many_labels_get_what_the_log_says(monkeypatch):
    folder = Path(__file__).parents[1] / "search"
    monkeypatch.syspath_prepend(str(folder))
    search = runpy.run_path(str(folder / "many.py"))
    best, settings = search["winners"](), spen.SPENClassifier().get_params(deep=False)
    many = make_plan(settings, Shape(10_000, 500, 1000, True, False))
    assert many.energy_members == best["averaged"]
    assert many.stages[-1].weight_decay == 0.01
    # The set of thousands of labels, of which the search had four fifths of the training rows.
    thousands = make_plan(settings, Shape(41_282, 52_239, 6892, True, False))
    over = search["NETWORKS"][best["over"]["network"]]
    assert thousands.chosen.hidden == tuple(over["hidden"])
    assert thousands.trial.epochs == over["epochs"]
    assert thousands.stages[-1].weight_decay == best["over"]["weight_decay"]
    told = KnownLabelsClassifier()
    assert best["told"]["zeros"] == "root"
    for labels, mark in ((6892, 6892**-0.5), (1000, 1.0)):
        plan = told.plan(Shape(41_282, 52_239, labels, True, False))
        assert plan.energy.terms[0].settings.get("zeros", 1.0) == mark
        assert best["told"]["lr"] in {choice.lr for choice in plan.choices}
        assert best["told"]["epochs"] in {choice.epochs for choice in plan.choices}


@pytest.mark.filterwarnings("ignore::spen.errors.UndertrainedWarning")
def test_what_a_method_has_measured_outlives_a_killed_run(tmp_path, monkeypatch):
    monkeypatch.setattr(known, "MADE", MADE)
    records, whole = Records(tmp_path / "killed"), Records(tmp_path / "whole")
    fit, fitted = known.timed_fit, []

    def killed(classifier, data):
        if type(classifier) is KnownLabelsClassifier and not fitted.count("told"):
            fitted.append("told")
            raise KeyboardInterrupt
        fitted.append(type(classifier).__name__)
        return fit(classifier, data)

    monkeypatch.setattr(known, "timed_fit", killed)
    with pytest.raises(KeyboardInterrupt):
        known.run(tiny.DATA, 0, "cpu", records)
    assert not records.path.exists()
    found = known.run(tiny.DATA, 0, "cpu", records)
    assert fitted == ["SPENClassifier", "told", "KnownLabelsClassifier", "SPENClassifier"]
    assert not list((tmp_path / "killed" / "unfinished").iterdir())
    at_once = known.run(tiny.DATA, 0, "cpu", whole)
    for name, record in at_once.items():
        for key in ("metrics", "log_loss_of_spen_less_this", "chosen"):
            assert found[name][key] == record[key]
