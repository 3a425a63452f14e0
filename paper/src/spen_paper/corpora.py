"""Sets with a tag for each position, and how each is divided into training and test rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import spen
from spen import InputError, Split
from spen.data.catalog import data_folders
from spen.data.tagged import read_letters
from spen.errors import choose

FOLDS_OF_WORDS = 5


class Tagged(NamedTuple):
    """Sentences, and the tags of each.

    Attributes:
        X: sentences, as ``SPENTagger.fit`` takes them.
        y: their tags.
    """

    X: list[Any]
    y: list[list[Any]]

    def take(self, rows: Sequence[int] | np.ndarray) -> Tagged:
        """Return some of them."""
        return Tagged([self.X[i] for i in rows], [self.y[i] for i in rows])

    @classmethod
    def of(cls, rows: Split) -> Tagged:
        """Return the rows of a data set."""
        return cls(list(rows.X), [list(tags) for tags in rows.Y])


@dataclass(frozen=True)
class Division:
    """What is trained on, and what is tested on.

    Attributes:
        fold: which of several it is; None where there is one alone.
        train: to learn from.
        test: not looked at before.
    """

    fold: int | None
    train: Tagged
    test: Tagged


SPLITS = {
    "ocr": ("folds", "one-fold", "new-words"),
    "twitter": ("official",),
    "chunking": ("official",),
}
"""How the rows of each set can be divided; the first is what is told first."""


def divisions(task: str, split: str, search: bool = False) -> Iterator[Division]:
    """Yield each division of a set.

    Args:
        task: ocr, twitter or chunking.
        split: one of its ``SPLITS``.
        search: only divisions in which the test rows are development rows: what settings are
            chosen on. Of OCR letters these are training rows of the first fold, fold 0.
    """
    choose(split, dict.fromkeys(choose(task, SPLITS, "task")), f"split of {task}")
    if task == "ocr":
        yield from _letters(split, search)
        return
    data = spen.load_dataset({"twitter": "twitter_pos", "chunking": "conll2000"}[task])
    train = Tagged.of(data.train)
    if not search:
        yield Division(None, train, Tagged.of(data.test))
    elif data.valid is not None:
        yield Division(None, train, Tagged.of(data.valid))
    else:
        tenth = np.arange(len(train.X)) % 10 == 0
        rows = (train.take(np.flatnonzero(which)) for which in (~tenth, tenth))
        yield Division(None, *rows)


def _letters(split: str, search: bool) -> Iterator[Division]:
    rows, fold_of = read_letters(_letters_file())
    words, fold_of = Tagged.of(rows), fold_of.astype(int)
    if split == "new-words":
        # All images of a word belong to one fold, so its letters are never seen in that order.
        spelled = ["".join(word) for word in words.y]
        order = sorted(set(spelled), key=lambda word: (len(word), word))
        place = {word: k % FOLDS_OF_WORDS for k, word in enumerate(order)}
        # All words with an x would be in one fold, and no other would ever have seen one.
        place["omplex"] += 1
        fold_of = np.array([place[word] for word in spelled])
    folds = int(fold_of.max()) + 1
    for fold in range(folds):
        there = np.flatnonzero(fold_of == fold)
        others = np.flatnonzero(fold_of != fold)
        if split == "one-fold":
            if search:
                # A fifth of the fold itself.
                yield Division(
                    fold, words.take(there[there % 5 > 0]), words.take(there[there % 5 == 0])
                )
                return
            yield Division(fold, words.take(there), words.take(others))
        elif search:
            next_one = np.flatnonzero(fold_of == 1)
            yield Division(fold, words.take(np.setdiff1d(others, next_one)), words.take(next_one))
            return
        else:
            yield Division(fold, words.take(others), words.take(there))


def _letters_file() -> Path:
    looked = [folder / "ocr_letters" / "letters.npz" for folder in data_folders()]
    for path in looked:
        if path.exists():
            return path
    spen.load_dataset("ocr_letters")  # says what is missing, and where to have it from
    raise InputError("ocr_letters is nowhere. Set SPEN_DATA to the folder that holds it.")
