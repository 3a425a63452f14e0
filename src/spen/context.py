"""What an energy is bound to: one batch of features, with what is known of its labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Context:
    """A batch, rows first.

    Attributes:
        features: (n, f) the output F(x) of the feature network.
        target: (n, L) the true labels, for training.
        known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
        observed: (n, L) True where the target counts in the loss; None means everywhere.
        weight: (n,) the weight of each example in the loss; None means one.

    >>> import torch
    >>> context = Context(features=torch.zeros(3, 2))
    >>> context.select(torch.tensor([0, 2])).n_rows
    2
    """

    features: Tensor
    target: Tensor | None = None
    known: Tensor | None = None
    observed: Tensor | None = None
    weight: Tensor | None = None

    @property
    def n_rows(self) -> int:
        """The number of examples."""
        return self.features.shape[0]

    def select(self, rows: Tensor) -> Context:
        """Return the context of some rows (indices or a mask)."""
        fields = ("features", "target", "known", "observed", "weight")
        return replace(self, **{name: take(getattr(self, name), rows) for name in fields})


def take(tensor: Tensor | None, rows: Tensor) -> Tensor | None:
    """Index an optional tensor by rows."""
    return None if tensor is None else tensor[rows]


def masked(values: Tensor, observed: Tensor | None) -> Tensor:
    """Zero the entries of labels that were not observed."""
    return values if observed is None else values * observed
