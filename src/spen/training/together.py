"""Training several models of one shape side by side, as one model with the weights of all.

What the runs of a fit have in common (folds, dropout rates, members) differs in rows, seeds and
rates alone. A small network spends most of a step on launching it; k of them at once take hardly
more launches than one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.splits import Split
from spen.energies.base import energy_terms
from spen.energies.label import LabelEnergy
from spen.energies.local import LocalEnergy
from spen.energies.scores import ScoreEnergy, SurpriseEnergy
from spen.features import MLP, Identity, Linear
from spen.files import digest
from spen.kernels.threads import threads_for
from spen.model import SPEN
from spen.objectives.label_wise import CrossEntropy
from spen.objectives.unrolled import ThroughSteps
from spen.training.checkpoint import Epoch, History, RunFolder
from spen.training.loop import train_on
from spen.training.rows import TrainingRows
from spen.training.stage import Stage, check_stages

RATES = ("dropout", "input_dropout")
"""Settings of a feature network in which models side by side may differ."""


@dataclass(frozen=True)
class RowsInTurns(TrainingRows):
    """Rows for k models side by side, each with its own part of them; they come in turns.

    Attributes:
        kept: the numbers of each model's rows.
    """

    kept: tuple[Tensor, ...] = ()

    @property
    def count(self) -> int:
        # Losses are weighted so that their mean is the sum of the models' means.
        return len(self.kept) * sum(map(len, self.kept))

    @property
    def turn(self) -> int:
        return len(self.kept)

    def batches(self, size: int, generator: torch.Generator) -> Sequence[Tensor]:
        """Return as many batches for each model; -1 fills up the smaller ones.

        Beside each number stands how many rows of its model are in the batch.
        """
        steps = -(-max(map(len, self.kept)) // size)
        draw: dict[str, Any] = {"generator": generator, "device": self.inputs.device}
        orders = [part[torch.randperm(len(part), **draw)].tensor_split(steps) for part in self.kept]
        return [_counted(parts) for parts in zip(*orders, strict=True)]

    def context(self, model: SPEN, rows: Tensor, masks: torch.Generator | None) -> Context:
        rows, counts = rows.unbind(1)
        found = super().context(model, rows.clamp_min(0), masks)
        # Of the whole batch, of which these rows may be a part.
        entries = len(self.kept) * counts.max()
        weight = (rows >= 0).to(found.features.dtype) * (entries / counts.clamp_min(1))
        return replace(found, weight=weight if found.weight is None else weight * found.weight)

    def with_features(self, model: SPEN) -> TrainingRows:
        return self

    def digest(self) -> str:
        return f"{super().digest()} {digest(self.kept)}"


def _counted(parts: Sequence[Tensor]) -> Tensor:
    """Return the numbers of each model's rows in turns, and how many those are."""
    numbers = nn.utils.rnn.pad_sequence(list(parts), padding_value=-1)
    counts = (numbers >= 0).sum(0).expand_as(numbers)
    return torch.stack((numbers, counts), -1).flatten(0, 1)


def train_together(
    models: Sequence[SPEN],
    stages: Sequence[Stage],
    rows: Split,
    kept: Sequence[np.ndarray],
    *,
    seed: int = 0,
    label_weight: Any = None,
    callbacks: Sequence[Callable[[Epoch], None]] = (),
    checkpoint: RunFolder | None = None,
) -> History:
    """Train models in place, side by side; the history is of their mean.

    Args:
        models: of one shape; their dropout rates may differ.
        stages: what to do, in order.
        rows: what all of them learn from.
        kept: the numbers of each model's own rows among them.
        seed: decides the order of rows and all dropout masks.
        label_weight: (L,) the weight of each label in the loss; None means one.
        callbacks: called after each epoch.
        checkpoint: a folder of runs, or None.
    """
    check_stages(stages, has_valid=False)
    # Copying so little is no work for several threads.
    with threads_for(0.0):
        stacked = side_by_side(models)
    plain = TrainingRows.of(models[0], rows, "train", label_weight)
    known = {field.name: getattr(plain, field.name) for field in fields(plain)}
    device = plain.inputs.device
    own = tuple(torch.as_tensor(numbers, device=device) for numbers in kept)
    in_turns = RowsInTurns(**known, kept=own)
    history = train_on(
        stacked, stages, in_turns, seed=seed, callbacks=callbacks, checkpoint=checkpoint
    )
    with torch.no_grad(), threads_for(0.0):
        for k, model in enumerate(models):
            for name, weight in model.named_parameters():
                weight.copy_(stacked.get_parameter(name)[k])
    return history


def side_by_side(models: Sequence[SPEN]) -> SPEN:
    """Return one model with the weights of several of one shape, and their rates.

    >>> import spen
    >>> models = [spen.SPEN(spen.MLP(3, 8), spen.LocalEnergy(8, 2), spen.UnitBox(2), seed=k)
    ...           for k in range(4)]
    >>> side_by_side(models).energy.weight.shape
    torch.Size([4, 2, 8])
    """
    stacked = copy.deepcopy(models[0])
    for name, _ in models[0].named_parameters():
        owner, _, last = name.rpartition(".")
        weights = torch.stack([model.get_parameter(name).detach() for model in models])
        trained = models[0].get_parameter(name).requires_grad
        setattr(stacked.get_submodule(owner), last, nn.Parameter(weights, requires_grad=trained))
    for name in RATES:
        rates = tuple(getattr(model.features, name, 0.0) for model in models)
        if any(rates):
            setattr(stacked.features, name, rates)
    return stacked


def goes_together(model: SPEN, stages: Sequence[Stage]) -> bool:
    """Return whether such a model can be trained side by side with others."""
    known = all(
        type(term) in (LocalEnergy, ScoreEnergy, SurpriseEnergy)
        or (type(term) is LabelEnergy and not term.hidden)
        for term in energy_terms(model.energy)
    )
    together = all(
        # Solvers that drop rows, kernels, and shortlists do not know of rows in turns. And a norm,
        # or a line search, would be one of all models.
        isinstance(stage.objective, CrossEntropy | ThroughSteps)
        and getattr(stage.inference, "shortlist", None) is None
        and stage.optimiser != "lbfgs"
        and stage.clip is None
        for stage in stages
    )
    return known and together and type(model.features) in (MLP, Linear, Identity)
