"""Tables as they are: numbers, words, dates and text become rows that a network learns from."""

from __future__ import annotations

import importlib
import math
import numbers
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError

from spen.batch.arrays import object_array
from spen.described import from_json, to_json, typed
from spen.errors import InputError, check_whole, choose, did_you_mean, require
from spen.estimators.scaling import FARTHEST
from spen.estimators.targets import is_missing

LARGE = 100
"""Rows from which on what stands in one row alone is rare: too little to learn from."""

MOST_CATEGORIES, MOST_WORDS = 1_000, 50_000
"""Categories of a column, and words and pairs of a text, that are kept: the most frequent."""

DENSE_CATEGORIES = 100
"""Categories of a column up to which its cells do not need a sparse matrix."""

NEARLY_NUMBERS = 0.9
"""The share of cells from which on words among numbers are taken for mistakes."""

TEXTS = "text"
"""The name of the only column of a list of texts."""

_WORD = re.compile(r"\w\w+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?", re.ASCII)
_DATE_PARTS = ("year", "month", "day", "weekday", "days", "hour")


@dataclass(frozen=True)
class Cells:
    """The cells of one column.

    Attributes:
        name: the column's.
        values: (n,) of numbers, of times, or of anything.
        missing: (n,) whether there is nothing in a cell.
    """

    name: str
    values: np.ndarray
    missing: np.ndarray

    @classmethod
    def of(cls, name: str, column: Any) -> Cells:
        """Take the cells of a Series, an array or a list."""
        values = column.to_numpy() if hasattr(column, "to_numpy") else column
        if not isinstance(values, np.ndarray):
            values = object_array(list(values))
        if values.ndim != 1 or values.dtype.kind not in "biufMOUT":
            what = f"shape {values.shape} and type {values.dtype}"
            raise InputError(
                f"Column {name!r} must hold numbers, words or dates; received {what}. Drop it."
            )
        if values.dtype.kind in "fM":
            missing = np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
        elif values.dtype.kind in "biu":
            missing = np.zeros(len(values), bool)
        else:
            values = values.astype(object)
            missing = np.array([_is_empty(value) for value in values], bool)
        return cls(name, values, missing)

    @property
    def there(self) -> list[Any]:
        """What is not missing."""
        return self.values[~self.missing].tolist()

    def each(self, read: Callable[[Any], Any], what: str, empty: Any) -> list[Any]:
        """Return what each cell reads as, ``empty`` for a missing one, or say which is no such."""
        result = []
        for row, (value, missing) in enumerate(
            zip(self.values.tolist(), self.missing, strict=True)
        ):
            result.append(empty if missing else read(value))
            if not missing and result[-1] is None:
                raise InputError(
                    f"Column {self.name!r} holds {value!r} in row {row}; expected {what}, as in "
                    "the rows that were learned from."
                )
        return result

    def numbers(self) -> np.ndarray:
        """Return the numbers, (n,) of float64, nan for what is missing."""
        if self.values.dtype.kind in "biuf":
            found = self.values.astype(np.float64)
        else:
            found = np.array(self.each(_number, "a number", np.nan), np.float64)
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(found.astype(np.float32)) & ~self.missing
        if bad.any():
            row = int(bad.argmax())
            raise InputError(
                f"Column {self.name!r} holds {found[row]} in row {row}, which is too large for "
                "single precision. Mend it, or leave it empty."
            )
        return found

    def times(self) -> np.ndarray:
        """Return the dates and times, (n,) of seconds, in UTC where they have a zone."""
        if self.values.dtype.kind == "M":
            return self.values.astype("datetime64[s]")
        return np.array(self.each(_time, "a date such as 2024-02-29", None), "datetime64[s]")

    def texts(self) -> list[str]:
        """Return the texts; a missing one is empty."""
        return self.each(lambda value: value if isinstance(value, str) else None, "text", "")


class Column(ABC):
    """What was learned of one column of a table: a frozen dataclass of plain values.

    Attributes:
        name: the column's.
        names: of the features that it becomes.
    """

    name: str

    @property
    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def encode(self, cells: Cells) -> Any:
        """Return the features of cells, (n, features): a float32 array or a CSR matrix."""


