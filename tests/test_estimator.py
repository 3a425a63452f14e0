"""SPENClassifier: what it accepts, what it returns, and how it stands beside scikit-learn."""

import multiprocessing
import pickle
import threading
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import spen
from spen.estimators.plan import Prediction
from spen.inference.base import Solution, Status

QUICK = {"hidden": (16,), "dropout": 0.1, "epochs": 3, "random_state": 0}
GOOD = QUICK | {"hidden": (64,), "epochs": 40}


@pytest.fixture(scope="module")
def data() -> spen.Dataset:
    # Below a hundred rows one fold is held out, not three, and tests are sooner done.
    return spen.exclusive_blocks(n_train=99, n_test=60, n_features=16)


@pytest.fixture(scope="module")
def fitted(data) -> spen.SPENClassifier:
    return spen.SPENClassifier(**GOOD).fit(data.train.X, data.train.Y)


def test_the_public_face(data, fitted):
    X, Y = data.test.X, data.test.Y
    soft, hard = fitted.predict_proba(X), fitted.predict(X)
    assert soft.shape == hard.shape == Y.shape
    assert ((soft > 0) & (soft < 1)).all()
    assert set(np.unique(hard)) <= {0, 1}
    assert np.array_equal(fitted.decode(soft), hard)
    names = fitted.predict_labels(X)
    assert [sorted(row) for row in names] == [row.nonzero()[0].tolist() for row in hard]
    assert np.array_equal(fitted.predict(X, sparse=True).toarray(), hard)
    assert fitted.energy(X, Y).shape == (60,)
    assert not hasattr(fitted, "partial_fit")
    assert spen.example_f1(Y, hard) > 0.5


def test_it_beats_its_own_local_part_where_labels_depend_on_each_other():
    data = spen.exclusive_blocks(n_train=1500, n_test=1000)
    scores = {}
    for energy in ("label", "local"):
        clf = spen.SPENClassifier(energy=energy, hidden=(), epochs=30, random_state=0)
        clf.fit(data.train.X, data.train.Y)
        scores[energy] = spen.example_f1(data.test.Y, clf.predict(data.test.X))
    assert scores["label"] > scores["local"] + 0.03


@pytest.mark.parametrize(
    "decoding", ["threshold", "label_thresholds", "row_threshold", "expected_f1"]
)
def test_predict_decodes_what_predict_proba_returns(data, decoding):
    clf = spen.SPENClassifier(decoding=decoding, **QUICK).fit(data.train.X, data.train.Y)
    soft, hard = clf.predict_proba(data.test.X), clf.predict(data.test.X)
    assert np.array_equal(clf.decode(soft), hard)
    scores = clf.decision_function(data.test.X)
    if decoding == "expected_f1":
        assert np.array_equal(np.argsort(scores, 1), np.argsort(soft, 1))
    elif decoding == "row_threshold":
        threshold, power = clf.tuned_
        relative = soft / soft.max(1, keepdims=True) ** power
        assert np.array_equal(hard, relative > np.float32(threshold))
        assert np.array_equal(hard, scores > 0)
    else:
        assert np.shape(clf.tuned_) == ((16,) if decoding == "label_thresholds" else ())
        assert np.array_equal(hard, soft > np.float32(clf.tuned_))
        assert np.array_equal(hard, scores > 0)


def test_labels_that_are_told_are_not_scored(data, fitted):
    X, Y = data.test.X, np.asarray(data.test.Y, float)
    name = fitted.label_names_.tolist()[2]
    known = np.full(Y.shape, np.nan)
    known[:, 2] = Y[:, 2]
    truth = np.where(np.isnan(known), Y, np.nan)
    expected = spen.example_f1(truth, fitted.predict(X, known))
    assert fitted.score(X, Y, known=known) == expected
    each = [{name: value} for value in Y[:, 2].tolist()]
    assert fitted.score(X, sparse.csr_matrix(Y), known=each) == expected
    with pytest.raises(spen.InputError, match="none is left to score"):
        fitted.score(X, Y, known=Y)


