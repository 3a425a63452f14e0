"""Which columns of a table are labels, by name or by number."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from spen.data.names import Numbered
from spen.errors import InputError, did_you_mean

Labels: TypeAlias = str | Path | int | Sequence[str] | None
"""What people pass: names of columns, a number of columns, an XML file, or nothing."""


@dataclass(frozen=True)
class LabelChoice:
    """The columns to choose from.

    Attributes:
        path: the file, for errors.
        names: its columns in order.
        what: what a column is called in this format.
        required: whether all labels must be there; otherwise those that are there are taken.
    """

    path: Path
    names: Sequence[str]
    what: str
    required: bool


def pick(choice: LabelChoice, labels: Labels) -> set[int]:
    """Return the numbers of the columns that are labels.

    >>> pick(LabelChoice(Path("a.csv"), ["x", "rain", "snow"], "column", True), -2) == {1, 2}
    True
    """
    count = len(choice.names)
    if isinstance(labels, int) and not isinstance(labels, bool):
        if not 0 < abs(labels) < count:
            raise InputError(
                f"{choice.path} has {count} {choice.what}s; {labels} of them cannot be the labels, "
                "as at least one must be a label and one a feature."
            )
        return set(range(labels)) if labels > 0 else set(range(count + labels, count))
    wanted = _names(choice, labels)
    place = {name: i for i, name in enumerate(choice.names)}
    unknown = [name for name in wanted if name not in place]
    if unknown and choice.required:
        raise InputError(
            f"{choice.path} has no {choice.what} {unknown[0]!r}. {_hint(unknown[0], choice.names)}"
        )
    if choice.required and not wanted:
        raise InputError(f"labels is empty: name at least one {choice.what}.")
    return {place[name] for name in wanted if name in place}


def label_names(path: Path, labels: Labels, count: int | None) -> Sequence[str]:
    """Return the names that were given for the labels of a file that has none, or made-up ones.

    Args:
        path: the file, for errors.
        labels: the names; None: label0, label1, ….
        count: how many there are; None: as many as are named.
    """
    if labels is None:
        return Numbered("label", count or 0)
    names = tuple(_names(LabelChoice(path, (), "label", True), labels))
    if count is not None and len(names) != count:
        raise InputError(f"labels names {len(names)} labels, but {path} has {count}.")
    return names


def _names(choice: LabelChoice, labels: object) -> list[str]:
    if isinstance(labels, str):
        return [labels]
    if isinstance(labels, Iterable):
        names = list(labels)
        if all(isinstance(name, str) for name in names):
            return names
    raise InputError(
        f"labels must be names of {choice.what}s, or how many come first (negative: last); "
        f"received {labels!r}."
    )


def _hint(name: str, names: Sequence[str]) -> str:
    if len(names) <= 20:
        return did_you_mean(name, names)
    near = difflib.get_close_matches(name, names[:10_000], n=1)
    return f"Did you mean {near[0]!r}?" if near else f"It has {len(names)} others."
