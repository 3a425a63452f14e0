"""The convergence study: what it counts, and that it goes on from its records."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import spen
from spen_paper.cli import convergence as command
from spen_paper.studies import convergence as module
from spen_paper.studies.convergence import (
    BoundRows,
    annealed,
    by_share,
    crossed,
    restarted,
    searched,
    searches,
    spikes,
    stop_test,
    tuned,
    wasted,
)


@pytest.fixture(scope="module")
def trained() -> tuple[BoundRows, BoundRows]:
    """Rows to tune on and rows to judge by, bound to one model."""
    data = spen.exclusive_blocks(240, 80, seed=0)
    kept, held_out = spen.hold_out(data.train, 0.2, seed=0)
    clf = spen.SPENClassifier(
        hidden=(16,), epochs=10, random_state=0, objective="hinge", folds=1, decoding="threshold"
    )
    clf.fit(kept.X, kept.Y)
    return BoundRows.of(clf, held_out), BoundRows.of(clf, data.test)


def test_row_steps_that_a_batch_wastes() -> None:
    steps = np.array([1, 2, 3, 10])
    assert wasted(steps, 1.0) == pytest.approx(1 - 16 / 40)
    assert wasted(steps, 0.75) == pytest.approx(1 - (1 + 2 + 3 + 3) / 12)


def test_spikes_of_outputs() -> None:
    assert spikes(torch.tensor([[0.0, 0.2, 0.999, 0.5]])) == {
        "all": 0.5,
        "likely": pytest.approx(1 / 3),
    }


def test_measured_figures_are_those_of_the_metrics(trained) -> None:
    inference = spen.Descent(stopping=spen.Stopping(200, 1e-3))
    metrics, test = tuned(*trained, inference, "uniform"), trained[1]
    found = test.solve(inference)
    labels = found.y.numpy() > metrics["threshold"]
    assert metrics["f1"] == pytest.approx(
        100 * spen.example_f1(test.truth.numpy(), labels), abs=1e-3
    )
    assert metrics["mean_steps"] == pytest.approx(found.steps.double().mean().item())
    fewer = tuned(*trained, by_share("default", 0.5, 1e-3), "uniform")
    more = tuned(*trained, by_share("default", 1.0, 1e-3), "uniform")
    assert fewer["most_steps"] <= more["most_steps"]


def test_rules_are_compared_under_the_same_stop_test(trained) -> None:
    test, usual = trained[1], spen.Stopping(100, 1e-3, 1e-4)
    found = {}
    for require in module.REQUIRED:
        stopping = stop_test(usual, require, 1e-2)
        assert (stopping.objective_rtol, stopping.iterate_atol) == (1e-2, pytest.approx(1e-3))
        ends = {
            name: test.solve(spen.Descent(rule, stopping)) for name, rule in module.RULES.items()
        }
        for rule, end in ends.items():
            (other,) = (ends[name].energy for name in ends if name != rule)
            ours, theirs = end.energy.numpy(), other.numpy()
            higher = ours - theirs > 1e-4 * np.maximum(abs(ours), abs(theirs))
            metrics = found[rule, require] = crossed(*trained, rule, stopping)
            assert metrics["higher"] == pytest.approx(higher.mean())
            assert metrics["mean_steps"] == pytest.approx(end.steps.double().mean().item())
            assert metrics["search_errors"] == pytest.approx(100 * test.search_errors(end))
    for rule in module.RULES:
        assert found[rule, "both"]["mean_steps"] > found[rule, "either"]["mean_steps"]
        assert found[rule, "both"]["energy"] <= found[rule, "either"]["energy"]


def test_searches_lower_energies_and_never_lose(trained) -> None:
    rows: BoundRows = trained[1]
    stopping = spen.Stopping(200, 1e-3)
    plain = rows.solve(spen.Descent(stopping=stopping))
    best = restarted(rows, spen.Descent(stopping=stopping))
    assert (best.energy <= plain.energy).all()
    assert rows.search_errors(best) <= rows.search_errors(plain)
    cooled = annealed(rows, spen.Descent(stopping=stopping))
    torch.testing.assert_close(cooled.energy, rows.problem.value(cooled.y), rtol=1e-4, atol=1e-4)
    assert (cooled.steps > 0).all()
    figures = {name: searched(*trained, search) for name, search in searches(stopping).items()}
    polished = figures["the default rule, polished"]
    assert polished["search_errors"] <= figures["the default rule"]["search_errors"]
    assert all(figure["seconds"] > 0 for figure in figures.values())


def test_the_study_prints_draws_and_goes_on(tmp_path, monkeypatch, capsys) -> None:
    data = spen.exclusive_blocks(120, 40, seed=0)
    settings = {
        "classifier": "SPENClassifier",
        "hidden": [8],
        "folds": 1,
        "objective": {"name": "hinge"},
        "inference": {"rule": {"lr": 0.1, "momentum": 0.95}, "stopping": {"max_steps": 50}},
        "stages": [{"name": "all", "objective": {"name": "hinge"}, "epochs": 2, "lr": 0.01}],
    }
    tables = {"spen-paper": settings}
    for where in ("spen_paper.studies.study", "spen_paper.bench.model"):
        monkeypatch.setattr(f"{where}.settings_of", lambda *names: tables)
    monkeypatch.setattr("spen_paper.studies.study.dataset_of", lambda name: data)
    monkeypatch.setattr(module, "SHARES", (0.5, 1.0))
    monkeypatch.setattr(module, "TOLERANCES", (1e-2, 1e-3))
    command(dataset=data.name, seeds=1, device="cpu", out=tmp_path)
    printed = capsys.readouterr().out
    assert "search errors, %" in printed
    assert "Rule, stop test and tolerance apart" in printed
    assert "paper: a search error about 8 %" in printed
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 4 + 4 * 2 + 4 * 2 + 2 * 2 * 2 + 8
    for name in ("steps", "tradeoffs", "search-errors"):
        for suffix in ("png", "svg"):
            assert (tmp_path / f"{data.name}-{name}.{suffix}").stat().st_size > 1000
    monkeypatch.setattr(module, "paper_model", None)
    command(dataset=data.name, seeds=1, device="cpu", out=tmp_path)
    assert capsys.readouterr().out == printed