def test_decoding_takes_a_row_of_probabilities_for_each_example(data, fitted):
    soft = fitted.predict_proba(data.test.X)
    assert np.array_equal(fitted.decode(soft.tolist()), fitted.decode(soft))
    for wrong in (soft[:, :-1], soft[0], np.hstack([soft, soft])):
        with pytest.raises(spen.InputError, match=r"a row of 16 numbers.*received shape"):
            fitted.decode(wrong)


def test_known_labels_are_held_and_improve_the_others():
    """In a block of four, a label that is on turns the others off."""
    data = spen.exclusive_blocks(n_train=1000, n_test=200)
    fitted = spen.SPENClassifier(hidden=(), epochs=60, random_state=0)
    fitted.fit(data.train.X, data.train.Y)
    X, Y = data.test.X, data.test.Y
    known = np.full(Y.shape, np.nan)
    known[:, [0, 4, 8, 12]] = Y[:, [0, 4, 8, 12]]
    soft = fitted.predict_proba(X, known=known)
    held = ~np.isnan(known)
    assert np.array_equal(soft[held], known[held])
    assert np.array_equal(fitted.predict(X, known=known)[held], known[held])
    rest = ~held

    def log_loss(p):
        p = np.clip(p[rest], 1e-6, 1 - 1e-6)
        return -np.where(Y[rest] == 1, np.log(p), np.log(1 - p)).mean()

    assert log_loss(soft) < 0.9 * log_loss(fitted.predict_proba(X))
    nothing = np.full(Y.shape, np.nan)
    assert np.array_equal(fitted.predict_proba(X, known=nothing), fitted.predict_proba(X))


def test_by_itself_it_chooses_dropout_on_held_out_rows_and_calibrates(data):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    Y = (X[:, :3] + 0.3 * rng.standard_normal((90, 3)) > 0).astype(int)
    clf = spen.SPENClassifier(hidden=(16,), epochs=4, random_state=0).fit(X, Y)
    assert len(clf.plan_.choices) == 1
    assert clf.plan_.chosen.dropout in (0.25, 0.5, 0.7)
    own = spen.SPENClassifier(hidden=(16,), epochs=4, dropout=0.3, random_state=0).fit(X, Y)
    assert own.plan_.chosen.dropout == 0.3


def test_labels_known_to_be_off_stay_off(data, fitted):
    X = data.test.X
    assert not fitted.predict(X, known=np.zeros((60, 16))).any()
    assert fitted.predict(X, known=np.ones((60, 16))).all()


def test_rows_without_a_known_label_judge_nothing():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4)), (rng.random((60, 3)) < 0.4).astype(float)
    Y[10:] = np.nan
    clf = spen.SPENClassifier(**QUICK | {"refit": False}).fit(X, Y)
    assert clf.held_out_score_ < 0.9, "labels of pure noise"
    Y[1:] = np.nan
    with pytest.raises(spen.InputError, match="Only 1 row has a known label"):
        spen.SPENClassifier(**QUICK).fit(X, Y)


def test_only_ratios_of_weights_matter(data):
    X, Y = data.train.X, data.train.Y
    weight = np.random.default_rng(0).uniform(1, 2, len(X))
    soft = [
        spen.SPENClassifier(**QUICK).fit(X, Y, sample_weight=weight * scale).predict_proba(X)
        for scale in (1.0, 2.0**-40, 2.0**300)
    ]
    assert np.allclose(soft[0], soft[1], atol=1e-5)
    assert np.allclose(soft[0], soft[2], atol=1e-5)


def test_the_true_labelling_has_a_lower_energy_than_a_wrong_one(data, fitted):
    X, Y = data.test.X, data.test.Y
    wrong = np.roll(Y.reshape(-1, 4, 4), 1, axis=2).reshape(Y.shape)
    assert (fitted.energy(X, Y) < fitted.energy(X, wrong)).mean() > 0.9
    assert np.array_equal(fitted.energy(X, sparse.csr_matrix(Y)), fitted.energy(X, Y))


