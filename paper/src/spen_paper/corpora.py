"""Sets with a tag for each position, and how each is divided into training and test rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import spen
from spen import InputError
from spen.data.catalog import data_folders
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

    def join(self, other: Tagged) -> Tagged:
        """Return these and then others."""
        return Tagged([*self.X, *other.X], [*self.y, *other.y])


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
    elif task == "twitter":
        train = _conll("twitter_pos/oct27.train").join(_conll("twitter_pos/oct27.dev"))
        test = "oct27.test" if search else "daily547.conll"
        yield Division(None, train, _conll(f"twitter_pos/{test}"))
    else:
        train = _conll("conll2000/train.txt")
        if search:
            tenth = np.arange(len(train.X)) % 10 == 0
            yield Division(
                None, train.take(np.flatnonzero(~tenth)), train.take(np.flatnonzero(tenth))
            )
        else:
            yield Division(None, train, _conll("conll2000/test.txt"))


def _letters(split: str, search: bool) -> Iterator[Division]:
    arrays = np.load(_file("ocr_letters/letters.npz"))
    ends = np.cumsum(arrays["word_lengths"])[:-1]
    pixels = [each.astype(np.float32) for each in np.split(arrays["X"], ends)]
    tags = [["abcdefghijklmnopqrstuvwxyz"[k] for k in word] for word in np.split(arrays["y"], ends)]
    words, fold_of = Tagged(pixels, tags), arrays["word_fold"].astype(int)
    if split == "new-words":
        # All images of a word belong to one fold, so its letters are never seen in that order.
        spelled = ["".join(word) for word in tags]
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


def _conll(name: str) -> Tagged:
    data = spen.load_dataset(_file(name)).train
    return Tagged(list(data.X), [list(tags) for tags in data.Y])


def _file(name: str) -> Path:
    looked = [folder / name for folder in data_folders()]
    for path in looked:
        if path.exists():
            return path
    raise InputError(
        f"There is no {name}. Put it into {looked[0].parent}, or set SPEN_DATA."
        if looked
        else f"There is no {name}: set SPEN_DATA to the folder that holds it."
    )
