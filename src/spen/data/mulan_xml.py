"""Mulan's XML file, which says which attributes of an ARFF file are labels."""

from __future__ import annotations

from pathlib import Path
from xml.parsers import expat

from spen.data.lines import fault, open_file, shown
from spen.errors import InputError

LARGEST_XML = 1 << 26
"""Bytes that a file of label names may have."""


def read_label_names(path: Path) -> tuple[str, ...]:
    """Return the label names of a Mulan XML file, in its order; labels may be nested.

    Document types and entities are refused: a small file could otherwise grow without bound.
    """
    with open_file(path) as file:
        if path.stat().st_size > LARGEST_XML:
            what = f"is larger than {LARGEST_XML >> 20} MiB, for a list of labels."
            raise InputError(f"{path} {what}")
        content = file.read()
    parser = expat.ParserCreate()
    names: dict[str, None] = {}
    problems: list[InputError] = []

    def start(element: str, attributes: dict[str, str]) -> None:
        if element.rpartition(":")[2] != "label" or problems:
            return
        name = attributes.get("name")
        if not name:
            what = 'a <label> must have a name, as in <label name="sports"/>.'
        elif name in names:
            what = f"the label {shown(name)} is listed twice."
        else:
            names[name] = None
            return
        problems.append(fault(path, parser.CurrentLineNumber, what))

    def refuse(*_: object) -> None:
        what = "a document type or entity is not allowed here. Remove it."
        problems.append(fault(path, parser.CurrentLineNumber, what))
        raise problems[0]

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as problem:
        reason = expat.ErrorString(problem.code)
        what = f"this is not XML that can be read: {reason}."
        raise fault(path, problem.lineno, what, character=problem.offset + 1) from None
    except (LookupError, ValueError) as problem:
        # The encoding that the file names may be unknown, or not the one it is in.
        raise (
            problems[0] if problems else InputError(f"{path} cannot be read: {problem}.")
        ) from None
    if problems:
        raise problems[0]
    if not names:
        raise InputError(f'{path} names no labels; expected elements <label name="sports"/>.')
    return tuple(names)
