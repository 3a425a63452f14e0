"""ARFF files of multi-label data, as Mulan and MEKA write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from spen.batch.splits import Split
from spen.data.arff_header import QUOTED, Columns, read_header, read_label_names, unescape
from spen.data.reader import (
    LARGEST_VALUE,
    Labels,
    LineError,
    RowBuilder,
    RowReader,
    blocks,
    fault,
    number,
    pick_labels,
    read_row,
    shown,
)
from spen.errors import InputError

MOST_ENTRIES = 1 << 24
"""Entries that a block may have. Only what sparse rows leave out can stand for more."""

# A row of a dense file takes memory for each column of X. Attributes with very many values
# would make it far larger than the file, so such files become sparse matrices.
_WIDEST = 16

_PART = re.compile(r"[-_.](train|test|valid|val|dev)$", re.IGNORECASE)
_OPTION = re.compile(r"(?:^|\s)-(C|c|split-number|split-percentage)\s+(\S+)")

_VALUE = rf"(?:[^\s,{{}}'\"%][^\s,{{}}]*+|{QUOTED})"
_PAIR = rf"[0-9]{{1,10}}[ \t]++{_VALUE}"
_SEPARATED = rf"(?:{_VALUE}(?:[ \t]*+,[ \t]*+|[ \t]++))"
_DENSE_FIELD, _SPARSE_FIELD = re.compile(_VALUE), re.compile(_PAIR)
_SPARSE_ROW = re.compile(rf"[ \t]*+\{{[ \t]*+(?:{_PAIR}[ \t]*+(?:,[ \t]*+{_PAIR}[ \t]*+)*+)?+\}}")
_REST = re.compile(r"[ \t]*+(?:,?[ \t]*+\{(?P<weight>[^{}]*)\}[ \t]*+)?(?:%.*)?", re.DOTALL)
# What a row begins with as long as it is right, and what a pair that goes wrong has.
_DENSE_START = re.compile(rf"[ \t]*+{_SEPARATED}*+")
_SPARSE_START = re.compile(rf"[ \t]*+\{{[ \t]*+(?:{_PAIR}[ \t]*+,[ \t]*+)*+")
_BROKEN_PAIR = re.compile(rf"(?P<index>[^\s,{{}}]*+)[ \t]*+(?P<value>{_VALUE}[ \t]*+)?")


class ArffReader(RowReader):
    """The rows of an ARFF file, dense or sparse.

    Which attributes are labels is said by ``labels``, or by an XML file with the name of the
    ARFF file (less ``-train`` and the like), or by MEKA's ``-C`` in the relation's name; the
    two must agree where there are both. Columns keep the order of the ARFF file.

    Args:
        path: the file.
        format: "mulan" to go by the XML, "meka" to go by ``-C``; None: whichever there is.
        labels: an XML file, names of attributes, or a number of attributes as in MEKA:
            the first n, or the last n if negative.
        labels_required: whether a file without labels is a mistake.
    """

    def __init__(
        self, path: Path, format: str | None, labels: Labels, labels_required: bool
    ) -> None:
        self.path = path
        relation, attributes, self._start = read_header(path)
        self._options = _meka_options(path, relation)
        self.format = format or ("meka" if "C" in self._options else "mulan")
        names = [attribute.name for attribute in attributes]
        chosen = self._choose_labels(names, format, labels, labels_required)
        self._columns = Columns(path, attributes, chosen)
        self.feature_names = tuple(self._columns.feature_names)
        self.label_names = tuple(self._columns.label_names)
        if not self.feature_names:
            raise InputError(f"{path} has only labels and no features.")

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        rows = RowBuilder(self.path, self.n_features, self.n_labels, self._columns.one_hot)
        is_wide = self.n_features > _WIDEST * len(self._columns.attributes)
        parser = None
        for lines in blocks(self.path, *self._start):
            for line, text in lines:
                sign = text.lstrip(" \t")[:1]
                if sign in ("", "%"):
                    continue
                parser = parser or _RowParser(self._columns, is_sparse=sign == "{")
                try:
                    rows.add(*parser.parse(text))
                except LineError as problem:
                    raise problem.at(self.path, line) from None
                if len(rows.columns) > MOST_ENTRIES:
                    what = "what these sparse rows leave out stands for too many values to hold."
                    what += " List each attribute's usual value first."
                    raise fault(self.path, line, what)
            if parser is not None:
                yield rows.take(dense=not (parser.is_sparse or is_wide))

    def divide(self, total: int) -> dict[str, slice]:
        """Return the parts by MEKA's ``-split-number`` or ``-split-percentage``."""
        count = self._options.get("split-number")
        if count is None and "split-percentage" in self._options:
            count = round(total * self._options["split-percentage"] / 100)
        if count is None:
            return {}
        if not 0 < count < total:
            raise InputError(
                f"{self.path} says that its first {count:g} rows are for training, but it has "
                f"{total}. Correct the relation's -split option."
            )
        return {"train": slice(0, int(count)), "test": slice(int(count), total)}

    def _choose_labels(
        self, names: Sequence[str], format: str | None, labels: Labels, required: bool
    ) -> set[int]:
        pick = partial(pick_labels, self.path, names, "attribute", required=required)
        if isinstance(labels, Path) or (isinstance(labels, str) and labels.endswith(".xml")):
            return _pick_by_xml(Path(labels), names, pick)
        if labels is not None:
            return pick(labels)
        stems = dict.fromkeys((self.path.stem, _PART.sub("", self.path.stem)))
        beside = [self.path.with_name(f"{stem}.xml") for stem in stems]
        xml = next((file for file in beside if format != "meka" and file.is_file()), None)
        count = self._options.get("C") if format != "mulan" else None
        by_xml = _pick_by_xml(xml, names, pick) if xml else None
        by_count = pick(int(count)) if count is not None else None
        if by_xml is not None and by_count is not None and by_xml != by_count:
            raise InputError(
                f"{self.path} says -C {count:g} in its relation, but {xml} names other labels. "
                "Give format='mulan' to go by the XML, or format='meka' to go by -C."
            )
        found = by_xml if by_xml is not None else by_count
        if found is None and required:
            raise InputError(
                f"{self.path} does not say which attributes are labels: there is no "
                f"{beside[-1].name} beside it and no -C in its relation. Give labels=: "
                "an XML file, names of attributes, or how many come first (negative: last)."
            )
        return found or set()


