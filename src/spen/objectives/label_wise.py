"""Label-wise losses of the local energy: how it is pre-trained, and what an MLP is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from spen.batch.context import Context, masked
from spen.domains import Domain, UnitBox, held_labels
from spen.errors import InputError, check_share
from spen.inference.base import Inference, Solution, Status
from spen.objectives.base import Objective, reveal_labels, target_of

if TYPE_CHECKING:
    from spen.model import SPEN


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """The log loss of p = σ(−local scores) (softmax on a Simplex). It needs no inference.

        loss = −Σ_i t_i log p_i + (1 − t_i) log(1 − p_i),   t (n, L) → (n,)

    Args:
        missing: the share of true labels that are marked 0; see ``log_loss_of_marks``.

    >>> from spen import Context, Descent, Identity, LocalEnergy, SPEN, UnitBox
    >>> model = SPEN(Identity(8), LocalEnergy(8, 4), UnitBox(4), seed=0)
    >>> context = Context(torch.ones(2, 8), torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]]))
    >>> CrossEntropy().loss(model, Descent(), context).shape
    torch.Size([2])
    """

    missing: float = 0.0

    start = "local"
    entropy = 1.0

    def __post_init__(self) -> None:
        check_share(self.missing, "missing")

    def neutral_scores(self, shares: Tensor) -> Tensor:
        """Return the score z of labels that are on in these shares of rows, (L,)."""
        return torch.logit(shares)

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        dual, target = -model.local_scores(context), target_of(context)
        each = log_loss_of_marks(model.domain, dual, target, self.missing)
        return masked(each, context.counted).sum(1)

    def predict(self, model: SPEN, inference: Inference, context: Context) -> Solution:
        """The minimiser of the local energy with entropy weight 1, which is known at once."""
        scores, domain = model.local_scores(context), model.domain.of_batch(context)
        y = domain.to_primal(-scores)
        known = held_labels(domain, context.known, y, context.mask)
        if known is not None:
            y = domain.hold(y, known)
        return Solution(
            y=y,
            energy=domain.sum(scores * y) + domain.negative_entropy(y),
            steps=torch.zeros(y.shape[0], dtype=torch.int64, device=y.device),
            status=torch.full((y.shape[0],), Status.CONVERGED, device=y.device),
        )


@dataclass(frozen=True)
class HiddenCrossEntropy(CrossEntropy):
    """The log loss of hidden labels where others are known, of scores that are told of these.

        loss = −Σ_i t_i log p_i + (1 − t_i) log(1 − p_i) over hidden i,   t (n, L) → (n,)

    Each row is shown a random part of its true labels, zeros as well as ones: a share that is drawn
    evenly from 0 to 1. The loss is that of the labels it is not shown. For energies whose scores
    look at known labels, such as ``KnownLabelsEnergy``.

    Args:
        missing: the share of true labels that are marked 0; see ``log_loss_of_marks``.

    >>> import spen
    >>> energy = spen.KnownLabelsEnergy(2, 3)
    >>> model = spen.SPEN(spen.Linear(1, 2), energy, spen.UnitBox(3), seed=0)
    >>> context = model.context([[1.0]], target=[[1.0, 0.0, 1.0]])
    >>> plain = CrossEntropy().loss(model, spen.Descent(), context)
    >>> torch.equal(HiddenCrossEntropy().loss(model, spen.Descent(), context), plain)
    True
    >>> generator = torch.Generator().manual_seed(0)
    >>> hidden = HiddenCrossEntropy().loss(model, spen.Descent(), context, generator)
    >>> bool(hidden < plain)
    True
    """

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        target = target_of(context)
        given = reveal_labels(context, target, 1.0, generator)
        told = context if given is None else replace(context, known=given)
        dual = -model.local_scores(told, generator)
        each = log_loss_of_marks(model.domain, dual, target, self.missing)
        if told.known is not None:
            each = torch.where(torch.isnan(told.known), each, 0.0)
        return masked(each, context.counted).sum(1)


@dataclass(frozen=True)
class SquaredError(CrossEntropy):
    """The squared error of the local scores as a regression on the labels.

        loss = Σ_i (½ + z_i / 4 − t_i)²,   t (n, L) → (n,)

    A score z is a log-odds elsewhere, and it stays one: z regresses 4 (t − ½), because 4 (p − ½)
    is the straight line that touches the log-odds of p at ½. So predictions are σ(z), strictly
    inside (0, 1), and calibration does the rest. The error is divided by 16, which makes it
    (p − t)² in the regression's own p = ½ + z / 4.

    This is the squared loss of Yu, Jain, Kar & Dhillon, "Large-scale Multi-label Learning with
    Missing Labels", ICML 2014. Labels that are known to be missing do not count in it, but it
    has no likelihood to say that zeros are partly missing: ``missing`` must be 0.

    >>> import spen
    >>> model = spen.SPEN(spen.Identity(1), spen.LocalEnergy(1, 2), spen.UnitBox(2)).double()
    >>> _ = torch.nn.init.zeros_(model.energy.weight)
    >>> context = model.context([[1.0]], target=[[1.0, 0.0]])
    >>> SquaredError().loss(model, spen.Descent(), context).item()
    0.5
    """

    def __post_init__(self) -> None:
        if self.missing:
            raise InputError(
                f"SquaredError has no model of missing labels; received missing={self.missing!r}. "
                "Leave it at 0, or choose CrossEntropy."
            )

    def neutral_scores(self, shares: Tensor) -> Tensor:
        return 4 * (shares - 0.5)

    def loss(
        self,
        model: SPEN,
        inference: Inference,
        context: Context,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        wanted = 4 * (target_of(context) - 0.5)
        error = (-model.local_scores(context) - wanted).square() / 16
        return masked(error, context.counted).sum(1)


def log_loss_of_marks(domain: Domain, dual: Tensor, target: Tensor, missing: float) -> Tensor:
    """Return the log loss of each label's mark (n, L), from the dual of y.

    A label that is on is marked with probability 1 − m, independently of everything else
    ("selected completely at random": Elkan & Noto, "Learning Classifiers from Only Positive
    and Unlabeled Data", KDD 2008), and one that is off never is. Up to a constant, the loss is

        −t log y − (1 − t) log(1 − (1 − m) y),   y = σ(dual).

    Args:
        domain: where y lives; m above zero is for label sets.
        dual: (n, L).
        target: (n, L) the marks t.
        missing: m, the share of labels that are on without a mark; 0 is the plain log loss.

    >>> import torch
    >>> log_loss_of_marks(UnitBox(1), torch.zeros(1, 1), torch.zeros(1, 1), missing=0.5)
    tensor([[0.2877]])
    """
    plain = domain.log_loss_of_dual(dual, target)
    if not missing:
        return plain
    if not isinstance(domain, UnitBox):
        raise InputError(
            f"missing={missing} is for sets of labels, of which some may be missing; on {domain} "
            "every position has its class. Leave missing at 0."
        )
    # 1 − (1 − m) σ(θ) = (1 + m e^θ) / (1 + e^θ), whose denominator is in the plain loss.
    return plain - (1 - target) * F.softplus(dual + math.log(missing))
