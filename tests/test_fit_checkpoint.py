"""A fit with a checkpoint goes on where it was stopped, to the same bits."""

import numpy as np
import pytest
import torch

import spen
from spen.training.checkpoint import Run

DATA = spen.exclusive_blocks(n_train=90, n_test=20)
# Trials of two dropouts, three folds, two members, a logistic regression and a cross-fitted energy.
MANY_RUNS = {"hidden": (6,), "dropout": "auto", "epochs": 3, "members": 2, "linear_member": True}
MANY_RUNS |= {"cross_fit": True, "folds": 3, "random_state": 0, "device": "cpu"}


class StoppedError(Exception):
    pass


def fit(folder=None, X=DATA.train.X, resume=True, **settings):
    clf = spen.SPENClassifier(**MANY_RUNS | settings)
    return clf.fit(X, DATA.train.Y, checkpoint=folder, resume=resume and folder is not None)


def bits(clf):
    """Return all that decides a prediction, and what was seen on the way to it."""
    weights = {name: t.numpy().tobytes() for name, t in clf.model_.state_dict().items()}
    calibration = clf.predictor_.calibration
    weights["calibration"] = (calibration.scale, calibration.shift.tobytes())
    epochs = [(e.stage, e.epoch, e.loss, e.score) for e in clf.history_.epochs]
    return weights, str(clf.tuned_), clf.held_out_score_, epochs


@pytest.fixture(scope="module")
def whole():
    return bits(fit())


@pytest.mark.parametrize("stops", [[1], [4, 3], [30, 11, 19], [2] * 12])
def test_a_fit_that_is_stopped_again_and_again_ends_with_the_same_bits(
    stops, whole, tmp_path, monkeypatch
):
    save, left = Run.save, 0

    def save_or_stop(run):
        nonlocal left
        left -= 1
        if left == 0:
            raise StoppedError
        save(run)

    monkeypatch.setattr(Run, "save", save_or_stop)
    monkeypatch.setattr("spen.training.checkpoint.SAVED_TIMES", 0)
    for saves in stops:
        left = saves
        with pytest.raises(StoppedError):
            fit(tmp_path / "fit")
    left = 0
    assert bits(fit(tmp_path / "fit")) == whole


def test_a_finished_fit_is_there_again_without_training(whole, tmp_path, monkeypatch):
    fit(tmp_path / "fit")

    def train(*arguments):
        raise AssertionError("an epoch was trained")

    monkeypatch.setattr("spen.training.loop._train_epoch", train)
    assert bits(fit(tmp_path / "fit")) == whole


def test_a_seed_that_was_drawn_is_kept(tmp_path):
    settings = {"random_state": None, "cross_fit": False, "members": 1, "linear_member": False}
    first = fit(tmp_path / "fit", **settings)
    assert bits(fit(tmp_path / "fit", **settings)) == bits(first)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"random_state": 1}, "random_state"),
        ({"epochs": 4}, "settings"),
        ({"X": DATA.train.X + np.float32(1e-3) * DATA.train.X**2}, "rows"),
        ({"resume": False}, "resume=True"),
    ],
)
def test_another_fit_does_not_go_on_from_it(change, said, tmp_path):
    light = {"cross_fit": False, "members": 1, "linear_member": False, "dropout": 0.0}
    fit(tmp_path / "fit", **light)
    before = {path.name: path.read_bytes() for path in (tmp_path / "fit").glob("*.run")}
    with pytest.raises(spen.CheckpointError, match=said):
        fit(tmp_path / "fit", **light | change)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "fit").glob("*.run")}


def test_a_file_is_no_folder_for_checkpoints(tmp_path):
    (tmp_path / "fit").write_text("mine")
    with pytest.raises(spen.CheckpointError, match="is a file"):
        fit(tmp_path / "fit")
    assert (tmp_path / "fit").read_text() == "mine"


def test_a_folder_of_runs_that_belong_to_nothing_is_refused(tmp_path):
    (tmp_path / "0.run").write_text("what is this")
    with pytest.raises(spen.CheckpointError, match=r"about\.run"):
        fit(tmp_path)


def test_the_global_generators_stay_as_they_are(tmp_path):
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    fit(tmp_path / "fit", epochs=1, random_state=None)
    assert (states[0] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert torch.equal(states[1], torch.get_rng_state())
