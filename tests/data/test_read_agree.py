"""Rows that are drawn, written in one of many ways, and read back: the readers give them again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import arff
from scipy import sparse

from spen.data.load import open_rows
from spen.data.reader import number
from spen.errors import InputError

LARGEST = float(np.finfo(np.float32).max)
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


@settings(max_examples=300)
@given(spelled)
def test_numbers_are_those_that_python_reads(word):
    plain = word.strip("+-").replace(".", "", 1).replace("e+", "e").replace("e-", "e")
    digits, _, power = plain.partition("e")
    is_number = digits.isdecimal() and (power.isdecimal() or "e" not in plain)
    assert number(word) == (float(word) if is_number else None)


# Attributes 0, 2 and 4 are nominal {0,1}, the others numeric; 0 and 3 are the labels.
HEAD = "\n".join(f"a{i} {'numeric' if i % 2 else '{0,1}'}" for i in range(6))
LABELS, FEATURES, BINARY = (0, 3), (1, 2, 4, 5), (0, 2, 3, 4)

zero_or_one = st.sampled_from(["0", "1", "1.0", "01"])
valid = spelled.filter(lambda text: number(text) is not None)
usual_ends = st.sampled_from(["\n", "\n", "\r\n", "\n\n"])
line_ends = st.one_of(usual_ends, usual_ends, st.sampled_from([" \n", "\n% so\n", " % so, 1 2\n"]))
commas = st.sampled_from([",", ",", ", ", ",\t", " ,"])


@st.composite
def value(draw, attribute):
    """Draw what an attribute may hold, and now and then something else."""
    if draw(st.integers(0, 40)) == 0:
        return draw(spelled)
    return draw(zero_or_one if attribute in BINARY else valid)


def is_wrong(attribute: int, text: str) -> bool:
    read = number(text)
    if attribute in LABELS and text == "?":
        return False
    if read is None or abs(read) > LARGEST:
        return True
    return attribute in BINARY and read not in (0, 1)


def expected(rows: list[dict[int, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Return X and Y of rows that are right."""
    table = np.zeros((len(rows), 6))
    for row, entries in enumerate(rows):
        for attribute, text in entries.items():
            table[row, attribute] = np.nan if text == "?" else float(text)
    return table[:, FEATURES].astype(np.float32), table[:, LABELS]


def check_matrix(found, wanted: np.ndarray, is_sparse: bool) -> None:
    assert sparse.issparse(found) == is_sparse
    if sparse.issparse(found):
        assert found.has_canonical_format
        found = found.toarray()
    np.testing.assert_array_equal(found, wanted)


def check_arff(path, text: str, rows: list[dict[int, str]], refused: bool, is_sparse: bool) -> None:
    path.write_bytes(arff(HEAD, text).encode())
    reader = open_rows(path, labels=["a0", "a3"])
    if refused or any(is_wrong(*entry) for row in rows for entry in row.items()):
        with pytest.raises(InputError, match=r"line [0-9]+, character [0-9]+"):
            reader.read()
        return
    part = reader.read()
    X, Y = expected(rows)
    assert part.X.dtype == np.float32
    check_matrix(part.X, X, is_sparse)
    check_matrix(part.Y, Y, is_sparse=not np.isnan(Y).any())
    assert part.weight is None


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("agree") / "rows"


@settings(max_examples=200)
@given(data=st.data())
def test_sparse_arff(scratch, data):
    unique = data.draw(st.sampled_from([True, True, False]))
    end, comma = data.draw(line_ends), data.draw(commas)
    text, rows, refused = "", [], False
    for _ in range(data.draw(st.integers(1, 4))):
        used = data.draw(st.lists(st.integers(0, 5), max_size=4, unique=unique))
        texts = [data.draw(value(i)) for i in used]
        text += f"{{{comma.join(f'{i} {t}' for i, t in zip(used, texts, strict=True))}}}{end}"
        rows.append(dict(zip(used, texts, strict=True)))
        refused |= len(set(used)) < len(used) or "" in texts
    check_arff(scratch, text, rows, refused, is_sparse=True)


