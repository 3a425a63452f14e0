"""What a tagger is given, checked, and made numbers: sentences of arrays, words or features."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Protocol

import numpy as np

from spen.batch.ragged import Ragged
from spen.errors import InputError, did_you_mean
from spen.training.sequences import MISSING

KINDS = {
    "arrays": "arrays of numbers",
    "words": "words",
    "columns": "words with columns beside them",
    "features": "dicts of features",
}

LONGEST = 24
"""Of a longer word so many characters are looked at, as many from its end as from its beginning."""

RARE = 2
"""A word or mark that was seen less often than this has no number of its own."""


def in_words(sentence: int, position: int | None = None) -> str:
    """Return where something is, as errors say it."""
    return f"Sentence {sentence}" + ("" if position is None else f", position {position}")


@contextmanager
def named(name: str) -> Iterator[None]:
    """Say of errors inside it whose sentences these are.

    >>> with named("eval_set"):
    ...     read_sentences([])
    Traceback (most recent call last):
    spen.errors.InputError: eval_set: X holds no sentence.
    """
    try:
        yield
    except InputError as problem:
        raise InputError(f"{name}: {problem}") from None


def read_sentences(X: Any) -> tuple[str, list[Any]]:
    """Return of which kind sentences are, and the sentences as lists, or as arrays (T, d).

    Args:
        X: a list of sentences; each is an array (T, d), or a list of words, or of dicts.
    """
    if isinstance(X, str | bytes | Mapping) or not hasattr(X, "__len__"):
        raise InputError(
            "X must be a list of sentences, each a list of tokens or an array (T, d); "
            f"received {_shown(X)}."
        )
    sentences = list(X)
    if not sentences:
        raise InputError("X holds no sentence.")
    kinds = []
    for i, sentence in enumerate(sentences):
        kind, sentences[i] = _read(i, sentence)
        kinds.append(kind)
        if kind != kinds[0]:
            raise InputError(
                f"{in_words(i)} holds {KINDS[kind]}, and sentence 0 {KINDS[kinds[0]]}. Give "
                "sentences of one kind."
            )
    return kinds[0], sentences


def _read(i: int, sentence: Any) -> tuple[str, Any]:
    if hasattr(sentence, "__array__"):
        sentence = _as_array(i, sentence)
    elif isinstance(sentence, str | bytes) or not isinstance(sentence, Sequence):
        raise InputError(
            f"{in_words(i)} must be a list of tokens or an array (T, d); received "
            f"{_shown(sentence)}."
        )
    if len(sentence) == 0:
        raise InputError(f"{in_words(i)} is empty. Leave it out.")
    first = sentence[0]
    if isinstance(first, str):
        for t, token in enumerate(sentence):
            if not isinstance(token, str):
                raise InputError(
                    f"{in_words(i, t)} must be a word, as those before it; received "
                    f"{_shown(token)}."
                )
        return "words", [str(token) for token in sentence]
    if isinstance(first, Mapping):
        for t, token in enumerate(sentence):
            if not isinstance(token, Mapping):
                raise InputError(
                    f"{in_words(i, t)} must be a dict, as those before it; received "
                    f"{_shown(token)}."
                )
        # As load_dataset reads CoNLL files of several columns.
        numbered = all(isinstance(key, str) and key.isdecimal() for key in first)
        return "columns" if first and numbered else "features", list(sentence)
    return "arrays", _array(i, sentence)


def _as_array(i: int, sentence: Any) -> np.ndarray:
    try:
        array: np.ndarray = np.asarray(sentence)
    except (ValueError, TypeError, RuntimeError):  # rows of several widths, a tensor of a GPU
        array = np.empty((), object)
    if array.ndim == 0:
        raise InputError(
            f"{in_words(i)} must be words, dicts, or an array of numbers (T, d); received "
            f"{_shown(sentence)}."
        )
    return array


def _array(i: int, sentence: Any) -> np.ndarray:
    widths = [len(row) if hasattr(row, "__len__") else None for row in sentence]
    for t, width in enumerate(widths):
        if width is None or isinstance(sentence[t], str | bytes | Mapping):
            raise InputError(
                f"{in_words(i, t)} must be a word, a dict or a row of numbers, as all others of "
                f"its sentence; received {_shown(sentence[t])}."
            )
        if width != widths[0]:
            raise InputError(
                f"{in_words(i, t)} has {width} numbers, and position 0 has {widths[0]}."
            )
    array = _as_array(i, sentence)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(
            f"{in_words(i)} must be words, dicts, or an array of numbers (T, d); received "
            f"{_shown(sentence)}."
        )
    if array.shape[1] == 0:
        raise InputError(f"{in_words(i)} has no number for any position.")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        t, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(
            f"{in_words(i, t)} holds {array[t, column]} in column {column}. Fill such numbers in "
            "or leave the sentence out."
        )
    return array


def _shown(thing: Any) -> str:
    shape = getattr(thing, "shape", None)
    if shape is not None:
        return f"an array {tuple(shape)} of {thing.dtype}"
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:59]}… ({type(thing).__name__})"


# Tags ---------------------------------------------------------------------------------------


def is_missing(tag: Any) -> bool:
    """Say whether there is no tag: None or nan."""
    return tag is None or (isinstance(tag, float | np.floating) and np.isnan(tag))


def read_tags(y: Any, lengths: Sequence[int], name: str = "y") -> list[list[Any]]:
    """Return the tags of each sentence as lists, None where one is missing.

    Args:
        y: a list of tags for each sentence.
        lengths: how many positions each sentence has.
        name: what errors call it.
    """
    if isinstance(y, str | bytes | Mapping) or not hasattr(y, "__len__"):
        raise InputError(f"{name} must be a list of tags for each sentence; received {_shown(y)}.")
    if len(y) != len(lengths):
        raise InputError(
            f"X holds {len(lengths)} sentences and {name} the tags of {len(y)}. Give as many."
        )
    found = []
    for i, (tags, length) in enumerate(zip(y, lengths, strict=True)):
        if isinstance(tags, str | bytes | Mapping) or not hasattr(tags, "__len__"):
            raise InputError(
                f"{in_words(i)} must have a list of tags in {name}; received {_shown(tags)}."
            )
        if len(tags) != length:
            raise InputError(
                f"{in_words(i)} has {length} positions and {len(tags)} tags in {name}: position "
                f"{min(length, len(tags))} has none beside it."
            )
        tags = tags.tolist() if hasattr(tags, "tolist") else list(tags)
        found.append([_tag(tag, i, t, name) for t, tag in enumerate(tags)])
    return found


def _tag(tag: Any, i: int, t: int, name: str) -> Any:
    """Return a tag, None if it is missing, or say that it is none."""
    if is_missing(tag):
        return None
    if isinstance(tag, float | np.floating) and float(tag).is_integer():
        # An array in which some are missing, as nan, has no whole numbers.
        return int(tag)
    if not isinstance(tag, str | int | bool | np.integer | np.bool_):
        raise InputError(
            f"{in_words(i, t)} has the tag {_shown(tag)} in {name}. Tags must be text or whole "
            "numbers, None where one is missing."
        )
    return tag


def find_classes(tags: Sequence[Sequence[Any]]) -> np.ndarray:
    """Return all tags there are, in order."""
    found: set[Any] = {tag for sentence in tags for tag in sentence} - {None}
    if not found:
        raise InputError("y holds no tag at all.")
    if len({isinstance(tag, str) for tag in found}) > 1:
        first = next(tag for sentence in tags for tag in sentence if tag is not None)
        i, t = next(
            (i, t)
            for i, sentence in enumerate(tags)
            for t, tag in enumerate(sentence)
            if tag is not None and isinstance(tag, str) != isinstance(first, str)
        )
        raise InputError(
            f"Tags must be all text or all numbers; the first one is {first!r}, and "
            f"{in_words(i, t).lower()} has {tags[i][t]!r}."
        )
    if len(found) == 1:
        raise InputError(f"y holds one tag alone, {found.pop()!r}, so there is nothing to learn.")
    return np.array(sorted(found))


def tag_numbers(
    tags: Sequence[Sequence[Any]],
    classes: np.ndarray,
    name: str,
) -> list[list[int]]:
    """Return the number of each tag, −1 where there is none.

    Args:
        tags: of each sentence.
        classes: what they are numbered by.
        name: what errors call them.
    """
    for words, tag in _unseen(tags, classes, name):
        raise InputError(f"{words} {did_you_mean(str(tag), map(str, classes.tolist()))}")
    places = {tag: k for k, tag in enumerate(classes.tolist())} | {None: MISSING}
    return [[places[tag] for tag in sentence] for sentence in tags]


def warn_of_unseen(tags: Sequence[Sequence[Any]], classes: np.ndarray) -> None:
    """Say which tags of a truth cannot be found, for they are not among the classes."""
    unseen = [words for words, _ in _unseen(tags, classes, "y")]
    if unseen:
        more = f" {len(unseen) - 1} more are like it." if len(unseen) > 1 else ""
        warnings.warn(f"{unseen[0]} It counts as missed.{more}", stacklevel=3)


def _unseen(
    tags: Sequence[Sequence[Any]], classes: np.ndarray, name: str
) -> Iterator[tuple[str, Any]]:
    known = {*classes.tolist(), None}
    for i, sentence in enumerate(tags):
        for t, tag in enumerate(sentence):
            if tag not in known:
                yield f"{in_words(i, t)} has the tag {tag!r} in {name}, which was not trained.", tag


# Encoders -----------------------------------------------------------------------------------


class Encoder(Protocol):
    """What makes numbers of sentences of one kind."""

    kind: ClassVar[str]

    @classmethod
    def of(cls, sentences: Sequence[Any], kept: Sequence[int]) -> Encoder:
        """Check all sentences, and learn from those that are kept, by their numbers."""
        ...

    def encode(self, sentences: Sequence[Any]) -> Ragged:
        """Return what a feature network takes of each position."""
        ...


@dataclass(frozen=True, eq=False)
class ArrayEncoder:
    """Arrays as they are, or where some number is not between 0 and 1, each column standardised.

    Attributes:
        shift: (d,) what is taken off, or None.
        scale: (d,) what the rest is multiplied with, or None.
        width: d.
    """

    kind: ClassVar[str] = "arrays"
    width: int
    shift: np.ndarray | None = None
    scale: np.ndarray | None = None

    @classmethod
    def of(cls, sentences: Sequence[np.ndarray], kept: Sequence[int]) -> ArrayEncoder:
        """Check all sentences, and learn the columns of those that are kept."""
        width = sentences[0].shape[1]
        cls(width)._check(sentences)
        rows = np.concatenate([sentences[i] for i in kept]).astype(np.float64)
        if rows.min() >= 0 and rows.max() <= 1:
            return cls(width)
        spread = rows.std(0)
        scale = 1 / np.where(spread > 0, spread, 1.0)
        return cls(width, rows.mean(0).astype(np.float32), scale.astype(np.float32))

    def encode(self, sentences: Sequence[np.ndarray]) -> Ragged:
        self._check(sentences)
        if self.shift is not None:
            sentences = [(rows - self.shift) * self.scale for rows in sentences]
        return Ragged.of(sentences, np.float32)

    def _check(self, sentences: Sequence[np.ndarray]) -> None:
        for i, rows in enumerate(sentences):
            if rows.shape[1] != self.width:
                raise InputError(
                    f"{in_words(i)} has {rows.shape[1]} numbers for each position where "
                    f"{self.width} are expected."
                )


_SHAPES = (
    ("http", re.compile(r"https?://|www\.|\w+\.(?:com|org|net|ly)\b")),
    ("@", re.compile(r"@\w+$")),
    ("#", re.compile(r"#\w+$")),
    ("number", re.compile(r"[-+]?[\d.,:/%]*\d[\d.,:/%]*$")),
    ("smile", re.compile(r"[<>]?[:;=8xX]['o*-]?[()\[\]dDpP/\\|@$*3oO]+$|<3+$|[()]+[-']?[:;=]$")),
)


def shape_of(word: str) -> str:
    """Return how a word is written: what it is by its first signs, else its kinds of characters.

    >>> [shape_of(word) for word in ("Paris", "NATO", "x-ray", "#win", "3.5", "iPhone4")]
    ['Xx', 'X', 'x-x', '#', 'number', 'xXxd']
    """
    for name, pattern in _SHAPES:
        if pattern.match(word):
            return name
    kinds = (
        "X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in word
    )
    letters: list[str] = []
    for kind in kinds:
        if not letters or letters[-1] != kind:
            letters.append(kind)
    return "".join(letters)[:8]


def plain_word(word: str) -> str:
    """Return a word in small letters, with digits alike and letters three times at most.

    >>> plain_word("Sooooo"), plain_word("1984")
    ('sooo', '0000')
    """
    return re.sub(r"\d", "0", re.sub(r"(\D)\1{3,}", r"\1\1\1", word.lower()))


def marks_of(word: str) -> list[str]:
    """Return a word and its marks: how it is written, how it begins and how it ends."""
    plain = plain_word(word)
    return [plain, shape_of(word), plain[:2], plain[:3], plain[-2:], plain[-3:], plain[-4:]]


@dataclass(frozen=True)
class TokenEncoder:
    """Words as numbers: of each its own, those of its marks, and those of its characters.

    Attributes:
        tables: for the word and each of its marks, what has a number: 2 for the first one.
        characters: the same for characters.
        columns: the names of the columns of tokens, the words' first; () of words alone.
    """

    tables: tuple[tuple[str, ...], ...]
    characters: tuple[str, ...]
    columns: tuple[str, ...] = ()
    _numbers: list[dict[str, int]] = field(default_factory=list, compare=False, repr=False)
    _known: dict[Any, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for table in (*self.tables, self.characters):
            self._numbers.append({entry: k for k, entry in enumerate(table, 2)})

    @property
    def kind(self) -> str:  # type: ignore[override]
        """That of the sentences it takes."""
        return "columns" if self.columns else "words"

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers there are of the word and each of its marks."""
        return tuple(len(table) + 2 for table in self.tables)

    @classmethod
    def of(cls, sentences: Sequence[Sequence[Any]], kept: Sequence[int]) -> TokenEncoder:
        """Check all sentences, and learn what there is in those that are kept."""
        first = sentences[0][0]
        columns = tuple(sorted(first, key=int)) if isinstance(first, Mapping) else ()
        cells_of = cls((), (), columns)._cells(sentences)
        counts = Counter(chain.from_iterable(cells_of[i] for i in kept))
        characters: Counter[str] = Counter()
        marks: list[Counter[str]] = []
        for cells, times in counts.items():
            entries = [*marks_of(cells[0]), *cells[1:]]
            marks = marks or [Counter() for _ in entries]
            for counter, entry in zip(marks, entries, strict=True):
                counter[entry] += times
            for character in cells[0]:
                characters[character] += times
        tables = (tuple(_frequent(counter)) for counter in marks)
        return cls(tuple(tables), tuple(_frequent(characters)), columns)

    def encode(self, sentences: Sequence[Sequence[Any]]) -> Ragged:
        rows = [[self._row(cells) for cells in each] for each in self._cells(sentences)]
        return Ragged.of(rows, np.int64)

    def _cells(self, sentences: Sequence[Sequence[Any]]) -> list[list[tuple[str, ...]]]:
        """Return the columns of each token."""
        if not self.columns:
            return [[(word,) for word in sentence] for sentence in sentences]
        wanted, found = set(self.columns), []
        for i, sentence in enumerate(sentences):
            for t, token in enumerate(sentence):
                if set(token) != wanted or not all(isinstance(c, str) for c in token.values()):
                    raise InputError(
                        f"{in_words(i, t)} must have text in the columns "
                        f"{', '.join(self.columns)}, as the tokens of training; received "
                        f"{_shown(dict(token))}."
                    )
            found.append([tuple(token[name] for name in self.columns) for token in sentence])
        return found

    def _row(self, cells: tuple[str, ...]) -> np.ndarray:
        """Return the numbers of a token."""
        row = self._known.get(cells)
        if row is None:
            word, half = cells[0], LONGEST // 2
            entries = [*marks_of(word), *cells[1:]]
            numbers = [t.get(e, 1) for t, e in zip(self._numbers[:-1], entries, strict=True)]
            letters = word if len(word) <= LONGEST else word[:half] + word[-half:]
            spelled = [self._numbers[-1].get(letter, 1) for letter in letters]
            row = np.array(numbers + spelled + [0] * (LONGEST - len(spelled)))
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[cells] = row
        return row