@dataclass(frozen=True)
class _Measured(Column):
    """Numbers by their mean and spread; a missing one is the mean.

    Attributes:
        name: the column's.
        means, spreads: of each part of a cell.
        has_missing: whether a feature says that a cell is missing.
    """

    name: str
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    has_missing: bool

    def __post_init__(self) -> None:
        parts = len(self.means)
        if not 0 < parts == len(self.spreads) <= len(self.parts) or not min(self.spreads) > 0:
            raise InputError(f"The column {self.name!r} has means and spreads that do not fit.")

    @property
    @abstractmethod
    def parts(self) -> list[str]:
        """The names of the parts that a cell may have."""

    @property
    def names(self) -> list[str]:
        missing = [f"{self.name} is missing"] if self.has_missing else []
        return self.parts[: len(self.means)] + missing

    @staticmethod
    @abstractmethod
    def measure(cells: Cells) -> np.ndarray:
        """Return the parts of cells, (n, parts) of float64, nan for what is missing."""

    @classmethod
    def learn(cls, cells: Cells) -> Self:
        """Measure the cells, some of which are there."""
        parts = cls.measure(cells)[~cells.missing]
        if parts.shape[1] > 1 and not parts[:, -1].any():
            parts = parts[:, :-1]  # dates without hours
        spreads = [float(spread) if spread > 0 else 1.0 for spread in parts.std(axis=0)]
        means = tuple(parts.mean(axis=0).tolist())
        return cls(cells.name, means, tuple(spreads), bool(cells.missing.any()))

    def encode(self, cells: Cells) -> np.ndarray:
        parts = self.measure(cells)[:, : len(self.means)]
        with np.errstate(over="ignore"):
            scaled = np.clip((parts - self.means) / self.spreads, -FARTHEST, FARTHEST)
        scaled[cells.missing] = 0.0
        if self.has_missing:
            scaled = np.column_stack([scaled, cells.missing])
        return scaled.astype(np.float32)


@dataclass(frozen=True)
class NumberColumn(_Measured):
    """A column of numbers, or of true and false, standardised."""

    @property
    def parts(self) -> list[str]:
        return [self.name]

    @staticmethod
    def measure(cells: Cells) -> np.ndarray:
        return cells.numbers()[:, None]


@dataclass(frozen=True)
class DateColumn(_Measured):
    """A column of dates, by the parts of the calendar, standardised; hours where there are some."""

    @property
    def parts(self) -> list[str]:
        return [f"{self.name}: {part}" for part in _DATE_PARTS]

    @staticmethod
    def measure(cells: Cells) -> np.ndarray:
        times = cells.times()
        years, months, days = (times.astype(f"datetime64[{unit}]") for unit in "YMD")
        seconds = (times - days).astype(np.float64)
        number = days.astype(np.int64)
        parts = [
            years.astype(np.int64) + 1970,
            months.astype(np.int64) % 12 + 1,
            (days - months).astype(np.int64) + 1,
            (number + 3) % 7,  # the first day of 1970 was a Thursday
            number + seconds / 86_400,
            seconds / 3_600,
        ]
        measured = np.stack(parts, axis=1, dtype=np.float64)
        measured[cells.missing] = np.nan
        return measured


@dataclass(frozen=True)
class CategoryColumn(Column):
    """A column of categories, a feature for each.

    Attributes:
        name: the column's.
        values: the categories.
        has_other: whether a feature stands for rare ones, and for those that are not known.
        has_missing: whether a feature says that a cell is missing; else it is like an unknown one.
    """

    name: str
    values: tuple[str, ...]
    has_other: bool
    has_missing: bool

    @classmethod
    def learn(cls, cells: Cells) -> CategoryColumn:
        counts = Counter(map(_word, cells.there))
        kept = _frequent(counts, len(cells.values), MOST_CATEGORIES)
        return cls(cells.name, kept, len(kept) < len(counts), bool(cells.missing.any()))

    @cached_property
    def places(self) -> dict[str, int]:
        """The feature of each category."""
        return {value: place for place, value in enumerate(self.values)}

    @property
    def names(self) -> list[str]:
        kept = [f"{self.name}={value}" for value in self.values]
        kept += [f"{self.name} is other"] if self.has_other else []
        return kept + ([f"{self.name} is missing"] if self.has_missing else [])

    def numbers(self, cells: Cells) -> np.ndarray:
        """Return the place of each cell's category, (n,) of float64: −1 for one that is not
        known, nan for a missing cell."""
        are_numbers = cells.values.dtype.kind in "biuf"
        if are_numbers and self.values and not any(map(_number_or_truth, self.values)):
            raise InputError(
                f"Column {cells.name!r} holds numbers; expected words such as {self.values[0]!r}, "
                "as in the rows that were learned from."
            )
        found = cells.each(lambda value: self.places.get(_word(value), -1), "a word", np.nan)
        return np.array(found, np.float64)

    def encode(self, cells: Cells) -> Any:
        other = len(self.values) if self.has_other else -1
        absent = len(self.values) + self.has_other if self.has_missing else other
        places = self.numbers(cells)
        places = np.where(np.isnan(places), absent, np.where(places < 0, other, places)).astype(int)
        rows = np.nonzero(places >= 0)[0]
        entries = np.ones(len(rows), np.float32), (rows, places[rows])
        matrix = sparse.csr_matrix(entries, shape=(len(places), len(self.names)))
        return matrix if len(self.values) > DENSE_CATEGORIES else matrix.toarray()


