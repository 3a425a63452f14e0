"""The context that an energy is bound to: a batch of features, with what is known of its labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spen.batch.positions import check_mask


@dataclass(frozen=True)
class Context:
    """A batch, rows first.

    Attributes:
        features: (n, f) the output F(x) of the feature network; (n, T, f) where y has positions.
        target: (n, L) the true labels, for training.
        known: (n, L) labels to hold fixed: 1, 0, or nan for those to infer.
        observed: (n, L) True where the target counts in the loss; None means everywhere.
        weight: (n,) the weight of each example in the loss; None means one.
        label_weight: (L,) the weight of each label in the loss; None means one.
        mask: (n, T) True where there is a position, False for the padding at the end of a row. It
            is all True where features have positions and no mask is given; None without positions.

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
    label_weight: Tensor | None = None
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.mask is not None:
            check_mask(self.mask, self.features)
        elif self.features.ndim == 3:
            everywhere = torch.ones_like(self.features[:, :, 0], dtype=torch.bool)
            object.__setattr__(self, "mask", everywhere)

    @property
    def counted(self) -> Tensor | None:
        """How much each label counts in the loss, (n, L); None means one."""
        if self.label_weight is None:
            return self.observed
        weights = self.label_weight.expand(self.n_rows, -1)
        return weights if self.observed is None else weights * self.observed

    @property
    def n_rows(self) -> int:
        """The number of examples."""
        return self.features.shape[0]

    def select(self, rows: Tensor) -> Context:
        """Return the context of some rows (indices or a mask)."""
        fields = ("features", "target", "known", "observed", "weight", "mask")
        return replace(self, **{name: take(getattr(self, name), rows) for name in fields})


def take(tensor: Tensor | None, rows: Tensor) -> Tensor | None:
    """Index an optional tensor by rows."""
    return None if tensor is None else tensor[rows]


def masked(values: Tensor, counted: Tensor | None) -> Tensor:
    """Weigh the entries of labels by how much they count: zero where they were not observed."""
    return values if counted is None else values * counted