MOST_KNOWN = 200_000
"""Words whose numbers are remembered."""


def _frequent(counter: Counter[str]) -> list[str]:
    return sorted(entry for entry, times in counter.items() if times >= RARE)


@dataclass(frozen=True)
class DictEncoder:
    """Dicts of features as pairs of a number and an amount, as sklearn-crfsuite takes them.

    A feature is text → number, the amount; text → True or False; text → text, which is the feature
    "name=text"; or text → a list of texts, which are several. What was not seen in training counts
    nothing.

    Attributes:
        names: of the features; number 1 is that of the first.
    """

    kind: ClassVar[str] = "features"
    names: tuple[str, ...]
    _numbers: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._numbers.update({name: k for k, name in enumerate(self.names, 1)})

    @classmethod
    def of(
        cls, sentences: Sequence[Sequence[Mapping[str, Any]]], kept: Sequence[int]
    ) -> DictEncoder:
        """Check all sentences, and learn what features there are in those that are kept."""
        names, learned = set[str](), set(kept)
        for i, sentence in enumerate(sentences):
            for t, token in enumerate(sentence):
                amounts = _amounts(i, t, token)
                if i in learned:
                    names.update(amounts)
        return cls(tuple(sorted(names)))

    def encode(self, sentences: Sequence[Sequence[Mapping[str, Any]]]) -> Ragged:
        rows, most = [], 1
        for i, sentence in enumerate(sentences):
            pairs = []
            for t, token in enumerate(sentence):
                amounts = _amounts(i, t, token)
                pairs.append(
                    [(self._numbers[n], v) for n, v in amounts.items() if n in self._numbers]
                )
            most = max(most, *map(len, pairs))
            rows.append(pairs)
        filled = [[pairs + [(0, 0)] * (most - len(pairs)) for pairs in each] for each in rows]
        return Ragged.of(filled, np.float64)


def _amounts(i: int, t: int, token: Mapping[str, Any]) -> dict[str, float]:
    """Return the features of a token, name → amount."""
    found: dict[str, float] = {"": 1.0}  # what every token has
    for name, value in token.items():
        if isinstance(value, str):
            found[f"{name}={value}"] = 1.0
        elif isinstance(value, list | tuple | set) and all(isinstance(v, str) for v in value):
            found.update({f"{name}={each}": 1.0 for each in value})
        elif isinstance(value, int | float | np.number | np.bool_) and np.isfinite(value):
            found[str(name)] = float(value)
        else:
            raise InputError(
                f"{in_words(i, t)}: the feature {name!r} must be text, a list of texts, a number, "
                f"True or False; received {value!r}."
            )
    return found


ENCODERS: dict[str, Any] = {
    "arrays": ArrayEncoder,
    "words": TokenEncoder,
    "columns": TokenEncoder,
    "features": DictEncoder,
}
