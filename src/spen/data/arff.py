"""ARFF files of multi-label data, as Mulan and MEKA write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from spen.batch.splits import Split
from spen.data.arff_careful import CarefulRows
from spen.data.arff_columns import Columns
from spen.data.arff_header import Attribute, read_header, unescape
from spen.data.arff_quick import read_quickly
from spen.data.digits import LARGEST_VALUE, number
from spen.data.labels import LabelChoice, Labels, pick
from spen.data.lines import blocks, shown
from spen.data.mulan_xml import read_label_names
from spen.data.reader import RowReader
from spen.errors import InputError

_PART = re.compile(r"[-_.](train|test|valid|val|dev)$", re.IGNORECASE)
_OPTION = re.compile(r"(?:^|\s)-(C|c|split-number|split-percentage)\s+(\S+)")


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
        header = read_header(path)
        self._options = _meka_options(path, header.relation)
        self.format = format or ("meka" if "C" in self._options else "mulan")
        chosen = self._labels(header.attributes, format, labels, labels_required)
        self._columns = Columns(path, header.attributes, chosen)
        self.feature_names = self._columns.feature_names
        self.label_names = self._columns.label_names
        if not self.feature_names:
            raise InputError(f"{path} has only labels and no features.")
        self._start = header.offset, header.line
        is_sparse = _first_row(path, *self._start) == b"{"
        self._is_sparse = is_sparse
        self._careful = CarefulRows(path, self._columns, header.encoding, is_sparse)

    def parts(self) -> Iterator[Split]:
        """Yield the rows block by block."""
        for line, block in blocks(self.path, *self._start):
            part = read_quickly(block, self._columns, self._is_sparse)
            yield self._careful.read(block, line) if part is None else part

    def train_rows(self, total: int) -> int | None:
        """Return the training rows by MEKA's ``-split-number`` or ``-split-percentage``."""
        count = self._options.get("split-number")
        if count is None and "split-percentage" in self._options:
            count = round(total * self._options["split-percentage"] / 100)
        if count is None:
            return None
        if not 0 < count < total:
            raise InputError(
                f"{self.path} says that its first {count:g} rows are for training, but it has "
                f"{total}. Correct the relation's -split option."
            )
        return int(count)

    def _labels(
        self,
        attributes: tuple[Attribute, ...],
        format: str | None,
        labels: Labels,
        required: bool,
    ) -> set[int]:
        names = [attribute.name for attribute in attributes]
        choice = LabelChoice(self.path, names, "attribute", required)
        if labels is not None:
            if isinstance(labels, Path) or (isinstance(labels, str) and labels.endswith(".xml")):
                return self._by_xml(Path(labels), choice)
            return pick(choice, labels)
        xml = _xml_beside(self.path) if format != "meka" else None
        count = self._options.get("C") if format != "mulan" else None
        by_xml = self._by_xml(xml, choice) if xml else None
        by_count = pick(choice, int(count)) if count is not None else None
        if by_xml is not None and by_count is not None and by_xml != by_count:
            raise InputError(
                f"{self.path} says -C {count:g} in its relation, but {xml} names other labels. "
                "Give format='mulan' to go by the XML, or format='meka' to go by -C."
            )
        found = by_xml if by_xml is not None else by_count
        if found is None and required:
            raise InputError(
                f"{self.path} does not say which attributes are labels: there is no "
                f"{_xml_names(self.path)[-1]} beside it and no -C in its relation. Give labels=: "
                "an XML file, names of attributes, or how many come first (negative: last)."
            )
        return found or set()

    def _by_xml(self, xml: Path, choice: LabelChoice) -> set[int]:
        # An XML file may repeat the backslashes that the ARFF file needs within quotes.
        known = set(choice.names)
        names = read_label_names(xml)
        plain = [name if name in known else unescape(name) for name in names]
        try:
            return pick(choice, plain)
        except InputError as problem:
            raise InputError(f"{xml} does not fit: {problem}") from None


def _xml_names(path: Path) -> list[str]:
    stems = dict.fromkeys((path.stem, _PART.sub("", path.stem)))
    return [f"{stem}.xml" for stem in stems]


def _xml_beside(path: Path) -> Path | None:
    return next((p for name in _xml_names(path) if (p := path.with_name(name)).is_file()), None)


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


def _first_row(path: Path, offset: int, line: int) -> bytes:
    """Return the first sign of the first row; nothing where there are no rows."""
    for _, block in blocks(path, offset, line):
        for raw in block.split(b"\n"):
            text = raw.strip()
            if text and not text.startswith(b"%"):
                return text[:1]
    return b""
