"""The quick way to read a block and the careful one give the same rows."""

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from spen.batch.splits import Split
from spen.data.arff_careful import CarefulRows
from spen.data.arff_columns import Columns
from spen.data.arff_header import Attribute
from spen.data.arff_quick import read_quickly
from spen.data.digits import number, numbers
from spen.data.grammar import number_table
from spen.data.text_rows import Bounds, read_carefully
from spen.data.text_rows import read_quickly as read_text_quickly
from spen.errors import InputError

HERE = Path("rows")
ZERO_ONE = ("0", "1")
COLUMNS = Columns(
    HERE,
    tuple(Attribute(f"a{i}", None if i % 2 else ZERO_ONE, i) for i in range(6)),
    {0, 3},
)
FLOATS = st.floats(-1e38, 1e38)
spelled = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    FLOATS.map(repr),
    FLOATS.map("{:.4f}".format),
    FLOATS.map("{:+.17g}".format),
    st.decimals(-1000, 1000, places=6).map(str),
    st.from_regex(r"[+-]?[0-9]{0,20}\.?[0-9]{0,20}(e[+-]?[0-9]{1,2})?", fullmatch=True),
    st.sampled_from(["0", "1", "1.0", "01", "-0", ".", "", "?", "nan", "1e39", "1_0", "0x1"]),
)


@settings(max_examples=150)
@given(st.lists(spelled, min_size=1, max_size=8))
def test_numbers_are_those_that_python_reads(words):
    text = " ".join(words).encode() + b" "
    stop = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(" "))
    start = np.concatenate(([0], stop[:-1] + 1))
    expected = [number(word) for word in words]
    found = numbers(np.frombuffer(text, np.uint8), start, stop)
    largest = float(np.finfo(np.float32).max)
    if any(value is None or abs(value) > largest for value in expected):
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == [float(word) for word in words]


zero_or_one = st.sampled_from(["0", "1", "1.0", "01"])
valid = spelled.filter(lambda text: number(text) is not None)
usual_ends = st.sampled_from(["\n", "\n", "\r\n", "\n\n"])
line_ends = st.one_of(usual_ends, usual_ends, st.sampled_from([" \n", "\n% so\n"]))
usual_commas = st.sampled_from([",", ",", ", "])
commas = st.one_of(usual_commas, usual_commas, st.sampled_from([",\t", " ,"]))


@st.composite
def value(draw, attribute):
    """Draw what an attribute may hold, and now and then something else."""
    if draw(st.integers(0, 40)) == 0:
        return draw(spelled)
    return draw(zero_or_one if attribute in (0, 2, 3, 4) else valid)


@st.composite
def sparse_rows(draw):
    text = ""
    unique = draw(st.sampled_from([True, True, False]))
    end, comma = draw(line_ends), draw(commas)
    for _ in range(draw(st.integers(1, 4))):
        used = draw(st.lists(st.integers(0, 5), max_size=4, unique=unique))
        text += f"{{{comma.join(f'{i} {draw(value(i))}' for i in used)}}}{end}"
    return text.encode()


@st.composite
def dense_rows(draw):
    text = ""
    width = draw(st.sampled_from([6, 6, 6, 6, 5, 7]))
    comma = draw(commas)
    for _ in range(draw(st.integers(1, 4))):
        text += comma.join(draw(value(i)) for i in range(width)) + draw(usual_ends)
    return text.encode()


def check_arff(block: bytes, is_sparse: bool) -> None:
    quick = read_quickly(block, COLUMNS, is_sparse)
    if quick is not None:
        same(quick, CarefulRows(HERE, COLUMNS, "utf-8", is_sparse).read(block, 1))


def same(one: Split, other: Split) -> None:
    for ours, theirs in ((one.X, other.X), (one.Y, other.Y)):
        assert sparse.issparse(ours) == sparse.issparse(theirs)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if sparse.issparse(ours):
            assert ours.has_canonical_format
            ours, theirs = ours.toarray(), theirs.toarray()
        np.testing.assert_array_equal(ours, theirs)
    assert other.weight is None


@settings(max_examples=150)
@given(sparse_rows())
def test_sparse_arff(block):
    check_arff(block, is_sparse=True)


@settings(max_examples=150)
@given(dense_rows())
def test_dense_arff(block):
    check_arff(block, is_sparse=False)


@st.composite
def text_rows(draw):
    text = ""
    unique = draw(st.sampled_from([True, True, False]))
    comma, blank = draw(st.sampled_from([",", ",", ",", ", "])), draw(st.sampled_from(" \t"))
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.integers(0, 5), max_size=3, unique=unique))
        used = draw(st.lists(st.integers(0, 9), max_size=4, unique=unique))
        pairs = blank.join(f"{i}:{draw(value(1))}" for i in used)
        between = "" if not labels and draw(st.booleans()) else blank
        text += comma.join(map(str, labels)) + between + pairs + draw(line_ends)
    return text.encode()


@settings(max_examples=150)
@given(text_rows())
def test_text(block):
    quick = read_text_quickly(block)
    if quick is not None:
        careful = read_carefully(HERE, 1, block, Bounds())
        same(quick.split(10, 10, 0), careful.split(10, 10, 0))


def test_plain_blocks_are_read_quickly():
    assert read_quickly(b"{0 1,3 1}\r\n\r\n{}\n{2 1, 1 .5}\n", COLUMNS, True) is not None
    assert read_quickly(b"\n1,-2.5,0,1,1,1e-3\n\n\n0, 1, 0, 0, 1, 17\n", COLUMNS, False) is not None
    assert read_text_quickly(b"1,0 3:1.5 2:1\n 1:1\n\n0:2\n4\n") is not None
    assert number_table(b"1;2\n3;4\n", b";", 2) is not None


@settings(max_examples=150)
@given(st.binary(max_size=60).map(lambda raw: raw + b"\n"), st.booleans())
def test_other_bytes(block, is_sparse):
    check_arff(block, is_sparse)
    quick = read_text_quickly(block)
    if quick is not None:
        try:
            careful = read_carefully(HERE, 1, block, Bounds())
        except InputError:
            # Only the bounds are left to the caller of the quick way.
            assert not Bounds().hold(quick)
        else:
            assert careful.labels.columns.tolist() == quick.labels.columns.tolist()
            assert careful.features.values.tolist() == quick.features.values.tolist()
