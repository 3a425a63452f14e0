"""The rows of an ARFF file, a block at a time, where all values are plain numbers."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from spen.batch.splits import Split
from spen.data.arff_columns import Columns
from spen.data.digits import numbers, whole_numbers
from spen.data.entries import Entries
from spen.data.grammar import Grammar, number_table, tidy

_SPARSE = Grammar(
    b"{, }\n",
    {
        b"\n{": "nothing",
        b"\n\n": "nothing",
        b"{ ": "token",
        b"{}": "nothing",
        b" ,": "token",
        b" }": "token",
        b", ": "token",
        b"}\n": "nothing",
    },
)
_OPEN, _SPACE = 0, 2


def read_quickly(block: bytes, columns: Columns, is_sparse: bool) -> Split | None:
    """Return the rows of a block, or None where only the careful way can tell.

    Args:
        block: whole lines.
        columns: what the attributes become.
        is_sparse: whether rows are written as ``{index value, …}``.
    """
    if not columns.plain:
        return None
    if is_sparse:
        return None if columns.omitted else _read_sparse(block, columns)
    table = number_table(block, b",", len(columns.is_label))
    if table is None:
        return None
    binary = table[:, columns.binary]
    if ((binary != 0) & (binary != 1)).any():
        return None
    X = table[:, ~columns.is_label].astype(np.float32)
    labels = table[:, columns.is_label].astype(np.int8)
    return Split(X, sparse.csr_matrix(labels) if columns.label_names else None)


def _read_sparse(block: bytes, columns: Columns) -> Split | None:
    marks = _SPARSE.scan(tidy(block).replace(b", ", b","))
    if marks is None:
        return None
    # Each blank stands between an attribute's number and its value.
    blanks = np.flatnonzero(marks.kind == _SPACE)
    attributes = whole_numbers(*marks.tokens(blanks))
    values = numbers(*marks.tokens(blanks + 1))
    if attributes is None or values is None:
        return None
    if attributes.size and attributes.max() >= len(columns.is_label):
        return None
    if (columns.binary[attributes] & (values != 0) & (values != 1)).any():
        return None
    starts = np.searchsorted(blanks, np.flatnonzero(marks.kind == _OPEN))
    rows = Entries(np.append(starts, len(blanks)), attributes, values).in_order()
    if rows is None:
        return None
    to_label = columns.is_label[rows.columns]
    rows = Entries(rows.starts, columns.column[rows.columns], rows.values)
    X = rows.where(~to_label).matrix(len(columns.feature_names), np.float32)
    if not columns.label_names:
        return Split(X, None)
    return Split(X, rows.where(to_label).matrix(len(columns.label_names), np.int8))
