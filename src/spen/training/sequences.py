"""Sequences with a tag for each position, as training takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.batch.context import Context
from spen.batch.positions import at_positions
from spen.batch.ragged import Ragged
from spen.files import digest
from spen.model import SPEN

MISSING = -1
"""Stands for a tag that is not known."""


@dataclass(frozen=True)
class SequenceRows:
    """What ``TrainingRows`` is for matrices: sequences, handed out batch by batch.

    Attributes:
        inputs: what the feature network takes of each position.
        tags: the number of the class of each position, −1 where it is missing.
        n_classes: K.
        weight: (n,) how much each sequence counts.
        complete: whether no tag is missing.
        alike: whether the sequences of a batch must have one length, for feature networks that
            know of no mask.
        features: F(x) where it was computed before.
    """

    inputs: Ragged
    tags: Ragged
    n_classes: int
    weight: Tensor
    complete: bool = True
    alike: bool = False
    features: Ragged | None = None
    turn = 1

    @property
    def count(self) -> int:
        """The number of sequences that an epoch goes over."""
        return len(self.inputs)

    @property
    def device(self) -> torch.device:
        """Where the sequences are."""
        return self.inputs.values.device

    def work(self, model: SPEN, at_once: int) -> float:
        """Return positions × weights of a batch of so many sequences."""
        tables = {each.weight for each in model.modules() if isinstance(each, nn.Embedding)}
        weights = sum(each.numel() for each in model.parameters() if each not in tables)
        return min(at_once, self.count) * float(self.inputs.lengths.double().mean()) * weights

    def batches(self, size: int, generator: torch.Generator) -> Sequence[Tensor]:
        """Return the sequences of each mini-batch of an epoch, in random order."""
        return self.inputs.shuffled(size, generator, self.alike)

    def in_order(self, at_once: int) -> Iterator[Tensor]:
        """Yield all sequences, batch by batch, of so many positions."""
        return self.inputs.in_order(at_once, self.alike)

    def digest(self) -> str:
        """Return a checksum of everything."""
        both = (self.inputs, self.tags)
        return digest((*(t for each in both for t in (each.values, each.lengths)), self.weight))

    @torch.no_grad()
    def with_features(self, model: SPEN) -> SequenceRows:
        """Compute the features once, for training that leaves them as they are."""
        found: Tensor | None = None
        for rows in self.in_order(AT_ONCE):
            batch = self.inputs.batch(rows)
            features = model.features.of(batch)  # type: ignore[arg-type]
            if found is None:
                found = features.new_empty(len(self.inputs.values), features.shape[2])
            found[self._places(rows)] = features[batch.mask]
        assert found is not None
        return replace(self, features=Ragged(found, self.inputs.lengths))

    def _places(self, rows: Tensor) -> Tensor:
        """Return where the positions of some sequences stand, one sequence after the other."""
        starts, lengths = self.inputs.starts[rows].tolist(), self.inputs.lengths[rows].tolist()
        spans = [torch.arange(a, a + n) for a, n in zip(starts, lengths, strict=True)]
        return torch.cat(spans).to(self.device)

    def context(self, model: SPEN, rows: Tensor, masks: torch.Generator | None) -> Context:
        """Return the context of some sequences; a generator draws the network's masks."""
        if self.features is None:
            batch = self.inputs.batch(rows)
            features, mask = model.features.of(batch, masks), batch.mask  # type: ignore[arg-type]
        else:
            features, mask = self.features.batch(rows)
        tags, present = self.tags.batch(rows).values, mask
        target = F.one_hot(tags.clamp_min(0), self.n_classes).to(features)
        observed = None
        if not self.complete:
            present = mask & (tags != MISSING)
            # Padding counts as seen: nothing is there to be filled in.
            observed = (present | ~mask).repeat_interleave(self.n_classes, 1)
        target = at_positions(target.flatten(1), present)
        return Context(
            features, target, observed=observed, weight=self.weight[rows.to(self.device)], mask=mask
        )


AT_ONCE = 4096
"""Positions whose features are computed at a time, to bound memory."""
