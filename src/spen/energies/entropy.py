"""Entropy smoothing: a fixed term that softens the minimiser."""

from __future__ import annotations

import torch

from spen.batch.context import Context
from spen.domains import Domain
from spen.energies.base import Energy
from spen.energies.form import Form
from spen.errors import check_positive


class Entropy(Energy):
    """−τ H(y): the larger τ, the softer the prediction.

    Mirror descent applies it exactly (it divides the dual by 1 + ητ), as if the
    iterates were normalised at a temperature.

    Args:
        domain: says which entropy H is.
        weight: τ.
    """

    def __init__(self, domain: Domain, weight: float = 1.0) -> None:
        super().__init__()
        check_positive(weight, "The entropy weight", zero=True)
        self.n_labels = domain.size
        self.domain = domain
        self.weight = weight

    def bind(self, context: Context, generator: torch.Generator | None = None) -> Form:
        tau = context.features.new_full((context.n_rows,), self.weight)
        return Form(tau=tau, domain=self.domain)

    def extra_repr(self) -> str:
        return f"domain={self.domain}, weight={self.weight}"
