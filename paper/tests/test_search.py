"""The search behind Table 1's best: its space, its rule, what came of it, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_settings as tiny

import spen
from spen.estimators.judging import folds_by
from spen.estimators.runs import Fit
from spen_paper.fits import plan_of
from spen_paper.settings import classifier, inherit

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "paper/search"))
import best  # noqa: E402

sys.path.pop(0)

SMALL = {
    "seed": 3,
    "folds": 2,
    "network": {
        "points": 2,
        "units": [4, 6],
        "dropout": [0.1],
        "input_dropout": [0.0],
        "weight_decay": [0.01],
        "epochs": [1, 2],
        "batch_size": 16,
    },
    "average": {"members": [1, 3], "linear_member": [False, True]},
    "energy": {
        "points": 4,
        "kind": ["none", "label", "conditional", "surprise"],
        "measurements": [2, 3],
        "dropout": [0.25],
        "f1": [0, 1],
        "weight_decay": [0.01],
        "lr": [0.01],
        "global_lr": [0.03],
        "epochs": [1],
        "batch_size": 32,
        "steps": 2,
    },
    "row_loss": {"bibtex": 6.0},
}


@pytest.fixture
def small(monkeypatch) -> dict[str, Any]:
    monkeypatch.setattr(best, "SPACE", SMALL)
    monkeypatch.setattr(best, "DATASETS", ("bibtex",))
    monkeypatch.setattr(spen, "load_dataset", lambda name: tiny.DATA)
    return SMALL


@pytest.fixture
def bench(small, tmp_path) -> best.Bench:
    return best.Bench.of("bibtex", "cpu", tmp_path)


def test_the_space_is_drawn_the_same_each_time_and_without_repeats():
    for points in (best.network_points, best.energy_points):
        drawn = points()
        assert drawn == points()
        assert len({json.dumps(point) for point in drawn}) == len(drawn)
    kinds = [point["kind"] for point in best.energy_points()]
    assert all(kinds.count(kind) >= 5 for kind in best.SPACE["energy"]["kind"])


def test_averages_are_those_of_a_fit(bench, monkeypatch):
    """Members are trained apart and averaged; a plan that averages does the same by itself."""
    # Networks that are trained side by side draw their own dropout, and order of rows.
    monkeypatch.setattr(Fit, "train_ahead", lambda *arguments: None)
    network, work = best.network_points()[0], Fit(bench.rows, bench.domain, SMALL["seed"])
    for point in best.average_points():
        plan = best.replace(bench.network_plan(network), **point)
        held = work.hold_out(plan, folds_by(bench.rows.Y, 0.5, 2, SMALL["seed"]))
        # A regression begins elsewhere, and ends nearly where it would have otherwise.
        off = 0.1 if point["linear_member"] else 1e-5
        ours = bench.average(network, point)[held.rows]
        assert np.allclose(ours, held.scores.X, atol=off), point


def test_settings_that_are_derived_train_what_was_searched(bench):
    for point in best.energy_points():
        chosen = {"network": best.network_points()[0], "energy": point}
        chosen["average"] = {"members": 3, "linear_member": True}
        tables = best.derived("bibtex", chosen)
        for name in ("mlp-best", "spen-best"):
            assert {key: tables[name][key] for key in chosen["average"]} == chosen["average"]
        single = inherit(tables, "here")["spen-single"]
        made = classifier(single, seed=0, device="cpu", where="here")
        fitted, searched = plan_of(made, tiny.DATA.train), bench.energy_plan(point)
        network = bench.network_plan(chosen["network"])
        for name in ("energy", "stages", "prediction", "cross_fit"):
            assert getattr(fitted, name) == getattr(searched, name), (point, name)
        for name in ("choices", "trial", "folds"):
            assert getattr(fitted, name) == getattr(network, name), name


@pytest.mark.parametrize("dataset", best.DATASETS)
def test_the_settings_of_table_1_are_those_of_the_logs_winners(dataset):
    derived = best.derived(dataset, best.winners(best.records(), dataset))
    settings = best.tomllib.loads(best.SETTINGS.read_text())[dataset]
    assert {name: settings[name] for name in derived} == derived
    assert best.in_toml() in best.SETTINGS.read_text()


def test_the_log_has_the_points_of_the_space_and_no_others():
    points = {"network": best.network_points(), "average": best.average_points()}
    points["energy"] = best.energy_points()
    for dataset in best.DATASETS:
        won = best.winners(best.records(), dataset)
        for step, drawn in points.items():
            tried = [
                line
                for line in best.records()
                if (line["dataset"], line["step"]) == (dataset, step)
            ]
            assert all(line["point"] in drawn for line in tried)
            assert len({json.dumps(line["point"]) for line in tried}) == len(tried)
            # Energies of large sets take long; of the others none was left out.
            assert len(tried) == len(drawn) or step == "energy"
            assert all(line.get(name, won[name]) == won[name] for line in tried
                       for name in ("network", "average"))  # fmt: skip


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("the order of commits is told by the history of a checkout, which is not here")
    return done.stdout.strip()


def test_the_space_came_before_the_log_and_the_log_before_the_test_rows():
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("the order of commits is told by the whole history, and this clone has a part")
    space, log = (
        git("log", "-1", "--format=%H", "--", f"paper/search/{name}")
        for name in ("space.toml", "best.jsonl")
    )
    if not space:
        pytest.skip("the order of commits is told by the history of spen, and this is another")
    assert git("merge-base", space, f"{log}~1") == space, "no look at the log, and then a space"
    at_log = git("ls-tree", "-r", "--name-only", log).splitlines()
    assert "paper/search/space.toml" in at_log
    records = "paper/records/table1/records.jsonl"
    assert records not in at_log, "test rows were read after the settings had been derived"


def run_small(folder: Path, number: int = 0, seconds: float = 600.0) -> None:
    worker = best.Worker(folder, number, 1, "cpu", ("bibtex",), f"{number} {seconds}")
    worker.work([seconds] * len(best.STEPS))


def test_a_search_goes_on_where_it_was_and_ends_with_settings(small, tmp_path, monkeypatch):
    run_small(tmp_path, 0, seconds=0.0)
    assert not best.read(tmp_path), "no point is begun when the time is up"
    run_small(tmp_path)
    lines = best.read(tmp_path)
    steps = [line["step"] for line in lines]
    assert [steps.count(step) for step in ("network", "average", "energy")] == [2, 4, 4]
    for work in ("_train_member", "energy", "judged"):
        monkeypatch.setattr(best.Bench, work, None)
    run_small(tmp_path, 1)
    assert best.read(tmp_path) == lines, "nothing is done twice"
    monkeypatch.setattr(best, "LOG", tmp_path / "best.jsonl")
    best.merge(tmp_path)
    assert len(best.records()) == len(lines)
    chosen = best.winners(best.records(), "bibtex")
    assert chosen["energy"]["kind"] != "none"
    figures = {json.dumps(line["point"]): best.figure(line) for line in lines
               if line["step"] == "network"}  # fmt: skip
    assert figures[json.dumps(chosen["network"])] == max(figures.values())
    assert len(list(best.show())) == 2 + 4 + 4 + 3 + 3
    settings = tmp_path / "table1.toml"
    settings.write_text(f"# before\n{best.BEGIN}\n[bibtex.old]\n{best.END}\n# after\n")
    monkeypatch.setattr(best, "SETTINGS", settings)
    best.write_settings()
    text = settings.read_text()
    assert text.startswith("# before")
    assert text.endswith("# after\n")
    read = best.tomllib.loads(text)["bibtex"]
    assert read == best.derived("bibtex", chosen)


def test_of_equal_points_the_first_drawn_wins(small):
    points = best.network_points()
    held = {"threshold": 40.0, "expected_f1": 42.0}
    lines = [{"dataset": "bibtex", "step": "network", "point": point, "held_out": held}
             for point in reversed(points)]  # fmt: skip
    assert best.best(lines, "bibtex", "network")["point"] == points[0]
    with pytest.raises(spen.InputError, match="no energy of bibtex"):
        best.best(lines, "bibtex", "energy")