@settings(max_examples=200)
@given(data=st.data())
def test_dense_arff(scratch, data):
    width = data.draw(st.sampled_from([6, 6, 6, 6, 5, 7]))
    comma = data.draw(commas)
    text, rows, refused = "", [], width != 6
    for _ in range(data.draw(st.integers(1, 4))):
        texts = [data.draw(value(i)) for i in range(width)]
        text += comma.join(texts) + data.draw(line_ends)
        rows.append(dict(enumerate(texts)))
        refused |= "" in texts
    check_arff(scratch, text, rows, refused, is_sparse=False)


@settings(max_examples=200)
@given(data=st.data())
def test_sparse_text(scratch, data):
    unique = data.draw(st.sampled_from([True, True, False]))
    comma, blank = (
        data.draw(st.sampled_from([",", ",", ",", ", "])),
        data.draw(st.sampled_from(" \t")),
    )
    text, refused = "", False
    X, Y = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        labels = data.draw(st.lists(st.integers(0, 5), max_size=3, unique=unique))
        used = data.draw(st.lists(st.integers(0, 9), max_size=4, unique=unique))
        texts = [data.draw(value(1)) for _ in used]
        pairs = blank.join(f"{i}:{t}" for i, t in zip(used, texts, strict=True))
        text += comma.join(map(str, labels)) + blank + pairs + data.draw(usual_ends)
        refused |= len(set(labels)) < len(labels) or len(set(used)) < len(used)
        refused |= (comma == ", " and len(labels) > 1) or any(is_wrong(1, t) for t in texts)
        Y.append([int(i in labels) for i in range(6)])
        given = dict(zip(used, texts, strict=True))
        X.append([given.get(i, "0") for i in range(10)])
    scratch.write_text(f"{len(X)} 10 6\n{text}")
    reader = open_rows(scratch, format="xmc")
    if refused:
        with pytest.raises(InputError, match=r"line [0-9]+, character [0-9]+"):
            reader.read()
        return
    part = reader.read()
    check_matrix(part.X, np.array(X, np.float64).astype(np.float32), is_sparse=True)
    check_matrix(part.Y, np.array(Y), is_sparse=True)


def test_csv_and_arff_give_the_same_table(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-20, 30)[:, None]
    lines = [",".join([*map(repr, row.tolist()), str(i % 2)]) for i, row in enumerate(rows)]
    names = [*"abc", "y"]
    (tmp_path / "t.csv").write_text("\n".join([",".join(names), *lines]))
    text = arff("\n".join(f"{name} numeric" for name in names), "\n".join(lines))
    (tmp_path / "t.arff").write_text(text)
    for path in (tmp_path / "t.csv", tmp_path / "t.arff"):
        part = open_rows(path, labels=["y"]).read()
        np.testing.assert_array_equal(part.X, rows.astype(np.float32))
        assert part.Y.toarray()[:, 0].tolist() == [0, 1] * 25


def test_what_is_remembered_from_block_to_block_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "a.arff"
    rows = "\n".join(f"{{0 {i},{i % 2 + 1} 1}}" for i in range(300))
    path.write_text(arff("x numeric\ny {0,1}\nz {1,0}", rows))
    usual = open_rows(path, labels=-2).read()
    assert usual.X.toarray()[:, 0].tolist() == list(range(300))
    monkeypatch.setattr("spen.data.reader.BLOCK", 64)
    monkeypatch.setattr("spen.data.reader.MOST_KNOWN", 5)
    again = open_rows(path, labels=-2).read()
    check_matrix(again.X, usual.X.toarray(), is_sparse=True)
    check_matrix(again.Y, usual.Y.toarray(), is_sparse=True)
    path.write_text("".join(f"{i % 7} {i % 5}:{i}\n" for i in range(300)))
    part = open_rows(path).read()
    assert part.X.toarray().sum(axis=1).tolist() == list(range(300))
    assert part.Y.indices.tolist() == [i % 7 for i in range(300)]
