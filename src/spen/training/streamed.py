"""Training rows that are read from a store while a model is trained on them.

An epoch goes through the blocks of the store in a random order, and mixes the rows of as many of
them as the buffer holds: so rows that lie side by side come apart, and memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from spen.batch.context import Context
from spen.batch.inputs import read_inputs
from spen.batch.splits import Split
from spen.domains import UnitBox
from spen.files import digest
from spen.model import SPEN
from spen.training.rows import TrainingRows
from spen.training.store import MISSING, RowStore

BUFFER = 2**26
"""Bytes of the rows that are mixed. With what is made of them they take some times as much."""

SCALED_AT_ONCE = 4096
"""Rows that are scaled together: in double precision, and so in more memory than they stay in."""


@dataclass(frozen=True)
class Held:
    """Which rows are held out: those whose digest, as a share of the largest, lies below a bound.

    The digest is of a row's own numbers, so a row is held out or not wherever it stands, in
    whatever file, and however many others there are.

    >>> Held(0.5).among(np.array([0, 2**62, -1]))
    array([ True,  True, False])
    """

    share: float

    def among(self, digests: np.ndarray) -> np.ndarray:
        """Return for each of some rows, known by their digests, whether it is held out."""
        return digests.view(np.uint64) < np.uint64(int(self.share * 2**64))


@dataclass(frozen=True)
class StreamBatch:
    """Some rows of those that are in memory."""

    rows: TrainingRows
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, part: Any) -> StreamBatch:
        """Return some of them."""
        return StreamBatch(self.rows, self.index[part])


@dataclass(frozen=True)
class StreamedRows:
    """What ``TrainingRows`` is for matrices in memory: rows of a store, batch by batch.

    Attributes:
        model: what they are for.
        store: where they are.
        scale: turns inputs as they came into those that the model takes.
        held: says which rows are not trained on.
        kept: (blocks,) how many rows of each block are.
        scaled_as: what ``scale`` does, in numbers.
        weight: what the weight of each row is multiplied with.
        label_weight: (L,) the weight of each label; None means one.
    """

    model: SPEN
    store: RowStore
    scale: Callable[[Any], Any]
    held: Held
    kept: np.ndarray
    scaled_as: Sequence[np.ndarray | None] = ()
    weight: float = 1.0
    label_weight: Any = None

    turn = 1
    """How many entries of a batch stay together where processes share it."""

    @property
    def count(self) -> int:
        """The number of rows that an epoch goes over."""
        return int(self.kept.sum())

    @property
    def device(self) -> torch.device:
        """Where batches are."""
        return self.model.reference.device

    def batches(self, size: int, generator: torch.Generator) -> StreamedEpoch:
        """Return the mini-batches of an epoch, in random order."""
        # One number decides the order, whatever else is drawn while the epoch goes on.
        drawn = torch.randint(2**62, (), generator=generator, device=generator.device)
        return StreamedEpoch(self, size, int(drawn))

    def in_order(self, at_once: int) -> Iterator[StreamBatch]:
        """Yield all rows as they come, so many at a time."""
        per_block = max(1, at_once // self.store.step)
        for first, end in self.store.spans(per_block):
            part = self.read([(first, end)])
            if part is not None:
                for index in torch.arange(part.count, device=self.device).split(at_once):
                    yield StreamBatch(part, index)

    def context(self, model: SPEN, rows: StreamBatch, masks: torch.Generator | None) -> Context:
        """Return the context of a batch; a generator draws the feature network's masks."""
        return rows.rows.context(model, rows.index, masks)

    def with_features(self, model: SPEN) -> StreamedRows:
        """Return these rows: features of so many are computed batch by batch."""
        return self

    def work(self, model: SPEN, at_once: int) -> float:
        """Return rows × weights of a batch of so many rows."""
        sample, rows = self._sample, min(at_once, self.count)
        few = min(rows, sample.shape[0])
        return model.work(sample, few) * rows / few

    def digest(self) -> str:
        """Return a checksum of everything."""
        about, arrays = self.store.about, (*self.scaled_as, self.label_weight)
        tensors = [None if each is None else torch.as_tensor(each) for each in arrays]
        return f"{about.checksum} {digest(tensors)} {self.held.share!r} {self.weight!r}"

    @cached_property
    def blocks_at_once(self) -> int:
        """How many blocks are mixed."""
        store, domain = self.store, self.model.domain
        a_row = store.bytes / store.about.rows
        if store.about.missing or not isinstance(domain, UnitBox):
            a_row += 4 * domain.size  # their labels are dense
        return max(1, int(BUFFER / (a_row * store.step)))

    def read(self, spans: Sequence[tuple[int, int]]) -> TrainingRows | None:
        """Return the rows of some blocks that are trained on; None where there are none."""
        parts = [self._part(first, end) for first, end in spans]
        parts = [part for part in parts if len(part)]
        if not parts:
            return None
        rows = scaled(_joined(parts), self.scale)
        if rows.weight is not None:
            rows = Split(rows.X, rows.Y, rows.weight * np.float32(self.weight))
        return TrainingRows.of(self.model, rows, "train", self.label_weight)

    def _part(self, first: int, end: int) -> Split:
        return self.store.block(first, end).rows(~self.held.among(self.store.digests(first, end)))

    @cached_property
    def _sample(self) -> Any:
        first, end = self.store.spans()[0]
        return scaled(self.store.block(first, end), self.scale).X


