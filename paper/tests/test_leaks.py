"""No table sees its test labels before the end, and none trains on what it holds out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_settings as tiny
from watched import Watch, noise_like

import spen
from spen.estimators import fit
from spen.estimators.plan import HELD_OUT
from spen.estimators.scaling import AS_THEY_ARE
from spen.metrics import as_array
from spen_paper import fits
from spen_paper.records import Record, Records
from spen_paper.settings import classifier
from spen_paper.studies import convergence, known_labels
from spen_paper.studies.study import Study
from spen_paper.tables import machines, objectives, protocol, table2, table3

DATA = tiny.DATA
SMALL = spen.exclusive_blocks(90, 30, n_features=8, n_blocks=2, seed=3)


def made(method: str) -> Any:
    return classifier(tiny.TABLES[method], seed=0, device="cpu", where="here")


def small_rows() -> spen.Split:
    rows = table2.all_rows(replace(SMALL, test=None))
    return replace(rows, Y=rows.Y.copy())


def machine(name: str) -> machines.Machine:
    found = machines.read_machines()[name]
    kernels = found.kernels and replace(found.kernels, groups=())
    stages = tuple(replace(stage, epochs=2) for stage in found.stages)
    return replace(found, stages=stages, kernels=kernels)


def synthetic(name: str) -> protocol.Method:
    method = table3.methods_for(1500)[name]
    return replace(method, stages=tuple(replace(stage, epochs=2) for stage in method.stages))


def in_study(data: spen.Dataset, out: Path) -> Study:
    return Study("a study", data, tiny.TABLES, 1, "cpu", Records(out))


def table_1(method: str) -> Callable[[spen.Dataset, Path], Any]:
    return lambda data, out: fits.run("table1", method, lambda: made(method), data, 0, Records(out))


def of_table_2(name: str) -> Callable[[spen.Dataset, Path], Any]:
    def run(data: spen.Dataset, out: Path) -> Any:
        rows = small_rows()
        # The noise is put where a fold has its test rows.
        _, test = table2.split_of(replace(rows, Y=np.arange(len(rows))[:, None]), 0, 3, 0)
        if data is not DATA:
            rows.Y[test.Y[:, 0]] = noise_like(rows.Y[test.Y[:, 0]])
        return table2.run(name, machine(name), rows, 0, 3, 0, Records(out))

    return run


def of_table_3(name: str) -> Callable[[spen.Dataset, Path], Any]:
    def run(data: spen.Dataset, out: Path) -> Any:
        test = replace(data.test, Y=as_array(data.test.Y))
        dense = replace(tiny.DENSE, test=replace(test, X=as_array(test.X, np.float32)))
        return protocol.run("table3", name, synthetic(name), dense, 0, Records(out))

    return run


def of_convergence(data: spen.Dataset, out: Path) -> Any:
    kept, held = spen.hold_out(data.train, HELD_OUT, seed=0)
    fitted = made("spen-paper").fit(kept.X, kept.Y)
    bound = (convergence.BoundRows.of(fitted, part) for part in (held, data.test))
    found = convergence.tuned(*bound, spen.Descent(), "uniform")
    return {"chosen": found.pop("threshold"), "metrics": found}


PATHS: dict[str, Callable[[spen.Dataset, Path], Any]] = {
    **{f"table 1, {name}": table_1(name) for name in ("mlp", "dmf", "spen-single", "spen-paper")},
    "a study": lambda data, out: in_study(data, out).scores("mlp", "unchanged", {}),
    "known labels": lambda data, out: known_labels._records(in_study(data, out), "spen-known", 0),
    "objectives": lambda data, out: objectives.run(
        "spen-paper", made("spen-paper"), data, 0, Records(out)
    ),
    **{f"table 2, {name}": of_table_2(name) for name in ("exact", "spen", "spen-best", "br")},
    **{f"table 3, {name}": of_table_3(name) for name in ("linear", "mlp", "spen", "oracle")},
    "convergence": of_convergence,
}


def parts(found: Any, key: str) -> list[Any]:
    """What stands under a key, anywhere in nested records."""
    if not isinstance(found, dict):
        return []
    here = [found[key]] if key in found else []
    return here + [part for each in found.values() for part in parts(each, key)]


@pytest.mark.parametrize("path", PATHS)
def test_test_labels_change_nothing_but_the_scores(path: str, tmp_path: Path, monkeypatch) -> None:
    watch, runs = Watch(monkeypatch), []
    noisy = replace(DATA, test=replace(DATA.test, Y=noise_like(DATA.test.Y)))
    for number, data in enumerate((DATA, noisy)):
        watch.start_over()
        found = PATHS[path](data, tmp_path / str(number))
        runs.append((watch.weights, parts(found, "chosen"), parts(found, "measurements"), found))
    (weights, *chosen, first), (again, *chosen_again, second) = runs
    assert weights
    assert weights == again
    assert chosen == chosen_again
    scores = [parts(found, "metrics") or found for found in (first, second)]
    assert scores[0] != scores[1], "the test labels are read in the end"


def test_chains_that_know_labels_choose_on_rows_that_they_have_not_seen(monkeypatch) -> None:
    """The first chains, one for each strength, are trained before the choice."""
    learned: list[Any] = []
    train = known_labels.fit_chain

    def watched(*arguments: Any) -> known_labels.Chain:
        learned.append(train(*arguments))
        return learned[-1]

    monkeypatch.setattr(known_labels, "fit_chain", watched)
    labels = SMALL.train.Y.copy()
    numbered = spen.Split(SMALL.train.X, np.arange(len(labels))[:, None])
    _, held = spen.hold_out(numbered, HELD_OUT, seed=0)
    for rows in (SMALL.train.Y, labels):
        known_labels.ChainClassifier(2).fit(SMALL.train.X, rows)
        labels[held.Y[:, 0]] = noise_like(labels[held.Y[:, 0]])
    half, tried = len(learned) // 2, len(known_labels.STRENGTHS)
    for first, second in zip(learned[:tried], learned[half : half + tried], strict=True):
        assert first.weight.equal(second.weight)
        assert first.links.equal(second.links)
    assert not learned[half - 1].weight.equal(learned[-1].weight)


@pytest.mark.parametrize("name", ["exact", "spen", "spen-best", "br"])
def test_a_decay_is_chosen_on_rows_that_its_trials_have_not_seen(name: str, monkeypatch) -> None:
    watch, rows, tried = Watch(monkeypatch), small_rows(), []
    for _ in range(2):
        watch.start_over()
        _, errors = machines.choose_decay(machine(name), rows, seed=0)
        tried.append((watch.weights_for(watch.held), watch.weights, errors))
        rows.Y[watch.held] = noise_like(rows.Y[watch.held])
    (first, every, errors), (second, _, other_errors) = tried
    assert len(set(first)) == len(machine(name).decays)
    assert first == every, "a trial predicts the rows that it holds out, and no others"
    assert first == second
    assert errors != other_errors


def test_table_3_tunes_its_threshold_on_rows_that_were_not_trained_on(monkeypatch) -> None:
    """The oracle is the model of the trial, as a plan that ends with it gives it."""
    data, method = spen.exclusive_blocks(100, 50, seed=0), synthetic("linear")
    stages = tuple(replace(stage, epochs=60, weight_decay=0.0) for stage in method.stages)
    method, watch = replace(method, stages=stages), Watch(monkeypatch)
    fitted = method.fit(data.train, seed=0)
    held, trial = watch.held, watch.weights_for(watch.held)
    plan = replace(method.plan(), refit=False)
    alone = fit.fit(plan, data.train, method.domain(16), seed=0)
    kept = np.setdiff1d(np.arange(100), held)

    def best_on(numbers: np.ndarray) -> float:
        soft = alone.predictor(AS_THEY_ARE).solve(data.train.X[numbers]).y.numpy()
        return spen.tune_threshold(data.train.Y[numbers], soft)[0]

    assert best_on(held) != best_on(kept), "or this test could not tell"
    assert fitted.tuned["threshold"] == best_on(held)
    labels = data.train.Y.copy()
    labels[held] = noise_like(labels[held])
    watch.start_over()
    again = method.fit(replace(data.train, Y=labels), seed=0)
    assert watch.weights_for(held) == trial
    assert again.tuned["threshold"] != fitted.tuned["threshold"]


def test_the_records_of_two_runs_differ_in_their_scores_alone(tmp_path: Path) -> None:
    """The whole record of Table 3, but for times and the digests that tell runs apart."""
    noisy = replace(DATA, test=replace(DATA.test, Y=noise_like(DATA.test.Y)))

    def record(data: spen.Dataset, where: str) -> Record:
        return of_table_3("linear")(data, tmp_path / where)

    one, other = record(DATA, "one"), record(noisy, "other")
    changing = {name for name in one if one[name] != other[name]}
    assert changing - {"seconds"} == {"metrics"}