def test_diagnosis(data, fitted):
    report = fitted.diagnose(data.test.X, data.test.Y)
    assert report.converged == 1.0
    assert report.steps.shape == (60,)
    assert report.histogram()[0].sum() == 60
    assert 0 <= report.search_errors <= 1
    assert "converged: 100.0 % of 60 rows" in str(report)


def test_a_diagnosis_of_few_different_steps_is_short():
    same = spen.Diagnosis(1.0, np.full(9, 6), 0.0, "9 rows converged.")
    assert str(same).splitlines()[1:3] == [
        "steps: 6 for each row",
        "search errors: 0.0 % (the truth has a lower energy)",
    ]
    few = str(spen.Diagnosis(1.0, np.array([6, 6, 7, 8]), 0.0, "")).splitlines()
    assert [line.split()[:4] for line in few[2:5]] == [
        ["6", "to", "6", "2"], ["7", "to", "7", "1"], ["8", "to", "8", "1"],
    ]  # fmt: skip


class Centre(spen.Inference):
    """A solver that does not search: every label is at a half."""

    def solve(self, problem, domain, start=None, known=None):
        y = domain.uniform(problem.rows_like)
        ended = torch.zeros(len(y), dtype=torch.int64)
        return Solution(y, problem.value(y), ended, ended + Status.COMPLETED)


def test_a_diagnosis_in_batches_compares_each_row_with_its_own_truth(data, fitted, monkeypatch):
    """A row is a search error where its truth has less energy than what the solver returns."""
    X, truth = data.test.X, data.test.Y.astype(np.float32)
    truth[8:] = 1 - truth[8:]
    prediction = Prediction(spen.Hinge(), Centre())
    predictor = replace(fitted.predictor_, prediction=prediction)
    centre = fitted.model_.energy_of(predictor.scale(X), np.full(truth.shape, 0.5))
    errors = (fitted.model_.energy_of(predictor.scale(X), truth) < centre).float()
    assert errors[:8].mean() != errors.mean()
    # So few entries at once make batches of eight rows.
    monkeypatch.setattr("spen.batch.rows.LARGEST_DENSE_BATCH", 1)
    assert predictor.diagnose(X, truth).search_errors == pytest.approx(errors.mean().item())


