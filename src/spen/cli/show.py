"""Tables for people and JSON for programs: how commands show what they found."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spen.data.catalog import Progress

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of text, and halves of surrogate pairs."""


def visible(text: str) -> str:
    r"""Return text whose control characters are spelled out, as Python does it.

    A name may hold them, from whoever made the file, and a terminal would obey.

    >>> print(visible("sea\x1b[2J\nside"))
    sea\x1b[2J\nside
    """
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def show_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table: drawn on a terminal, Markdown in a pipe.

    Numbers are set flush right on a terminal; ints get thousands separators.

    >>> show_table("Sets", ["name", "rows"], [["yeast", 2417]])
    Sets
    <BLANKLINE>
    | name  | rows  |
    | ----- | ----- |
    | yeast | 2,417 |
    <BLANKLINE>
    """
    rows = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        say(f"{title}\n\n{text_table(list(header), cells)}\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(visible(title)), title_justify="left")
    for i, name in enumerate(header):
        numbers = bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        table.add_column(Text(visible(name)), justify="right" if numbers else "left")
    for row in cells:
        # As Text, because a label's name may hold brackets, which rich reads as markup.
        table.add_row(*map(Text, row))
    Console().print(table)


def show_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of its own, and nothing else.

    >>> show_json({"f1": 0.5})
    {"f1": 0.5}
    """
    import json

    text = json.dumps(record, ensure_ascii=False)
    print(UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text), flush=True)  # noqa: T201


@contextmanager
def download_bar(quiet: bool = False) -> Iterator[Progress | None]:
    """Show how far downloads are, on stderr: bars on a terminal, a line per file in a pipe."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _line_when_whole
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    columns += (TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {}

        def advance(file: Any, have: int) -> None:
            if file.name not in tasks:
                tasks[file.name] = bars.add_task(f"{file.name:<22}", total=file.size)
            bars.update(tasks[file.name], completed=have)

        yield advance


def _line_when_whole(file: Any, have: int) -> None:
    if have == file.size:
        print(f"{file.name}: {have:,} bytes", file=sys.stderr)  # noqa: T201


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


def say(text: str = "") -> None:
    """Print some lines for the person at the command line."""
    print("\n".join(map(visible, text.split("\n"))), flush=True)  # noqa: T201


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """Lay out a table that reads well on a terminal and is Markdown too.

    >>> print(text_table(["method", "F1"], [["linear", "80.0"], ["a|b", "9.1"]]))
    | method | F1   |
    | ------ | ---- |
    | linear | 80.0 |
    | a/b    | 9.1  |
    """
    cells = [[visible(cell).replace("|", "/") for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])
