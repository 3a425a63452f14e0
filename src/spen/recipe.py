"""What SPENClassifier does by itself: sizes and training from the shape of the data."""

from __future__ import annotations

import math
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
from spen.energies.conditional import ConditionalEnergy
from spen.energies.label import LabelEnergy
from spen.energies.local import LocalEnergy
from spen.energies.pairwise import PairwiseEnergy
from spen.energies.unsized import UnsizedEnergy
from spen.errors import InputError, choose
from spen.features import MLP, Features, Identity
from spen.inference.base import Inference
from spen.inference.descent import Descent, Stopping
from spen.inference.rules import MirrorDescent
from spen.inputs import positive, share, whole
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.objectives.hinge import Hinge
from spen.objectives.likelihood import CrossEntropy
from spen.objectives.unrolled import UnrolledLikelihood
from spen.training import Stage

DECODINGS = ("threshold", "label_thresholds", "expected_f1")


@dataclass(frozen=True)
class Shape:
    """What a recipe looks at.

    Attributes:
        rows: n.
        features: d.
        sparse: whether the features are mostly zero.
        exclusive: whether each row has one class, not a set of labels.
    """

    rows: int
    features: int
    sparse: bool
    exclusive: bool


@dataclass(frozen=True)
class Prediction:
    """How predictions are made: what they minimise, and with which solver."""

    objective: Objective
    inference: Inference


@dataclass(frozen=True)
class Dropout:
    """How much a feature network drops in training: of its units, and of its inputs."""

    units: float
    inputs: float


@dataclass(frozen=True)
class Plan:
    """A model without its sizes, and how it is chosen, trained and decoded.

    Attributes:
        hidden: the widths of the feature network.
        dropout: those to choose from on held-out rows.
        energy: without its sizes.
        trial: the training by which dropout is chosen: of the label-wise model alone.
        stages: the training.
        prediction: what trained models do.
        decoding: by name.
        held_out: the share of rows that is held out at a time.
        folds: how many such shares are used, one after the other.
        refit: whether to train on all rows in the end.
    """

    hidden: tuple[int, ...]
    dropout: tuple[Dropout, ...]
    energy: UnsizedEnergy
    trial: Stage
    stages: tuple[Stage, ...]
    prediction: Prediction
    decoding: str
    held_out: float
    folds: int
    refit: bool

    def build(self, n_inputs: int, domain: Domain, seed: int) -> SPEN:
        """Return a new model of the right sizes, with the first dropout."""
        features: Features = Identity(n_inputs)
        if self.hidden:
            rates = self.dropout[0]
            features = MLP(n_inputs, *self.hidden, dropout=rates.units, input_dropout=rates.inputs)
        energy = self.energy.size(features.n_features, domain)
        # Whatever torch's default type is: files and results must not depend on it.
        return SPEN(features, energy, domain, seed=seed).float()

    def tune(self, truth: Any, soft: Any) -> Any:
        """Return what this plan's decoding chooses on held-out rows (see ``decode``)."""
        if self.decoding == "expected_f1":
            return tune_empty(truth, soft)
        if self.decoding == "label_thresholds":
            return tune_label_thresholds(truth, soft)[0]
        return tune_threshold(truth, soft)[0]

    def decode(self, soft: Any, tuned: Any) -> np.ndarray:
        """Turn probabilities into labels of 0 and 1.

        Args:
            soft: (n, L) probabilities.
            tuned: the threshold or thresholds; for "expected_f1" how likely empty rows are.
        """
        if self.decoding == "expected_f1":
            return expected_f1(soft, empty=tuned)
        return apply_threshold(soft, tuned)


MEASUREMENTS = 64
RATE, ENERGY_RATE, DECAY = 1e-3, 1e-2, 1e-2
CHOICES = (Dropout(0.25, 0.0), Dropout(0.5, 0.2), Dropout(0.7, 0.2))
"""Weak, middle and strong: no one of them is good on all data, and held-out rows can tell."""

SMOOTH: dict[str, Any] = {"nonlinearity": "softplus", "measurements": MEASUREMENTS}
ENERGIES: dict[str, UnsizedEnergy | None] = {
    "label": LabelEnergy.unsized(**SMOOTH, initial="neutral"),
    "conditional": ConditionalEnergy.unsized(**SMOOTH),
    "pairwise": PairwiseEnergy.unsized(rank=MEASUREMENTS),
    "local": None,
}