@dataclass(frozen=True)
class StreamedEpoch:
    """The mini-batches of one epoch.

    Rows of one buffer are dealt out evenly, so that no batch is much smaller than the others.

    Attributes:
        rows: to go over.
        size: of a batch, about.
        seed: decides the order.
    """

    rows: StreamedRows
    size: int
    seed: int

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[StreamBatch]:
        return self.after(0)

    def after(self, done: int) -> Iterator[StreamBatch]:
        """Yield the batches that come after so many; what was done is not read."""
        spans, generator = self.rows.store.spans(), torch.Generator().manual_seed(self.seed + 1)
        for blocks in self._buffers:
            count, rows = self._parts(blocks), int(self.rows.kept[blocks].sum())
            order = torch.randperm(rows, generator=generator)
            if done < count:
                part = self.rows.read([spans[block] for block in blocks])
                assert part is not None
                for index in order.to(self.rows.device).tensor_split(count)[done:]:
                    yield StreamBatch(part, index)
            done = max(0, done - count)

    def _parts(self, blocks: np.ndarray) -> int:
        """Return how many batches some blocks make."""
        rows = int(self.rows.kept[blocks].sum())
        return max(1, round(rows / self.size)) if rows else 0

    @cached_property
    def _count(self) -> int:
        return sum(self._parts(blocks) for blocks in self._buffers)

    @cached_property
    def _buffers(self) -> list[np.ndarray]:
        """The numbers of the blocks that are mixed with each other, in the order of the epoch."""
        blocks = len(self.rows.kept)
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(self.seed)).numpy()
        # Evenly too, so that the last buffer of an epoch is not a small one.
        return np.array_split(order, -(-blocks // self.rows.blocks_at_once))


def numbered(batches: Sequence[Any] | StreamedEpoch, done: int) -> Iterator[tuple[int, Any]]:
    """Yield the batches of an epoch that come after so many, with their numbers, from 0."""
    if isinstance(batches, StreamedEpoch):
        return enumerate(batches.after(done), done)
    return enumerate(batches[done:], done)


def scaled(rows: Split, scale: Callable[[Any], Any]) -> Split:
    """Return rows of a store as a model takes them: scaled, with nan for missing labels."""
    X = rows.X
    spans = [slice(k, k + SCALED_AT_ONCE) for k in range(0, X.shape[0], SCALED_AT_ONCE)]
    parts = [scale(X[span]) for span in spans]
    X = parts[0] if len(parts) == 1 else _stacked(parts)
    return Split(as_passed(X), labels_of(rows.Y), rows.weight)


def as_passed(X: Any) -> Any:
    """Return inputs that are no matrix of floats as a model takes them."""
    passed = None if sparse.issparse(X) else read_inputs(X)
    return X if passed is None else passed


def labels_of(Y: Any) -> Any:
    """Return the labels of a store as CSR, or dense with nan where some are missing."""
    missing = Y.data == MISSING
    if not missing.any():
        return Y.astype(np.int8)
    values = np.where(missing, np.nan, 1).astype(np.float32)
    return sparse.csr_array((values, Y.indices, Y.indptr), shape=Y.shape).toarray()


def _joined(parts: Sequence[Split]) -> Split:
    """Return parts that came out of one store as one."""
    if len(parts) == 1:
        return parts[0]
    X, Y = (_stacked([getattr(part, name) for part in parts]) for name in ("X", "Y"))
    weighted = parts[0].weight is not None
    return Split(X, Y, np.concatenate([part.weight for part in parts]) if weighted else None)


def _stacked(arrays: Sequence[Any]) -> Any:
    if sparse.issparse(arrays[0]):
        return sparse.vstack(arrays, format="csr")
    return np.concatenate(arrays)
