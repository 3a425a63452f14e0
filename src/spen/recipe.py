"""What SPENClassifier does by itself: sizes and training from the shape of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

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
from spen.targets import Targets
from spen.training import Stage

DECODINGS = ("threshold", "label_thresholds", "expected_f1")


@dataclass(frozen=True)
class Shape:
    """What a recipe looks at.

    Attributes:
        rows: n.
        features: d.
        labels: L.
        entries: the mean number of features of a row that are not zero.
        sparse: whether X is a sparse matrix.
    """

    rows: int
    features: int
    labels: int
    entries: float
    sparse: bool

    @classmethod
    def of(cls, inputs: Any, targets: Targets) -> Shape:
        """Measure the data."""
        rows, features = inputs.shape
        entries = inputs.nnz if sparse.issparse(inputs) else np.count_nonzero(inputs)
        return cls(rows, features, len(targets.names), entries / rows, sparse.issparse(inputs))


@dataclass(frozen=True)
class Prediction:
    """How predictions are made: what they minimise, and with which solver."""

    objective: Objective
    inference: Inference


@dataclass(frozen=True)
class Plan:
    """A model without its sizes, and how it is trained, tuned and decoded."""

    hidden: tuple[int, ...]
    dropout: float
    energy: UnsizedEnergy
    stages: tuple[Stage, ...]
    prediction: Prediction
    decoding: str
    held_out: float
    refit: bool

    def build(self, n_inputs: int, domain: Domain, seed: int) -> SPEN:
        """Return a new model of the right sizes."""
        features: Features = Identity(n_inputs)
        if self.hidden:
            features = MLP(n_inputs, *self.hidden, dropout=self.dropout)
        return SPEN(features, self.energy.size(features.n_features, domain), domain, seed=seed)

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


ENERGIES: dict[str, Callable[[int], UnsizedEnergy | None]] = {
    "label": lambda m: LabelEnergy.unsized(measurements=m, nonlinearity="softplus"),
    "conditional": lambda m: ConditionalEnergy.unsized(measurements=m, nonlinearity="softplus"),
    "pairwise": lambda m: PairwiseEnergy.unsized(rank=m),
    "local": lambda m: None,
}


def make_plan(settings: dict[str, Any], shape: Shape) -> Plan:
    """Fill in what the user left to us, and check what they did not.

    Args:
        settings: the constructor's arguments, by name.
        shape: of the data.
    """
    own = _check(settings)
    hidden = own.get("hidden", _hidden(shape))
    dropout = own.get("dropout", 0.5)
    decay = own.get("weight_decay", 1e-2)
    batch = own.get("batch_size", int(np.clip(shape.rows // 20, 16, 256)))
    epochs = own.get("epochs", 40)
    objective = _objective(settings["objective"])
    energy = _energy(settings["energy"], shape)
    inference = _inference(settings["inference"], objective)
    common = {"batch_size": batch, "weight_decay": decay, "optimiser": "adamw", "lr": 1e-3}
    first = ("features", "local") if hidden else ("local",)
    stages = [
        Stage("local", CrossEntropy(), parts=first, epochs=epochs, schedule="cosine", **common)
    ]
    prediction = Prediction(CrossEntropy(), inference)
    if len(energy.terms) > 1:
        stages.append(
            Stage(
                "global",
                objective,
                inference,
                parts=("global",),
                epochs=max(1, epochs // 4),
                **(common | {"lr": 1e-2}),
            )
        )
        prediction = Prediction(objective, inference)
    return Plan(
        hidden,
        dropout,
        energy,
        tuple(stages),
        prediction,
        settings["decoding"],
        settings["held_out"],
        bool(settings["refit"]),
    )


def _hidden(shape: Shape) -> tuple[int, ...]:
    return (int(np.clip(shape.features, 64, 1024)),)


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


def _objective(value: Any) -> Objective:
    if isinstance(value, Objective):
        return value
    named: dict[str, Objective] = {
        "unrolled": UnrolledLikelihood(entropy=1.0, start="local"),
        "hinge": Hinge(entropy=1.0),
    }
    return choose(value, named, "objective")


def _energy(value: Any, shape: Shape) -> UnsizedEnergy:
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
    measurements = int(np.clip(shape.labels, 4, 64))
    other = choose(value, ENERGIES, "energy")(measurements)
    return local if other is None else local + other


def _inference(value: Any, objective: Objective) -> Inference:
    if isinstance(value, Inference):
        return value
    if not _is_auto(value):
        raise InputError(f"inference must be 'auto' or an Inference; received {value!r}.")
    if isinstance(objective, UnrolledLikelihood):
        return Descent(MirrorDescent(lr=1.0, momentum=0.0), Stopping(max_steps=5))
    return Descent(MirrorDescent(lr=0.05, momentum=0.8), Stopping(max_steps=100))