def test_sparse_inputs_give_the_same_model_as_the_same_numbers_dense():
    rng = np.random.default_rng(0)
    X = sparse.random(120, 30, 0.2, format="csr", random_state=rng)
    Y = np.asarray((X[:, :4].toarray() > 0) | (rng.random((120, 4)) < 0.1), dtype=int)
    a = spen.SPENClassifier(**QUICK).fit(X, Y)
    b = spen.SPENClassifier(**QUICK).fit(X.tocsc(), sparse.csr_matrix(Y))
    assert np.array_equal(a.predict_proba(X), b.predict_proba(X))
    assert np.allclose(a.predict_proba(X.toarray()), a.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_dimension_means_classes(n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    names = np.array(["ant", "bee", "cat"])[:n_classes]
    y = names[X[:, :n_classes].argmax(1)]
    clf = spen.SPENClassifier(**GOOD).fit(X, y)
    soft = clf.predict_proba(X)
    assert clf.predict(X).shape == (200,)
    assert clf.classes_.tolist() == names.tolist()
    assert soft.shape == (200, n_classes)
    assert np.allclose(soft.sum(1), 1, atol=1e-5)
    assert ((soft > 0) & (soft < 1)).all()
    assert clf.score(X, y) > 0.9
    scores = clf.decision_function(X)
    best = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(1)
    assert np.array_equal(names[best], clf.predict(X))
    assert clf.predict_labels(X[:1]) == [[clf.predict(X[:1])[0]]]
    assert (
        clf.energy(X, y) <= clf.energy(X, np.roll(names, 1)[np.searchsorted(names, y)])
    ).mean() > 0.9
    with pytest.raises(spen.InputError, match="sets of labels"):
        clf.predict(X, sparse=True)


def test_odd_label_sets_are_all_right():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    one = (X[:, :1] > 0).astype(int)
    assert spen.SPENClassifier(**QUICK).fit(X, one).predict(X).shape == (80, 1)
    constant = np.hstack([one, np.ones((80, 1)), np.zeros((80, 1))]).astype(int)
    labels = spen.SPENClassifier(**GOOD).fit(X, constant).predict(X)
    assert labels[:, 1].all()
    assert not labels[:, 2].any()
    empty = np.zeros((80, 3), dtype=int)
    empty[::8, 1] = 1
    assert spen.SPENClassifier(**QUICK).fit(X, empty).predict(X).shape == (80, 3)


def test_many_labels_in_a_small_integer_type_are_not_mixed_up():
    """int8 ends at 127; each of the 200 labels here is the sign of a feature of its own."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((99, 200)).astype(np.float32)
    Y = (X > 0).astype(np.int8)
    clf = spen.SPENClassifier(**GOOD | {"hidden": ()}).fit(X, Y)
    assert clf.predict(X).dtype == np.int8
    likeness = np.corrcoef(clf.predict_proba(X).T, Y.T)[:200, 200:]
    assert (likeness.argmax(1) == np.arange(200)).all()


def test_missing_labels_do_not_count():
    """What stands in a hidden entry cannot matter: it is not even there. The rest is learned."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((99, 4))
    Y = (X[:, :3] > 0).astype(float)
    hidden = Y.copy()
    hidden[rng.random(Y.shape) < 0.3] = np.nan
    clf = spen.SPENClassifier(**GOOD).fit(X, hidden)
    assert spen.hamming_error(Y, clf.predict(X)) < 0.15
    # Were they taken for zeros, a label hidden wherever it is on would never be predicted.
    only_zeros = Y.copy()
    only_zeros[:70, 0] = np.where(Y[:70, 0] == 1, np.nan, 0)
    as_zeros = np.nan_to_num(only_zeros)
    seen = spen.SPENClassifier(**GOOD).fit(X, only_zeros).predict_proba(X)[:, 0].mean()
    taken = spen.SPENClassifier(**GOOD).fit(X, as_zeros).predict_proba(X)[:, 0].mean()
    assert seen > taken + 0.1


@pytest.mark.filterwarnings("error", "ignore::spen.errors.UndertrainedWarning")
def test_a_label_that_is_never_known_is_no_trouble():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    Y = (X > 0).astype(float)
    Y[:, 1] = np.nan
    Y[:4] = np.nan
    soft = spen.SPENClassifier(**QUICK).fit(X, Y).predict_proba(X)
    assert ((soft > 0) & (soft < 1)).all()


def test_it_can_be_fitted_where_gradients_are_off(data):
    expected = spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            clf = spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y)
            soft = clf.predict_proba(data.test.X)
        assert np.array_equal(soft, expected.predict_proba(data.test.X))


def test_data_frames_name_features_and_labels(data):
    X = pd.DataFrame(data.train.X, columns=[f"f{i}" for i in range(16)])
    Y = pd.DataFrame(data.train.Y, columns=data.label_names)
    clf = spen.SPENClassifier(**QUICK).fit(X, Y)
    assert clf.feature_names_in_.tolist() == list(X.columns)
    predicted = clf.predict_labels(X[:20])
    assert {name for row in predicted for name in row} <= set(data.label_names)
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(X.rename(columns={"f0": "g0"}))
    known = pd.DataFrame({"block0.1": np.ones(len(X))})
    assert (clf.predict_proba(X, known=known)["block0.1"] == 1).all()
    lists = [list(Y.columns[row == 1]) for row in Y.to_numpy()]
    assert clone(clf).fit(X, lists).label_names_.tolist() == sorted(data.label_names)


def test_weights_of_rows_and_labels_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    Y = (X[:, :2] > 0).astype(int)
    flipped = np.vstack([Y, 1 - Y])
    twice = np.vstack([X, X])
    weight = np.r_[np.ones(90), np.zeros(90)]
    clf = spen.SPENClassifier(**GOOD).fit(twice, flipped, sample_weight=weight)
    assert spen.hamming_error(Y, clf.predict(X)) < 0.1
    unweighted = spen.SPENClassifier(**GOOD)
    ignored = clone(unweighted).set_params(label_weight=[1, 0]).fit(X, Y)
    assert ((ignored.predict_proba(X)[:, 0] > 0.5) == Y[:, 0]).mean() > 0.9
    p = ignored.predict_proba(X)[:, 1]
    assert (
        np.corrcoef(p, Y[:, 1])[0, 1]
        < np.corrcoef(unweighted.fit(X, Y).predict_proba(X)[:, 1], Y[:, 1])[0, 1]
    )
    with pytest.raises(ValueError, match="zero"):
        spen.SPENClassifier().fit(X, Y, sample_weight=np.zeros(90))


def test_one_seed_gives_one_result_and_leaves_the_global_generators_alone(data):
    np_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    a = spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y).predict_proba(data.test.X)
    spen.SPENClassifier(**QUICK | {"random_state": None}).fit(data.train.X, data.train.Y)
    b = spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y).predict_proba(data.test.X)
    other = spen.SPENClassifier(**QUICK | {"random_state": 1}).fit(data.train.X, data.train.Y)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, other.predict_proba(data.test.X))
    assert np.array_equal(np.random.get_state()[1], np_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_a_failed_fit_leaves_the_classifier_as_it_was(data, fitted):
    before = fitted.predict_proba(data.test.X)
    copy = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(spen.InputError):
        copy.fit(data.train.X[:, :5], data.train.Y * 2)
    with pytest.raises(ValueError, match="NaN"):
        copy.fit(data.train.X * np.nan, data.train.Y)
    assert np.array_equal(copy.predict_proba(data.test.X), before)
    assert copy.n_features_in_ == 16


def test_predictions_do_not_depend_on_their_neighbours(data, fitted):
    whole = fitted.predict_proba(data.test.X)
    for rows in ([3], [5, 3], list(range(17))):
        assert np.allclose(fitted.predict_proba(data.test.X[rows]), whole[rows], atol=1e-6)


def test_refit_uses_all_rows_and_can_be_left_out(data):
    kept = spen.SPENClassifier(refit=False, **QUICK).fit(data.train.X, data.train.Y)
    again = spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y)
    assert kept.refit_history_ is None
    assert again.refit_history_ is not None
    assert not np.array_equal(kept.predict_proba(data.test.X), again.predict_proba(data.test.X))


