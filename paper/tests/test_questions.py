"""The study of questions, on a generated data set; its parts against what they are to be."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tiny_settings as tiny
from scipy import sparse

import spen
from spen_paper import plots
from spen_paper.cli import questions as command
from spen_paper.studies import questions as study
from spen_paper.studies.questions import ASKED, STRATEGIES

DATA = replace(
    tiny.DENSE,
    train=replace(tiny.DENSE.train, Y=sparse.csr_matrix(tiny.DENSE.train.Y)),
    test=replace(tiny.DENSE.test, Y=sparse.csr_matrix(tiny.DENSE.test.Y)),
)


quick_one = partial(spen.SPENClassifier, hidden=(), epochs=2)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(study, "load", lambda name: DATA)
    monkeypatch.setattr(study.spen, "SPENClassifier", quick_one)


def test_it_measures_draws_and_resumes(quick, tmp_path, monkeypatch, capsys):
    options = {"dataset": "delicious", "seeds": 2, "rows": 12, "device": "cpu", "out": tmp_path}
    command(**options)
    shown = capsys.readouterr().out
    for words in ("log loss, after", "F1, after", "ours − random", "after 5 of ours − after 10 at"):
        assert words in shown
    assert "90 training rows, 12 test rows; 2 seeds" in shown
    for suffix in ("png", "svg"):
        assert (tmp_path / f"questions-delicious.{suffix}").stat().st_size > 5000
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * len(STRATEGIES) * len(ASKED)
    assert {line["experiment"] for line in lines} == {"questions"}
    assert {line["method"] for line in lines} == set(STRATEGIES)
    for line in lines:
        assert len(line["rows"]["log_loss"]) == 12
        for name in ("log_loss", "f1"):
            mean = np.mean(line["rows"][name])
            assert line["metrics"][name] == pytest.approx(mean, rel=1e-3)
    at = {(r["seed"], r["method"], r["settings"]["asked"]): r["rows"] for r in lines}
    for seed in (0, 1):
        assert at[seed, "random", 0] == at[seed, "uncertain", 0] == at[seed, "expected-gain", 0]
        # Of 8 labels that may be asked, none is left after 8 questions.
        ends = [at[seed, name, 10]["log_loss"] for name in STRATEGIES]
        assert np.ptp(ends, axis=0).max() < 1e-5
    assert at[0, "random", 0] != at[1, "random", 0]

    def fitted_again(*_):
        raise AssertionError("a run that is there is not made again")

    monkeypatch.setattr(study, "_measure", fitted_again)
    files = [tmp_path / f"questions-delicious.{suffix}" for suffix in ("png", "svg")]
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: files)
    command(**options)
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_asks_only_what_it_may_and_is_told_the_truth(strategy):
    clf = quick_one(random_state=0).fit(DATA.train.X, DATA.train.Y)
    X, truth = DATA.test.X[:9], DATA.test.Y[:9].toarray()
    may = study.may_be_asked(truth.shape, seed=0)
    may[0] = False
    choose = study.chooser(strategy, clf, X, truth.shape[1], seed=0)
    before = np.zeros(truth.shape, bool)
    for count, known in enumerate(study.ask(truth, choose, may)):
        told = ~np.isnan(known)
        assert (told <= may).all()
        assert (before <= told).all()
        assert (told.sum(1) == np.minimum(count, may.sum(1))).all()
        assert np.array_equal(known[told], truth[told])
        fresh = told & ~before
        if count and strategy != "random":
            earlier = np.where(before, truth, np.nan)
            p = clf.predict_proba(X, earlier)
            free = may & ~before
            for row in np.flatnonzero(fresh.any(1)):
                [label] = np.flatnonzero(fresh[row])
                if strategy == "uncertain":
                    best = np.abs(p[row] - 0.5)[free[row]].min()
                    assert abs(p[row, label] - 0.5) == pytest.approx(best, abs=1e-6)
                else:
                    one = slice(row, row + 1)
                    [every] = clf.next_question(X[one], earlier[one], k=16, among=free[one])
                    gains = {q.index: q.gain for q in every}
                    assert gains[label] == pytest.approx(max(gains.values()), abs=1e-5)
        before = told
    assert count == ASKED[-1]


def test_scores_are_of_the_labels_that_are_never_asked():
    clf = quick_one(random_state=0).fit(DATA.train.X, DATA.train.Y)
    X, truth = DATA.test.X[:5], DATA.test.Y[:5].toarray()
    may = study.may_be_asked(truth.shape, seed=3)
    known = np.where(may, truth, np.nan)
    found = study.scores_of(clf, X, truth, known, ~may)
    p = clf.predict_proba(X, known)
    labels = clf.decode(np.where(may, 0.0, p))
    for row in range(5):
        here = np.flatnonzero(~may[row])
        loss = np.mean([-np.log(p[row, i] if truth[row, i] else 1 - p[row, i]) for i in here])
        assert found["log_loss"][row] == pytest.approx(loss, rel=1e-5)
        score = spen.example_f1(truth[row : row + 1, here], labels[row : row + 1, here])
        assert found["f1"][row] == pytest.approx(100 * score)


def test_the_sample_of_rows_is_fixed_and_halves_differ_by_seed():
    some = study.some_rows(DATA, 7).test
    again = study.some_rows(DATA, 7).test
    assert np.array_equal(some.X, again.X)
    assert len(study.some_rows(DATA, 10**6).test) == len(DATA.test)
    halves = [study.may_be_asked((50, 9), seed) for seed in (0, 0, 1)]
    assert np.array_equal(halves[0], halves[1])
    assert (halves[0].sum(1) == 4).all()
    assert not np.array_equal(halves[0], halves[2])


def test_bad_options_are_refused_before_any_work(quick, tmp_path):
    for wrong, words in (({"seeds": 0}, "seeds must be 1"), ({"rows": 0}, "rows must be a whole")):
        with pytest.raises(spen.InputError, match=words):
            command(**({"out": tmp_path} | wrong))
