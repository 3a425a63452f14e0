"""The store of a stream, opened: its rows are read if they were not before."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from spen.batch.inputs import InputRows
from spen.batch.limits import in_words
from spen.batch.splits import Split
from spen.errors import CheckpointError
from spen.estimators.progress import Progress
from spen.files import locked
from spen.training.processes import our_processes
from spen.training.store import RowStore, StoreWriter, copy_stream

TOLD_AFTER = 10.0
"""Seconds after which it is told again how many rows have been read."""

ROWS = "rows"
"""The name of the store in a folder of checkpoints."""


@contextmanager
def stored(
    parts: Iterator[Split],
    identity: str | None,
    folder: Path | None,
    resume: bool,
    reads: Callable[[Any], InputRows | None],
    progress: Progress,
) -> Iterator[RowStore]:
    """Open the store of a stream's rows, which are read unless they were before.

    Args:
        parts: the rows.
        identity: what differs as soon as they do, if that is known.
        folder: of checkpoints; None puts the store into a folder that goes when the block ends.
        resume: whether to go on in that folder.
        reads: returns rows that are inputs of another kind than a matrix; None of a matrix.
        progress: is told how many rows have been read.
    """
    processes = our_processes()
    # The folder is the first one's; other machines have a temporary one.
    own = folder if processes.is_first else None
    read = partial(_read, parts, identity, own, resume, reads, progress)
    with processes.entered_here(read) as place, RowStore.open(place) as store:
        progress.tell(f"{store.about.rows:,} rows, {in_words(store.bytes)} on disk in {place}")
        yield store


@contextmanager
def _read(
    parts: Iterator[Split],
    identity: str | None,
    folder: Path | None,
    resume: bool,
    reads: Callable[[Any], InputRows | None],
    progress: Progress,
) -> Iterator[Path]:
    """Hold the place of a store, with the rows of a stream."""
    with ExitStack() as held:
        if folder is None:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="spen-")))
        place = folder / ROWS
        held.enter_context(locked(place))
        if not resume and (place.exists() or (folder / "about.run").exists()):
            raise CheckpointError(
                f"{folder} holds checkpoints already. Pass resume=True to go on from them, or "
                "name another folder."
            )
        if not place.exists():
            _copy(parts, identity, place, reads, progress)
        elif not _is_of(place, identity):
            _check_again(parts, place, reads, progress)
        yield place


def _copy(
    parts: Iterator[Split],
    identity: str | None,
    place: Path,
    reads: Callable[[Any], InputRows | None],
    progress: Progress,
) -> None:
    last = time.monotonic()

    def told(rows: int) -> None:
        nonlocal last
        if time.monotonic() - last > TOLD_AFTER:
            last = time.monotonic()
            progress.tell(f"{rows:,} rows read")

    progress.tell("reading rows")
    copy_stream(parts, StoreWriter(place, reads, identity), told)


def _is_of(place: Path, identity: str | None) -> bool:
    with RowStore.open(place) as store:
        return identity is not None and store.about.identity == identity


def _check_again(
    parts: Iterator[Split],
    place: Path,
    reads: Callable[[Any], InputRows | None],
    progress: Progress,
) -> None:
    """Raise unless rows that may have changed are those of a store: they are read again."""
    again = place.with_name(f"{place.name}.again")
    try:
        _copy(parts, None, again, reads, progress)
        with RowStore.open(again) as new, RowStore.open(place) as old:
            if new.about.checksum != old.about.checksum:
                raise CheckpointError(
                    f"{place.parent} belongs to another run: it differs in its rows, or in their "
                    "order. Go on with those that it was begun with, or name another folder."
                )
    finally:
        shutil.rmtree(again, ignore_errors=True)
