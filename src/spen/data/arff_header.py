"""The head of an ARFF file: its attributes, and the columns of X and Y that they become."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

import numpy as np

from spen.data.reader import (
    LARGEST_VALUE,
    LineError,
    decode,
    encoding_of,
    fault,
    number,
    numbered_lines,
    open_file,
    shown,
)
from spen.errors import InputError

LARGEST_XML = 1 << 26
"""Bytes that a file of label names may have."""

MOST_VALUES = 1 << 16
"""Values that a nominal attribute may list."""

# Possessive repeats (*+) keep no way back: what never ends costs neither memory nor time.
QUOTED = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_NAME = re.compile(rf"{QUOTED}|[^\s'\"]\S*+")
_LISTED = re.compile(rf"[ \t]*+({QUOTED}|[^\s,{{}}'\"][^,{{}}]*+)[ \t]*+(?=[,}}])")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NEGATIVE = frozenset({"0", "-1", "false", "no", "f", "n"})
_POSITIVE = frozenset({"1", "true", "yes", "t", "y"})


@dataclass(frozen=True)
class Attribute:
    """A column of an ARFF file.

    Attributes:
        name: its name, without quotes.
        values: what a nominal attribute may hold, in order; None: it holds numbers.
        line: where it is declared.
    """

    name: str
    values: tuple[str, ...] | None
    line: int

    def list_values(self) -> str:
        """Return the first values, as an error shows them."""
        values = self.values or ()
        few = ", ".join(shown(value)[1:-1] for value in values[:5])
        return f"{{{few}{', …' if len(values) > 5 else ''}}}"


def read_header(path: Path) -> tuple[str, tuple[Attribute, ...], tuple[int, int, str]]:
    """Read an ARFF file up to its rows. Keywords may be written in any case.

    Returns:
        the relation's name, in which MEKA keeps its options; the attributes in order; and
        where the rows begin, in bytes and in lines, with the encoding of the file.
    """
    with open_file(path) as file:
        lines: list[tuple[int, bytes]] = []
        for i, raw in numbered_lines(path, file):
            words = raw.split(None, 1)
            if not words or words[0].startswith(b"%"):
                continue
            if words[0].lower() not in (b"@relation", b"@attribute", b"@data"):
                received = shown(words[0].decode("latin-1"))
                what = f"expected @relation, @attribute or @data; received {received}."
                what += "" if lines else " An ARFF file starts with @relation."
                raise fault(path, i, what, character=len(raw) - len(raw.lstrip()) + 1)
            lines.append((i, raw))
            if words[0].lower() == b"@data":
                if len(words) > 1 and not words[1].startswith(b"%"):
                    raise fault(path, i, "rows must start on the line after @data.")
                break
        else:
            last = lines[-1][0] if lines else 1
            raise fault(path, last, "the file ends before @data. Is it cut short?")
        offset, last = file.tell(), lines.pop()[0]
    encoding = encoding_of(b"\n".join(raw for _, raw in lines))
    relation = ""
    attributes: dict[str, Attribute] = {}
    for i, raw in lines:
        text = decode(path, i, raw, encoding)
        keyword, *more = text.split(None, 1)
        rest = more[0] if more else ""
        if keyword.lower() == "@relation":
            match = _NAME.match(rest)
            # Without quotes, a name with blanks is meant as it stands.
            relation = unquote(match[0]) if match and rest[0] in "'\"" else rest.strip()
            continue
        at = len(text) - len(rest)
        try:
            attribute = _attribute(rest, i, at)
        except LineError as problem:
            raise problem.at(path, i) from None
        before = attributes.setdefault(attribute.name, attribute)
        if before is not attribute:
            what = f"the attribute {shown(before.name)} was declared in line {before.line} already."
            raise fault(path, i, f"{what} Give each attribute a name of its own.", character=at + 1)
    if not attributes:
        raise fault(path, last, "no @attribute stands before @data.")
    return relation, tuple(attributes.values()), (offset, last + 1, encoding)


def unescape(text: str) -> str:
    r"""Return text without its backslashes: ``don\'t`` is ``don't``."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)


