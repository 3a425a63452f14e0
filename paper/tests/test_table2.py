"""Table 2: its folds, its machines, what they choose, and what is said of their solvers."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import all_labelings

import spen
from spen.estimators import runs
from spen_paper import plots
from spen_paper.cli import table2 as command
from spen_paper.records import Records
from spen_paper.tables import machines, table2
from spen_paper.tables.machines import (
    SLACK,
    KernelRidge,
    Machine,
    Standardised,
    choose_decay,
    decay_of,
    predictor_of,
    read_machines,
    search_of,
    train_by,
)
from spen_paper.tables.table2 import sight_of

DATA = spen.exclusive_blocks(90, 30, n_features=8, n_blocks=2, seed=3)
ROWS = table2.all_rows(DATA)
yeast = pytest.mark.skipif(
    not (Path(os.environ.get("SPEN_DATA", "data")) / "yeast").exists(),
    reason="yeast is not in the folder SPEN_DATA",
)


def quick(name: str, **changes) -> Machine:
    """A method of the table with two epochs a stage, and no features but those of the rows."""
    machine = read_machines()[name]
    stages = tuple(replace(stage, epochs=2) for stage in machine.stages)
    kernels = machine.kernels and replace(machine.kernels, groups=())
    return replace(machine, **({"stages": stages, "decays": (0.1,), "kernels": kernels} | changes))


def test_the_papers_figures():
    assert table2.PAPER == {
        "exact": "20.2 ± .5",
        "lp": "20.5 ± .5",
        "lbp": "24.3 ± .6",
        "dmf": "23 ± .2",
        "spen": "20.0 ± .3",
    }


def test_every_method_has_its_own_solver_in_training_and_prediction():
    found = read_machines()
    assert set(table2.PAPER) < set(found)
    for machine in found.values():
        assert {stage.inference for stage in machine.stages} == {machine.inference}
        assert len(machine.decays) <= 4
    solvers = [type(found[name].inference) for name in ("exact", "lp", "lbp", "spen")]
    assert solvers == [spen.Exact, spen.LinearRelaxation, spen.BeliefPropagation, spen.Descent]
    # The SSVMs differ in nothing but their solver.
    same = {repr(replace(found[name], title="", inference=spen.Exact(), stages=())) for name in
            ("exact", "lp", "lbp", "lbp-plain")}  # fmt: skip
    assert len(same) == 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"decays": [1, 2, 3, 4, 5]}, "1 to 4 decays"),
        ({"decays": []}, "1 to 4 decays"),
        ({"decays": [1.0], "kernel": {}}, "Did you mean 'kernels'"),
        ({"decays": [1.0], "kernels": {"widths": {}, "group": []}}, "Did you mean 'groups'"),
        ({"decays": [1.0], "inference": {"name": "exat"}}, "Did you mean 'exact'"),
        ({"decays": [1.0], "inference": {"name": "lbp", "dampin": 0.1}}, "'damping'"),
    ],
)
def test_a_wrong_setting_is_named(table, words):
    common = {"title": "x", "energy": [{"name": "LocalEnergy"}], "stages": []}
    with pytest.raises(spen.InputError, match=words):
        machines.read_machine(common | table, "here")


def test_folds_divide_the_rows():
    tests = []
    for fold in range(7):
        train, test = table2.split_of(ROWS, fold, 7, seed=1)
        both = np.concatenate([train.X, test.X])
        assert sorted(map(bytes, both)) == sorted(map(bytes, ROWS.X))
        tests += map(bytes, test.X)
    assert sorted(tests) == sorted(map(bytes, ROWS.X))
    other = table2.split_of(ROWS, 0, 7, seed=2)[1].X
    assert sorted(map(bytes, other)) != sorted(tests[: len(other)])
    with pytest.raises(spen.InputError, match="at most the number of rows, 120"):
        table2.split_of(ROWS, 0, 121, seed=0)


def test_the_decay_is_the_best_on_held_out_rows_and_the_larger_of_equal_ones():
    machine = quick("br", decays=(1e-3, 1e3, 1e4))
    plan, errors = choose_decay(machine, ROWS, seed=0)
    assert decay_of(plan) == plan.stages[0].weight_decay == 1e-3
    assert errors[1e-3] < errors[1e3] == errors[1e4]
    equal = quick("br", decays=(1e3, 1e4, 2e3))
    assert decay_of(choose_decay(equal, ROWS, seed=0)[0]) == 1e4


def test_the_energy_learns_from_scores_of_rows_that_their_regression_has_not_seen(monkeypatch):
    machine = quick("spen-best")
    calls, original = [], runs.train

    def recorded(model, stages, rows, *others, **options):
        calls.append(rows)
        return original(model, stages, rows, *others, **options)

    monkeypatch.setattr(runs, "train", recorded)
    trained = train_by(machine.plan(), ROWS, seed=0)
    (over,) = calls
    seen = Standardised().fit(ROWS)[1].X
    for row in (0, 50, 119):
        others = np.delete(np.arange(len(ROWS)), row)
        apart = KernelRidge(machine.kernels, seen[others], ROWS.Y[others])
        # The rows whose median distance is the width are not quite the same without this one.
        scores = apart(torch.from_numpy(seen[row : row + 1]))[0]
        np.testing.assert_allclose(over.X[row], scores, atol=0.1)
    features = trained.model.features(torch.from_numpy(ROWS.X)).numpy()
    np.testing.assert_array_equal(
        features, KernelRidge(machine.kernels, seen, ROWS.Y)(torch.from_numpy(seen)).numpy()
    )
    assert np.abs(over.X - features).max() > 0.5
    assert trained.decode(trained.solve(ROWS.X).y).shape == ROWS.Y.shape


def test_kernels_choose_their_ridge_by_the_regression_alone(monkeypatch):
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("trained an energy"))
    machine = quick("spen-best", decays=(0.1, 1e4))
    plan, errors = choose_decay(machine, ROWS, seed=0)
    assert decay_of(plan) == plan.base.ridge == 0.1
    assert errors[0.1] < errors[1e4]
    assert machine.epochs() == 2 * 2, "and none to choose"


@pytest.mark.parametrize("name", ["exact", "lp", "lbp", "lbp-plain", "spen"])
def test_search_errors_and_margins_against_all_labellings(name):
    """Whatever a solver says, counted again one labelling at a time."""
    machine = quick(name)
    plan, domain = machine.plan(), spen.UnitBox(ROWS.Y.shape[1])
    features, seen = plan.base.fit(ROWS)
    width = seen.X.shape[1]
    model = spen.SPEN(spen.Identity(width), plan.energy.size(width, domain), domain, seed=0)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    trained = predictor_of(spen.SPEN(features, model.energy, domain), plan.prediction)
    problem = model.energy.bind(model.context(seen.X))
    target = torch.from_numpy(seen.Y)
    energies = torch.stack(
        [problem.value(one.float().expand(len(seen), -1)) for one in all_labelings(domain)], 1
    ).detach()
    solution = trained.solve(ROWS.X)
    found = problem.value(domain.round(solution.y)).detach()
    missed = 100 * (found > energies.amin(1) + SLACK).float().mean()
    figures = search_of(trained, ROWS.X)
    assert figures["search_errors"] == pytest.approx(float(missed), abs=1e-3)

    wrong = (all_labelings(domain).float()[None] != target[:, None]).sum(2)
    exact = (problem.value(target)[:, None] - energies + wrong).amax(1).detach()
    hinge = machine.stages[-1].objective
    assert isinstance(hinge, spen.Hinge)
    context = model.context(seen.X, target=seen.Y)
    loss = hinge.loss(model, machine.inference, context).detach()
    sight = sight_of(model, machine.inference, context, hinge)
    assert sight["violated"] == pytest.approx(100 * float((exact > SLACK).float().mean()), abs=1e-3)
    assert sight["ratio"] == pytest.approx(float(loss.mean() / exact.mean()), abs=1e-4)
    share = {"under": loss < exact - SLACK, "over": loss > exact + SLACK, "seen": loss > SLACK}
    for figure, rows in share.items():
        assert sight[figure] == pytest.approx(100 * float(rows.float().mean()), abs=1e-3)
    if name in ("exact", "lp"):
        assert sight["under"] == 0, "a bound sees every violation"
    if name in ("exact", "lbp", "lbp-plain"):
        assert sight["over"] == 0, "a labelling is no more violated than the worst one"
    assert {"lp": sight["over"], "lbp-plain": sight["under"], "spen": sight["under"]}.get(
        name, 1.0
    ) > 0


def use(monkeypatch, *names: str) -> None:
    small = {name: quick(name) for name in names}
    monkeypatch.setattr(machines, "read_machines", lambda: small)
    monkeypatch.setattr(table2, "load_dataset", lambda name: DATA)


def test_the_whole_table_of_a_small_set(tmp_path, monkeypatch, capsys):
    use(monkeypatch, "exact", "lp", "dmf", "spen", "spen-best", "br")
    options = {"method": "spen,br,spen-best,exact,lp,dmf", "folds": 3, "seeds": 2, "out": tmp_path}
    command(**options)
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith("| S") or " DMF" in line]
    assert [line.split("|")[1].strip()[:10] for line in lines] == [
        "SSVM, exac", "SSVM, LP r", "DMF, linea", "SPEN, line", "SPEN, kern",
    ]  # fmt: skip
    for words in (
        "spen − exact, paired over folds",
        "3-fold",
        "120 rows",
        "2 divisions",
        "table2.toml",
    ):
        assert words in shown
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(records) == 6 * 3 * 2
    exact = [record for record in records if record["method"] == "exact"]
    mean = np.mean([record["metrics"]["hamming"] for record in exact])
    assert f"{mean:.2f} ± {table2.standard_error(exact):.2f}" in shown
    assert all(record["metrics"]["search_errors"] == 0 for record in exact)
    monkeypatch.setattr(machines, "train_by", lambda *_: pytest.fail("made again"))
    command(**options)
    assert capsys.readouterr().out == shown


def test_the_study_prints_draws_and_resumes(tmp_path, monkeypatch, capsys):
    use(monkeypatch, *table2.LOOKED_AT)
    command(folds=3, out=tmp_path, study="violations")
    shown = capsys.readouterr().out
    for words in ("loss seen / loss", "search errors", "LBP, undamped", "3 folds, 1 seed"):
        assert words in shown
    for suffix in ("png", "svg"):
        assert (tmp_path / f"violations.{suffix}").stat().st_size > 5000
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(records) == 3 * len(table2.LOOKED_AT)
    assert all(len(record["epochs"]["under"]) == 2 for record in records)
    files = [tmp_path / "violations.png", tmp_path / "violations.svg"]
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: files)
    monkeypatch.setattr(table2, "train", lambda *_, **__: pytest.fail("made again"))
    command(folds=3, out=tmp_path, study="violations")
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "exact,ssvm-lp"}, "Choose from"),
        ({"method": "lbq"}, "Did you mean 'lbp'"),
        ({"folds": 1}, "folds must be a whole number of 2 or more"),
        ({"seeds": 0}, "seeds must be a whole number of 1 or more"),
        ({"study": "violation"}, "Did you mean 'violations'"),
        ({"study": "violations", "method": "lp"}, "has its own methods"),
    ],
)
def test_a_wrong_name_stops_before_anything_is_done(options, words, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(spen.InputError, match=words):
        command(**options, out=out)
    assert not out.exists()


@yeast
def test_one_method_on_one_fold_of_yeast(tmp_path):
    rows = table2.all_rows(spen.load_dataset("yeast"))
    assert rows.X.shape == (2417, 103)
    assert rows.Y.mean() == pytest.approx(0.303, abs=1e-3)
    machine = replace(read_machines()["lp"], decays=(0.03,))
    machine = replace(machine, stages=(replace(machine.stages[0], epochs=6),))
    record = table2.run("lp", machine, rows, 0, 10, 0, Records(tmp_path))
    assert 17 < record["metrics"]["hamming"] < 22
    assert record["metrics"]["search_errors"] < 3
    assert record["n_train"] == 2175
