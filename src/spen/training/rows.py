"""Training rows as a model takes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spen.batch.context import Context
from spen.batch.inputs import InputRows
from spen.batch.rows import Rows, SparseRows, densify, row_batches, whole_batch
from spen.batch.splits import Split
from spen.domains import UnitBox
from spen.errors import InputError
from spen.features import Identity
from spen.files import digest
from spen.model import SPEN
from spen.training.processes import our_processes

LARGEST_KEPT = 2**30
"""Bytes of features that are computed once and kept; more are computed batch by batch."""

LARGEST_DENSE = 2**24
"""Bytes of labels that are made dense once; of more, each batch makes its own dense."""

AT_ONCE = 4096
"""Rows whose features are computed at a time, to bound memory."""


@dataclass(frozen=True)
class TrainingRows:
    """Rows of inputs and labels, checked once and handed out batch by batch.

    Attributes:
        inputs: (n, n_inputs), dense or sparse, or inputs of any kind.
        target: (n, L), dense or sparse.
        observed: (n, L) where the target counts; None means everywhere.
        weight: (n,) the weight of each row; None means one.
        label_weight: (L,) the weight of each label; None means one.
        features: (n, f) F(x) where it was computed before; None computes it when asked for.
    """

    inputs: Rows
    target: Rows
    observed: Tensor | None
    weight: Tensor | None
    label_weight: Tensor | None
    features: Tensor | None = None

    @classmethod
    def of(
        cls, model: SPEN, split: Split | tuple[Any, Any], name: str, label_weight: Any = None
    ) -> TrainingRows:
        """Check rows against a model; ``name`` is what errors call them."""
        if not isinstance(split, Split):
            if not isinstance(split, tuple | list) or len(split) != 2:
                raise InputError(
                    f"{name} must be a Split or a pair (X, Y); received {type(split).__name__}. "
                    "Of a Dataset, pass one part, such as data.train."
                )
            split = Split(*split)
        arrays = model.arrays
        inputs = arrays.rows(split.X, f"{name} X", model.features.n_inputs)
        n, size = inputs.shape[0], model.domain.size
        target, observed = arrays.label_rows(split.Y, f"{name} Y", size, n)
        in_little = n * size * model.reference.element_size() <= LARGEST_DENSE
        if isinstance(target, SparseRows) and (in_little or not isinstance(model.domain, UnitBox)):
            target = densify(whole_batch(target))
        if isinstance(target, Tensor):
            target, observed = model.domain.complete_target(target, observed)
        weight = None if split.weight is None else arrays.weights(split.weight, n)
        if label_weight is not None:
            label_weight = arrays.weights(label_weight, size, "label_weight")
        return cls(inputs, target, observed, weight, label_weight)

    @property
    def count(self) -> int:
        """The number of examples that an epoch goes over."""
        return self.inputs.shape[0]

    def batches(self, size: int, generator: torch.Generator) -> Sequence[Tensor]:
        """Return the rows of each mini-batch of an epoch, in random order."""
        order = torch.randperm(self.count, generator=generator, device=self.inputs.device)
        if isinstance(self.inputs, InputRows):
            # All at once: a GPU would have to wait at each batch that is cut out on the host.
            order = order.to(self.inputs.order_device)
        return order.split(size)

    @property
    def turn(self) -> int:
        """How many entries of a batch stay together where processes share it."""
        return 1

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.inputs.device

    def work(self, model: SPEN, at_once: int) -> float:
        """Return rows × weights of a batch of so many rows."""
        return model.work(self.inputs, at_once)

    def in_order(self, at_once: int) -> Iterator[Tensor]:
        """Yield all rows as they come, so many at a time."""
        return iter(row_batches(self.inputs, at_once))

    def digest(self) -> str:
        """Return a checksum of everything."""
        dense = (self.observed, self.weight, self.label_weight)
        parts = ((r,) if isinstance(r, Tensor) else r.parts() for r in (self.inputs, self.target))
        return digest((*itertools.chain(*parts), *dense))

    @torch.no_grad()
    def with_features(self, model: SPEN) -> TrainingRows:
        """Compute the features once, for training that leaves them as they are."""
        n = self.inputs.shape[0]
        # F(x) = x is no work, and sparse rows had better stay sparse.
        if isinstance(model.features, Identity) or model.features.n_features is None:
            return self
        if n * model.features.n_features * model.reference.element_size() > LARGEST_KEPT:
            return self
        processes = our_processes()
        features = model.reference.new_empty(n, model.features.n_features)
        for batch in row_batches(self.inputs, AT_ONCE):
            part = batch[processes.part(len(batch))]
            own = [model.features.of(self.inputs[part])] if len(part) else []
            features[batch] = processes.gathered(own)
        return replace(self, features=features)

    def context(self, model: SPEN, rows: Tensor, masks: torch.Generator | None) -> Context:
        """Return the context of some rows; a generator draws the feature network's masks."""
        if self.features is None:
            features = model.features.of(self.inputs[rows], masks)
        else:
            features = self.features[rows]
        return Context(
            features=features,
            target=densify(self.target[rows]),
            observed=None if self.observed is None else self.observed[rows],
            weight=None if self.weight is None else self.weight[rows],
            label_weight=self.label_weight,
        )
