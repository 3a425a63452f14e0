"""What commands print from committed records, and what tables the texts show."""

import contextlib
import functools
import importlib.util
import io
import json
import re
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
from spen_paper.records import Records
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

    What stands in the corner, and before a colon, is the text's own.
    """
    names = [name.rpartition(": ")[2] for name in header]
    if [name.rpartition(": ")[2] for name in table[0][1:]] == names[1:]:
        return table[1:]
    if any(table[0].count(name) != 1 for name in names[1:]):
        return None
    places = [0, *map(table[0].index, names[1:])]
    return [[row[place] for place in places] for row in table[1:]]


@functools.cache
def printed(command: str, drifted: bool = False) -> str:
    """Return what ``spen reproduce`` prints from records alone; a run that is not there fails.

    Args:
        command: as the texts have it, without "spen reproduce".
        drifted: whether a record of other settings counts, which the texts must then say.
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


def stand_in(name: str) -> spen.Dataset:
    """Return rows of a data set's shape, with nothing of what is in it."""
    train, test, features, labels = SHAPES[name]

    def part(rows: int) -> spen.Split:
        Y = np.zeros((rows, labels), np.int8)
        Y[:, :4] = 1  # some labels to reveal
        if name == "yeast":
            return spen.Split(np.ones((rows, features), np.float32), Y)
        X = sparse.eye_array(rows, features, format="csr", dtype=np.float32)
        return spen.Split(sparse.csr_matrix(X), sparse.csr_matrix(Y))

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


def beside(first: Rows, second: Rows) -> Rows:
    """Return two tables with the same rows as one; a column that both have stands there once."""
    left, right = (list(zip(*rows, strict=True)) for rows in (first, second))
    return [list(row) for row in zip(*left, *(c for c in right if c not in left), strict=True)]


def recorded(
    records: Records, wanted: dict[str, Any], measure: Any, *, drifted: bool
) -> dict[str, Any]:
    """Return records as ``Records.make_all`` does, and measure nothing."""
    found = {name: records.find(run) for name, run in wanted.items()}
    if drifted:
        found = {name: record or nearest(records, wanted[name]) for name, record in found.items()}
    missing = [wanted[name] for name, record in found.items() if record is None]
    assert not missing, f"no record, so the command would make this run anew: {missing[0]}"
    return found


def nearest(records: Records, run: dict[str, Any]) -> dict[str, Any]:
    """Return the one record of a run by its names, whatever its settings are."""

    def named(record: dict[str, Any]) -> list[Any]:
        names = ("experiment", "dataset", "method", "n_train", "seed", "fold", "decoding")
        return [*map(record.get, names), record["settings"].get("variant")]

    [found] = [each for each in records._records.values() if named(each) == named(run)]
    return found
