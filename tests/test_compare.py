"""A classifier beside scikit-learn's: the same rows, the same decodings, nothing in silence."""

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import spen
from spen.cli.compare import compare as compare_command
from spen.errors import InputError, UnknownNameError
from spen.estimators import compare as comparing
from spen.estimators.compare import Compared, Comparison, Outcome, measured, rival


@pytest.fixture(scope="module")
def rows():
    data = spen.exclusive_blocks(n_train=99, n_test=40, n_features=8, n_blocks=2)
    return data.train


def classifier(**settings):
    return spen.SPENClassifier(hidden=(4,), epochs=2, device="cpu", **settings)


@pytest.fixture(scope="module")
def found(rows):
    return classifier().compare(rows.X, rows.Y)


def test_every_rival_is_scored_by_every_decoding(found, rows):
    names = ["SPENClassifier", "logistic", "chain", "extra_trees", "boosting", "mlp"]
    assert [each.name for each in found.entries] == names
    assert (found.training_rows, found.held_out_rows, found.labels) == (74, 25, 8)
    for each in found.entries:
        assert set(each.scores) == {"half", "threshold", "label_thresholds", "expected_f1"}
        assert all(0 <= s.mean <= 1 for by in each.scores.values() for s in by.values())


def test_the_same_seed_gives_the_same_scores_and_leaves_the_classifier_alone(found, rows):
    own = classifier()
    again = own.compare(rows.X, rows.Y, against="logistic")
    assert [each.scores for each in again.entries] == [each.scores for each in found.entries[:2]]
    assert not hasattr(own, "model_")


def test_a_rival_is_trained_on_the_training_part_and_its_decodings_are_tuned_on_others(rows):
    seen = []

    def way(train, others):
        seen.append((train.X, others))
        return np.full((others.shape[0], 8), 0.3)

    train, test = rows.rows(np.arange(80)), rows.rows(np.arange(80, 99))
    measured("any", way, train, test, seed=0)
    (kept, tuning), (all_rows, judged) = seen
    assert len(kept) == 64
    assert not {row.tobytes() for row in kept} & {row.tobytes() for row in tuning}
    assert np.array_equal(all_rows, train.X)
    assert np.array_equal(judged, test.X)


def test_logistic_regressions_are_scikit_learns(rows):
    train, test = rows.rows(np.arange(80)), rows.rows(np.arange(80, 99))
    scaler = StandardScaler().fit(train.X)
    X, others = scaler.transform(train.X), scaler.transform(test.X)
    labels = np.stack(
        [LogisticRegression().fit(X, y).predict(others) for y in np.asarray(train.Y).T], axis=1
    )
    scores = measured("logistic", rival("logistic", 0), train, test, seed=0).scores["half"]
    assert scores["f1"].mean == pytest.approx(spen.example_f1(test.Y, labels))
    assert scores["hamming"].mean == pytest.approx(spen.hamming_error(test.Y, labels))
    right = (labels == test.Y).all(1)
    error = right.std(ddof=1) / np.sqrt(len(right))
    assert (scores["subset"].mean, scores["subset"].error) == pytest.approx((right.mean(), error))


@pytest.mark.parametrize("name", comparing.RIVALS)
def test_labels_that_never_vary_and_sparse_rows(rows, name):
    X, Y = sparse.csr_array(np.maximum(rows.X[:60], 0)), np.zeros((60, 3), np.int8)
    Y[:, 1], Y[:, 2] = 1, np.asarray(rows.Y)[:60, 0]
    soft = rival(name, 0)(spen.Split(X, Y), X[:9])
    assert soft.shape == (9, 3)
    assert (soft[:, 0] == 0).all()
    assert (soft[:, 1] == 1).all()
    assert ((soft[:, 2] > 0) & (soft[:, 2] < 1)).any() or name == "extra_trees"


def outcomes(f1, hamming):
    return {"f1": Outcome(f1, 0.01), "subset": Outcome(0.2, 0.01), "hamming": Outcome(hamming, 0.0)}


def test_the_table_has_the_best_of_each_and_says_the_rules():
    ours = Compared("spen", {"half": outcomes(0.5, 0.1), "threshold": outcomes(0.6, 0.2)}, 1.25)
    other = Compared("mlp", {"half": outcomes(0.55, 0.3)}, 0.5)
    comparison = Comparison((ours, other), {"chain": "it is too long"}, 75, 25, 3)
    assert comparison.best("spen") == ("threshold", Outcome(0.6, 0.01))
    assert comparison.best("spen", "hamming")[0] == "half", "the lower, the better"
    text = str(comparison)
    assert "60.0 ± 1.0* (threshold)" in text
    assert "55.0 ± 1.0 (half)" in text
    assert "chain was left out: it is too long." in text
    assert "F1: mean over rows of 2·hits" in text
    assert "75 rows, judged by 25 others" in text
    with pytest.raises(UnknownNameError, match="Unknown name 'mpl'"):
        comparison.best("mpl")


def test_what_would_take_too_long_is_left_out_and_said(rows, monkeypatch, capsys):
    monkeypatch.setattr(comparing, "MOST_BOOSTING", 1e3)
    monkeypatch.setattr(comparing, "MOST_TREES", 1e2)
    against = ["boosting", "extra_trees", "logistic"]
    found = classifier().compare(rows.X, rows.Y, against, verbose=1)
    assert [each.name for each in found.entries] == ["SPENClassifier", "logistic"]
    assert "74 rows × 8 labels × 8 features" in found.skipped["boosting"]
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in told] == [*against[:2], "SPENClassifier", "logistic"]
    assert "F1" in told[-1]
    assert "extra_trees was left out: 74 rows × 8 labels" in str(found)


def test_what_cannot_be_compared_is_said(rows):
    own, Y = classifier(), np.asarray(rows.Y, float)
    with pytest.raises(InputError, match="needs at least 40; received 20"):
        own.compare(rows.X[:20], Y[:20])
    with pytest.raises(InputError, match="one class for each row"):
        own.compare(rows.X, Y.argmax(1))
    with pytest.raises(InputError, match="missing labels"):
        own.compare(rows.X, np.where(np.arange(99)[:, None] == 3, np.nan, Y))
    with pytest.raises(UnknownNameError, match="Did you mean 'logistic'"):
        own.compare(rows.X, Y, against=["logistics"])
    with pytest.raises(InputError, match="as many rows"):
        own.compare(rows.X[:50], Y)


def test_label_lists_and_settings_by_name(rows):
    names = np.array(list("abcdefgh"))
    Y = [names[row == 1].tolist() for row in np.asarray(rows.Y)]
    own = classifier(label_weight={"a": 2.0})
    assert own.compare(rows.X, Y, ()).labels == 8


def test_the_command(rows, tmp_path, capsys):
    names = [f"x{k}" for k in range(8)] + [f"label {k}" for k in range(8)]
    table = np.hstack([rows.X, np.asarray(rows.Y)])
    lines = [",".join(names), *(",".join(f"{v:.6g}" for v in row) for row in table)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    settings = {"against": "logistic", "labels": "-8", "epochs": 1, "device": "cpu"}
    compare_command(str(path), json=True, **settings)
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told["entries"]] == ["SPENClassifier", "logistic"]
    assert told["entries"][1]["scores"]["half"]["f1"]["mean"] > 0
    compare_command(str(path), **settings)
    told = capsys.readouterr()
    assert "| logistic " in told.out
    assert "Hamming error: share of labels that are wrong" in told.out
    assert "logistic: F1" in told.err