def _pick_by_xml(
    xml: Path, names: Sequence[str], pick: Callable[[list[str]], set[int]]
) -> set[int]:
    # An XML file may repeat the backslashes that the ARFF file needs within quotes.
    known = set(names)
    wanted = [name if name in known else unescape(name) for name in read_label_names(xml)]
    try:
        return pick(wanted)
    except InputError as problem:
        raise InputError(f"{xml} does not fit: {problem}") from None


def _meka_options(path: Path, relation: str) -> dict[str, float]:
    """Return MEKA's options, which stand in the relation's name after a colon."""
    options: dict[str, float] = {}
    for name, text in _OPTION.findall(relation.partition(":")[2]):
        value = number(text)
        is_count = name != "split-percentage"
        if value is None or abs(value) > LARGEST_VALUE or (is_count and value % 1):
            what = f"the relation's option -{name} must be a number; received {shown(text)}."
            raise InputError(f"{path}: {what}")
        options["C" if name == "c" else name] = value
    # MEKA writes -C 0 where it does not know the labels.
    return {name: value for name, value in options.items() if name != "C" or value}


class _RowParser:
    """The rows of a file, each matched as a whole and then taken apart into its fields.

    Args:
        columns: what the attributes become.
        is_sparse: whether rows are written as ``{index value, …}``.
    """

    def __init__(self, columns: Columns, is_sparse: bool) -> None:
        self.is_sparse = is_sparse
        self._columns = columns
        self._count = len(columns.attributes)
        dense_row = rf"[ \t]*+{_SEPARATED}{{{self._count - 1}}}+{_VALUE}[ \t]*+"
        self._row = _SPARSE_ROW if is_sparse else re.compile(dense_row)
        self._field = _SPARSE_FIELD if is_sparse else _DENSE_FIELD
        self._known: dict[Any, tuple[int, float]] = {}

    def parse(self, text: str) -> tuple[dict[int, float], float]:
        """Return the entries of a row, column → value, and its weight; or raise a LineError."""
        begin = text.lstrip(" \t")
        if begin.startswith("{") != self.is_sparse:
            this, first = ("dense", "sparse") if self.is_sparse else ("sparse", "dense")
            what = f"a {this} row in a file whose first row is {first}. Write all rows alike."
            raise LineError(what, len(text) - len(begin))
        match = self._row.match(text)
        if match is None:
            raise self._find_sparse_fault(text) if self.is_sparse else self._find_dense_fault(text)
        found = self._field.findall(text, 0, match.end())
        fields = found if self.is_sparse else list(enumerate(found))

        def place(n: int) -> int:
            return next(islice(self._field.finditer(text), n, None)).start()

        row = read_row(fields, self._known, self._entry, place, "attribute number")
        if self.is_sparse and self._columns.omitted:
            row = self._columns.omitted | row
        return row, self._read_weight(text, match.end())

    def _entry(self, field: str | tuple[int, str]) -> tuple[int, float]:
        index, value = field.split(None, 1) if isinstance(field, str) else field
        i = int(index)
        if i >= self._count:
            what = f"attribute number {index} is out of range: the file declares {self._count}, "
            raise LineError(f"{what}which count from 0 to {self._count - 1}.")
        try:
            return self._columns.entry(i, value)
        except InputError as problem:
            what = f"attribute {shown(self._columns.attributes[i].name)} {problem}"
            offset = len(field) - len(value) if isinstance(field, str) else 0
            raise LineError(what, offset) from None

    def _read_weight(self, text: str, end: int) -> float:
        rest = _REST.fullmatch(text, end)
        if rest is None:
            what = f"the row goes on after its last value with {shown(text[end:])}; the file "
            raise LineError(f"{what}declares {self._count} attributes.", end)
        if rest["weight"] is None:
            return 1.0
        weight = number(rest["weight"].strip())
        if weight is None or not 0 <= weight <= LARGEST_VALUE:
            what = f"a row's weight must be zero or more; received {shown(rest['weight'])}."
            raise LineError(what, rest.start("weight"))
        return weight

    def _find_sparse_fault(self, text: str) -> LineError:
        at = _SPARSE_START.match(text).end()  # type: ignore[union-attr]
        pair = _BROKEN_PAIR.match(text, at)
        assert pair is not None, "it matches nothing as well"
        index, end = pair["index"], pair.end()
        if not re.fullmatch(r"[0-9]{1,10}", index):
            what = f"expected the number of an attribute, counted from 0; received {shown(index)}."
            return LineError(what, at)
        if pair["value"] is None:
            return LineError(f"expected a value for attribute number {int(index)}.", end)
        cut = " The file may be cut short." if end == len(text) else ""
        return LineError(f"expected a comma or }} after a value.{cut}", end)

    def _find_dense_fault(self, text: str) -> LineError:
        at = _DENSE_START.match(text).end()  # type: ignore[union-attr]
        values = len(_DENSE_FIELD.findall(text, 0, at))
        last = _DENSE_FIELD.match(text, at)
        if last:
            values, at = values + 1, last.end()
        if text[at : at + 1] in ("", "{", "%"):
            what = f"the row has {values} values, but the file declares {self._count} attributes. "
            return LineError(f"{what}The row may be cut short.", at)
        expected = "a comma after a value" if last else "a value"
        return LineError(f"expected {expected}; received {shown(text[at:])}.", at)
