"""How a tagger is trained: the energy, the objective, and the stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from spen.domains import Simplex
from spen.energies.base import Energy, SumEnergy, UnsizedEnergy, UnsizedTerm, energy_terms
from spen.energies.chain import ChainEnergy
from spen.energies.convolution import ConvolutionEnergy
from spen.energies.local import LocalEnergy
from spen.energies.scores import ScoreEnergy
from spen.errors import InputError, one_of
from spen.estimators.tag_rules import TagRules
from spen.inference.backward import Unrolled
from spen.inference.base import Inference
from spen.inference.descent import Descent, Stopping
from spen.inference.discrete.viterbi import Viterbi
from spen.inference.rules import MirrorDescent
from spen.model import SPEN
from spen.objectives.base import Objective
from spen.objectives.hinge import Hinge
from spen.objectives.label_wise import CrossEntropy
from spen.objectives.likelihood import Likelihood
from spen.objectives.unrolled import UnrolledLikelihood
from spen.sequences import SequenceFeatures
from spen.training.stage import Stage


@dataclass(frozen=True)
class Recipe:
    """How sentences of one kind are learned, where settings say "auto".

    Attributes:
        epochs: passes over the sentences.
        lr: the learning rate.
        dropout: the share of units zeroed in training.
        weight_decay: regularisation of the weights.
        batch_size: sentences in a mini-batch.
    """

    epochs: int
    lr: float
    dropout: float
    weight_decay: float
    batch_size: int = 16


RECIPES = {
    "arrays": Recipe(epochs=30, lr=2e-3, dropout=0.3, weight_decay=1e-2),
    "words": Recipe(epochs=30, lr=2e-3, dropout=0.5, weight_decay=1e-2),
    "columns": Recipe(epochs=30, lr=2e-3, dropout=0.5, weight_decay=1e-2),
    "features": Recipe(epochs=20, lr=2e-2, dropout=0.0, weight_decay=1e-2),
}

ENERGY_SHARE = 3
"""An energy beyond chains trains, with everything else, for this part of the chain's epochs."""

ENERGIES: dict[str, tuple[Callable[[], UnsizedEnergy], ...]] = {
    "local": (),
    "chain": (ChainEnergy.unsized,),
    "chain+convolution": (ChainEnergy.unsized, ConvolutionEnergy.unsized),
}
"""What is learned beside a score for each tag at each position, by name."""

OBJECTIVES = ("auto", "likelihood", "hinge", "unrolled")

CHAIN = (LocalEnergy, ChainEnergy)
"""Energies for which exact inference is."""

DESCENT = Descent(MirrorDescent(lr=0.5, momentum=0.0), Stopping(5, 0.0, 0.0), backward=Unrolled())
"""How energies beyond chains are minimised, and differentiated."""


def is_chain(energy: Energy) -> bool:
    """Say whether exact inference knows an energy."""
    return all(isinstance(term, CHAIN) for term in energy_terms(energy))


