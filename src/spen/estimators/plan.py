"""Plans, which fits carry out: sizes, training and decoding, with what is left to choose."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

from spen.batch.splits import Split
from spen.domains import Domain
from spen.energies.base import UnsizedEnergy
from spen.energies.local import LocalEnergy
from spen.energies.scores import ScoreEnergy
from spen.errors import InputError
from spen.features import MLP, Features, Identity, LabelScores, Linear, as_features
from spen.inference.base import Inference
from spen.kernels.threads import threads_for
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.objectives.label_wise import CrossEntropy
from spen.training.checkpoint import History
from spen.training.stage import Stage

HELD_OUT = 0.2
"""The share of rows that is held out to choose, calibrate and tune, where nobody says otherwise."""

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
        held_given: whether rows to tune by are given beside them, or fits go on from others; then
            energies are trained together with their features.
        complete: whether no label is missing.
        passed: whether inputs are no matrix, but of another kind; ``features`` is then the number
            of entries of a row.
        streamed: whether rows come from a store, block by block; then one run has to do.
    """

    rows: int
    features: int
    labels: int
    sparse: bool
    exclusive: bool
    held_given: bool = False
    complete: bool = True
    passed: bool = False
    streamed: bool = False


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
        energy_dropout: the share of units that the energy drops, where it has some; None leaves
            its own.
        lr: the learning rate of all stages; None leaves theirs.
        epochs: of all stages; None leaves theirs.
        features: what takes the place of that network: a module, or a function that makes one.
        features_dtype: the type that this computes in; None is that of its weights.
    """

    hidden: tuple[int, ...]
    dropout: float = 0.0
    input_dropout: float = 0.0
    weight_decay: float | None = None
    missing: float | None = None
    energy_dropout: float | None = None
    lr: float | None = None
    epochs: int | None = None
    features: object = None
    features_dtype: str | None = None

    def apply(self, plan: Plan) -> Plan:
        """Return a plan with this choice made."""
        stages = tuple(self._regularise(stage) for stage in plan.stages)
        plan = replace(plan, choices=(self,), trial=self._regularise(plan.trial), stages=stages)
        if self.energy_dropout is None:
            return plan
        return replace(plan, energy=plan.energy.with_setting("dropout", self.energy_dropout))

    def _regularise(self, stage: Stage) -> Stage:
        if self.weight_decay is not None:
            stage = replace(stage, weight_decay=self.weight_decay)
        if self.lr is not None:
            stage = replace(stage, lr=self.lr)
        if self.epochs is not None:
            stage = replace(stage, epochs=self.epochs)
        if self.missing is not None and hasattr(stage.objective, "missing"):
            objective: Any = stage.objective
            stage = replace(stage, objective=replace(objective, missing=self.missing))
        return stage


class Base(ABC):
    """What is fitted to rows before any stage, and gives an energy its features."""

    @abstractmethod
    def fit(self, rows: Split, seed: int = 0) -> tuple[Features, Split]:
        """Return the features of new rows, and these rows as the stages are to see them."""

    def build(self, n_inputs: int, n_labels: int) -> Features:
        """Return features of the right sizes, for weights that come from a file."""
        raise NotImplementedError(f"{type(self).__name__} is not kept in files.")


@dataclass(frozen=True)
class Plan:
    """A model without its sizes, and how it is chosen, trained and decoded.

    Attributes:
        choices: what held-out rows choose between; one is left in the plan of a trained model.
        energy: without its sizes.
        trial: the training by which the choice is made: of the label-wise model alone.
        stages: the training.
        prediction: what trained models do.
        decoding: by name; "auto" where held-out rows are to choose the best for the metric.
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
        base: what takes the place of a feature network, or None.
        bases: others whose label scores are averaged in, each with as much weight as all networks
            together; without any networks where members is 0.
        tried: what choices are tried with: the "label_wise" model, "all" of the training, or the
            "base" alone.
        metric: what it is to be good at, by a name of ``spen.metrics.METRICS``.
        raw: whether to take things as they are: no start at the labels' frequencies, no
            calibration, and held-out scores are compared without a look at the log loss.
        rivals: plans whose whole training is tried too; held-out rows choose.
        energies: where ``cross_fit``, energies that are tried in place of ``energy``, each wider
            than the one before; held-out rows choose.
        energy_rates: the learning rates that are tried with the first of them.
        energy_members: how many energies, each of its own seed, are averaged to one, which makes
            all of their measurements: what few rows teach a rare label by chance averages out.
        by_known: whether choices are compared by what models say of hidden labels where others
            are known (see ``losses_when_known``), not where nothing is.
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
    base: Base | None = None
    bases: tuple[Base, ...] = ()
    tried: Literal["label_wise", "all", "base"] = "label_wise"
    metric: str = "f1"
    raw: bool = False
    rivals: tuple[Plan, ...] = ()
    energies: tuple[UnsizedEnergy, ...] = ()
    energy_rates: tuple[float, ...] = ()
    energy_members: int = 1
    by_known: bool = False

    @property
    def is_averaged(self) -> bool:
        """Whether label-wise scores are an average."""
        return self.members > 1 or self.linear_member or bool(self.bases)

    def with_energy(self, energy: UnsizedEnergy, rate: float) -> Plan:
        """Return the plan with one energy, and one rate for it, and no other to try."""
        stages = tuple(replace(stage, global_lr=rate) for stage in self.stages)
        alone: dict[str, Any] = {"energies": (energy,), "energy_rates": (rate,)}
        return replace(self, energy=energy, stages=stages, **alone)

    def with_mean_energy(self) -> Plan:
        """Return the plan of the one energy that all members are in the end."""
        if self.energy_members == 1:
            return self
        terms = [UnsizedEnergy((term,)) for term in self.energy.terms]
        widths = [term.terms[0].settings.get("measurements", 0) for term in terms]
        wide = [
            term.with_setting("measurements", self.energy_members * width)
            for term, width in zip(terms, widths, strict=True)
        ]
        return replace(self, energy=sum(wide[1:], wide[0]), energy_members=1)

    @property
    def measurements(self) -> int:
        """How many measurements its energies make of y; 0 where they make none."""
        return sum(term.settings.get("measurements", 0) for term in self.energy.terms)

    @property
    def chosen(self) -> Choice:
        """The choice that is left, or the first."""
        return self.choices[0]

    @property
    def wants_joint(self) -> bool:
        """Whether the labelling of the lowest energy may be what it predicts."""
        if self.decoding == "auto":
            # Of a label-wise model that is what is above ½.
            return self.metric == "subset" and len(self.energy.terms) > 1
        return self.decoding == "joint"

    @property
    def is_label_wise(self) -> bool:
        """Whether there is nothing to train but the label-wise model."""
        return self.stages == (self.trial,) and not self.cross_fit

    def like(self, fitted: Plan) -> Plan:
        """Return this plan, or the rival of it, with the choice that another fit has made."""
        if any(plan.cross_fit or plan.is_averaged for plan in (fitted, self)):
            raise InputError(
                "warm_start=True goes on where the energy was trained together with its features, "
                "without a base or an average. Set cross_fit=False in both fits and leave base, "
                "members and linear_member out; or set warm_start=False."
            )
        wanted = fitted.chosen.hidden
        plans = [plan for plan in (self, *self.rivals) if plan.chosen.hidden == wanted]
        if not plans:
            raise InputError(
                f"warm_start=True goes on with layers of {wanted}, and the settings ask for "
                f"{self.chosen.hidden}. Set warm_start=False to begin anew."
            )
        return replace(fitted.chosen.apply(plans[0]), rivals=())

    def stopped(self, history: History) -> Plan:
        """Return the plan with as many epochs as were best in a run that stopped early."""
        stages = tuple(
            replace(stage, epochs=max(1, history.best_epoch(stage.name)), patience=None)
            if stage.patience is not None
            else stage
            for stage in self.stages
        )
        return replace(self, stages=stages)

    @property
    def stops_early(self) -> bool:
        """Whether held-out rows end its stages."""
        return any(stage.patience is not None for stage in self.stages)

    def trial_plan(self) -> Plan:
        """Return the plan by which a choice is tried."""
        if self.tried == "label_wise":
            return self.label_wise()
        if self.tried == "base":
            prediction = replace(self.prediction, objective=CrossEntropy())
            energy = ScoreEnergy.unsized()
            return replace(self, energy=energy, stages=(), prediction=prediction)
        return self

    def label_wise(self) -> Plan:
        """Return the plan of the label-wise model alone."""
        prediction = replace(self.prediction, objective=CrossEntropy())
        energy = LocalEnergy.unsized()
        return replace(
            self, energy=energy, stages=(self.trial,), prediction=prediction, cross_fit=False
        )

    def build(self, like: Any, domain: Domain, seed: int) -> SPEN:
        """Return a new model of the right sizes.

        Args:
            like: the width of the inputs; or rows of another kind, or what is known of those.
            domain: where the output lives.
            seed: draws the weights.
        """
        # It draws many numbers and does little with them.
        with threads_for(0.0):
            return self._build(like, domain, seed)

    def _build(self, like: Any, domain: Domain, seed: int) -> SPEN:
        models = []
        plans = self.single_plans() if self.is_averaged else [self]
        for plan in plans:
            network = plan._network(like, domain.size, seed)
            local = (LocalEnergy if plan.base is None else ScoreEnergy).unsized()
            models.append((network, local.size(network.n_features, domain)))
        features, energy = models[0][0], self.energy
        if self.cross_fit or self.is_averaged:
            features = LabelScores(*models, weights=self.member_weights())
            energy = self.energy if self.cross_fit else ScoreEnergy.unsized()
        # Whatever torch's default type is: files and results must not depend on it.
        energy = energy.size(features.n_features, domain)
        model = SPEN(features, energy, domain, seed=seed).float()
        for plan, (network, _) in zip(plans, models, strict=True):
            if isinstance(given := plan.chosen.features, Features):
                # The user's own module keeps its weights, which the seed has just drawn anew.
                network.load_state_dict(given.state_dict())
        return model

    def single_plans(self) -> list[Plan]:
        """Return the label-wise plan of each model that is averaged."""
        one = replace(self.label_wise(), members=1, linear_member=False, bases=())
        plans = [one] * self.members
        if self.linear_member:
            settings: dict[str, Any] = {"epochs": LINEAR_ITERATIONS, "weight_decay": LINEAR_DECAY}
            settings |= {"parts": ("local",), "optimiser": "lbfgs", "keep": "last"}
            stage = Stage(LINEAR, self.trial.objective, **settings)
            plans.append(replace(one, choices=(Choice(()),), trial=stage, stages=(stage,)))
        scores = replace(one, energy=ScoreEnergy.unsized(), stages=())
        return plans + [replace(scores, base=base) for base in self.bases]

    def member_weights(self) -> tuple[float, ...]:
        """Return the weight of each model in the average."""
        others = self.linear_member + len(self.bases)
        share = 1 / (others + (self.members > 0))
        return (share / max(self.members, 1),) * self.members + (share,) * others

    def _network(self, like: Any, n_labels: int, seed: int) -> Features:
        if self.base is not None:
            return self.base.build(like, n_labels)
        choice, own = self.chosen, self.chosen.features
        if own is not None:
            return as_features(copy.deepcopy(own), seed, like, choice.features_dtype)
        if not choice.hidden:
            return Identity(like)
        kind = Linear if self.linear else MLP
        rates = {"dropout": choice.dropout, "input_dropout": choice.input_dropout}
        return kind(like, *choice.hidden, **rates)