@dataclass(frozen=True)
class TextColumn(Column):
    """A column of text: which words and pairs of words stand in it, by TF-IDF.

    A weight is (1 + ln count) · idf with idf = 1 + ln((1 + rows) / (1 + rows that have it)), and
    rows have length 1.

    Attributes:
        name: the column's.
        vocabulary: the words and pairs.
        idf: (words,) the weight of each.
    """

    name: str
    vocabulary: tuple[str, ...]
    idf: np.ndarray

    def __post_init__(self) -> None:
        words = len(self.vocabulary)
        good = self.idf.shape == (words,) and self.idf.dtype == np.float64 and (self.idf > 0).all()
        if not good or len(set(self.vocabulary)) < words:
            raise InputError(f"The words of the column {self.name!r} and their weights do not fit.")

    @classmethod
    def learn(cls, cells: Cells) -> TextColumn:
        counts: Counter[str] = Counter()
        for text in cells.texts():
            counts.update(set(_terms(text)))
        rows = len(cells.values)
        kept = _frequent(counts, rows, MOST_WORDS) or _frequent(counts, 0, MOST_WORDS)
        there = np.array([counts[term] for term in kept], np.float64)
        return cls(cells.name, kept, 1 + np.log((1 + rows) / (1 + there)))

    @cached_property
    def places(self) -> dict[str, int]:
        """The feature of each word and pair."""
        return {term: place for place, term in enumerate(self.vocabulary)}

    @property
    def names(self) -> list[str]:
        return [f"{self.name}: {term}" for term in self.vocabulary]

    def encode(self, cells: Cells) -> Any:
        columns: list[int] = []
        weights: list[float] = []
        ends, places = [0], self.places
        for text in cells.texts():
            counts = Counter(places[term] for term in _terms(text) if term in places)
            columns += sorted(counts)
            # One by one, because numpy may round a logarithm by where it stands in an array.
            weights += [1 + math.log(counts[place]) for place in sorted(counts)]
            ends.append(len(columns))
        column = np.array(columns, np.int32)
        values = np.array(weights) * self.idf[column]
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        values /= np.sqrt(np.bincount(rows, values**2, minlength=len(ends) - 1))[rows]
        parts = values.astype(np.float32), column, np.array(ends, np.int32)
        return sparse.csr_matrix(parts, shape=(len(ends) - 1, len(self.vocabulary)))


@dataclass(frozen=True)
class EmbeddedColumn(Column):
    """A column of text, of which an encoder of sentences makes so many numbers.

    Attributes:
        name: the column's.
        width: how many.
    """

    name: str
    width: int

    def __post_init__(self) -> None:
        check_whole(self.width, "width", most=MOST_WORDS)

    @property
    def names(self) -> list[str]:
        return [f"{self.name}: {place}" for place in range(self.width)]

    def encode(self, cells: Cells) -> Any:
        raise NotImplementedError("TableEncoder holds the encoder of sentences.")


_KINDS: dict[str, Any] = {
    "number": NumberColumn,
    "date": DateColumn,
    "category": CategoryColumn,
    "text": TextColumn,
    "embedded": EmbeddedColumn,
}


def _kind_of(column: Column) -> str:
    return next(name for name, kind in _KINDS.items() if type(column) is kind)