def test_parts_are_swapped_in_one_line(data):
    X, Y = data.train.X, data.train.Y
    descriptions = [
        {"energy": spen.LabelEnergy.unsized(measurements=3, nonlinearity="hardtanh")},
        {"energy": spen.LocalEnergy.unsized() + spen.PairwiseEnergy.unsized(rank=2)},
        {"energy": "conditional"},
        {"energy": "pairwise"},
        {"energy": "local"},
        {"objective": "hinge"},
        {"objective": spen.Hinge("squared", entropy=1.0)},
        {"inference": spen.Descent(spen.MirrorDescent(0.5, 0.0), spen.Stopping(3))},
        {"hidden": (8, 4), "dropout": 0.1, "weight_decay": 0.0, "batch_size": 50},
    ]
    for description in descriptions:
        clf = spen.SPENClassifier(**QUICK | description).fit(X, Y)
        soft = clf.predict_proba(data.test.X)
        assert ((soft > 0) & (soft < 1)).all()
        assert clone(clf).get_params() == clf.get_params()
        repr(clf)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"energy": "labels"}, "Did you mean 'label'"),
        ({"energy": 3}, "energy must be a name or a description"),
        ({"energy": spen.LabelEnergy(4, 2)}, r"such as LabelEnergy\.unsized\(\.\.\.\)"),
        ({"objective": "hing"}, "Did you mean 'hinge'"),
        ({"inference": "fast"}, "inference must be 'auto' or an Inference"),
        ({"hidden": (0,)}, "hidden must be a whole number"),
        ({"hidden": 5}, "tuple of widths"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"weight_decay": -1}, "weight_decay must be a number zero or more"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"decoding": "expected-f1"}, "Did you mean 'expected_f1'"),
        ({"held_out": 0}, "held_out must be"),
        ({"held_out": 1}, "held_out must be"),
        ({"device": "tpu9"}, "device 'tpu9' cannot be used"),
        ({"random_state": "x"}, "cannot be used to seed"),
    ],
)
def test_bad_settings_are_named(data, setting, message):
    with pytest.raises(ValueError, match=message):
        spen.SPENClassifier(**setting).fit(data.train.X, data.train.Y)


