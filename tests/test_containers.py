"""What comes in and goes out of a classifier: lists, frames, names, devices."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict, cross_val_score

import spen

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3)).astype(np.float32)
Y = (X > 0).astype(int)
NAMES = ["sun", "sea", "snow"]
LISTS = [[NAMES[i] for i in row.nonzero()[0]] for row in Y]
FRAME = pd.DataFrame(Y, columns=NAMES)
ROWS = pd.DataFrame(X, columns=["p", "q", "r"], index=[f"row {i}" for i in range(40)])
CLASSES = np.array(["low", "high"])[Y[:, 0]]
QUICK = {"hidden": (), "epochs": 3, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def named():
    return spen.SPENClassifier(**QUICK).fit(X, FRAME)


@pytest.fixture(scope="module")
def classes():
    return spen.SPENClassifier(**QUICK).fit(X, CLASSES)


def test_names_of_labels_are_python_text_and_numbers(named, classes, tmp_path):
    models = [named, classes, spen.SPENClassifier(**QUICK).fit(X, Y)]
    models += [spen.SPENClassifier(**QUICK).fit(X, Y, label_names=np.array(NAMES))]
    models += [spen.SPENClassifier(**QUICK).fit(X, [[np.str_(w) for w in row] for row in LISTS])]
    for model in models:
        model.save(tmp_path / "m.spen")
        for each in (model, spen.load(tmp_path / "m.spen")):
            found = each.predict_labels(X)
            assert {type(name) for row in found for name in row} <= {str, int}
            json.dumps(found)


@pytest.mark.parametrize(
    "y",
    [
        Y,
        Y.astype(bool),
        Y.tolist(),
        sparse.csr_array(Y),
        sparse.coo_matrix(Y),
        FRAME,
        FRAME[["snow", "sun", "sea"]].astype("boolean"),
        LISTS,
        [set(row) for row in LISTS],
        tuple(map(tuple, LISTS)),
        pd.Series(LISTS),
    ],
)
def test_score_takes_labels_as_fit_does(named, y):
    labels = named.predict(X)
    sizes = np.maximum((labels + Y).sum(1), 1)
    expected = np.where((labels + Y).any(1), 2 * (labels * Y).sum(1) / sizes, 1)
    assert named.score(X, y) == pytest.approx(expected.mean())
    weight = np.arange(40.0)
    assert named.score(X, y, weight) == pytest.approx(np.average(expected, weights=weight))


@pytest.mark.parametrize(
    "y", [CLASSES, CLASSES.tolist(), pd.Series(CLASSES), CLASSES[:, None], [[c] for c in CLASSES]]
)
def test_score_takes_classes_as_fit_does(classes, y):
    assert classes.score(X, y) == pytest.approx((classes.predict(X) == CLASSES).mean())


def test_score_counts_what_was_never_seen_as_missed_and_leaves_out_what_is_missing(classes):
    named = spen.SPENClassifier(metric="subset", **QUICK).fit(X, LISTS)
    truth = named.predict_labels(X)
    assert named.score(X, truth) == 1
    assert named.score(X, [[*truth[0], "fog"], *truth[1:]]) == pytest.approx(39 / 40)
    other = classes.predict(X).astype(object)
    other[:10] = "middling"
    assert classes.score(X, other) == pytest.approx(30 / 40)
    holes = named.predict(X).astype(float)
    holes[0, 1], holes[1], holes[2, 0] = np.nan, np.nan, 1 - holes[2, 0]
    assert named.score(X, holes) == pytest.approx(38 / 39)


def test_frames_in_frames_out(named, tmp_path):
    hard, soft = named.predict(X), named.predict_proba(X)
    assert type(hard) is np.ndarray, "arrays in, arrays out"
    assert type(soft) is np.ndarray
    model = spen.SPENClassifier(**QUICK).fit(ROWS, FRAME)
    assert np.array_equal(model.predict(ROWS), hard)
    assert np.array_equal(model.predict_proba(ROWS)[NAMES], soft)
    assert model.score(ROWS, FRAME) == named.score(X, FRAME)
    assert sparse.issparse(model.predict(ROWS, sparse=True))
    model.save(tmp_path / "m.spen")
    of_series = spen.SPENClassifier(**QUICK).fit(ROWS, pd.Series(LISTS))
    for each in (model, spen.load(tmp_path / "m.spen"), of_series):
        for values in (each.predict(ROWS), each.predict_proba(ROWS)):
            assert isinstance(values, pd.DataFrame)
            assert sorted(values.columns) == sorted(NAMES)
            assert values.index.equals(ROWS.index)
    assert type(spen.SPENClassifier(**QUICK).fit(ROWS, Y).predict(ROWS)) is np.ndarray
    # scikit-learn takes columns of probabilities of two classes by their number.
    of_classes = spen.SPENClassifier(**QUICK).fit(ROWS, pd.Series(CLASSES))
    assert type(of_classes.predict(ROWS)) is np.ndarray
    assert type(of_classes.predict_proba(ROWS)) is np.ndarray


def test_frames_pass_through_scikit_learns_tools():
    model, rows = spen.SPENClassifier(**QUICK), ROWS.reset_index(drop=True)
    for method in ("predict", "predict_proba"):
        assert cross_val_predict(model, rows, FRAME, cv=2, method=method).shape == (40, 3)
    for scoring in (None, "f1_samples", "roc_auc", "average_precision"):
        scores = cross_val_score(model, rows, FRAME, cv=2, scoring=scoring)
        assert np.isfinite(scores).all(), scoring


def test_known_labels_by_name(named):
    matrix = np.full((40, 3), np.nan)
    matrix[:, 2] = 1
    expected = named.predict_proba(X, known=matrix)
    assert np.array_equal(named.predict_proba(X, known={"snow": 1}), expected)
    assert np.array_equal(named.predict_proba(X, known=[{"snow": 1}] * 40), expected)
    with pytest.raises(spen.InputError, match="Did you mean 'snow'"):
        named.predict(X, known={"snwo": 1})


def test_a_device_of_torch_can_be_kept(tmp_path):
    device = torch.device("cpu")
    model = clone(spen.SPENClassifier(**QUICK | {"device": device})).fit(X, Y)
    assert model.get_params()["device"] == device
    model.save(tmp_path / "m.spen")
    loaded = spen.load(tmp_path / "m.spen", device=device)
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    loaded.save(tmp_path / "again.spen")
    assert spen.load(tmp_path / "again.spen").device == "cpu"


def test_precision_is_not_looked_at_beyond_the_labels_there_are():
    scores = spen.metrics.score_all(Y, Y, Y.astype(float))
    assert [name for name in scores if "precision" in name] == ["precision_at_1", "precision_at_3"]
