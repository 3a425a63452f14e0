"""What a fit carries out: sizes, training and decoding, with what is left to choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spen.decoding import (
    apply_threshold,
    expected_f1,
    tune_empty,
    tune_label_thresholds,
    tune_threshold,
)
from spen.domains import Domain
from spen.energies.local import LocalEnergy
from spen.energies.unsized import UnsizedEnergy
from spen.features import MLP, Features, Identity, Linear
from spen.inference.base import Inference
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.objectives.likelihood import CrossEntropy
from spen.stacking import LabelScores, ScoreEnergy
from spen.training.stage import Stage

DECODINGS = ("threshold", "label_thresholds", "expected_f1")

LINEAR = "linear"
"""The name of the stage that trains a logistic regression which is averaged in."""

LINEAR_DECAY, LINEAR_ITERATIONS = 2e-3, 300
"""The ridge of a logistic regression that is averaged in, and the most iterations it makes."""


@dataclass(frozen=True)
class Shape:
    """What a recipe looks at.

    Attributes:
        rows: n.
        features: d.
        labels: L.
        sparse: whether the features are mostly zero.
        exclusive: whether each row has one class, not a set of labels.
    """

    rows: int
    features: int
    labels: int
    sparse: bool
    exclusive: bool


@dataclass(frozen=True)
class Prediction:
    """How predictions are made: what they minimise, and with which solver."""

    objective: Objective
    inference: Inference


@dataclass(frozen=True)
class Choice:
    """One of the ways to train that held-out rows choose between.

    Attributes:
        hidden: the widths of the feature network.
        dropout: the share of its units that is dropped in training.
        input_dropout: the share of its inputs that is dropped.
        weight_decay: of the label-wise stages; None leaves theirs.
        missing: the share of true labels that the label-wise objectives take to be marked 0;
            None leaves theirs.
    """

    hidden: tuple[int, ...]
    dropout: float = 0.0
    input_dropout: float = 0.0
    weight_decay: float | None = None
    missing: float | None = None

    def adapt(self, stage: Stage) -> Stage:
        """Return a stage with this choice's regularisation."""
        if self.weight_decay is not None:
            stage = replace(stage, weight_decay=self.weight_decay)
        if self.missing is not None and hasattr(stage.objective, "missing"):
            objective: Any = stage.objective
            stage = replace(stage, objective=replace(objective, missing=self.missing))
        return stage


@dataclass(frozen=True)
class Plan:
    """A model without its sizes, and how it is chosen, trained and decoded.

    Attributes:
        choices: what held-out rows choose between; one is left in the plan of a trained model.
        energy: without its sizes.
        trial: the training by which the choice is made: of the label-wise model alone.
        stages: the training.
        prediction: what trained models do.
        decoding: by name.
        held_out: the share of rows that is held out at a time.
        folds: how many such shares are used, one after the other.
        trial_folds: how many of them the choice is made by.
        refit: whether to train on all rows in the end.
        linear: whether the feature network is linear: low-rank weights.
        cross_fit: whether ``stages`` train the energy alone, on the scores that label-wise
            models give to rows which they have not seen.
        members: how many label-wise networks, each of its own seed, are averaged.
        linear_member: whether a logistic regression of the inputs is averaged in, with as much
            weight as all networks together.
    """

    choices: tuple[Choice, ...]
    energy: UnsizedEnergy
    trial: Stage
    stages: tuple[Stage, ...]
    prediction: Prediction
    decoding: str
    held_out: float
    folds: int
    trial_folds: int
    refit: bool
    linear: bool = False
    cross_fit: bool = False
    members: int = 1
    linear_member: bool = False

    @property
    def is_averaged(self) -> bool:
        """Whether label-wise scores are an average."""
        return self.members > 1 or self.linear_member

    @property
    def chosen(self) -> Choice:
        """The choice that is left, or the first."""
        return self.choices[0]

    @property
    def is_label_wise(self) -> bool:
        """Whether the trial is all of the training."""
        return self.stages == (self.trial,) and not self.cross_fit

    def choose(self, k: int) -> Plan:
        """Return the plan with the k-th choice made."""
        choice = self.choices[k]
        return replace(
            self,
            choices=(choice,),
            trial=choice.adapt(self.trial),
            stages=tuple(choice.adapt(stage) for stage in self.stages),
        )

    def label_wise(self) -> Plan:
        """Return the plan of the label-wise model alone."""
        prediction = Prediction(CrossEntropy(), self.prediction.inference)
        return replace(
            self,
            energy=LocalEnergy.unsized(),
            stages=(self.trial,),
            prediction=prediction,
            cross_fit=False,
        )

    def build(self, n_inputs: int, domain: Domain, seed: int) -> SPEN:
        """Return a new model of the right sizes."""
        models = []
        for plan in self.single_plans() if self.is_averaged else [self]:
            network = plan._network(n_inputs)
            models.append((network, LocalEnergy(network.n_features, domain.size)))
        features, energy = models[0][0], self.energy
        if self.cross_fit or self.is_averaged:
            features = LabelScores(*models, weights=self.member_weights())
            energy = self.energy if self.cross_fit else ScoreEnergy.unsized()
        # Whatever torch's default type is: files and results must not depend on it.
        return SPEN(features, energy.size(features.n_features, domain), domain, seed=seed).float()

    def single_plans(self) -> list[Plan]:
        """Return the label-wise plan of each model that is averaged."""
        one = replace(self.label_wise(), members=1, linear_member=False)
        plans = [one] * self.members
        if self.linear_member:
            choice = Choice(())
            stage = Stage(
                LINEAR,
                self.trial.objective,
                parts=("local",),
                epochs=LINEAR_ITERATIONS,
                optimiser="lbfgs",
                weight_decay=LINEAR_DECAY,
                keep="last",
            )
            plans.append(replace(one, choices=(choice,), trial=stage, stages=(stage,)))
        return plans

    def member_weights(self) -> tuple[float, ...]:
        """Return the weight of each model in the average."""
        if not self.linear_member:
            return (1 / self.members,) * self.members
        return (*((0.5 / self.members,) * self.members), 0.5)

    def _network(self, n_inputs: int) -> Features:
        choice = self.chosen
        if not choice.hidden:
            return Identity(n_inputs)
        kind = Linear if self.linear else MLP
        rates = {"dropout": choice.dropout, "input_dropout": choice.input_dropout}
        return kind(n_inputs, *choice.hidden, **rates)

    def tune(self, truth: Any, soft: Any) -> dict[str, Any]:
        """Return what each decoding chooses on held-out rows (see ``decode``), by its name."""
        tuned: dict[str, Any] = {
            "threshold": tune_threshold(truth, soft)[0],
            "expected_f1": tune_empty(truth, soft),
        }
        if self.decoding == "label_thresholds":
            tuned["label_thresholds"] = tune_label_thresholds(truth, soft)[0]
        return tuned


def decode(soft: Any, decoding: str, tuned: Any) -> np.ndarray:
    """Turn probabilities into labels of 0 and 1.

    Args:
        soft: (n, L) probabilities.
        decoding: one of DECODINGS.
        tuned: the threshold or thresholds; for "expected_f1" how likely empty rows are.
    """
    if decoding == "expected_f1":
        return expected_f1(soft, empty=tuned)
    return apply_threshold(soft, tuned)
