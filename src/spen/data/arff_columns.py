"""How the attributes of an ARFF file become columns of X and Y."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spen.data.arff_header import Attribute
from spen.data.digits import LARGEST_VALUE, number
from spen.data.lines import fault, shown
from spen.errors import InputError

NEGATIVE = frozenset({"0", "-1", "false", "no", "f", "n"})
POSITIVE = frozenset({"1", "true", "yes", "t", "y"})

# A row of a dense file takes memory for each column of X. Attributes with very many values
# would make it far larger than the file, so such files become sparse matrices.
_WIDEST = 16


class Columns:
    """The plan by which values become entries of X and Y.

    A numeric attribute is a column. So is a nominal attribute of two values, 1 standing for
    the one that says yes (1, true, yes) or else for the second, as its name then says
    (``colour=red``). A nominal attribute of more values becomes a column of 0 and 1 for each.
    Labels are numeric attributes of 0 and 1, or nominal ones of such a pair.

    Attributes:
        feature_names, label_names: the names of the columns.
        is_label: (attributes,) whether an attribute is a label.
        column: (attributes,) its column, the first where it has several.
        binary: (attributes,) whether it holds only 0 and 1.
        plain: whether all values are numbers that stand for themselves.
        omitted: the entry (column, value) of each attribute that is not zero where a sparse
            row leaves it out: it leaves out the value that is listed first.
        dense: whether rows that are written dense should become a dense matrix.
    """

    def __init__(self, path: Path, attributes: tuple[Attribute, ...], labels: set[int]) -> None:
        self._path = path
        self._attributes = attributes
        count = len(attributes)
        self.is_label = np.zeros(count, bool)
        self.is_label[list(labels)] = True
        self.column = np.zeros(count, np.int64)
        self.binary = self.is_label.copy()
        self._codes: list[dict[str, tuple[int, float]] | None] = [None] * count
        self._zero_one = np.zeros(count, bool)
        features: list[str] = []
        label_names: list[str] = []
        for i, attribute in enumerate(attributes):
            names = label_names if self.is_label[i] else features
            self.column[i] = len(names)
            if attribute.values is None:
                names.append(attribute.name)
                continue
            codes, suffixes = _encode(attribute.values)
            if self.is_label[i] and suffixes != [""]:
                raise _not_a_label(path, attribute)
            names.extend(f"{attribute.name}{suffix}" for suffix in suffixes)
            self._codes[i] = codes
            self._zero_one[i] = set(attribute.values) == {"0", "1"}
            self.binary[i] |= self._zero_one[i]
        self.feature_names, self.label_names = tuple(features), tuple(label_names)
        nominal = np.array([codes is not None for codes in self._codes])
        self.plain = bool((self._zero_one | ~nominal).all())
        self.omitted: dict[int, tuple[int, float]] = {}
        for i, codes in enumerate(self._codes):
            offset, value = codes[next(iter(codes))] if codes else (0, 0.0)
            if value:
                self.omitted[i] = int(self.column[i]) + offset, value
        self.dense = len(features) <= _WIDEST * count

    def entry(self, i: int, text: str, line: int, character: int, plain: bool) -> tuple[int, float]:
        """Return (column, value) of a value, which is nan for a missing label."""
        attribute = self._attributes[i]
        if text == "?" and plain:
            if self.is_label[i]:
                return int(self.column[i]), np.nan
            raise self._wrong(i, line, character, "is missing (?). Fill it, or drop the row.")
        codes = self._codes[i]
        if codes is not None and text in codes:
            offset, value = codes[text]
            return int(self.column[i]) + offset, value
        value = number(text) if codes is None or self._zero_one[i] else None
        if codes is not None and value not in (0, 1):
            listed = ", ".join(shown(each)[1:-1] for each in (attribute.values or ())[:5])
            more = ", …" if len(attribute.values or ()) > 5 else ""
            what = f"holds {shown(text)}, which is not one of its values {{{listed}{more}}}."
            raise self._wrong(i, line, character, what)
        if value is None:
            raise self._wrong(i, line, character, f"holds {shown(text)}, which is not a number.")
        if abs(value) > LARGEST_VALUE:
            what = f"holds {shown(text)}, which is too large for single precision."
            raise self._wrong(i, line, character, what)
        if self.is_label[i] and value not in (0, 1):
            what = f"is a label and holds {shown(text)}; expected 0 or 1."
            raise self._wrong(i, line, character, what)
        return int(self.column[i]), value

    def _wrong(self, i: int, line: int, character: int, what: str) -> InputError:
        name = shown(self._attributes[i].name)
        return fault(self._path, line, f"attribute {name} {what}", character=character)


def _encode(values: tuple[str, ...]) -> tuple[dict[str, tuple[int, float]], list[str]]:
    """Return (value → (offset, entry), what is added to the name of each column)."""
    lowered = [value.lower() for value in values]
    yes = sum(value in POSITIVE for value in lowered)
    no = sum(value in NEGATIVE for value in lowered)
    if yes <= 1 and no <= 1 and yes + no == len(values):
        return {v: (0, float(v.lower() in POSITIVE)) for v in values}, [""]
    if len(values) == 2:
        return {values[0]: (0, 0.0), values[1]: (0, 1.0)}, [f"={values[1]}"]
    return {v: (k, 1.0) for k, v in enumerate(values)}, [f"={v}" for v in values]


def _not_a_label(path: Path, attribute: Attribute) -> InputError:
    listed = ", ".join(shown(value)[1:-1] for value in (attribute.values or ())[:5])
    return fault(
        path,
        attribute.line,
        f"attribute {shown(attribute.name)} is a label, but its values are {{{listed}}}; a label "
        "is numeric or {0,1}. Turn classes into one such attribute each, or check which "
        "attributes are labels.",
    )
