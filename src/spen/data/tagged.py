"""Data sets of sequences with a tag for each position: those with a name, and figures of any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from spen.batch.arrays import object_array
from spen.batch.splits import Split
from spen.data.catalog import Entry
from spen.data.conll import ConllReader
from spen.data.dataset import Dataset
from spen.data.reader import Options, open_file
from spen.errors import InputError

TEST_FOLD = 0
"""The fold of handwritten words that is the test part of ``load_dataset("ocr_letters")``."""


def is_tagged(data: Dataset) -> bool:
    """Say whether rows are sequences with a tag for each position."""
    return data.train.Y is not None and data.train.Y.ndim == 1


def load_tagged(entry: Entry, folder: Path) -> Dataset:
    """Read a data set of the catalogue whose rows are sequences."""
    files = {part: [folder / file.name for file in entry.files_of(part)] for part in entry.parts}
    if entry.name == "ocr_letters":
        words, folds = read_letters(files["train"][0])
        parts = {"train": words.rows(folds != TEST_FOLD), "test": words.rows(folds == TEST_FOLD)}
        width = words.X[0].shape[1]
        names = tuple(f"pixel{i}" for i in range(width)), LETTERS
    else:
        every = [path for paths in files.values() for path in paths]
        readers = {
            path: ConllReader(path, Options("conll", also=[p for p in every if p != path]))
            for path in every
        }
        parts = {
            part: _joined([readers[path].read() for path in paths]) for part, paths in files.items()
        }
        first = readers[every[0]]
        names = first.feature_names, first.label_names
    return Dataset(entry.name, parts["train"], parts.get("test"), *names, parts.get("valid"))


def _joined(parts: list[Split]) -> Split:
    X, Y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "Y"))
    return Split(X, Y)


LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


def read_letters(path: Path | str) -> tuple[Split, np.ndarray]:
    """Read handwritten words, and the fold of each, from an npz file.

    It holds X (letters, pixels) of 0 and 1, y (letters,) from 0 for a to 25 for z, and
    word_lengths and word_fold (words,).

    Args:
        path: the file.

    Returns:
        The words, X (n,) arrays (T, pixels) and Y (n,) lists of letters; and their folds, (n,).
    """
    path = Path(path)
    with open_file(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                X, y, lengths, folds = (archive[name] for name in _LETTER_ARRAYS)
        except (KeyError, ValueError, OSError, EOFError) as problem:
            raise InputError(
                f"{path} is no file of handwritten words, an npz file with the arrays "
                f"{', '.join(_LETTER_ARRAYS)}: {problem}"
            ) from None
    whole = all(each.dtype.kind in "iu" for each in (y, lengths, folds)) and X.ndim == 2
    shapes = lengths.ndim == 1 and folds.shape == lengths.shape and y.shape == X.shape[:1]
    if not whole or not shapes or lengths.min() < 1 or lengths.sum() != len(X) or y.max() > 25:
        raise InputError(f"{path}: its letters, their words and their folds do not fit together.")
    ends = np.cumsum(lengths)[:-1]
    letters = [[LETTERS[k] for k in word] for word in np.split(y, ends)]
    return Split(object_array(np.split(X, ends)), object_array(letters)), folds


_LETTER_ARRAYS = ("X", "y", "word_lengths", "word_fold")


@dataclass(frozen=True)
class TagSummary:
    """What ``spen data show`` tells of sequences. Tags are counted over all parts together.

    Attributes:
        name: the data set's name.
        sentences: part → number of sentences.
        positions: part → number of positions.
        longest: positions of the longest sentence.
        n_tags: how many different tags there are.
        missing: positions without a tag.
        unseen: the share of the test part's tokens that no training sentence holds; None without a
            test part, or of arrays.
        top_tags: (tag, positions) of the most frequent tags.
        top_pairs: (tag, tag that follows, times) of those that follow each other most often.
    """

    name: str
    sentences: dict[str, int]
    positions: dict[str, int]
    longest: int
    n_tags: int
    missing: int
    unseen: float | None
    top_tags: tuple[tuple[str, int], ...]
    top_pairs: tuple[tuple[str, str, int], ...]


def summarise_tags(data: Dataset, top: int = 10) -> TagSummary:
    """Return the figures of a data set of sequences.

    >>> rows = Split(object_array([["a", "b"], ["a"]]), object_array([["D", "N"], ["D"]]))
    >>> figures = summarise_tags(Dataset("mine", rows, None, ("0",), ("D", "N")))
    >>> figures.positions, figures.top_tags
    ({'train': 3}, (('D', 2), ('N', 1)))
    """
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    parts = {name: part for name, part in parts.items() if part is not None}
    sentences = [tags for part in parts.values() for tags in part.Y]
    tags = Counter(tag for sentence in sentences for tag in sentence)
    missing = tags.pop(None, 0)
    pairs = Counter(pair for sentence in sentences for pair in pairwise(sentence))
    unseen = None
    if data.test is not None and not hasattr(data.train.X[0], "shape"):
        seen = {_token(token) for sentence in data.train.X for token in sentence}
        fresh = [_token(token) not in seen for sentence in data.test.X for token in sentence]
        unseen = float(np.mean(fresh))
    return TagSummary(
        name=data.name,
        sentences={name: len(part) for name, part in parts.items()},
        positions={name: sum(map(len, part.Y)) for name, part in parts.items()},
        longest=max(map(len, sentences)),
        n_tags=len(tags),
        missing=missing,
        unseen=unseen,
        top_tags=tuple((str(tag), count) for tag, count in tags.most_common(top)),
        top_pairs=tuple((str(a), str(b), count) for (a, b), count in pairs.most_common(top)),
    )


def _token(token: Any) -> Hashable:
    """Return the word of a token, its first column."""
    return next(iter(token.values())) if isinstance(token, Mapping) else token
