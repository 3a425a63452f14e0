"""CoNLL files: a token a line with its tags in columns, and a blank line between sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spen.batch.arrays import object_array
from spen.batch.splits import Split
from spen.data import reader
from spen.data.reader import Options, RowReader, TextFile, open_text, packed_well, shown
from spen.errors import InputError

DOCUMENT = "-DOCSTART-"
"""What stands in the first column of a line that begins a document, and is no token."""

LOOK = 1 << 16
"""Bytes in which a tab says that tabs part the columns."""


class ConllReader(RowReader):
    """The sentences of a CoNLL file, a row each.

    Columns are parted by tabs where there are any, else by spaces; nothing is quoted, so a token
    may be a lone quote or backslash. X holds the tokens of each sentence: words where there is one
    column beside the tags, else dicts, column → text. Y holds the tags of each sentence.

    Columns are counted from 0, and from −1 backwards; ``labels`` is the number of that which holds
    the tags, the last one by default. ``label_names`` are all tags, in alphabetical order; the file
    is read once to find them.
    """

    format = "conll"

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        columns = _Columns.of(path)
        tag = options.labels
        if tag is None and options.labels_required:
            tag = -1
        if tag is None:
            self._tag = None
        elif isinstance(tag, int) and -columns.count <= tag < columns.count:
            self._tag = tag % columns.count
        else:
            raise InputError(
                f"{path} has {columns.count} columns; labels must be the number of the one that "
                f"holds tags, from 0 or from {-columns.count}; received {tag!r}."
            )
        self._columns = columns
        self.feature_names = tuple(str(i) for i in range(columns.count) if i != self._tag)
        if not self.feature_names:
            raise InputError(f"{path} has one column alone, so there are tags and no tokens.")
        tags: set[str] = set()
        if self._tag is not None:
            for each in (path, *options.also):
                own = columns if each == path else _Columns.of(each)
                if own.count != columns.count:
                    raise InputError(
                        f"{path} and {each} must have the same columns; they have {columns.count} "
                        f"and {own.count}."
                    )
                tags.update(line[self._tag] for lines in own.sentences(each) for line in lines)
        self.label_names = tuple(sorted(tags))

    def parts(self) -> Iterator[Split]:
        X, Y, size = [], [], 0
        # Most words come again and again, and need to be in memory once.
        known: dict[str, str] = {}
        for lines in self._columns.sentences(self.path):
            X.append([self._token(line, known) for line in lines])
            if self._tag is not None:
                Y.append([known.setdefault(line[self._tag], line[self._tag]) for line in lines])
            size += sum(len(cell) for line in lines for cell in line)
            if size >= reader.BLOCK:
                yield Split(object_array(X), object_array(Y) if Y else None)
                X, Y, size = [], [], 0
        if X:
            yield Split(object_array(X), object_array(Y) if Y else None)

    def _token(self, line: list[str], known: dict[str, str]) -> Any:
        cells = [known.setdefault(cell, cell) for i, cell in enumerate(line) if i != self._tag]
        return cells[0] if len(cells) == 1 else dict(zip(self.feature_names, cells, strict=True))


@dataclass(frozen=True)
class _Columns:
    """How the lines of a file are parted.

    Attributes:
        count: how many columns every line has.
        by_tabs: whether tabs part them, or spaces.
    """

    count: int
    by_tabs: bool

    @staticmethod
    def of(path: Path) -> _Columns:
        """Look at the beginning of a file."""
        with open_text(path) as text, packed_well(path):
            lines = text.read(LOOK).split(b"\n")
        by_tabs = any(b"\t" in line for line in lines if line.strip())
        file = TextFile(path)
        for raw in file.raw_lines():
            cells = _cells(file.decode(raw, "utf-8"), by_tabs)
            if cells:
                return _Columns(len(cells), by_tabs)
        raise InputError(f"{path} has no rows of data.")

    def sentences(self, path: Path) -> Iterator[list[list[str]]]:
        """Yield the lines of each sentence, in cells."""
        file, lines, done = TextFile(path), [], 0

        def where() -> str:
            return f"It is sentence {done}, position {len(lines)}."

        for raw in file.raw_lines():
            try:
                text = file.decode(raw, "utf-8")
            except InputError as problem:
                raise InputError(f"{problem} {where()}") from None
            cells = _cells(text, self.by_tabs)
            if not cells:
                if lines and not text.strip(" \t"):
                    yield lines
                    lines, done = [], done + 1
                continue
            if len(cells) != self.count:
                how = "tabs" if self.by_tabs else "spaces"
                raise file.fault(
                    f"expected {self.count} columns parted by {how}, as in the lines before; "
                    f"received {len(cells)}: {shown(text)}. {where()}"
                )
            if "" in cells:
                what = f"column {cells.index('')} is empty: {shown(text)}."
                raise file.fault(f"{what} {where()}")
            lines.append(cells)
        if lines:
            yield lines


def _cells(text: str, by_tabs: bool) -> list[str]:
    """Return the cells of a line; none of blank lines, of comments and of marks of documents.

    Not ``text.split()``: a token may hold a space of another kind, such as a no-break space.
    """
    if not text.strip(" \t"):
        return []
    if by_tabs:
        # A hashtag has a tag beside it, a comment has not.
        is_comment = text.startswith("#") and "\t" not in text
        cells = [] if is_comment else text.split("\t")
    else:
        cells = [cell for cell in text.split(" ") if cell]
    return [] if cells and cells[0] == DOCUMENT else cells


def looks_like_conll(lines: list[str]) -> bool:
    """Say whether lines are sentences with columns: blank lines between lines of equal cells.

    >>> looks_like_conll(["the DT", "dog NN", "", "it PRP"]), looks_like_conll(["a b", "c d"])
    (True, False)
    """
    last = max((i for i, line in enumerate(lines) if line.strip(" \t")), default=0)
    by_tabs = any("\t" in line for line in lines if line.strip())
    counts = {len(cells) for line in lines if (cells := _cells(line, by_tabs))}
    parted = any(not line.strip(" \t") for line in lines[1:last])
    return parted and len(counts) == 1 and counts.pop() > 1
