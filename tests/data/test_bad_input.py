"""Files that are wrong: an error that says where, never a crash, never much memory."""

import os
import struct
import zipfile

import numpy as np
import pytest
from reading import CSV, SMALL_XMC, SPARSE, csr_parts, little_memory, npz

from spen.data.load import load_dataset, open_rows
from spen.errors import InputError


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("2 3\n", "line 1: expected the numbers of rows, features and labels"),
        ("3 3 4\n0 0:1\n 1:2\n", "line 1: the first line declares 3 rows, but the file has 2"),
        ("1 3 4\n0 0:1\n 1:2\n", "declares 1 rows, but the file has 2"),
        ("1 3 4\n4 0:1\n", "line 2, character 1: label 4 is out of range; labels go from 0 to 3"),
        ("1 3 4\n1,-1 0:1\n", "line 2, character 3: expected label numbers as in 3,17"),
        ("1 3 4\n1,1 0:1\n", "line 2, character 3: label 1 stands twice"),
        ("1 3 4\n1, 0:1\n", "line 2, character 3: expected label numbers"),
        ("1 3 4\n1 3:1\n", "line 2, character 3: feature 3 is out of range; features go from 0 to"),
        ("1 3 4\n1 -1:1\n", "line 2, character 3: expected INDEX:VALUE; received '-1:1'"),
        ("1 3 4\n1 0:1 0:2\n", "line 2, character 7: feature 0 stands twice"),
        ("1 3 4\n1 0:\n", "line 2, character 5: feature 0 holds '', which is not a number"),
        ("1 3 4\n1 0:nan\n", "feature 0 holds 'nan', which is not a number"),
        ("1 3 4\n1 0:1e300\n", "too large for single precision"),
        ("1 3 4\n1 0:1 2\n", "line 2, character 7: expected INDEX:VALUE; received '2'"),
        ("1 3 4\n1 0:1\x00\n", "feature 0 holds '1\\x00'"),
        ("1 3 4\n1 99999999999:1\n", "expected INDEX:VALUE"),
        ("2 9999999999999 3\n", "a size of 9999999999999 is too large; at most 2147483647"),
        (f"2 {'0' * 5000}9 3\n", "is too large; at most 2147483647"),
        ("2 0 3\n", "declares no features"),
        ("1 3 0\n 0:1\n", "line 1: the file declares no labels"),
        ("0 3 4\n", "has no rows of data"),
    ],
)
def test_extreme_classification_text(tmp_path, text, what):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_dataset(path, format="xmc")
    assert what in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "what"),
    [
        ("+1 1:1\n", {}, "line 1, character 1: expected label numbers as in 3,17; received '+1'"),
        ("1 qid:3 1:1\n", {}, "line 1, character 3: expected INDEX:VALUE; received 'qid:3'"),
        ("1 3:1\n", {"n_features": 2}, "line 1, character 3: feature 3 is out of range"),
        ("7 3:1\n", {"n_labels": 2}, "line 1, character 1: label 7 is out of range"),
        ("7 3000000000:1\n", {}, "feature 3000000000 is out of range"),
        ("7 3:1\n", {"labels": ["a"]}, "label 7 is out of range; labels go from 0 to 0"),
        ("7 3:1\n", {"n_features": 0}, "n_features must be a whole number from 1"),
        ("7 3:1\n", {"n_labels": 2**31}, "n_labels must be a whole number from 1"),
        ("7 3:1\n", {"labels": -1}, "labels must be names"),
    ],
)
def test_libsvm_text(tmp_path, text, options, what):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_dataset(path, format="libsvm", **options)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("text", "labels", "what"),
    [
        (CSV, None, "does not say which columns are labels. Give labels=.*Its columns: 'a', 'b'"),
        (CSV, ["yy"], "has no column 'yy'. Did you mean 'y'"),
        (CSV, [], "labels is empty"),
        (CSV, [3], "labels must be names of columns"),
        (CSV, ["a", "b", "y"], "has only labels and no features"),
        ("a,b,y\n1,0\n", ["y"], "line 2: the row has 2 cells, but the first line names 3 columns"),
        ("a,b,y\n1,1e39,1\n", ["y"], "too large"),
        ("a,b,y\n1,0,2\n", ["y"], r"line 2, column 3 \('y'\): a label holds '2'; expected 0 or 1"),
        (",a,y\n0,1,0\n", ["y"], "line 1: column 1 has no name. A table saved with its row num"),
        ("a,y,a\n0,1,0\n", ["y"], "columns 1 and 3 are both called 'a'"),
        ('a,y\n0,"1\n', ["y"], "line 2: the cells cannot be told apart"),
        ("a,y\n", ["y"], "has no rows of data"),
        (" \n\n", ["y"], "the file is empty"),
    ],
)
def test_csv(tmp_path, text, labels, what):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=what):
        load_dataset(path, format="csv", labels=labels)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a,b,y\n1,0,1\n1,red,1\n", r"line 3, column 2 \('b'\): 'red' is not a number"),
        ("a,b,y\n1,,1\n", r"line 2, column 2 \('b'\): the value is missing"),
        ("a,b,y\n1,inf,1\n", "'inf' is not a number"),
        ("a,y\n\u00e4,1\n", "is not a number"),
    ],
)
def test_csv_rows_for_a_model_of_numbers(tmp_path, text, what):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=what):
        open_rows(path, format="csv", labels=["y"]).read()


