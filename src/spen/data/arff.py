"""ARFF files of multi-label data, as Mulan and MEKA write them, with Mulan's XML files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.parsers import expat

import numpy as np

from spen.batch.limits import limits
from spen.data import reader
from spen.data.dataset import TIMES, check_size
from spen.data.reader import Options, Rows, TextFile, TextReader, TokenError, pick_labels, shown
from spen.errors import InputError

MOST_VALUES = 1 << 16
"""Values that a nominal attribute may list."""

LARGEST_XML = 1 << 22
"""Bytes that a file of label names may have."""

# A row of a dense file takes memory for each column of X. Attributes with very many values
# would make it far larger than the file, so such files become sparse matrices.
_WIDEST = 16

_OF_A_NAME, _OF_AN_ATTRIBUTE = 300, 700
"""Bytes that are needed for each, at most, beside the name's characters."""

_PART = re.compile(r"[-_.](train|test|valid|val|dev)$", re.IGNORECASE)
_OPTION = re.compile(r"(?:^|\s)-(C|c|split-number|split-percentage)\s+(\S+)")

# Possessive repeats (*+) keep no way back: what never ends costs neither memory nor time.
_QUOTED = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_DECLARATION = re.compile(rb"\s*+(\S*+)\s*+(.*)", re.DOTALL)
_NAME = re.compile(rf"{_QUOTED}|[^\s'\"]\S*+")
_LISTED = re.compile(rf"[ \t]*+({_QUOTED}|[^\s,{{}}'\"][^,{{}}]*+)[ \t]*+(?=[,}}])")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NEGATIVE = frozenset({"0", "-1", "false", "no", "f", "n"})
_POSITIVE = frozenset({"1", "true", "yes", "t", "y"})
_VALUE = rf"(?:[^\s,{{}}'\"%][^\s,{{}}]*+|{_QUOTED})"
_GAP = r"(?:[ \t]*+,[ \t]*+|[ \t]++)"
_DENSE_FIELD = re.compile(f"({_VALUE})")
_DENSE_ROW = re.compile(rf"[ \t]*+(?P<values>(?:{_VALUE}(?:{_GAP}{_VALUE})*+)?+)(?P<gap>{_GAP}?+)")
# An index and a value, or whatever stands in their place.
_PAIR = rf"[ \t]*+([^\s,{{}}]*+[ \t]*+(?:{_QUOTED}|[^\s,{{}}]*+))"
_SPARSE_FIELD = re.compile(f"[{{,]{_PAIR}")
_INDEX = re.compile(r"(\S*+)[ \t]*+")
_WHOLE_PAIR = re.compile(rf"[0-9]{{1,10}}[ \t]++{_VALUE}")
_SPARSE_ROW = re.compile(rf"[ \t]*+\{{{_PAIR}[ \t]*+(?:,{_PAIR}[ \t]*+)*+")
_REST = re.compile(r"[ \t]*+(?:,?[ \t]*+\{(?P<weight>[^{}]*)\}[ \t]*+)?(?:%.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Attribute:
    """A column of an ARFF file, and the columns that it becomes.

    A numeric attribute is a column. So is a nominal attribute of two values, 1 standing for
    the one that says yes (1, true, yes) or else for the second, as its name then says
    (``colour=red``). A nominal attribute of more values becomes a column of 0 and 1 for each.

    Attributes:
        name: its name, without quotes.
        line: where it is declared.
        codes: what a nominal attribute may hold, in order, and the entries that these become;
            empty: it holds numbers.
        suffixes: what is added to the name of each column.
        is_one_hot: whether an entry says which of the columns holds a 1.
    """

    name: str
    line: int
    codes: dict[str, float] = field(default_factory=dict)
    suffixes: tuple[str, ...] = ("",)
    is_one_hot: bool = False

    def list_values(self) -> str:
        """Return the first values, as an error shows them."""
        few = ", ".join(shown(value)[1:-1] for value in list(self.codes)[:5])
        return f"{{{few}{', …' if len(self.codes) > 5 else ''}}}"


class ArffReader(TextReader):
    """The rows of an ARFF file, dense or sparse.

    Which attributes are labels is said by the options, or by an XML file with the name of the
    ARFF file (less ``-train`` and the like), or by MEKA's ``-C`` in the relation's name; the
    two must agree where there are both. Columns keep the order of the ARFF file. Labels are
    numeric attributes of 0 and 1, or nominal ones of such a pair.

    Args:
        path: the file.
        options: how to read it. Its format is "mulan" to go by the XML, "meka" to go by
            ``-C``, None for whichever there is; its labels are an XML file, names of
            attributes, or a number of attributes as in MEKA: the first n, or the last n if
            negative.
    """

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        relation, self._attributes, self.header_lines, self.encoding = _read_header(self.file)
        self._options = _read_meka_options(path, relation)
        self.format = options.format or ("meka" if "C" in self._options else "mulan")
        self._lay_out_attributes(options)
        self._is_sparse: bool | None = None
        self._known = reader.Remembered(self._read_field)

    def _lay_out_attributes(self, options: Options) -> None:
        attributes = self._attributes
        labels = self._choose_labels([attribute.name for attribute in attributes], options)
        for attribute in (attributes[i] for i in sorted(labels)):
            if attribute.suffixes != ("",):
                what = f"attribute {shown(attribute.name)} is a label, but its values are "
                what += f"{attribute.list_values()}; a label is numeric or {{0,1}}. Turn classes "
                what += "into one such attribute each, or check which attributes are labels."
                raise reader.fault(self.path, attribute.line, what)
        # A long name of very many values is there many times.
        length = sum(len(a.name) * len(a.suffixes) for a in attributes)
        check_size(self.path, 4 * length, "names of columns")
        self.lay_out([[f"{a.name}{suffix}" for suffix in a.suffixes] for a in attributes], labels)
        self._check_feature_names()
        self.one_hot = np.zeros(self.n_features + self.n_labels, bool)
        self.one_hot[self.starts] = [attribute.is_one_hot for attribute in attributes]
        # A sparse row leaves out the value of an attribute that is listed first. What that stands
        # for is kept where it is not zero.
        first = [next(iter(attribute.codes.values()), 0.0) for attribute in attributes]
        omitted = zip(self.starts, first, strict=True)
        self._omitted = {c: value for c, value in omitted if value or self.one_hot[c]}

    def _check_feature_names(self) -> None:
        """Raise where a value makes the name of another feature: a {b,c,d} and an attribute a=b."""
        if len(set(self.feature_names)) == self.n_features:
            return
        seen: dict[str, _Attribute] = {}
        for i, attribute in enumerate(self._attributes):
            names = () if i in self.labels else attribute.suffixes
            for name in (f"{attribute.name}{suffix}" for suffix in names):
                if name in seen:
                    what = f"a feature that attribute {shown(attribute.name)} becomes is called "
                    what += f"{shown(name)}, as one of line {seen[name].line} is. Rename either."
                    raise reader.fault(self.path, attribute.line, what)
                seen[name] = attribute

    def add_row(self, rows: Rows, text: str) -> None:
        """Add the row of a line that is neither empty nor a comment."""
        begin = text.lstrip(" \t")
        if begin[:1] in ("", "%"):
            return
        is_sparse = begin[0] == "{"
        if self._is_sparse is None:
            size, count = self.path.stat().st_size, len(self._attributes)
            # A value has two characters at least, and is there twice while parts are joined.
            allowed = count * (TIMES * size + limits.growth)
            is_wide = self.n_features > _WIDEST * count or 4 * self.n_features * size > allowed
            self._is_sparse, self.is_dense = is_sparse, not (is_sparse or is_wide)
        if is_sparse != self._is_sparse:
            this, first = ("sparse", "dense") if is_sparse else ("dense", "sparse")
            what = f"a {this} row in a file whose first row is {first}. Write all rows alike."
            raise self.file.fault(what, len(text) - len(begin))
        row, end = self._read_sparse(text) if is_sparse else self._read_dense(text)
        rows.add(row, self._read_weight(text, end))

    def _read_sparse(self, text: str) -> tuple[dict[int, float], int]:
        """Return the entries of a row ``{index value, …}``, and where it ends."""
        end = _SPARSE_ROW.match(text).end()  # type: ignore[union-attr]
        is_closed = text[end : end + 1] == "}"
        pairs, matches = _SPARSE_FIELD.findall(text, 0, end), _SPARSE_FIELD.finditer(text)
        if not is_closed and _WHOLE_PAIR.fullmatch(pairs[-1]):
            cut = " The file may be cut short." if end == len(text) else ""
            raise self.file.fault(f"expected a comma or }} after a value.{cut}", end)
        if is_closed and pairs == [""]:
            pairs = []
        row = self.read_row(pairs, matches, self._known, "attribute number")
        return self._omitted | row if self._omitted else row, end + 1

    def _read_dense(self, text: str) -> tuple[dict[int, float], int]:
        """Return the entries of a row ``value, …``, and where it ends."""
        row = _DENSE_ROW.match(text)
        assert row is not None, "it matches nothing as well"
        count, end = len(self._attributes), row.end("values")
        # One more than there may be tells as much as all.
        values = list(enumerate(_DENSE_FIELD.findall(text, 0, end)[: count + 1]))
        if len(values) < count:
            at = row.end() if values else end
            if text[at : at + 1] in ("", "{", "%"):
                what = f"the row has {len(values)} values, but the file declares {count} "
                raise self.file.fault(f"{what}attributes. The row may be cut short.", at)
            expected = "a comma after a value" if values and not row["gap"] else "a value"
            raise self.file.fault(f"expected {expected}; received {shown(text[at:])}.", at)
        matches = _DENSE_FIELD.finditer(text)
        if len(values) > count:
            end = next(itertools.islice(_DENSE_FIELD.finditer(text), count - 1, None)).end()
        return self.read_row(values[:count], matches, self._known, ""), end

    def _read_field(self, field: str | tuple[int, str]) -> tuple[int, float]:
        """Return (column, value) of an attribute's value, which is nan for a missing label.

        Args:
            field: ``index value`` as a sparse row has it, or the number and the value.
        """
        at, count = 0, len(self._attributes)
        if isinstance(field, str):
            head = _INDEX.match(field)
            assert head is not None, "it matches nothing as well"
            index, at = head[1], head.end()
            if not re.fullmatch(r"[0-9]{1,10}", index):
                what = "expected the number of an attribute, counted from 0; received "
                raise TokenError(f"{what}{shown(index)}.")
            if not _DENSE_FIELD.fullmatch(field, at):
                raise TokenError(f"expected a value for attribute number {int(index)}.", at)
            if int(index) >= count:
                what = f"attribute number {index} is out of range: the file declares {count}, "
                raise TokenError(f"{what}which count from 0 to {count - 1}.")
            field = int(index), field[at:]
        i, token = field
        attribute, column, is_label = self._attributes[i], self.starts[i], i in self.labels
        codes, text = attribute.codes, _unquote(token)
        if token == "?" and is_label:
            return column, np.nan
        if token != "?" and text in codes:
            return column, codes[text]
        value, why = reader.read_value(text)
        is_number = not codes or (codes.keys() == {"0", "1"} and value in (0, 1))
        if token == "?":
            what = "is missing (?). Fill it, or drop the row."
        elif not is_number:
            listed = attribute.list_values()
            what = f"holds {shown(text)}, which is not one of its values {listed}."
        elif why:
            what = f"holds {shown(text)}, which is {why}."
        elif is_label and value not in (0, 1):
            what = f"is a label and holds {shown(text)}; expected 0 or 1."
        else:
            return column, value
        raise TokenError(f"attribute {shown(attribute.name)} {what}", at)

    def _read_weight(self, text: str, end: int) -> float:
        rest = _REST.fullmatch(text, end)
        if rest is None:
            what = f"the row goes on after its last value with {shown(text[end:])}; the file "
            raise self.file.fault(f"{what}declares {len(self._attributes)} attributes.", end)
        if rest["weight"] is None:
            return 1.0
        weight, why = reader.read_value(rest["weight"].strip())
        if why or weight < 0:
            what = f"a row's weight must be zero or more; received {shown(rest['weight'])}."
            raise self.file.fault(what, rest.start("weight"))
        return weight

    def divide(self, total: int) -> dict[str, slice]:
        """Return the parts by MEKA's ``-split-number`` or ``-split-percentage``."""
        share = self._options.get("split-percentage")
        by_share = None if share is None else round(total * share / 100)
        count = self._options.get("split-number", by_share)
        if count is None:
            return {}
        if not 0 < count < total:
            raise InputError(
                f"{self.path} says that its first {count:g} rows are for training, but it has "
                f"{total}. Correct the relation's -split option."
            )
        return {"train": slice(0, int(count)), "test": slice(int(count), total)}

    def _choose_labels(self, names: Sequence[str], options: Options) -> set[int]:
        labels, path = options.labels, self.path
        if isinstance(labels, Path) or (isinstance(labels, str) and labels.endswith(".xml")):
            return _pick_by_xml(path, names, Path(labels), options)
        if labels is not None:
            return pick_labels(path, names, "attribute", options)
        stems = dict.fromkeys((path.stem, _PART.sub("", path.stem)))
        beside = [path.with_name(f"{stem}.xml") for stem in stems]
        xml = next((file for file in beside if options.format != "meka" and file.is_file()), None)
        count = self._options.get("C") if options.format != "mulan" else None
        found = [] if xml is None else [_pick_by_xml(path, names, xml, options)]
        if count is not None:
            by_count = replace(options, labels=int(count))
            found.append(pick_labels(path, names, "attribute", by_count))
        if found[1:] and found[0] != found[1]:
            raise InputError(
                f"{path} says -C {count:g} in its relation, but {xml} names other labels. "
                "Give format='mulan' to go by the XML, or format='meka' to go by -C."
            )
        if not found and options.labels_required:
            raise InputError(
                f"{path} does not say which attributes are labels: there is no "
                f"{beside[-1].name} beside it and no -C in its relation. Give labels=: "
                "an XML file, names of attributes, or how many come first (negative: last)."
            )
        return found[0] if found else set()


def _pick_by_xml(path: Path, names: Sequence[str], xml: Path, options: Options) -> set[int]:
    # An XML file may repeat the backslashes that the ARFF file needs within quotes.
    known = set(names)
    wanted = [name if name in known else _unescape(name) for name in _read_label_names(xml)]
    try:
        return pick_labels(path, names, "attribute", replace(options, labels=wanted))
    except InputError as problem:
        raise InputError(f"{xml} does not fit: {problem}") from None


def _read_meka_options(path: Path, relation: str) -> dict[str, float]:
    """Return MEKA's options, which stand in the relation's name after a colon."""
    options: dict[str, float] = {}
    for name, text in _OPTION.findall(relation.partition(":")[2]):
        value, why = reader.read_value(text)
        if why or (name != "split-percentage" and value % 1):
            what = f"the relation's option -{name} must be a number; received {shown(text)}."
            raise InputError(f"{path}: {what}")
        # MEKA writes -C 0 where it does not know the labels.
        if name not in ("C", "c") or value:
            options["C" if name == "c" else name] = value
    return options


def _read_header(file: TextFile) -> tuple[str, list[_Attribute], int, str]:
    """Read an ARFF file up to its rows. Keywords may be written in any case.

    Returns:
        the relation's name, in which MEKA keeps its options; the attributes in order; how many
        lines stand above the rows; and the encoding of the file.
    """
    declared: list[tuple[int, bytes, int, bytes]] = []
    for raw in file.raw_lines():
        match = _DECLARATION.match(raw)
        assert match is not None, "it matches anything"
        keyword = match[1].lower()
        if not keyword or keyword.startswith(b"%"):
            continue
        if keyword not in (b"@relation", b"@attribute", b"@data"):
            received = shown(match[1].decode("latin-1"))
            what = f"expected @relation, @attribute or @data; received {received}."
            what += "" if declared else " An ARFF file starts with @relation."
            raise file.fault(what, match.start(1))
        if keyword == b"@data":
            break
        if keyword == b"@relation" and declared:
            raise file.fault("@relation stands once, above the attributes.", match.start(1))
        declared.append((file.line, keyword, match.start(2), match[2]))
    else:
        file.line = declared[-1][0] if declared else 1
        raise file.fault("the file ends before @data. Is it cut short?")
    if match[2] and not match[2].startswith(b"%"):
        raise file.fault("rows must start on the line after @data.")
    names = sum(rest.count(b",") for *_, rest in declared)
    size = _OF_AN_ATTRIBUTE * len(declared) + _OF_A_NAME * names
    check_size(file.path, size, "names and values of attributes")
    last, relation = file.line, ""
    encoding = reader.encoding_of(b"\n".join(rest for *_, rest in declared))
    attributes: dict[str, _Attribute] = {}
    for file.line, keyword, at, rest in declared:
        text = rest.decode(encoding)
        at += len(text) - len(text.lstrip())
        text = text.lstrip()
        name = _NAME.match(text)
        if keyword == b"@relation":
            # Without quotes, a name with blanks is meant as it stands.
            relation = _unquote(name[0]) if name and text[0] in "'\"" else text.strip()
            continue
        attribute = _read_attribute(file, text, at)
        before = attributes.setdefault(attribute.name, attribute)
        if before is not attribute:
            what = f"the attribute {shown(before.name)} was declared in line {before.line} already."
            raise file.fault(f"{what} Give each attribute a name of its own.", at)
    file.line = last
    if not attributes:
        raise file.fault("no @attribute stands before @data.")
    return relation, list(attributes.values()), last, encoding


def _unescape(text: str) -> str:
    r"""Return text without its backslashes: ``don\'t`` is ``don't``."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


def _unquote(text: str) -> str:
    """Return a name or a value without quotes.

    Backslashes are signs of escape within quotes only; ``m\\'usica`` without quotes has one.
    """
    return _unescape(text[1:-1]) if text[0] in "'\"" else text.rstrip()


def _read_attribute(file: TextFile, text: str, at: int) -> _Attribute:
    """Return the attribute that ``NAME TYPE`` declares; it stands after so many characters."""
    match = _NAME.match(text)
    if not match:
        raise file.fault("expected @attribute NAME TYPE.", at)
    name, kind = _unquote(match[0]), text[match.end() :]
    if text[0] not in "'\"" and not kind.strip() and "{" in name:
        name, kind = name[: name.index("{")], name[name.index("{") :]
    at += len(text) - len(kind.lstrip())
    kind = kind.strip()
    if not name:
        raise file.fault("the attribute has no name.", at)
    if kind.startswith("{"):
        return _Attribute(name, file.line, *_encode(_read_values(file, name, kind, at)))
    word, _, more = kind.partition(" ")
    word, more = word.split("\t")[0].lower(), more.strip()
    if word in ("string", "date", "relational"):
        what = f"attribute {shown(name)} is of type {word}, of which no number can be made. "
        raise file.fault(f"{what}Remove it, or turn it into numeric or nominal attributes.", at)
    if word not in ("numeric", "real", "integer") or (more and not more.startswith("%")):
        what = f"attribute {shown(name)} has the type {shown(kind)}; expected numeric, or values "
        raise file.fault(f"{what}as in {{0,1}}.", at)
    return _Attribute(name, file.line)


def _read_values(file: TextFile, name: str, kind: str, at: int) -> list[str]:
    """Return the values that ``{value, …}`` lists."""
    attribute, values, place = f"attribute {shown(name)}", dict[str, None](), 1
    while kind[place - 1] != "}":
        match = _LISTED.match(kind, place)
        value = _unquote(match[1]) if match else ""
        if not match:
            what = f"the values of {attribute} must be separated by commas and end with }}."
        elif value in values:
            what = f"{attribute} lists the value {shown(value)} twice."
        elif len(values) == MOST_VALUES:
            what = f"{attribute} lists more than {MOST_VALUES} values. Remove it if it is a name "
            what += "or a text."
        else:
            values[value] = None
            place = match.end() + 1
            continue
        raise file.fault(what, at + place)
    rest = kind[place:].strip()
    if rest and not rest.startswith("%"):
        raise file.fault(f"after the values of {attribute} stands {shown(rest)}.", at + place)
    return list(values)


def _encode(values: list[str]) -> tuple[dict[str, float], tuple[str, ...], bool]:
    """Return the codes, the suffixes and whether it is one-hot of a nominal attribute."""
    lowered = [value.lower() for value in values]
    yes = sum(value in _POSITIVE for value in lowered)
    no = sum(value in _NEGATIVE for value in lowered)
    if yes <= 1 and no <= 1 and yes + no == len(values):
        return {value: float(value.lower() in _POSITIVE) for value in values}, ("",), False
    codes = {value: float(k) for k, value in enumerate(values)}
    is_pair = len(values) == 2
    return codes, tuple(f"={value}" for value in values[is_pair:]), not is_pair


def _read_label_names(path: Path) -> tuple[str, ...]:
    """Return the label names of a Mulan XML file, in its order; labels may be nested.

    Document types and entities are refused: a small file could otherwise grow without bound.
    """
    with reader.open_file(path) as file:
        if path.stat().st_size > LARGEST_XML:
            size = f"{LARGEST_XML >> 20} MiB"
            raise InputError(f"{path} is larger than {size}, for a list of labels.")
        content = file.read()
    parser = expat.ParserCreate()
    found: list[tuple[str, int]] = []

    def add_label(element: str, attributes: dict[str, str]) -> None:
        if element.rpartition(":")[2] == "label":
            found.append((attributes.get("name", ""), parser.CurrentLineNumber))

    def refuse_growth(*_: object) -> None:
        what = "a document type or entity is not allowed here. Remove it."
        raise reader.fault(path, parser.CurrentLineNumber, what)

    parser.StartElementHandler = add_label
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse_growth
    try:
        parser.Parse(content, True)
    except expat.ExpatError as problem:
        what = f"this is not XML that can be read: {expat.ErrorString(problem.code)}."
        raise reader.fault(path, problem.lineno, what, problem.offset) from None
    except InputError:
        raise
    except (LookupError, ValueError) as problem:
        # The encoding that the file names may be unknown, or not the one it is in.
        raise InputError(f"{path} cannot be read: {problem}.") from None
    names: dict[str, None] = {}
    for name, line in found:
        if not name:
            what = 'a <label> must have a name, as in <label name="sports"/>.'
            raise reader.fault(path, line, what)
        if name in names:
            raise reader.fault(path, line, f"the label {shown(name)} is listed twice.")
        names[name] = None
    if not names:
        raise InputError(f'{path} names no labels; expected elements <label name="sports"/>.')
    return tuple(names)
