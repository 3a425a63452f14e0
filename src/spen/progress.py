"""Progress on long work: a bar on a terminal, a line per finished job in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spen.checkpoint import Epoch


def say(text: str = "") -> None:
    """Print a line for the person at the command line."""
    print(text, flush=True)  # noqa: T201


@contextmanager
def epoch_bar(title: str, total: int) -> Iterator[Callable[[Epoch], None]]:
    """Show how far a fit of ``total`` epochs is; yields the callback for ``train``."""
    if not sys.stderr.isatty() or not _has_rich():
        began = time.perf_counter()
        yield lambda epoch: None
        print(f"{title}: {time.perf_counter() - began:.1f} s", file=sys.stderr)  # noqa: T201
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(f"{title:<28}", total=total, note="")

        def advance(epoch: Epoch) -> None:
            score = "" if epoch.score is None else f" held-out F1 {100 * epoch.score:5.1f}"
            note = f"{epoch.stage} {epoch.epoch}/{epoch.epochs} loss {epoch.loss:7.3f}{score}"
            bars.update(task, advance=1, note=note)

        yield advance
        bars.update(task, completed=total)


def _has_rich() -> bool:
    import importlib.util

    return importlib.util.find_spec("rich") is not None


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """Lay out a table that reads well on a terminal and is Markdown too.

    >>> print(text_table(["method", "F1"], [["linear", "80.0"], ["a|b", "9.1"]]))
    | method | F1   |
    | ------ | ---- |
    | linear | 80.0 |
    | a/b    | 9.1  |
    """
    cells = [[cell.replace("|", "/") for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])
