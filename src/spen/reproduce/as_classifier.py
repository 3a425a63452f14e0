"""A model of an experiment as a classifier: with files, names, known labels and a page."""

from __future__ import annotations

import numpy as np

from spen.batch.splits import RowDigests
from spen.data.dataset import Dataset
from spen.energies.label import LabelEnergy
from spen.energies.local import LocalEnergy
from spen.estimators.calibration import Calibration
from spen.estimators.classifier import SPENClassifier
from spen.estimators.fit import Fitted as FittedPlan
from spen.estimators.plan import Shape
from spen.estimators.scaling import Scaling
from spen.estimators.targets import read_targets
from spen.files import versions
from spen.reproduce.protocol import Fitted


def as_classifier(fitted: Fitted, data: Dataset, command: str) -> SPENClassifier:
    """Return a classifier that predicts what an experiment's label-set model predicts.

    It takes features as they are and probabilities as inference leaves them.

    Args:
        fitted: a model over label sets, with its threshold.
        data: that it was fitted on.
        command: that made it.
    """
    method = fitted.method
    energy = LocalEnergy.unsized()
    if method.measurements:
        energy = energy + LabelEnergy.unsized(
            measurements=method.measurements,
            nonlinearity=method.nonlinearity,
            initial=method.initial,
        )
    classifier = SPENClassifier(
        energy=energy,
        inference=method.inference,
        hidden=method.hidden,
        dropout=method.dropout,
        input_dropout=0.0,
        decoding="threshold",
        folds=1,
        cross_fit=False,
        linear_member=False,
        stages=method.stages,
        device="cpu",
        random_state=0,
    )
    targets = read_targets(data.train.Y, data.label_names)
    (rows, features), labels = data.train.X.shape, len(targets.names)
    plan = classifier.plan(Shape(rows, features, labels, sparse=False, exclusive=False))
    tuned = {"threshold": fitted.threshold, "expected_f1": 1.0}
    unchanged = Calibration(1.0, np.zeros(labels), exclusive=False)
    result = FittedPlan(
        fitted.model, plan, unchanged, tuned, fitted.held_out_f1, fitted.history, None
    )
    scaling = Scaling(np.zeros(features), np.ones(features), None)
    classifier.take(result, scaling, targets, RowDigests.of(data.train.X))
    classifier.n_features_in_ = features
    classifier.feature_names_ = tuple(data.feature_names)
    described = {"training rows": f"{rows:,}", "trained on": data.name, "command": command}
    classifier.notes_ = described | versions()
    return classifier