def test_encodings(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,y\n1,1\n\xe4,1\n")
    with pytest.raises(InputError, match="line 3, character 1: the byte 0xe4 is not UTF-8"):
        load_dataset(path, labels=["y"])
    path.write_bytes(b"a,y\n1,1\n".decode().encode("utf-16"))
    with pytest.raises(InputError, match=r"line 1: this is UTF-16 text\. Save the file as UTF-8"):
        load_dataset(path, labels=["y"])


Y2 = [[1], [0]]
BEYOND_UNICODE = np.array([0x7FFFFFFF], np.uint32).view("<U1")


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({}, "holds the arrays nothing; expected X and Y"),
        ({"X": Y2}, "holds the arrays X; expected X and Y"),
        ({"X": [1, 2], "Y": Y2}, "X must be a matrix of numbers with two dimensions"),
        ({"X": [["a"], ["b"]], "Y": Y2}, "X must be a matrix of numbers"),
        ({"X": [[1]], "Y": Y2}, "X has 1 rows and Y has 2"),
        ({"X": [[1.0], [np.nan]], "Y": Y2}, "X must hold finite numbers.* in row 1, column 0"),
        ({"X": [[1.0], [1e39]], "Y": Y2}, "X must hold finite numbers"),
        ({"X": Y2, "Y": [[1], [2]]}, "Y must hold only 0 and 1, or nan"),
        ({"X": Y2, "Y": [1, 0]}, "Y must be a matrix of numbers with two dimensions"),
        ({"X": np.zeros((2, 0)), "Y": Y2}, "X has no columns"),
        ({"X": Y2, "Y": np.zeros((2, 0))}, "Y has no columns"),
        ({"X": np.zeros((0, 2)), "Y": np.zeros((0, 1))}, "has no rows"),
        ({"X": Y2, "Y": Y2, "train": [2]}, "train must hold row numbers from 0 to 1"),
        ({"X": Y2, "Y": Y2, "test": [0]}, "names test rows but no train rows"),
        ({"X": Y2, "Y": Y2, "label_names": [["a"]]}, "label_names must be an array of 1 different"),
        ({"X": Y2, "Y": Y2, "label_names": ["\ud800"]}, "label_names holds what is no text"),
        ({"X": Y2, "Y": Y2, "label_names": BEYOND_UNICODE}, "label_names holds what is no text"),
        ({"data": Y2, "labels": Y2}, "holds the arrays data, labels; expected X and Y"),
        ({"X": np.array([[None], [1]]), "Y": Y2}, "cannot be read as an npz file"),
        (csr_parts(indices=[0, 3]) | {"Y": Y2}, "parts of X do not make a CSR matrix"),
        (csr_parts(indices=[0, -1]) | {"Y": Y2}, "parts of X do not make a CSR matrix"),
        (csr_parts(indptr=[0, 2, 1]) | {"Y": Y2}, "parts of X do not make a CSR matrix"),
        (csr_parts(indptr=[0, 1]) | {"Y": Y2}, "parts of X do not make a CSR matrix"),
        (csr_parts(indptr=[0, 2, 2], indices=[1, 1]) | {"Y": Y2}, "row of X has a column twice"),
        (csr_parts(shape=[2**40, 3]) | {"Y": Y2}, "X_shape must be the numbers of rows and col"),
        (csr_parts(shape=[2, -3]) | {"Y": Y2}, "X_shape must be the numbers of rows and columns"),
        (csr_parts(data=["a", "b"]) | {"Y": Y2}, "the parts of X must hold numbers"),
    ],
)
def test_npz(tmp_path, arrays, what):
    path = tmp_path / "a.npz"
    path.write_bytes(npz(**arrays))
    with pytest.raises(InputError, match=what):
        load_dataset(path)