def test_a_setting_that_an_energy_does_not_have_is_named():
    with pytest.raises(spen.InputError, match="Did you mean 'measurements'"):
        spen.LabelEnergy.unsized(measurement=3)
    with pytest.raises(spen.InputError, match="no setting 'n_labels'"):
        spen.LabelEnergy.unsized(n_labels=3)


def test_bad_inputs_of_predictions_are_named(data, fitted):
    X = data.test.X
    with pytest.raises(ValueError, match="expecting 16 features"):
        fitted.predict(X[:, :3])
    with pytest.raises(spen.InputError, match=r"known must have shape \(60, 16\)"):
        fitted.predict(X, known=np.zeros((60, 3)))
    with pytest.raises(NotFittedError):
        spen.SPENClassifier().predict(X)
    with pytest.raises(spen.InputError, match="many rows"):
        spen.SPENClassifier().fit(X, data.train.Y)


def test_inference_that_does_not_converge_warns_once(data):
    slow = spen.Descent(spen.MirrorDescent(1e-3, 0.0), spen.Stopping(2, 0.0, 1e-9))
    clf = spen.SPENClassifier(objective="hinge", inference=slow, **QUICK)
    clf.fit(data.train.X, data.train.Y)
    with pytest.warns(ConvergenceWarning, match="did not converge for 60 of 60 rows") as caught:
        clf.predict(data.test.X)
    assert len(caught) == 1


def test_it_is_silent_unless_asked(data, capfd):
    spen.SPENClassifier(**QUICK).fit(data.train.X, data.train.Y).predict(data.test.X)
    assert capfd.readouterr() == ("", "")
    spen.SPENClassifier(**QUICK, verbose=1).fit(data.train.X, data.train.Y)
    assert "fit" in capfd.readouterr().err


def test_pipelines_searches_and_workers():
    X, Y = make_multilabel_classification(60, 8, n_classes=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), spen.SPENClassifier(**QUICK))
    grid = {"spenclassifier__dropout": [0.0, 0.5]}
    search = GridSearchCV(pipeline, grid, n_jobs=2, cv=2).fit(X, Y)
    assert search.predict(X).shape == (60, 3)
    scores = cross_val_score(spen.SPENClassifier(**QUICK), X, Y, cv=2, scoring="f1_samples")
    assert ((scores >= 0) & (scores <= 1)).all()
    for backend in ("multiprocessing", "threading"):
        with joblib.parallel_backend(backend):
            again = GridSearchCV(pipeline, grid, n_jobs=2, cv=2).fit(X, Y)
        assert np.allclose(
            again.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"]
        )


def _predict_in_child(clf, X, queue):
    queue.put(clf.predict_proba(X))


def test_pickles_threads_and_forks_predict_the_same(data, fitted):
    X = data.test.X
    torch.set_num_threads(2)  # a parallel call before the fork is what used to hang
    try:
        expected = fitted.predict_proba(X)
        torch.mm(torch.ones(600, 600), torch.ones(600, 600))
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_predict_in_child, args=(fitted, X, queue))
        child.start()
        answer = queue.get()
        child.join()
    finally:
        torch.set_num_threads(1)
    assert np.allclose(answer, expected, atol=1e-6)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), expected)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(fitted.predict_proba(X))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(np.array_equal(each, expected) for each in answers)


