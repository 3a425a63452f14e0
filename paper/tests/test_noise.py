"""The study of wrong labels: what is planted, how rankings are judged, and the whole of it."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import spen
from spen_paper.studies import noise

DATA = spen.exclusive_blocks(n_train=80, n_test=1)
CLASSIFIER = spen.SPENClassifier


def confidence(labels, pred_probs, *, method, adjust_pred_probs):
    """cleanlab's rule: the probability of the value that is given."""
    assert method == "self_confidence"
    given = np.zeros(pred_probs.shape, bool)
    for row, numbers in enumerate(labels):
        given[row, numbers] = True
    return np.where(given, pred_probs, 1 - pred_probs)


def test_as_many_labels_are_removed_as_are_added():
    truth = sparse.random(50, 20, 0.2, "csr", random_state=0)
    truth.data[:] = 1
    planted = noise.plant(truth, 0.1, seed=3)
    given, before = planted.given.toarray(), truth.toarray()
    assert np.array_equal(given != before, planted.wrong)
    assert planted.wrong[before == 1].sum() == planted.wrong[before == 0].sum() == 20
    assert planted.count == 40
    other = noise.plant(truth, 0.1, seed=4)
    assert (other.wrong != planted.wrong).any()
    with pytest.raises(spen.InputError, match="Take more rows"):
        noise.plant(truth[:1] * 0, 0.1, seed=0)


def test_precision_counts_both_kinds_by_hand():
    given = sparse.csr_matrix([[1, 0], [0, 1]])
    planted = noise.Planted(given, np.array([[True, True], [False, False]]))
    row, label, values = np.array([0, 1]), np.array([0, 0]), np.array([1, 0])
    issues = spen.LabelIssues(row, label, values, np.array([0.9, 0.8]), np.arange(2))
    assert noise.ranked(planted, issues) == {"precision": 50, "removed": 0, "added": 100}


def test_cleanlab_ranks_what_it_believes_least(monkeypatch):
    monkeypatch.setattr(noise, "quality_scores", lambda: confidence)
    assert_ranked_by_confidence()


def test_cleanlab_itself_ranks_so_too():
    pytest.importorskip("cleanlab.multilabel_classification")
    assert_ranked_by_confidence()


def assert_ranked_by_confidence():
    given = sparse.csr_matrix([[1, 0], [0, 1], [1, 1]])
    wrong = np.zeros((3, 2), bool)
    wrong[0] = True
    soft = np.array([[0.1, 0.7], [0.2, 0.6], [0.9, 0.55]])
    issues = noise.cleanlabs(noise.Planted(given, wrong), soft, adjusted=False)
    assert (issues.row.tolist(), issues.label.tolist()) == ([0, 0], [0, 1])
    assert issues.given.tolist() == [1, 0]
    assert issues.probability == pytest.approx([0.9, 0.7])


def test_without_cleanlab_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab.multilabel_classification.rank", None)
    monkeypatch.setattr(noise, "load", lambda name: pytest.fail("work before the check"))
    with pytest.raises(spen.MissingPackageError, match=r'pip install "spen-paper\[noise\]"'):
        run(tmp_path)


def run(folder, seeds=1, rows=None):
    noise.noise(dataset="yeast", seeds=seeds, folds=2, rows=rows, device="cpu", out=folder)


def test_the_study_finds_errors_resumes_and_says_how(tmp_path, monkeypatch, capsys):
    train = spen.Split(DATA.train.X, sparse.csr_matrix(DATA.train.Y))
    monkeypatch.setattr(noise, "load", lambda name: SimpleNamespace(train=train))
    monkeypatch.setattr(noise, "quality_scores", lambda: confidence)
    fits = []

    def tiny(**settings):
        fits.append(settings["energy"])
        return CLASSIFIER(hidden=(), epochs=20, folds=1, **settings)

    monkeypatch.setattr(noise.spen, "SPENClassifier", tiny)
    run(tmp_path, seeds=2)
    shown = capsys.readouterr().out
    for words in ("cleanlab, label-wise scores", "label_issues − it", "80 training rows"):
        assert words in shown
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * len(noise.TITLES)
    assert {line["method"] for line in lines} == set(noise.TITLES)
    for line in lines:
        assert line["experiment"] == "noise"
        assert line["metrics"]["precision"] == pytest.approx(
            (line["metrics"]["removed"] + line["metrics"]["added"]) / 2, abs=1e-3
        )
    ours = [line["metrics"]["precision"] for line in lines if line["method"] == "spen"]
    assert np.mean(ours) > 3 * lines[0]["chance"]

    monkeypatch.setattr(noise, "_rankings", lambda *_: pytest.fail("it is there already"))
    run(tmp_path, seeds=2)
    assert capsys.readouterr().out == shown


def test_a_sample_of_rows_is_another_run(tmp_path, monkeypatch):
    train = spen.Split(DATA.train.X, sparse.csr_matrix(DATA.train.Y))
    monkeypatch.setattr(noise, "load", lambda name: SimpleNamespace(train=train))
    monkeypatch.setattr(noise, "quality_scores", lambda: confidence)
    issue = spen.LabelIssues(*(np.zeros(1, int) for _ in range(4)), np.arange(16))
    sizes = []

    def rankings(planted, X, *_):
        sizes.append((X.shape[0], planted.wrong.shape[0]))
        return dict.fromkeys(noise.TITLES, issue)

    monkeypatch.setattr(noise, "_rankings", rankings)
    for rows in (40, 40, None):
        run(tmp_path, rows=rows)
    assert sizes == [(40, 40), (80, 80)]
    with pytest.raises(spen.InputError, match="rows"):
        run(tmp_path, rows=3)
