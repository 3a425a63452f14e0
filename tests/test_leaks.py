"""What is held out teaches nothing: labels that are replaced by noise change no weight."""

import numpy as np
import pytest
from watched import Watch, noise_like

import spen
from spen import baselines
from spen.files import digest

DATA = spen.exclusive_blocks(n_train=120, n_test=40, n_features=12, n_blocks=2, seed=2)
SMALL = {"hidden": (6,), "epochs": 2, "random_state": 0}
KINDS = {
    "SPEN": spen.SPENClassifier(epochs=2, random_state=0),
    "SPEN, cross-fitted": spen.SPENClassifier(cross_fit=True, **SMALL),
    "SPEN, together": spen.SPENClassifier(objective="unrolled", cross_fit=False, **SMALL),
    "SPEN, hinge": spen.SPENClassifier(objective="hinge", **SMALL),
    "SPEN, averaged": spen.SPENClassifier(members=2, linear_member=True, cross_fit=True, **SMALL),
    "MLP": baselines.MLPClassifier(**SMALL),
    "told": baselines.KnownLabelsClassifier(**SMALL),
    "DMF": baselines.DMFClassifier(pairwise_epochs=2, **SMALL),
    "PRLR": baselines.PRLRClassifier(**SMALL),
    "BR": baselines.BRClassifier(random_state=0),
    "LR": baselines.LRClassifier(random_state=0),
}


def learned_by(made):
    return digest(made.model_.state_dict().values())


def chosen_by(made):
    calibration = made.predictor_.calibration
    return calibration.scale, calibration.shift.tolist(), str(made.predictor_.tuned)


everyone = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_every_classifier_is_among_these():
    assert {type(each) for each in KINDS.values()} == {spen.SPENClassifier, *baselines.ALL}


@everyone
def test_held_out_labels_change_nothing_that_was_trained_without_them(kind, monkeypatch):
    watch, made = Watch(monkeypatch), KINDS[kind]
    made.fit(DATA.train.X, DATA.train.Y)
    held, first = watch.held, watch.weights_for(watch.held)
    learned, chosen = learned_by(made), chosen_by(made)
    watch.start_over()
    labels = DATA.train.Y.copy()
    labels[held] = noise_like(labels[held])
    made.fit(DATA.train.X, labels)
    assert np.array_equal(watch.held, held)
    # After a choice the defaults may go on with another one.
    count = 1 if kind == "SPEN" else len(first)
    assert count
    assert watch.weights_for(held)[:count] == first[:count]
    assert learned_by(made) != learned, "in the end they are trained on"
    assert chosen_by(made) != chosen


@everyone
def test_rows_that_judge_are_told_apart_from_rows_that_are_trained_on(kind, monkeypatch):
    """Labels of the other rows do change what predicts the held-out ones."""
    watch, made = Watch(monkeypatch), KINDS[kind]
    made.fit(DATA.train.X, DATA.train.Y)
    held, first = watch.held, watch.weights_for(watch.held)
    watch.start_over()
    labels = noise_like(DATA.train.Y)
    labels[held] = DATA.train.Y[held]
    made.fit(DATA.train.X, labels)
    assert watch.weights_for(held)[0] != first[0]


@everyone
def test_a_model_is_the_same_after_it_was_tested(kind, tmp_path):
    """Whatever the test labels are."""
    made, test = KINDS[kind], DATA.test
    made.fit(DATA.train.X, DATA.train.Y)
    made.save(tmp_path / "before.spen")
    for labels in (test.Y, noise_like(test.Y)):
        made.score(test.X, labels)
        made.diagnose(test.X, labels)
        made.energy(test.X, labels)
        made.predict(test.X, known=np.where(test.X[:, :8] > 0, labels, np.nan))
        made.save(tmp_path / "after.spen")
        before, after = ((tmp_path / f"{name}.spen").read_bytes() for name in ("before", "after"))
        assert before == after