def unquote(text: str) -> str:
    """Return a name or a value without quotes.

    Backslashes are signs of escape within quotes only; ``m\\'usica`` without quotes has one.
    """
    return unescape(text[1:-1]) if text[0] in "'\"" else text.rstrip()


def _attribute(rest: str, line: int, at: int) -> Attribute:
    """Return the attribute that ``NAME TYPE`` declares; it stands after so many characters."""
    match = _NAME.match(rest)
    if not match:
        raise LineError("expected @attribute NAME TYPE.", at)
    name, kind = unquote(match[0]), rest[match.end() :]
    if rest[0] not in "'\"" and not kind.strip() and "{" in name:
        name, kind = name[: name.index("{")], name[name.index("{") :]
    at += len(rest) - len(kind.lstrip())
    kind = kind.strip()
    if not name:
        raise LineError("the attribute has no name.", at)
    if kind.startswith("{"):
        return Attribute(name, _values(f"attribute {shown(name)}", kind, at), line)
    word, _, more = kind.partition(" ")
    word, more = word.split("\t")[0].lower(), more.strip()
    if word in ("string", "date", "relational"):
        what = f"attribute {shown(name)} is of type {word}, of which no number can be made. "
        what += "Remove it, or turn it into numeric or nominal attributes."
        raise LineError(what, at)
    if word not in ("numeric", "real", "integer") or (more and not more.startswith("%")):
        what = f"attribute {shown(name)} has the type {shown(kind)}; expected numeric, or values "
        raise LineError(f"{what}as in {{0,1}}.", at)
    return Attribute(name, None, line)


def _values(attribute: str, kind: str, at: int) -> tuple[str, ...]:
    """Return the values that ``{value, …}`` lists."""
    values: dict[str, None] = {}
    place = 1
    while kind[place - 1] != "}":
        match = _LISTED.match(kind, place)
        value = unquote(match[1]) if match else ""
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
        raise LineError(what, at + place)
    rest = kind[place:].strip()
    if rest and not rest.startswith("%"):
        what = f"after the values of {attribute} stands {shown(rest)}."
        raise LineError(what, at + place)
    return tuple(values)


class Columns:
    """The plan by which values become entries of X and Y.

    A numeric attribute is a column. So is a nominal attribute of two values, 1 standing for
    the one that says yes (1, true, yes) or else for the second, as its name then says
    (``colour=red``). A nominal attribute of more values becomes a column of 0 and 1 for each.
    Labels are numeric attributes of 0 and 1, or nominal ones of such a pair.

    Attributes:
        attributes: those of the file.
        feature_names, label_names: the names of the columns; those of Y follow those of X.
        one_hot: (columns,) whether an attribute of more columns begins here. Its entry stands
            here, and says by how much its 1 stands further right.
        omitted: column → value where a sparse row leaves out the attribute and this is not
            zero: it leaves out the value that is listed first.
    """

    def __init__(self, path: Path, attributes: tuple[Attribute, ...], labels: set[int]) -> None:
        self.path = path
        self.attributes = attributes
        self.feature_names: list[str] = []
        self.label_names: list[str] = []
        self._labels = labels
        self._column: list[int] = []
        self._codes: list[dict[str, float]] = []
        one_hot: list[bool] = []
        for i, attribute in enumerate(attributes):
            names = self.label_names if i in labels else self.feature_names
            codes, suffixes, is_one_hot = _encode(attribute.values)
            if i in labels and suffixes != [""]:
                what = f"attribute {shown(attribute.name)} is a label, but its values are "
                what += f"{attribute.list_values()}; a label is numeric or {{0,1}}. Turn classes "
                what += "into one such attribute each, or check which attributes are labels."
                raise fault(path, attribute.line, what)
            self._column.append(len(names))
            self._codes.append(codes)
            one_hot.append(is_one_hot)
            names.extend(f"{attribute.name}{suffix}" for suffix in suffixes)
        for i in labels:
            self._column[i] += len(self.feature_names)
        self.one_hot = np.zeros(len(self.feature_names) + len(self.label_names), bool)
        self.one_hot[self._column] = one_hot
        first = (next(iter(codes.values()), 0.0) for codes in self._codes)
        omitted = zip(self._column, first, strict=True)
        self.omitted = {c: value for c, value in omitted if value or self.one_hot[c]}

    def entry(self, i: int, token: str) -> tuple[int, float]:
        """Return (column, value) of a value, which is nan for a missing label.

        An error says what is wrong, without the attribute's name and the place.
        """
        column, codes, is_label = self._column[i], self._codes[i], i in self._labels
        if token == "?" and is_label:
            return column, np.nan
        if token == "?":
            raise InputError("is missing (?). Fill it, or drop the row.")
        text = unquote(token)
        if text in codes:
            return column, codes[text]
        value = number(text) if not codes or codes.keys() == {"0", "1"} else None
        if codes and value not in (0, 1):
            listed = self.attributes[i].list_values()
            raise InputError(f"holds {shown(text)}, which is not one of its values {listed}.")
        if value is None:
            raise InputError(f"holds {shown(text)}, which is not a number.")
        if abs(value) > LARGEST_VALUE:
            raise InputError(f"holds {shown(text)}, which is too large for single precision.")
        if is_label and value not in (0, 1):
            raise InputError(f"is a label and holds {shown(text)}; expected 0 or 1.")
        return column, value


