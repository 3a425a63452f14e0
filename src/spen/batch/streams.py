"""Streams: rows that come part by part, because there may be more of them than memory holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from spen.batch.splits import Split
from spen.errors import InputError

ITEMS_AT_ONCE = 1024
"""Items of a dataset that are put together to one part."""


class RowStream(ABC):
    """Rows and their labels, gone through part by part, and more than once.

    Attributes:
        feature_names: the name of each column of X; None where they are not known.
        label_names: the name of each column of Y; None where they are not known.
    """

    feature_names: Any = None
    label_names: Any = None

    @abstractmethod
    def parts(self) -> Iterator[Split]:
        """Yield all rows, in parts of whatever size.

        X is what a classifier takes as X. Y is (n, L) of 0 and 1, dense with nan where a label is
        missing or sparse; or (n,) whole numbers, which are classes.
        """

    def training_parts(self) -> Iterator[Split]:
        """Yield the rows as ``parts`` does, or raise where some of them must not be trained on."""
        return self.parts()

    @property
    def identity(self) -> str | None:
        """What differs as soon as the rows do, if that can be told without reading them."""
        return None


class DatasetStream(RowStream):
    """The rows of a Dataset or a DataLoader of PyTorch.

    An item is a pair (row, labels), or with the row's weight a triple: a row is an array of numbers
    or a sparse matrix of one row; labels are an array of 0 and 1, nan where one is missing, or a
    whole number, a class. A DataLoader yields batches of those.

    Args:
        source: the dataset, or what loads batches of it.

    >>> from torch.utils.data import TensorDataset
    >>> rows = TensorDataset(torch.eye(3), torch.tensor([[1, 0], [0, 1], [1, 1]]))
    >>> [part.Y.tolist() for part in DatasetStream(rows).parts()]
    [[[1, 0], [0, 1], [1, 1]]]
    """

    def __init__(self, source: Any) -> None:
        self.source = source

    def parts(self) -> Iterator[Split]:
        """Yield the rows: a loader's batches as they are, a thousand items of a dataset at a
        time."""
        if isinstance(self.source, DataLoader):
            if isinstance(self.source.sampler, RandomSampler):
                raise InputError(
                    "A DataLoader with shuffle=True comes in another order each time, and then one "
                    "random_state would not give one model. Set shuffle=False: each epoch is "
                    "shuffled here."
                )
            # A loader draws a number for its workers, and the global generator is the user's.
            before = torch.get_rng_state()
            batches = iter(self.source)
            torch.set_rng_state(before)
            for batch in batches:
                yield _split(batch, "A batch of the DataLoader")
            return
        items = iter(_items(self.source))
        while chunk := list(islice(items, ITEMS_AT_ONCE)):
            for item in chunk:
                if not isinstance(item, tuple | list) or len(item) not in (2, 3):
                    raise InputError(_what("An item of the Dataset", item))
            yield _split([_together(field) for field in zip(*chunk, strict=True)], "")


def stream_of(X: Any) -> RowStream | None:
    """Return what comes part by part as a stream; None for all else."""
    if isinstance(X, RowStream):
        return X
    return DatasetStream(X) if isinstance(X, Dataset | DataLoader) else None


def _items(dataset: Any) -> Iterable[Any]:
    if isinstance(dataset, IterableDataset):
        return dataset
    # Without a length it might have no end.
    return (dataset[number] for number in range(len(dataset)))


def _together(values: Sequence[Any]) -> Any:
    """Return what the items of a dataset have in one place as an array or a sparse matrix."""
    if sparse.issparse(values[0]):
        return sparse.vstack(values, format="csr")
    try:
        return np.stack([_plain(value) for value in values])
    except ValueError as problem:
        raise InputError(
            f"The items of a Dataset must have rows and labels of one shape; {problem}. Fill them "
            "up, or cut them."
        ) from None


def _split(batch: Any, what: str) -> Split:
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise InputError(_what(what, batch))
    fields: list[Any] = [each if sparse.issparse(each) else _plain(each) for each in batch]
    X: Any = fields[0].tocsr() if sparse.issparse(fields[0]) else fields[0]
    if X.ndim < 2:
        raise InputError(
            f"Rows of a Dataset must be arrays of numbers; received batches of shape {X.shape}."
        )
    return Split(X, *fields[1:])


def _plain(value: Any) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(
            "A Dataset must give rows and labels as numbers: arrays or tensors; received "
            f"{type(value).__name__} of type {array.dtype}. The labels of a row are an array of 0 "
            "and 1, or the number of its class."
        )
    return array


def _what(what: str, received: Any) -> str:
    found = f"{len(received)} of them" if isinstance(received, tuple | list) else ""
    return (
        f"{what} must be a pair (row, labels), or (row, labels, weight); received "
        f"{found or type(received).__name__}."
    )