def make_plan(settings: dict[str, Any], shape: Shape) -> Plan:
    """Fill in what the user left to us, and check what they did not.

    Args:
        settings: the constructor's arguments, by name.
        shape: of the data.
    """
    own = _check(settings)
    hidden = own.get("hidden", _hidden(shape))
    batch = own.get("batch_size", _batch_size(shape))
    common: dict[str, Any] = {
        "epochs": own.get("epochs", _epochs(shape, batch)),
        "batch_size": batch,
        "weight_decay": own.get("weight_decay", DECAY),
        # A linear model has no layers that a large rate could upset.
        "lr": RATE if hidden else ENERGY_RATE,
        "global_lr": ENERGY_RATE,
        "optimiser": "adamw",
        "schedule": "cosine",
        # Measured: cutting such a schedule short costs more than it brings.
        "keep": "last",
    }
    objective = _objective(settings["objective"], shape)
    energy = _energy(settings["energy"])
    inference = _inference(settings["inference"], objective)
    first = ("features", "local") if hidden else ("local",)
    local = Stage("label by label", CrossEntropy(), parts=first, **common)
    stages: tuple[Stage, ...] = (local,)
    prediction = Prediction(CrossEntropy(), inference)
    if len(energy.terms) > 1:
        prediction = Prediction(objective, inference)
        every = Stage("all", objective, inference, parts=(*first, "global"), **common)
        stages = (every,)
        if not isinstance(objective, UnrolledLikelihood):
            # The paper's recipe: a margin wants a label-wise model to start from.
            fewer = max(1, common["epochs"] // 4)
            apart = replace(every, name="global", parts=("global",), epochs=fewer)
            low = {"lr": every.lr / 10, "global_lr": ENERGY_RATE / 10, "epochs": fewer}
            stages = (local, apart, replace(every, **low))
    # One held-out share of few rows says little; but classes need no fine calibration.
    several = VERY_FEW_ROWS <= shape.rows < FEW_ROWS and not shape.exclusive
    return Plan(
        hidden=hidden,
        dropout=_dropout(own, hidden, shape),
        energy=energy,
        trial=local,
        stages=stages,
        prediction=prediction,
        decoding=settings["decoding"],
        held_out=settings["held_out"],
        folds=3 if several and settings["refit"] else 1,
        refit=bool(settings["refit"]),
    )


FEW_ROWS, VERY_FEW_ROWS, MANY_ROWS, VERY_MANY_ROWS = 1000, 100, 2500, 20_000
WIDTH = 512
LARGEST_LAYER = 20_000_000
"""Weights of a first layer: with its gradient and two moments, 320 MB of float32."""


def _hidden(shape: Shape) -> tuple[int, ...]:
    first = min(WIDTH, max(16, LARGEST_LAYER // shape.features))
    return (first, WIDTH)


def _batch_size(shape: Shape) -> int:
    wanted = shape.rows / 16
    if wanted > 128:
        # Beyond some thousand rows, larger batches keep the number of steps in hand.
        wanted = max(128, shape.rows / 160)
    return int(np.clip(2 ** round(math.log2(wanted)), 16, 1024))


def _epochs(shape: Shape, batch: int) -> int:
    """Return passes over the data: about as many steps for few rows as for many."""
    steps = max(1, round(shape.rows / batch))
    if shape.rows < MANY_ROWS:
        return int(np.clip(660 // steps, 16, 55 if shape.rows < FEW_ROWS else 36))
    return int(np.clip(2400 // steps, 5, 30))


def _dropout(own: dict[str, Any], hidden: tuple[int, ...], shape: Shape) -> tuple[Dropout, ...]:
    """Return the dropouts that are worth a trial."""
    if "dropout" in own:
        return (Dropout(own["dropout"], 0.2 if own["dropout"] >= 0.5 else 0.0),)
    if not hidden:
        # Features that are linear in x have nothing to drop.
        return CHOICES[:1]
    if shape.rows > VERY_MANY_ROWS:
        # With so many rows trials take long, and there is less to choose.
        return CHOICES[1:2]
    # The strong one is for few rows, and for many features that are mostly absent.
    needed = shape.sparse or (shape.rows < FEW_ROWS and not shape.exclusive)
    return CHOICES if needed else CHOICES[:2]


def _check(settings: dict[str, Any]) -> dict[str, Any]:
    """Check the settings that have a value of the user's own, and return those."""
    own = {name: value for name, value in settings.items() if not _is_auto(value)}
    if "hidden" in own:
        hidden = own["hidden"]
        if isinstance(hidden, str) or not hasattr(hidden, "__len__"):
            raise InputError(f"hidden must be 'auto' or a tuple of widths; received {hidden!r}.")
        for width in hidden:
            whole(width, "hidden")
        own["hidden"] = tuple(int(width) for width in hidden)
    if "dropout" in own:
        share(own["dropout"], "dropout")
    if "weight_decay" in own:
        positive(own["weight_decay"], "weight_decay", zero=True)
    for name in ("epochs", "batch_size"):
        if name in own:
            whole(own[name], name)
    choose(settings["decoding"], dict.fromkeys(DECODINGS), "decoding")
    positive(settings["held_out"], "held_out")
    share(settings["held_out"], "held_out")
    return own


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _objective(value: Any, shape: Shape) -> Objective:
    if isinstance(value, Objective):
        return value
    # One class says all about the others, so revealing some would teach nothing.
    reveal = 0.0 if shape.exclusive else 0.9
    named: dict[str, Objective] = {
        "unrolled": UnrolledLikelihood(entropy=1.0, start="local", reveal=reveal),
        "hinge": Hinge(entropy=1.0, start="local"),
    }
    return choose(value, named, "objective")


def _energy(value: Any) -> UnsizedEnergy:
    """Return the energy with a local one in it."""
    local = LocalEnergy.unsized()
    if isinstance(value, UnsizedEnergy):
        has_local = any(issubclass(term.kind, LocalEnergy) for term in value.terms)
        return value if has_local else local + value
    if not isinstance(value, str):
        raise InputError(
            f"energy must be a name or a description such as spen.LabelEnergy.unsized("
            f"measurements=15); received {value!r}."
        )
    other = choose(value, ENERGIES, "energy")
    return local if other is None else local + other


def _inference(value: Any, objective: Objective) -> Inference:
    if isinstance(value, Inference):
        return value
    if not _is_auto(value):
        raise InputError(f"inference must be 'auto' or an Inference; received {value!r}.")
    if isinstance(objective, UnrolledLikelihood):
        return Descent(MirrorDescent(lr=1.0, momentum=0.0), Stopping(max_steps=5))
    return Descent(MirrorDescent(lr=0.05, momentum=0.8), Stopping(max_steps=100))
