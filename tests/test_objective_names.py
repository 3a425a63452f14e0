"""SPENClassifier with objectives and energies by name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import spen

DATA = spen.exclusive_blocks(120, 40, n_features=12, seed=0)
SMALL = {"hidden": (8,), "epochs": 2, "random_state": 0, "folds": 1, "refit": False}


@pytest.mark.parametrize(
    ("energy", "objective"),
    list(itertools.product(["convex", "label"], ["end_to_end", "hinge", "unrolled"])),
)
def test_every_pair_fits_predicts_and_is_saved(energy, objective, tmp_path):
    clf = spen.SPENClassifier(energy=energy, objective=objective, **SMALL)
    clf.fit(DATA.train.X, DATA.train.Y)
    soft = clf.predict_proba(DATA.test.X)
    assert ((soft > 0) & (soft < 1)).all()
    clf.save(tmp_path / "model.spen")
    assert np.array_equal(spen.load(tmp_path / "model.spen").predict_proba(DATA.test.X), soft)
    if energy == "convex":
        diagnosis = clf.diagnose(DATA.test.X, DATA.test.Y)
        assert diagnosis.search_errors == 0.0
        assert diagnosis.gaps is not None
        assert "gap: " in str(diagnosis)
        assert clf.structure().measurements.shape == (64, 16)


def test_end_to_end_trains_everything_at_once_through_ten_steps():
    clf = spen.SPENClassifier(objective="end_to_end", **SMALL).fit(DATA.train.X, DATA.train.Y)
    (stage,) = clf.plan_.stages
    assert stage.objective == spen.EndToEnd("log", "all", 1.0, "local")
    assert isinstance(stage.inference, spen.Descent)
    assert stage.inference.stopping.max_steps == 10
    assert set(stage.parts) == {"features", "local", "global"}


def test_classes_and_descriptions_with_rates_and_backwards(tmp_path):
    energy = spen.LabelEnergy.unsized(measurements=4, nonlinearity="softplus")
    inference = spen.Descent(
        spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(6), spen.Truncated(3)
    )
    clf = spen.SPENClassifier(
        energy=energy + spen.StepRates.unsized(steps=6),
        objective=spen.EndToEnd("squared", "all"),
        inference=inference,
        **SMALL,
    )
    clf.fit(DATA.train.X, DATA.train.Y[:, :4].argmax(1))
    soft = clf.predict_proba(DATA.test.X)
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)
    clf.save(tmp_path / "model.spen")
    assert np.array_equal(spen.load(tmp_path / "model.spen").predict_proba(DATA.test.X), soft)


@pytest.mark.parametrize("inference", [spen.Exact(), spen.Polished(spen.Exact())])
def test_the_hinge_by_name_goes_with_solvers_of_labellings(inference):
    data = spen.exclusive_blocks(n_train=40, n_test=10, n_features=8, n_blocks=2)
    clf = spen.SPENClassifier("pairwise", inference, "hinge", hidden=(), epochs=1, folds=1)
    assert clf.fit(data.train.X, data.train.Y).predict(data.test.X).shape == (10, 8)