def test_structure_names_what_each_measurement_looks_at(data, tmp_path):
    Y = pd.DataFrame(data.train.Y, columns=data.label_names)
    clf = spen.SPENClassifier(energy=spen.LabelEnergy.unsized(measurements=5), **QUICK)
    structure = clf.fit(data.train.X, Y).structure()
    assert structure.measurements.shape == (5, 16)
    strongest = structure.strongest(3)
    assert [len(row) for row in strongest] == [3] * 5
    for row in strongest:
        weights = [abs(weight) for _, weight in row]
        assert weights == sorted(weights, reverse=True)
    first = np.abs(structure.measurements).max(1)
    assert {round(abs(row[0][1]), 5) for row in strongest} == {round(float(v), 5) for v in first}
    assert sorted(structure.order()) == list(range(16))
    assert np.allclose(np.diag(structure.similarity()), 1, atol=1e-5)
    table = structure.interactions()
    assert np.allclose(table, table.T, atol=1e-5)
    one, other, value = structure.pairs(1)[0]
    place = {name: i for i, name in enumerate(data.label_names)}
    assert abs(value) == pytest.approx(np.abs(table).max(), rel=1e-5)
    zeros = np.zeros((1, 16))
    both, first, second = zeros.copy(), zeros.copy(), zeros.copy()
    both[0, [place[one], place[other]]] = first[0, place[one]] = second[0, place[other]] = 1
    x = data.test.X[:1]  # the local energies of the four labellings cancel
    expected = (
        clf.energy(x, both) - clf.energy(x, first) - clf.energy(x, second) + clf.energy(x, zeros)
    )
    assert value == pytest.approx(expected[0], abs=1e-4)
    figure = structure.plot(tmp_path / "structure.png")
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert sorted(labels) == sorted(data.label_names)
    assert (tmp_path / "structure.png").stat().st_size > 1000
    assert str(structure).startswith("measurement 0: block")
    local = spen.SPENClassifier(energy="local", **QUICK).fit(data.train.X, Y)
    with pytest.raises(spen.InputError, match="no measurement matrix"):
        local.structure()


def test_own_stages_decide_training_and_prediction():
    data = spen.exclusive_blocks(n_train=90, n_test=20, seed=0)
    hinge = spen.Hinge(margin=0.5)
    solver = spen.Descent(stopping=spen.Stopping(max_steps=7))
    stages = [
        spen.Stage("local", spen.CrossEntropy(), parts=("local",), epochs=2, keep="best"),
        spen.Stage("all", hinge, solver, parts=("local", "global"), epochs=1),
    ]
    clf = spen.SPENClassifier(hidden=(), stages=stages, random_state=0)
    clf.fit(data.train.X, data.train.Y)
    assert clf.plan_.prediction.objective == hinge
    assert clf.plan_.prediction.inference == solver
    # Held-out rows calibrate, so they must not choose the epoch too.
    assert [stage.keep for stage in clf.plan_.stages] == ["last", "last"]
    assert [epoch.stage for epoch in clf.history_.epochs] == ["local", "local", "all"]
    patient = spen.Stage("local", spen.CrossEntropy(), parts=("local",), patience=2)
    with pytest.raises(spen.InputError, match="cannot have patience"):
        spen.SPENClassifier(hidden=(), stages=[patient]).fit(data.train.X, data.train.Y)
    with pytest.raises(spen.InputError, match="what epochs would say"):
        spen.SPENClassifier(stages=stages, epochs=3).fit(data.train.X, data.train.Y)


def test_settings_that_nothing_would_look_at_are_refused():
    data = spen.exclusive_blocks(n_train=60, n_test=20, seed=0)
    X, Y = data.train.X, data.train.Y
    with pytest.raises(spen.InputError, match="takes it as its own setting"):
        spen.SPENClassifier(missing=0.2, objective=spen.Hinge()).fit(X, Y)
    with pytest.raises(spen.InputError, match="y holds classes"):
        spen.baselines.PRLRClassifier().fit(X, Y[:, :4].argmax(1))
    chosen = spen.SPENClassifier(input_dropout=0.3, hidden=(4,), epochs=1).fit(X, Y).plan_.chosen
    assert chosen.input_dropout == 0.3