@dataclass(frozen=True)
class TaggerPlan:
    """What is learned, and how.

    Attributes:
        energy: its description.
        objective: the loss of the last stage of training, which says what predictions are.
        inference: that it uses.
        recipe: how long and at which rates.
        patience: epochs without a better score after which a stage ends; None makes all.
    """

    energy: UnsizedEnergy
    objective: Objective
    inference: Inference
    recipe: Recipe
    patience: int | None = None

    @classmethod
    def of(
        cls, energy: Any, objective: Any, inference: Any, recipe: Recipe, are_scores: bool
    ) -> TaggerPlan:
        """Return the plan that settings ask for.

        Args:
            energy: a name, or a description.
            objective: a name, or an Objective.
            inference: "auto", or an Inference.
            recipe: how long and at which rates.
            are_scores: whether features are scores of the tags already.
        """
        if isinstance(energy, str):
            one_of(energy, ENERGIES, "energy")
            local = ScoreEnergy.unsized() if are_scores else LocalEnergy.unsized()
            terms = [term for describe in ENERGIES[energy] for term in describe().terms]
            energy = UnsizedEnergy((*local.terms, *terms))
        if not isinstance(energy, UnsizedEnergy):
            raise InputError(
                f"energy must be one of {', '.join(ENERGIES)}, or a description such as "
                f"spen.LocalEnergy.unsized() + spen.ChainEnergy.unsized(); received {energy!r}."
            )
        kinds = [term.kind for term in energy.terms]
        if not any(issubclass(kind, LocalEnergy) for kind in kinds):
            raise InputError(
                f"energy must have a LocalEnergy, which scores each position; received {energy}. "
                "Add spen.LocalEnergy.unsized()."
            )
        exact = all(issubclass(kind, CHAIN) for kind in kinds)
        if not isinstance(objective, Objective):
            one_of(objective, OBJECTIVES, "objective")
            if objective == "auto":
                objective = "likelihood" if exact else "unrolled"
            if objective != "unrolled" and not exact:
                raise InputError(
                    f"objective={objective!r} is for chains, and the energy is {energy}. Leave "
                    "objective at 'auto', or choose energy='chain'."
                )
        if inference == "auto":
            inference = Viterbi() if exact and objective != "unrolled" else DESCENT
        if not isinstance(inference, Inference):
            raise InputError(f"inference must be 'auto' or an Inference; received {inference!r}.")
        has_chain = any(issubclass(kind, ChainEnergy) for kind in kinds)
        named: dict[str, Callable[[], Objective]] = {
            "likelihood": Likelihood if has_chain else CrossEntropy,
            "hinge": Hinge,
            "unrolled": lambda: UnrolledLikelihood(1.0, start="chain" if has_chain else "local"),
        }
        if isinstance(objective, str):
            objective = named[objective]()
        return cls(energy, objective, inference, recipe)

    def build(self, features: SequenceFeatures, rules: TagRules, seed: int) -> SPEN:
        """Return a new model over a feature network, whose weights are drawn too."""
        domain, forbidden = Simplex(len(rules.names), positions=None), list(rules.forbidden)
        # The chains in a description are told what is forbidden, beside what they say themselves.
        terms = (
            UnsizedTerm(
                term.kind,
                term.settings | {"forbidden": [*term.settings.get("forbidden", ()), *forbidden]},
            )
            if issubclass(term.kind, ChainEnergy) and forbidden
            else term
            for term in self.energy.terms
        )
        energy = UnsizedEnergy(tuple(terms)).size(features.n_features, domain)
        generator = torch.Generator().manual_seed(seed)
        features.reset(generator)
        energy.reset(generator)
        return SPEN(features, energy, domain).float()

    def runs(self, model: SPEN) -> list[tuple[SPEN, Stage]]:
        """Return what is trained, and how, one after the other.

        First what is a chain, by itself, and then with all else: both models share their parts.
        What is trained by a margin has a chain that is, a structured SVM, where exact inference
        knows the loss.
        """
        terms, recipe = energy_terms(model.energy), self.recipe
        settings: dict[str, Any] = {
            "schedule": "cosine",
            "optimiser": "adamw",
            "weight_decay": recipe.weight_decay,
            "batch_size": recipe.batch_size,
            "clip": 1.0,
            "patience": self.patience,
            "keep": "last" if self.patience is None else "best",
        }
        longest = {"epochs": recipe.epochs, "lr": recipe.lr} | settings
        if is_chain(model.energy) and not isinstance(self.inference, Descent):
            return [(model, Stage("chain", self.objective, self.inference, **longest))]
        chain = [term for term in terms if isinstance(term, CHAIN)]
        has_chain = any(isinstance(term, ChainEnergy) for term in chain)
        first = Likelihood() if has_chain else CrossEntropy()
        if isinstance(self.objective, Hinge) and self.objective.delta != "log":
            first = self.objective
        part = SPEN(model.features, SumEnergy(*chain), model.domain)
        rates = {"lr": recipe.lr / 10, "global_lr": recipe.lr}
        epochs = -(-recipe.epochs // ENERGY_SHARE)
        return [
            (part, Stage("chain", first, Viterbi(), **longest)),
            (
                model,
                Stage("energy", self.objective, self.inference, epochs=epochs, **rates, **settings),
            ),
        ]
