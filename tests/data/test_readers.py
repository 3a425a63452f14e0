"""Small files of every format, written by hand, with known answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reading import WEATHER, WEATHER_XML, XMC, arff, values
from scipy import sparse

from spen.batch.splits import Split, hold_out
from spen.data import catalog
from spen.data.dataset import Numbered, join
from spen.data.load import load_dataset, open_rows, recognise
from spen.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_extreme_classification_text(write):
    data = load_dataset(write("train.txt", XMC))
    assert values(data.train.X) == [[1.5, 0, -2], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert values(data.train.Y) == [[1, 0, 1, 0, 0], [0] * 5, [0, 0, 0, 0, 1], [0] * 5]
    assert data.feature_names == ("x0", "x1", "x2")
    assert data.label_names[4] == "label4"
    assert load_dataset(write("a.txt", XMC), labels=list("abcde")).label_names == tuple("abcde")


def test_libsvm_text(write):
    text = "# made by hand\n1,3 1:0.5 4:2 # the first\n\n 2:1e-3\n3:1 1:7\n0\n"
    data = load_dataset(write("a.svm", text))
    rows = [[0.5, 0, 0, 2], [0, 1e-3, 0, 0], [7, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(data.train.X.toarray(), np.float32(rows))
    assert values(data.train.Y) == [[0, 1, 0, 1], [0] * 4, [0] * 4, [1, 0, 0, 0]]
    wide = load_dataset(write("a.svm", text), n_features=6, n_labels=9).train
    assert wide.X.shape == (4, 6)
    assert wide.Y.shape == (4, 9)


def test_libsvm_counts_from_zero_if_some_row_does(write):
    zero = write("zero.svm", "0 0:1 2:3\n")
    one = write("one.svm", "0 1:1 2:3\n")
    assert values(load_dataset(zero).train.X) == [[1, 0, 3]]
    assert values(load_dataset(one).train.X) == [[1, 3]]
    assert values(load_dataset(one, zero_based=True).train.X) == [[0, 1, 3]]
    with pytest.raises(InputError, match=r"line 1, character 3: feature 0 is out of range"):
        load_dataset(zero, zero_based=False)


def test_parts_of_libsvm_share_sizes_and_counting(write, tmp_path):
    write("set_train.svm", "0 0:1 2:3\n")
    write("set_test.svm", "4 1:1 5:3\n")
    data = load_dataset(tmp_path)
    assert values(data.test.X) == [[0, 1, 0, 0, 0, 3]]
    assert data.train.Y.shape == data.test.Y.shape == (1, 5)


@pytest.mark.parametrize("mark", [",", ";", "\t", ", "])
def test_csv(write, mark):
    header = mark.join(["height", "rain", '"wi dth"', "snow"])
    rows = mark.join(["1.5", "1", "2", "0"]), mark.join(["True", "0", "-3", "false"])
    text = "\r\n".join([header, *rows, ""])
    data = load_dataset(write("t.csv", text), labels=["snow", "rain"])
    assert data.feature_names == ("height", "wi dth")
    assert data.label_names == ("rain", "snow")
    assert values(data.train.X) == [[1.5, 2], [1, -3]]
    assert values(data.train.Y) == [[1, 0], [0, 0]]
    assert load_dataset(write("t.csv", text), labels=-1).label_names == ("snow",)


def test_npz_dense_and_sparse(tmp_path):
    X, Y = np.array([[1.5, 0], [0, 2], [3, 0]]), np.array([[1, 0], [0, 0], [1, 1]])
    np.savez(tmp_path / "dense.npz", X=X, Y=Y, train=[2, 0], test=[1])
    data = load_dataset(tmp_path / "dense.npz")
    assert values(data.train.X) == [[3, 0], [1.5, 0]]
    assert values(data.train.Y) == [[1, 1], [1, 0]]
    assert values(data.test.X) == [[0, 2]]
    assert data.label_names == ("label0", "label1")

    parts = {}
    for name, matrix in {"X": sparse.csr_matrix(X), "Y": sparse.csr_matrix(Y)}.items():
        arrays = matrix.data, matrix.indices, matrix.indptr, matrix.shape
        names = ("data", "indices", "indptr", "shape")
        parts |= {f"{name}_{key}": array for key, array in zip(names, arrays, strict=True)}
    np.savez_compressed(tmp_path / "sparse.npz", **parts, label_names=np.array(["a", "b"]))
    data = load_dataset(tmp_path / "sparse.npz")
    assert data.train.X.dtype == np.float32
    assert values(data.train.X) == X.tolist()
    assert values(data.train.Y) == Y.tolist()
    assert data.label_names == ("a", "b")
    assert data.test is None


def test_formats_are_told_by_content_not_by_name(write, tmp_path):
    assert recognise(write("a.dat", WEATHER)) == "mulan"
    assert recognise(write("b.arff", XMC)) == "xmc"
    assert recognise(write("c.csv", "1,3 1:0.5\n")) == "libsvm"
    assert recognise(write("d", " 1:0.5 3:1\n")) == "libsvm"
    assert recognise(write("e.txt", "height,rain\n1,0\n")) == "csv"
    np.savez(tmp_path / "f.npz", X=[[1]], Y=[[1]])
    (tmp_path / "f.npz").rename(tmp_path / "f.txt")
    assert recognise(tmp_path / "f.txt") == "npz"
    (tmp_path / "f.txt").rename(tmp_path / "f.xlsx")
    with pytest.raises(InputError, match=r"f\.xlsx is a spreadsheet\. .* as CSV"):
        recognise(tmp_path / "f.xlsx")
    assert recognise(write("h.xls", "height,rain\n1,0\n")) == "csv"
    with pytest.raises(InputError, match="format=: mulan, meka, xmc, libsvm, csv, jsonl, npz"):
        recognise(write("g.arff", "once upon a time\n"))


def test_a_format_can_be_named(write):
    odd = write("odd.csv", "@id\n5\n")
    with pytest.raises(InputError):
        open_rows(odd, labels_required=False)
    assert open_rows(odd, format="csv", labels_required=False).feature_names == ("@id",)
    with pytest.raises(InputError, match=r"Unknown format 'cvs'. Did you mean 'csv'"):
        load_dataset(odd, format="cvs")
    with pytest.raises(InputError, match=r"line 1.*received '% a comment'.*looks like arff"):
        load_dataset(write("a.arff", WEATHER), format="xmc")
    with pytest.raises(InputError, match="looks like xmc"):
        load_dataset(write("b.txt", XMC), format="libsvm")


def test_folders(write, tmp_path):
    for part in ("train", "test", "dev"):
        write(f"w-{part}.arff", WEATHER)
    write("w.arff", WEATHER)
    write("w.xml", WEATHER_XML)
    write("notes.txt", "hello, world\n")
    data = load_dataset(tmp_path)
    assert data.name == tmp_path.name
    assert data.valid is not None
    assert len(data.train) == len(data.test) == len(data.valid) == 2
    write("other_train.txt", XMC)
    assert load_dataset(tmp_path).label_names == ("rain", "snow")
    assert load_dataset(tmp_path, format="xmc").label_names[0] == "label0"
    write("other_test.txt", XMC)
    with pytest.raises(InputError, match=r"more than one.*other_train\.txt, w-train\.arff"):
        load_dataset(tmp_path)


def test_folders_without_a_data_set_list_what_they_hold(write, tmp_path):
    with pytest.raises(InputError, match="found nothing"):
        load_dataset(tmp_path)
    write("notes.md", "hello")
    with pytest.raises(InputError, match=r"found notes\.md"):
        load_dataset(tmp_path)
    write("a.csv", "x,y\n1,0\n")
    assert load_dataset(tmp_path, labels=["y"]).label_names == ("y",)


def test_parts_must_have_the_same_columns(write, tmp_path):
    write("a-train.csv", "x,y\n1,0\n")
    write("a-test.csv", "z,y\n1,0\n")
    with pytest.raises(InputError, match=r"same features.*'x' and 'z'"):
        load_dataset(tmp_path, labels=["y"])


def test_known_data_sets_that_are_one_file_are_divided_by_rows(write, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEN_DATA", str(tmp_path))
    (tmp_path / "bookmarks").mkdir()
    rows = "\n".join(f"{{0 {i}}}" for i in range(1, 7))
    write("bookmarks/bookmarks.arff", arff("x numeric\ny {0,1}", rows))
    write("bookmarks/bookmarks.xml", '<labels><label name="y"/></labels>')
    with pytest.raises(InputError, match="has 1 labels; n_labels says 208"):
        load_dataset("bookmarks")
    one = replace(catalog.ENTRIES["bookmarks"], n_labels=1)
    monkeypatch.setitem(catalog.ENTRIES, "bookmarks", one)
    with pytest.raises(InputError, match="has 6 rows; the data set has 87856"):
        load_dataset("bookmarks")
    small = replace(catalog.ENTRIES["bookmarks"], row_split=(3, 1, 2))
    monkeypatch.setitem(catalog.ENTRIES, "bookmarks", small)
    data = load_dataset("bookmarks")
    assert data.name == "bookmarks"
    assert data.valid is not None
    assert values(data.train.X) == [[1], [2], [3]]
    assert values(data.valid.X) == [[4]]
    assert values(data.test.X) == [[5], [6]]


def test_rows_to_predict_need_no_labels(write):
    both = ("rain", "snow")
    path = write("a.arff", WEATHER.replace("@attribute rain {0,1}\n", "").replace(",0,1\n", ",1\n"))
    path.write_text(path.read_text().replace("0, 1, 0", "0, 0"))
    reader = open_rows(path, labels=both, labels_required=False)
    assert reader.label_names == ("snow",)
    assert values(reader.read().Y) == [[1], [0]]
    everything = open_rows(path, labels_required=False)
    assert everything.n_labels == 0
    assert everything.n_features == 3
    assert everything.read().Y is None
    with pytest.raises(InputError, match="has no attribute 'rain'"):
        open_rows(path, labels=both)

    table = write("a.csv", "x,snow\n1,1\n")
    assert open_rows(table, labels=both, labels_required=False).label_names == ("snow",)
    assert open_rows(table, labels=["y"], labels_required=False).read().Y is None

    text = write("a.svm", "1:2\n2:1\n")
    reader = open_rows(text, labels=both, n_features=4, n_labels=2, labels_required=False)
    assert reader.label_names == ()
    assert reader.read().X.shape == (2, 4)
    assert reader.read().Y is None
    with pytest.raises(InputError, match="no labels in any row"):
        open_rows(text)
    none = open_rows(write("a.txt", "1 3 0\n 0:1\n"), labels=both, labels_required=False)
    assert none.read().Y is None
    text = write("b.svm", "1 1:2\n")
    assert open_rows(text, labels=both, labels_required=False).label_names == both


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_chunks_are_the_file_in_order(write, monkeypatch, rows):
    monkeypatch.setattr("spen.data.reader.BLOCK", 16)
    lines = "".join(f"{i % 3} {i % 4}:{i}\n" for i in range(1, 8))
    reader = open_rows(write("c.txt", f"7 4 3\n{lines}"))
    chunks = list(reader.chunks(rows))
    assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
    assert 0 < len(chunks[-1]) <= rows
    assert values(join(chunks).X) == values(reader.read().X)
    assert [row[i % 4] for i, row in enumerate(values(join(chunks).X), 1)] == list(range(1, 8))


def test_splits_of_sparse_rows():
    X, Y = sparse.csr_matrix(np.eye(10)), sparse.csr_matrix(np.eye(10, 2))
    split = Split(X, Y, np.arange(10))
    kept, held = hold_out(split, 0.3, seed=1)
    assert len(kept) == 7
    assert len(held) == 3
    assert sorted([*kept.X.nonzero()[1], *held.X.nonzero()[1]]) == list(range(10))
    assert kept.weight.tolist() == kept.X.nonzero()[1].tolist()
    assert Split(X, None).rows([1]).Y is None


def test_made_up_names():
    names = Numbered("x", 10**9)
    assert names[-1] == "x999999999"
    assert names[1:3] == ("x1", "x2")
    assert names != Numbered("x", 3)
    assert Numbered("x", 2) == ["x0", "x1"]
    with pytest.raises(IndexError):
        names[10**9]


def test_lines_of_plain_numbers_are_read_at_once_to_the_same_bits(tmp_path):
    """A quoted cell in each block has it read cell by cell."""
    rng = np.random.default_rng(0)
    cells = [f"{v:.9g}" for v in rng.normal(size=997) * 10.0 ** rng.integers(-40, 38, 997)]
    cells += ["-0", "+.5", "7.", "1E-3"]
    rows = [[*rng.choice(cells, 9), *rng.choice(["0", "1", "1.0"], 2)] for _ in range(4000)]
    header = ",".join(f"c{i}" for i in range(11))
    found = []
    for name, quote in (("plain", ""), ("quoted", '"')):
        lines = [",".join([f"{quote}{row[0]}{quote}", *row[1:]]) for row in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]))
        found.append(load_dataset(tmp_path / f"{name}.csv", labels=-2).train)
    plain, quoted = found
    assert plain.X.tobytes() == quoted.X.tobytes()
    assert (plain.Y.toarray() == quoted.Y.toarray()).all()
    assert plain.Y.dtype == quoted.Y.dtype
    assert plain.X.shape == (4000, 9)
