"""What every reader of a file offers: names, sizes, and rows in chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spen.batch.splits import Split
from spen.data.dataset import join
from spen.errors import InputError


class RowReader(ABC):
    """The rows of one file, read as they are asked for.

    Attributes:
        path: the file.
        format: its format's name.
        feature_names: the name of each column of X.
        label_names: the name of each column of Y; empty where the file has no labels.
    """

    path: Path
    format: str
    feature_names: Sequence[str]
    label_names: Sequence[str]

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return len(self.feature_names)

    @property
    def n_labels(self) -> int:
        """The number of columns of Y."""
        return len(self.label_names)

    @abstractmethod
    def parts(self) -> Iterator[Split]:
        """Yield the rows in order, in parts of whatever size the file gives."""

    def chunks(self, rows: int = 4096) -> Iterator[Split]:
        """Yield the rows in order, so many at a time; the last chunk may have fewer."""
        if not isinstance(rows, int) or rows < 1:
            raise InputError(f"rows must be a whole number of 1 or more; received {rows!r}.")
        return _regroup(self.parts(), rows)

    def read(self) -> Split:
        """Return all rows."""
        parts = [part for part in self.parts() if len(part)]
        if not parts:
            raise InputError(f"{self.path} has no rows of data.")
        return join(parts, self.path)

    def train_rows(self, total: int) -> int | None:
        """Return how many of the first rows are for training, where the file says so."""
        return None


def _regroup(parts: Iterable[Split], rows: int) -> Iterator[Split]:
    waiting: list[Split] = []
    count = 0
    for part in parts:
        if len(part):
            waiting.append(part)
            count += len(part)
        if count < rows:
            continue
        joined = join(waiting)
        cut = 0
        while count - cut >= rows:
            yield joined.rows(slice(cut, cut + rows))
            cut += rows
        waiting = [joined.rows(slice(cut, count))] if cut < count else []
        count -= cut
    if waiting:
        yield join(waiting)
