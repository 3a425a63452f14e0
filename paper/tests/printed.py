"""What commands print from committed records, and what tables the texts show."""

import contextlib
import functools
import importlib.util
import io
import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spen
from spen_paper import fits
from spen_paper.__main__ import main
from spen_paper.bench.run import tables_of
from spen_paper.records import KEY, Records
from spen_paper.studies import costs
from spen_paper.tables import table2

ROOT = Path(__file__).parents[2]

Rows = list[list[str]]
"""The cells of a table, its header first."""

SHAPES = {
    "bibtex": (4880, 2515, 1836, 159),
    "delicious": (12920, 3185, 500, 983),
    "yeast": (1500, 917, 103, 14),
}
"""Training rows, test rows, features and labels."""


def rows_of(text: str) -> Rows:
    """Return the cells of one table; minus signs and bold type make no difference."""
    lines = [line.strip().strip("|") for line in text.strip().splitlines()]
    rows = [[cell.strip(" *").replace("−", "-") for cell in line.split("|")] for line in lines]
    return [row for row in rows if not all(re.fullmatch(":?-+:?", cell) for cell in row)]


def tables_in(text: str) -> list[Rows]:
    """Return every table of a text."""
    return [rows_of(found[0]) for found in re.finditer(r"(?m)(^ *\|.*\n?)+", text)]


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def words_of(path: str) -> str:
    """Return a page as one line, however its own lines are broken."""
    return " ".join(page(path).split())


def shown(path: str, header: str) -> list[Rows]:
    """Return the tables of a page whose headers begin with these cells."""
    begin = rows_of(header)[0]
    return [rows for rows in tables_in(page(path)) if rows[0][: len(begin)] == begin]


def check(rows: Rows, tables: list[Rows]) -> None:
    """Check that a table of a text is one of the printed ones, or some of its columns."""
    candidates = [part for table in tables if (part := columns(table, rows[0]))]
    printed = [row for table in candidates for row in table]
    assert rows[1:] in candidates, [row for row in rows[1:] if row not in printed]


def columns(table: Rows, header: list[str]) -> Rows | None:
    """Return the rows of a printed table, with the columns that a header names.

    What stands in the corner is the text's own.
    """
    if table[0][1:] == header[1:]:
        return table[1:]
    if any(table[0].count(name) != 1 for name in header[1:]):
        return None
    places = [0, *map(table[0].index, header[1:])]
    return [[row[place] for place in places] for row in table[1:]]


@functools.cache
def printed(command: str, drifted: str | None = None) -> str:
    """Return what ``spen reproduce`` prints from records alone; a run that is not there fails.

    Args:
        command: as the texts have it, without "spen reproduce".
        drifted: a setting that may be another one in records, which the texts must then say.
    """
    words = ["cpu" if word == "cuda" else word for word in shlex.split(command)]
    out = words.index("--out") + 1
    words[out] = str(ROOT / words[out])
    said, silent = io.StringIO(), contextlib.redirect_stderr(io.StringIO())
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), silent:
        patch.setattr(sys, "argv", ["spen reproduce", *words])
        # Plans depend on the shape of the data alone, and records have all else.
        patch.setattr(fits, "load_dataset", stand_in)
        patch.setattr(table2, "load_dataset", stand_in)
        patch.setattr(Records, "make_all", functools.partialmethod(recorded, drifted=drifted))
        # Times of methods are those of the machine that the text names.
        patch.setattr(costs.fits, "device_in_words", lambda device: "cuda, NVIDIA H200")
        # Pictures take longer than all else.
        found = importlib.util.find_spec
        hidden = lambda name, *rest: None if name == "matplotlib" else found(name, *rest)  # noqa: E731
        patch.setattr(importlib.util, "find_spec", hidden)
        main()
    return said.getvalue()


@functools.cache
def printed_by_script(command: str) -> str:
    """Return what "python paper/scripts/..." prints from records alone.

    A run that is not there fails.
    """
    _, script, *words = shlex.split(command)
    words[words.index("--out") + 1] = str(ROOT / words[words.index("--out") + 1])
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", [script, *words])
        patch.setattr(Records, "make_all", functools.partialmethod(recorded, drifted=None))
        # Scripts import one another.
        patch.syspath_prepend(str((ROOT / script).parent))
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return said.getvalue()


def stand_in(name: str) -> spen.Dataset:
    """Return rows of a data set's shape, with nothing of what is in it."""
    train, test, features, labels = SHAPES[name]

    def part(rows: int) -> spen.Split:
        Y = np.zeros((rows, labels), np.int8)
        Y[:, :4] = 1  # some labels to reveal
        if name == "yeast":
            return spen.Split(np.ones((rows, features), np.float32), Y)
        X = sparse.csr_matrix((rows, features), dtype=np.float32)
        return spen.Split(X, sparse.csr_matrix(Y))

    names = [str(k) for k in range(max(features, labels))]
    return spen.Dataset(name, part(train), part(test), names[:features], names[:labels])


def benches() -> list[Rows]:
    """Return the tables of both recorded benches, the H200's columns right of the CPU's."""
    names = ("cpu", "h200")
    both = [json.loads(page(f"paper/records/bench/{name}.json")) for name in names]
    return [
        beside(*([header, *rows] for _, header, rows in pair))
        for pair in zip(*map(tables_of, both), strict=True)
    ]


def beside(cpu: Rows, h200: Rows) -> Rows:
    """Return two tables with the same rows as one; a column that both have stands there once."""
    left, right = (list(zip(*rows, strict=True)) for rows in (cpu, h200))
    right = [column for column in right if column not in left]
    twice = {name for name, *_ in right}
    left = [(f"CPU: {name}" if name in twice else name, *rest) for name, *rest in left]
    right = [(f"H200: {name}", *rest) for name, *rest in right]
    return [list(row) for row in zip(*left, *right, strict=True)]


def recorded(
    records: Records, wanted: dict[str, Any], measure: Any, *, drifted: str | None
) -> dict[str, Any]:
    """Return records as ``Records.make_all`` does, and measure nothing."""
    found = {name: records.find(run) for name, run in wanted.items()}
    if drifted:
        found = {
            name: record or but_for(drifted, wanted[name], records)
            for name, record in found.items()
        }
    missing = [wanted[name] for name, record in found.items() if record is None]
    assert not missing, f"no record, so the command would make this run anew: {missing[0]}"
    return found


def but_for(setting: str, run: dict[str, Any], records: Records) -> dict[str, Any] | None:
    """Return the record of a run, or of the same run with another value of a setting."""

    def rest(thing: Any) -> Any:
        if isinstance(thing, dict):
            return {name: rest(each) for name, each in thing.items() if name != setting}
        return [rest(each) for each in thing] if isinstance(thing, list | tuple) else thing

    same = [each for each in records._records.values()
            if all(rest(each.get(name)) == rest(run.get(name)) for name in KEY)]  # fmt: skip
    return same[0] if len(same) == 1 else None
