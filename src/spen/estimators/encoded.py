"""Tables that come part by part: their columns are learned from a sample, and then encoded."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spen.batch.splits import Split
from spen.batch.streams import RowStream
from spen.errors import InputError
from spen.estimators.tables import TableEncoder, is_table

if TYPE_CHECKING:
    from spen.estimators.base import LabelClassifier

SAMPLE = 20_000
"""Rows of a table by which its columns are read as numbers."""


class EncodedStream(RowStream):
    """The rows of a table as numbers, by an encoder that has learned from a sample of them.

    The sample are those rows whose digests are smallest: the same ones in whatever order.

    Args:
        source: the table.
        encoder: with its settings; a copy learns.
    """

    def __init__(self, source: RowStream, encoder: TableEncoder) -> None:
        self.source, self.encoder = source, copy(encoder).fit(_sample(source))
        self.label_names, self.feature_names = source.label_names, self.encoder.feature_names
        self._settings = repr(encoder)

    def parts(self) -> Iterator[Split]:
        """Yield the rows, encoded."""
        for part in self.source.training_parts():
            yield replace(part, X=self.encoder.transform(part.X))

    @property
    def identity(self) -> str | None:
        """That of the table, and how it is encoded."""
        known = self.source.identity
        return None if known is None else f"{known} {self._settings}"


def holds_words(first: Split, classifier: LabelClassifier) -> bool:
    """Say whether rows are those of a table, of which numbers must first be made."""
    if is_table(first.X):
        return True
    if classifier.encoder is not None:
        raise InputError(
            "encoder is for tables, and these rows are numbers. Leave it out, or open a table with "
            "words=True."
        )
    return False


def _sample(source: RowStream) -> Any:
    from pandas import util

    hash_rows: Any = util.hash_pandas_object
    frames, digests, count = [], [], 0
    for part in source.training_parts():
        frames.append(part.X)
        digests.append(hash_rows(part.X.astype(str), index=False).to_numpy())
        count += len(part)
        if count > 2 * SAMPLE:
            frames, digests = _smallest(frames, digests)
            count = SAMPLE
    return _smallest(frames, digests)[0][0]


def _smallest(frames: list[Any], digests: list[np.ndarray]) -> tuple[list[Any], list[np.ndarray]]:
    import pandas as pd

    table, known = pd.concat(frames, ignore_index=True), np.concatenate(digests)
    order = np.argsort(known, kind="stable")[:SAMPLE]
    return [table.iloc[order].reset_index(drop=True)], [known[order]]
