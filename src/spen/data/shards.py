"""Shards: the rows of many files of one kind, one file after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from spen.batch.splits import Split
from spen.data.reader import Options, RowReader
from spen.errors import InputError

Opener = Callable[[Path, Options], RowReader]


class ShardReader(RowReader):
    """The rows of all files of a folder, or of a pattern, by the order of their names.

    Labels and columns must be the same in all of them. Tags, and the sizes of LIBSVM text, are
    those of all files together.

    Args:
        source: what the files were found by.
        paths: the files.
        options: how to read each.
        open_one: opens one of them.
    """

    def __init__(self, source: Path, paths: list[Path], options: Options, open_one: Opener) -> None:
        self.path, self._paths, self._open = source, paths, open_one
        first = open_one(paths[0], replace(options, also=tuple(paths[1:])))
        self._options = replace(options, like=first)
        self.format, self.label_column = first.format, first.label_column
        self.feature_names, self.label_names = first.feature_names, first.label_names

    def parts(self) -> Iterator[Split]:
        """Yield the rows of one file after the other."""
        for path in self._paths:
            shard = self._open(path, self._options)
            check_alike(self, shard)
            yield from shard.training_parts()

    @property
    def identity(self) -> str | None:
        """What differs as soon as one of the files does."""
        columns = f"{list(self.label_names)!r} {len(self.feature_names)}"
        told = [f"{p.resolve()} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in self._paths]
        return hashlib.sha256("\n".join([columns, *told]).encode()).hexdigest()


def check_alike(first: RowReader, other: RowReader) -> None:
    """Raise unless two readers have the same features and labels in the same order."""
    for what in ("feature", "label"):
        ours, theirs = getattr(first, f"{what}_names"), getattr(other, f"{what}_names")
        if ours == theirs:
            continue
        if len(ours) != len(theirs):
            how = f"{len(ours)} and {len(theirs)}"
        else:
            how = next(f"{a!r} and {b!r}" for a, b in zip(ours, theirs, strict=True) if a != b)
        raise InputError(
            f"{first.path} and {other.path} must have the same {what}s in the same order; "
            f"they differ: {how}."
        )


def files_of(source: Path) -> list[Path] | None:
    """Return the files of a folder or of a pattern such as ``rows/*.csv``; None of one file."""
    if source.is_dir():
        found = [path for path in source.iterdir() if path.is_file()]
        found = [path for path in found if path.name[0] not in "._"]
    elif "*" in str(source) and not source.exists():
        found = list(Path(source.anchor or ".").glob(str(source.relative_to(source.anchor))))
    else:
        return None
    if not found:
        raise InputError(f"There are no files in {source}. Name a file, a folder, or 'rows/*.csv'.")
    endings = sorted({_ending(path) for path in found})
    if len(endings) > 1:
        folder = source if source.is_dir() else source.parent
        raise InputError(
            f"{source} has files of several kinds: {', '.join(endings)}. Name one, such as "
            f"'{folder}/*{endings[0]}'."
        )
    return sorted(found)


def _ending(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