@dataclass
class TableEncoder:
    """Turns tables of numbers, words, dates and text into numbers, and remembers how.

    What it learns is kept in the model file as plain values. A list of texts is text. What a column
    of a table is, is found by the first rule that fits, unless it is named below:

    - a column without any cell is left out;
    - times, or words that are all dates such as 2024-02-29 or 2024-02-29 18:30: a **date**, by
      its year, month, day, weekday, days in all, and hour where there are hours;
    - numbers, true and false, or words that all spell numbers: **numbers**, standardised; a
      missing one becomes the mean, and a feature says so where cells were missing;
    - words of which most have a blank in them, and which are different in most cells or more than
      1,000 in all: **text**, by the TF-IDF of words and pairs of words (up to 50,000);
    - other words: **categories**, a feature for each of up to 1,000. Rare ones (those of one row,
      in tables of 100 rows or more) share a feature with those that were never seen; missing
      cells have one of their own.

    Words in a column that holds numbers in nine cells of ten are refused as mistakes.

    Args:
        text, categories, dates: names of columns that are such, whatever the rules say.
        drop: names of columns to leave out.
        text_encoder: what becomes of text. None: TF-IDF. A name: the model of this name of the
            package sentence-transformers (``pip install 'spen[text]'``). Or any function from a
            list of n texts to an (n, d) array; a model file cannot keep such a function.

    Attributes:
        columns_: what was learned of each column.

    >>> table = {"age": [30, None, 50], "colour": ["red", "blue", "red"]}
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.kinds
    {'age': 'number', 'colour': 'category'}
    >>> encoder.feature_names
    ('age', 'age is missing', 'colour=blue', 'colour=red')
    >>> encoder.transform({"colour": ["blue"], "age": [60]})
    array([[2., 0., 1., 0.]], dtype=float32)
    """

    text: str | Sequence[str] = ()
    categories: str | Sequence[str] = ()
    dates: str | Sequence[str] = ()
    drop: str | Sequence[str] = ()
    text_encoder: str | Callable[[list[str]], Any] | None = None

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for setting in ("text", "categories", "dates", "drop"):
            names = getattr(self, setting)
            names = (names,) if isinstance(names, str) else tuple(names)
            setattr(self, setting, names)
            for name in names:
                if seen.setdefault(name, setting) != setting:
                    raise InputError(f"Both {seen[name]} and {setting} name the column {name!r}.")
        self._asked = seen
        encoder = self.text_encoder
        if encoder is not None and not isinstance(encoder, str) and not callable(encoder):
            raise InputError(
                "text_encoder must be None, the name of a model of sentence-transformers, or a "
                f"function from texts to an array; received {encoder!r}."
            )

    def fit(self, table: Any) -> Self:
        """Learn from a DataFrame, a dict of columns, or a list of texts."""
        columns = columns_of(table)
        for name, setting in self._asked.items():
            if name not in columns:
                what = f"{setting} names the column {name!r}, which the table does not have."
                raise InputError(f"{what} {did_you_mean(name, columns)}")
        used = (Cells.of(name, c) for name, c in columns.items() if name not in self.drop)
        kind = None if is_table(table) or isinstance(table, Mapping) else "text"
        learned = [self._learn(cells, kind) for cells in used if not cells.missing.all()]
        if not any(column.names for column in learned):
            raise InputError("No column of the table holds anything to learn from.")
        self.columns_: tuple[Column, ...] = tuple(learned)
        return self

    def transform(self, table: Any) -> Any:
        """Return the features of a table's rows, (n, features) of float32.

        It is a CSR matrix where there is text, or a column of many categories. Columns are found
        by their names; those that were not learned from are ignored.
        """
        blocks = []
        for column, cells in cells_of(self, table):
            if isinstance(column, EmbeddedColumn):
                blocks.append(self._embedded(cells.texts(), column.width))
            else:
                blocks.append(column.encode(cells))
        if any(sparse.issparse(block) for block in blocks):
            return sparse.hstack(blocks, format="csr", dtype=np.float32)
        return np.hstack(blocks)

    def fit_transform(self, table: Any) -> Any:
        """Learn from a table, and return its features."""
        return self.fit(table).transform(table)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(name for column in self.columns_ for name in column.names)

    @property
    def kinds(self) -> dict[str, str]:
        """What each column was found to be: "number", "date", "category", "text", or "embedded"
        for text that ``text_encoder`` encodes."""
        return {column.name: _kind_of(column) for column in self.columns_}

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what was learned as JSON and as arrays by name."""
        if self.text_encoder is not None and not isinstance(self.text_encoder, str):
            raise InputError(
                "A model file cannot keep a text_encoder that is a function: it could not be "
                "rebuilt without running code from the file. Give the name of a model of "
                "sentence-transformers, or encode the text before fit."
            )
        described, arrays = [], {}
        for number, column in enumerate(self.columns_):
            plain = {f.name: getattr(column, f.name) for f in fields(column)}  # type: ignore[arg-type]
            if "idf" in plain:
                arrays[f"{number}/idf"] = plain.pop("idf")
            settings = {name: to_json(value, name) for name, value in plain.items()}
            described.append({"kind": _kind_of(column)} | settings)
        return {"settings": to_json(self, "encoder"), "columns": described}, arrays

    @classmethod
    def restored(cls, described: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> TableEncoder:
        """Return the encoder that ``state`` described, or raise where something does not fit."""
        encoder = from_json(described["settings"], "encoder")
        if not isinstance(encoder, cls):
            raise TypeError(f"{type(encoder).__name__} is no TableEncoder")
        columns = []
        for number, plain in enumerate(described["columns"]):
            settings = {name: from_json(value, name) for name, value in plain.items()}
            kind = choose(settings.pop("kind"), _KINDS, "kind of column")
            if kind is TextColumn:
                settings["idf"] = arrays[f"{number}/idf"]
            columns.append(typed(kind(**settings)))
        encoder.columns_ = tuple(columns)
        return encoder

    def _learn(self, cells: Cells, kind: str | None) -> Column:
        kind = self._asked.get(cells.name) or kind or _kind(cells)
        if kind == "text" and self.text_encoder is not None:
            texts = cells.texts()
            return EmbeddedColumn(cells.name, self._embedded(texts[:1]).shape[1])
        return _LEARNED[kind].learn(cells)

    def _embedded(self, texts: list[str], width: int | None = None) -> np.ndarray:
        """Return what the encoder of sentences makes of texts, (n, width)."""
        encode: Any = self.text_encoder
        if isinstance(encode, str):
            encode = self._sentence_model.encode
        try:
            vectors = np.asarray(encode(texts), np.float32)
        except (TypeError, ValueError) as problem:
            raise InputError(
                f"text_encoder did not return an array of numbers; {problem}."
            ) from None
        expected = (len(texts), vectors.shape[-1] if width is None and vectors.ndim else width)
        if vectors.shape != expected or not np.isfinite(vectors).all():
            raise InputError(
                f"text_encoder must return finite numbers of shape {expected} for {len(texts)} "
                f"texts; received shape {vectors.shape}."
            )
        return vectors

    @cached_property
    def _sentence_model(self) -> Any:
        try:
            module = importlib.import_module("sentence_transformers")
        except ImportError:
            require("sentence_transformers", "text")
            raise
        return module.SentenceTransformer(self.text_encoder)


def cells_of(encoder: TableEncoder, table: Any) -> list[tuple[Column, Cells]]:
    """Return what an encoder has learned of each column, and its cells in a table."""
    learned: tuple[Column, ...] | None = getattr(encoder, "columns_", None)
    if learned is None:
        raise NotFittedError("This TableEncoder has not learned from a table yet; call fit.")
    columns = columns_of(table, learned[0].name if len(learned) == 1 else TEXTS)
    absent = [column.name for column in learned if column.name not in columns]
    if absent:
        what = f"X lacks the column {absent[0]!r}, which the model learned from."
        raise InputError(f"{what} It has: {', '.join(list(columns)[:20])}.")
    return [(column, Cells.of(column.name, columns[column.name])) for column in learned]


_LEARNED: dict[str, Any] = {"text": TextColumn, "categories": CategoryColumn, "dates": DateColumn}
_LEARNED["numbers"] = NumberColumn


def needs_encoder(X: Any) -> bool:
    """Say whether X is a table or a list of texts that numbers must first be made of.

    A DataFrame of numbers without missing cells is not.

    >>> needs_encoder(["sun and sea"]), needs_encoder([[1.0, 2.0]]), needs_encoder({"a": [1]})
    (True, False, True)
    """
    if not is_table(X):
        return (isinstance(X, Mapping) and not sparse.issparse(X)) or holds_texts(X)
    return not all(_are_numbers(X[name]) for name in set(X.columns))


def is_table(X: Any) -> bool:
    """Say whether X is a DataFrame, by what it can do."""
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def holds_texts(X: Any) -> bool:
    """Say whether X is a list, an array or a Series of texts."""
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(text, str) for text in X)
    if getattr(X, "ndim", 0) != 1 or getattr(getattr(X, "dtype", None), "kind", "-") not in "OUT":
        return False
    cells = Cells.of(TEXTS, X)
    return not cells.missing.all() and all(isinstance(text, str) for text in cells.there)


def columns_of(table: Any, only: str = TEXTS) -> dict[str, Any]:
    """Return the columns of a table by name; ``only`` names that of a list of texts."""
    if is_table(table):
        names = list(map(str, table.columns))
        if len(set(names)) < len(names):
            twice = next(name for name, n in Counter(names).items() if n > 1)
            raise InputError(f"Two columns of the table are called {twice!r}.")
        return {str(name): table[name] for name in table.columns}
    if isinstance(table, Mapping):
        lengths = {str(name): len(column) for name, column in table.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"The columns must be equally long; received {lengths}.")
        return {str(name): column for name, column in table.items()}
    if holds_texts(table):
        return {only: table}
    shape = f" of shape {table.shape}" if hasattr(table, "shape") else ""
    raise InputError(
        "A table must be a DataFrame, a dict of columns or a list of texts: columns are found by "
        f"name. Received {type(table).__name__}{shape}."
    )


def _kind(cells: Cells) -> str:
    """Return what a column is by the rules of TableEncoder, which may not be named otherwise."""
    if cells.values.dtype.kind in "biuf":
        return "numbers"
    there = cells.there
    if cells.values.dtype.kind == "M" or all(_time(value) is not None for value in there):
        return "dates"
    spelled = sum(_number(value) is not None for value in there)
    if spelled == len(there):
        return "numbers"
    if spelled >= NEARLY_NUMBERS * len(there):
        wrong = next(value for value in there if _number(value) is None)
        raise InputError(
            f"Column {cells.name!r} holds numbers, but also {wrong!r}. Mend or empty that cell; "
            "if these are names, not quantities, name the column in categories= of a TableEncoder."
        )
    different = set(map(_word, there))
    most = min(MOST_CATEGORIES, len(there) / 2)
    blanks = sum(" " in word for word in different)
    return "text" if len(different) > most and blanks > len(different) / 2 else "categories"


def _are_numbers(column: Any) -> bool:
    """Say whether a column holds numbers, none of them missing."""
    if getattr(column, "ndim", 1) != 1:  # two of this name, of which scikit-learn knows
        return True
    values = column.to_numpy()
    if values.dtype.kind == "O":
        return all(isinstance(value, numbers.Number) and value == value for value in values)
    return values.dtype.kind in "biu" or (values.dtype.kind == "f" and not np.isnan(values).any())


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | tuple | dict | set | np.ndarray):
        return False
    return is_missing(value)


def _number(value: Any) -> float | None:
    """Return the number that a cell is or spells; None where it is none."""
    if isinstance(value, str) and ("_" in value or value.strip()[-1:].isalpha()):
        return None  # what Python would take for a number: 1_000, nan, infinity
    if not isinstance(value, str | numbers.Real):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _number_or_truth(word: str) -> bool:
    return word in ("True", "False") or _number(word) is not None


def _time(value: Any) -> datetime | None:
    """Return the date that a cell is or spells; None where it is none."""
    if isinstance(value, str):
        if not _DAY.fullmatch(value.strip()):
            return None
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, date):
        return None
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    try:
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        # At the ends of time another zone has no such date.
        return value.replace(tzinfo=None)


def _word(value: Any) -> str:
    """Return a category as text: a whole number is the same one as 1, 1.0 or "1"."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple | dict | set | np.ndarray):
        raise InputError(f"A cell holds a {type(value).__name__}: {value!r}. Drop its column.")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _terms(text: str) -> Iterable[str]:
    """Return the words of a text and the pairs of words that follow each other.

    >>> list(_terms("Sun and sea!"))
    ['sun', 'and', 'sea', 'sun and', 'and sea']
    """
    words = _WORD.findall(text.lower())
    return words + [f"{first} {second}" for first, second in pairwise(words)]


def _frequent(counts: Counter[str], rows: int, most: int) -> tuple[str, ...]:
    """Return what stands in enough of so many rows, up to ``most`` of it, in order."""
    least = 2 if rows >= LARGE else 1
    kept = sorted((-count, term) for term, count in counts.items() if count >= least)
    return tuple(sorted(term for _, term in kept[:most]))