def _encode(values: tuple[str, ...] | None) -> tuple[dict[str, float], list[str], bool]:
    """Return (value → entry, what is added to the name of each column, whether it is one-hot)."""
    if values is None:
        return {}, [""], False
    lowered = [value.lower() for value in values]
    yes = sum(value in _POSITIVE for value in lowered)
    no = sum(value in _NEGATIVE for value in lowered)
    if yes <= 1 and no <= 1 and yes + no == len(values):
        return {v: float(v.lower() in _POSITIVE) for v in values}, [""], False
    codes = {value: float(k) for k, value in enumerate(values)}
    is_pair = len(values) == 2
    return codes, [f"={value}" for value in values[is_pair:]], not is_pair


def read_label_names(path: Path) -> tuple[str, ...]:
    """Return the label names of a Mulan XML file, in its order; labels may be nested.

    Document types and entities are refused: a small file could otherwise grow without bound.
    """
    with open_file(path) as file:
        if path.stat().st_size > LARGEST_XML:
            size = f"{LARGEST_XML >> 20} MiB"
            raise InputError(f"{path} is larger than {size}, for a list of labels.")
        content = file.read()
    parser = expat.ParserCreate()
    names: dict[str, None] = {}

    def start(element: str, attributes: dict[str, str]) -> None:
        if element.rpartition(":")[2] != "label":
            return
        name = attributes.get("name")
        if not name:
            refuse('a <label> must have a name, as in <label name="sports"/>.')
        elif name in names:
            refuse(f"the label {shown(name)} is listed twice.")
        else:
            names[name] = None

    def refuse_growth(*_: object) -> None:
        refuse("a document type or entity is not allowed here. Remove it.")

    def refuse(what: str) -> None:
        raise fault(path, parser.CurrentLineNumber, what)

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse_growth
    try:
        parser.Parse(content, True)
    except expat.ExpatError as problem:
        what = f"this is not XML that can be read: {expat.ErrorString(problem.code)}."
        raise fault(path, problem.lineno, what, character=problem.offset + 1) from None
    except InputError:
        raise
    except (LookupError, ValueError) as problem:
        # The encoding that the file names may be unknown, or not the one it is in.
        raise InputError(f"{path} cannot be read: {problem}.") from None
    if not names:
        raise InputError(f'{path} names no labels; expected elements <label name="sports"/>.')
    return tuple(names)
