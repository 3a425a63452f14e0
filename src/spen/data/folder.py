"""Which files of a folder are the parts of its data set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spen.data.recognise import looks_like
from spen.errors import InputError

SUFFIXES = (".arff", ".txt", ".svm", ".libsvm", ".csv", ".tsv", ".npz")
_PART = re.compile(
    r"(?:^|[-_.])(?P<part>train|trn|training|test|tst|testing|valid|validation|val|dev)(?=$|[-_.])",
    re.IGNORECASE,
)
_PARTS = {"tr": "train", "te": "test", "ts": "test", "va": "valid", "de": "valid"}


@dataclass(frozen=True)
class Parts:
    """The files of a data set."""

    train: Path
    test: Path | None = None
    valid: Path | None = None


def find_parts(folder: Path, format: str | None = None) -> Parts:
    """Return the files of a folder's data set, or raise an error that lists what is there.

    Files belong together if their names differ only in ``train``, ``test`` and the like. A
    group with a training and a test file is preferred to others, and those to a lone file.

    Args:
        folder: the folder; folders in it are not looked into.
        format: consider only files of this format.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as problem:
        raise InputError(f"{folder} cannot be read: {problem}.") from None
    data = [path for path in files if _is_data(path, format)]
    groups, alone = _group(data)
    whole = [parts for parts in groups if parts.test is not None]
    for choice in (whole, groups, [Parts(path) for path in alone]):
        if len(choice) == 1:
            return choice[0]
        if choice:
            raise InputError(
                f"{folder} holds more than one data set: "
                f"{', '.join(parts.train.name for parts in choice)}. Name a file, or a format."
            )
    listed = ", ".join(path.name for path in files[:20]) or "nothing"
    raise InputError(
        f"{folder} holds no data set{f' of format {format}' if format else ''}. Expected files "
        f"such as NAME-train.arff and NAME-test.arff, or train.txt and test.txt; found {listed}."
    )


def parts_of_entry(folder: Path, names: Iterable[str]) -> Parts:
    """Return the parts of a data set whose files are known by name."""
    groups, alone = _group([folder / name for name in names if name.endswith(".arff")])
    return groups[0] if groups else Parts(alone[0])


def _group(files: Sequence[Path]) -> tuple[list[Parts], list[Path]]:
    """Return (files that go together, files that say nothing about their part)."""
    groups: dict[str, dict[str, Path]] = {}
    alone = []
    for path in files:
        match = _PART.search(path.stem)
        if match is None:
            alone.append(path)
            continue
        part = _PARTS[match["part"][:2].lower()]
        rest = f"{path.stem[: match.start('part')]}*{path.stem[match.end('part') :]}{path.suffix}"
        groups.setdefault(rest, {}).setdefault(part, path)
    return [Parts(**group) for group in groups.values() if "train" in group], alone


def _is_data(path: Path, format: str | None) -> bool:
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        found = looks_like(path)
    except InputError:
        return False
    wanted = "arff" if format in ("mulan", "meka") else format
    # Notes beside the data are text as well; text that only looks like a table is not data.
    if path.suffix.lower() == ".txt" and found == "csv" and wanted != "csv":
        return False
    return found is not None and wanted in (None, found)