def test_npz_that_declares_or_unpacks_to_gigantic_sizes(tmp_path):
    path = tmp_path / "a.npz"
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    head = head.ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + b"\0" * 64
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", array)
    with little_memory(), pytest.raises(InputError, match="does not have the size"):
        load_dataset(path)
    raw = bytearray(path.read_bytes())
    # The size that the archive's directory gives for the unpacked array.
    at = raw.rindex(b"PK\x01\x02") + 24
    raw[at : at + 4] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(raw)
    with little_memory(), pytest.raises(InputError, match="does not have the size"):
        load_dataset(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("2147483647 3 4\n0 0:1\n", "declares 2147483647 rows, but the file has 3 at most"),
        ("1 2000000000 4\n0 0:1\n", "2,000,000,000 features and 4 labels.*spen.limits.table"),
        ("1 50000000 4\n0 0:1\n", "50,000,000 features and 4 labels.*spen.limits.growth"),
        ("1 3 50000000\n0 0:1\n", "3 features and 50,000,000 labels.*spen.limits.growth"),
        ("0 2147483646:1\n", "2,147,483,646 features and 1 labels.*spen.limits.table"),
        ("2147483646 1:1\n", "1 features and 2,147,483,647 labels.*spen.limits.table"),
    ],
)
def test_gigantic_declared_sizes_are_refused(tmp_path, text, what):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with little_memory(), pytest.raises(InputError, match=what):
        open_rows(path)


def test_many_columns_are_fine(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1 8000000 1000000\n0 0:1\n")
    with little_memory():
        assert load_dataset(path).train.X.shape == (1, 8_000_000)


def test_memory_is_bounded_by_the_chunk(tmp_path):
    path = tmp_path / "a.txt"
    row = "1 " + " ".join(f"{i}:{i}.5" for i in range(100)) + "\n"
    path.write_text("20000 100 2\n" + row * 20_000)
    assert path.stat().st_size > 10 << 20
    with little_memory(12):
        assert sum(len(chunk) for chunk in open_rows(path).chunks(rows=500)) == 20_000


def test_lines_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("spen.data.reader.LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.arff"
    path.write_bytes(b"0" * (3 << 20))
    for form in ("mulan", "xmc", "libsvm", "csv"):
        with little_memory(16), pytest.raises(InputError, match="line 1: the line is longer"):
            load_dataset(path, format=form, labels=["y"])
    path.write_bytes(SPARSE.encode() + b"{" + b" " * (3 << 20))
    with little_memory(16), pytest.raises(InputError, match="line 9: the line is longer"):
        load_dataset(path, labels=["y"])


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match=r"There is no file .*none\.arff"):
        load_dataset(tmp_path / "none.arff")
    with pytest.raises(InputError, match="There are no files in"):
        open_rows(tmp_path, format="csv")
    (tmp_path / "a.csv").write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.csv is empty"):
        load_dataset(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(InputError, match=r"a\.csv is compressed, and cannot be unpacked"):
        load_dataset(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"no data set and no file called 'yeats'\. Did you mean"):
        load_dataset("yeats")
    os.mkfifo(tmp_path / "pipe.csv")
    for special in ("/dev/null", tmp_path / "pipe.csv"):
        with pytest.raises(InputError, match="not a regular file"):
            open_rows(special, format="csv")
    (tmp_path / "b.txt").write_text(SMALL_XMC)
    with pytest.raises(InputError, match="rows must be a whole number"):
        open_rows(tmp_path / "b.txt").chunks(rows=0)
