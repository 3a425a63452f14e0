"""The log loss of labels whose positives are partly missing."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from spen.domains import Domain, UnitBox
from spen.errors import InputError


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
