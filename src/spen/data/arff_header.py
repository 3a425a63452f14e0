"""The head of an ARFF file: its relation and its attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from spen.data.lines import decode, encoding_of, fault, numbered_lines, open_file, shown

# Possessive repeats (*+) keep no way back: what never ends costs neither memory nor time.
QUOTED = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_NAME = re.compile(rf"(?P<quoted>{QUOTED})|(?P<plain>[^\s'\"][^\s]*)")
_VALUE = re.compile(
    rf"[ \t]*+(?:(?P<quoted>{QUOTED})|(?P<plain>[^\s,{{}}'\"][^,{{}}]*+))[ \t]*+(?=[,}}])"
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NUMERIC = {"numeric", "real", "integer"}
_OTHERS = {"string", "date", "relational"}
MOST_VALUES = 1 << 16
"""Values that a nominal attribute may list."""

_KEYWORDS = (b"@relation", b"@attribute", b"@data")


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


@dataclass(frozen=True)
class Header:
    """All that stands before the rows.

    Attributes:
        relation: the relation's name, in which MEKA keeps its options.
        attributes: the columns in order.
        encoding: of the whole file.
        offset, line: where the rows begin, in bytes and in lines.
    """

    relation: str
    attributes: tuple[Attribute, ...]
    encoding: str
    offset: int
    line: int


def read_header(path: Path) -> Header:
    """Read an ARFF file up to its rows. Keywords may be written in any case."""
    with open_file(path) as file:
        lines = []
        for number, raw in numbered_lines(path, file):
            words = raw.split(None, 1)
            if not words or words[0].startswith(b"%"):
                continue
            _check_keyword(path, number, raw, words[0], first=not lines)
            lines.append((number, raw))
            if words[0].lower() == b"@data":
                if len(words) > 1 and not words[1].startswith(b"%"):
                    raise fault(path, number, "rows must start on the line after @data.")
                break
        else:
            last = lines[-1][0] if lines else 1
            raise fault(path, last, "the file ends before @data. Is it cut short?")
        offset, last = file.tell(), lines.pop()[0]
    encoding = encoding_of(b"\n".join(raw for _, raw in lines))
    relation = ""
    attributes: list[Attribute] = []
    seen: dict[str, int] = {}
    for number, raw in lines:
        text = decode(path, number, raw, encoding)
        keyword, *more = text.split(None, 1)
        rest = more[0] if more else ""
        at = len(text) - len(rest) + 1
        if keyword.lower() == "@relation":
            relation = _relation(rest)
            continue
        attribute = _attribute(path, number, rest, at)
        if attribute.name in seen:
            raise fault(
                path,
                number,
                f"the attribute {shown(attribute.name)} was declared in line "
                f"{seen[attribute.name]} already. Give each attribute a name of its own.",
                character=at,
            )
        seen[attribute.name] = number
        attributes.append(attribute)
    if not attributes:
        raise fault(path, last, "no @attribute stands before @data.")
    return Header(relation, tuple(attributes), encoding, offset, last + 1)


def unescape(text: str) -> str:
    r"""Return text without its backslashes: ``don\'t`` is ``don't``."""
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)


def unquote(match: re.Match[str]) -> str:
    """Return the text of a match with the groups ``quoted`` and ``plain``.

    Backslashes are signs of escape within quotes only; ``m\\'usica`` without quotes has one.
    """
    quoted = match["quoted"]
    return unescape(quoted[1:-1]) if quoted is not None else match["plain"].rstrip()


def _check_keyword(path: Path, line: int, raw: bytes, word: bytes, first: bool) -> None:
    if word.lower() in _KEYWORDS:
        return
    what = f"expected @relation, @attribute or @data; received {shown(word.decode('latin-1'))}."
    if first:
        what += " An ARFF file starts with @relation."
    raise fault(path, line, what, character=len(raw) - len(raw.lstrip()) + 1)


def _relation(rest: str) -> str:
    match = _NAME.match(rest)
    # Without quotes, a name with blanks is meant as it stands.
    return unquote(match) if match and match["quoted"] is not None else rest.strip()


def _attribute(path: Path, line: int, rest: str, at: int) -> Attribute:
    match = _NAME.match(rest)
    if not match:
        raise fault(path, line, "expected @attribute NAME TYPE.", character=at)
    name, kind = unquote(match), rest[match.end() :]
    if match["plain"] is not None and not kind.strip() and "{" in name:
        name, kind = name[: name.index("{")], name[name.index("{") :]
    at += len(rest) - len(kind.lstrip())
    kind = kind.strip()
    if not name:
        raise fault(path, line, "the attribute has no name.", character=at)
    if kind.startswith("{"):
        return Attribute(name, _values(path, line, name, kind, at), line)
    word, _, more = kind.partition(" ")
    word, more = word.split("\t")[0], more.strip()
    if word.lower() in _OTHERS:
        raise fault(
            path,
            line,
            f"attribute {shown(name)} is of type {word.lower()}, of which no number can be made. "
            "Remove it, or turn it into numeric or nominal attributes.",
            character=at,
        )
    if word.lower() not in _NUMERIC or (more and not more.startswith("%")):
        raise fault(
            path,
            line,
            f"attribute {shown(name)} has the type {shown(kind)}; expected numeric, or values "
            "as in {0,1}.",
            character=at,
        )
    return Attribute(name, None, line)


def _values(path: Path, line: int, name: str, kind: str, at: int) -> tuple[str, ...]:
    values: dict[str, None] = {}
    place = 1
    while True:
        match = _VALUE.match(kind, place)
        if not match:
            raise fault(
                path,
                line,
                f"the values of attribute {shown(name)} must be separated by commas and end "
                "with }.",
                character=at + place,
            )
        value = unquote(match)
        if value in values:
            raise fault(
                path,
                line,
                f"attribute {shown(name)} lists the value {shown(value)} twice.",
                character=at + place,
            )
        if len(values) == MOST_VALUES:
            what = f"attribute {shown(name)} lists more than {MOST_VALUES} values. Remove it if "
            raise fault(path, line, f"{what}it is a name or a text.", character=at + place)
        values[value] = None
        place = match.end() + 1
        if kind[match.end()] == "}":
            break
    rest = kind[place:].strip()
    if rest and not rest.startswith("%"):
        raise fault(
            path,
            line,
            f"after the values of attribute {shown(name)} stands {shown(rest)}.",
            character=at + place,
        )
    return tuple(values)
