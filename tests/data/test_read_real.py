"""Real files against what is known of them and against other people's readers."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import arff as scipy_arff
from sklearn.datasets import load_svmlight_file

from spen.data.load import load_dataset, open_rows
from spen.errors import InputError

FOLDER = Path(os.environ.get("SPEN_DATA", "data"))


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if not (FOLDER / name).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"{missing} not in the folder SPEN_DATA")


SETS = {
    "bibtex": (4880, 2515, 1836, 159, 2.40),
    "delicious": (12920, 3185, 500, 983, 19.02),
    "yeast": (1500, 917, 103, 14, 4.24),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in SETS])
def test_sizes_and_cardinality(name):
    n_train, n_test, n_features, n_labels, cardinality = SETS[name]
    data = load_dataset(name)
    assert data.name == name
    assert data.train.X.shape == (n_train, n_features)
    assert data.test.X.shape == (n_test, n_features)
    assert len(set(data.label_names)) == data.train.Y.shape[1] == data.test.Y.shape[1] == n_labels
    assert len(set(data.feature_names)) == n_features
    ones = data.train.Y.sum() + data.test.Y.sum()
    assert ones / (n_train + n_test) == pytest.approx(cardinality, abs=0.005)
    assert data.train.Y.data.min() == data.train.Y.data.max() == 1


@needs("delicious")
def test_delicious_by_arff_and_by_xmc_are_the_same_rows():
    arff, xmc = load_dataset("delicious"), load_dataset(FOLDER / "delicious" / "xmc")
    assert r"TAG_m\'usica" in arff.label_names
    empty = [int((part.Y.getnnz(axis=1) == 0).sum()) for part in (xmc.train, xmc.test)]
    assert sum(empty) == 14
    ours, theirs = (
        sorted(
            (tuple(x.indices), tuple(y.indices))
            for part in (data.train, data.test)
            for x, y in zip(part.X, part.Y, strict=True)
        )
        for data in (arff, xmc)
    )
    assert ours == theirs


@needs("delicious")
def test_871_test_rows_of_delicious_repeat_training_rows():
    data = load_dataset("delicious")
    seen = {row.indices.tobytes() for row in data.train.X}
    assert sum(row.indices.tobytes() in seen for row in data.test.X) == 871


@needs("delicious")
def test_xmc_agrees_with_scikit_learn():
    path = FOLDER / "delicious" / "xmc" / "test.txt"
    ours = load_dataset(path).train
    text = path.read_bytes().partition(b"\n")[2]
    X, labels = load_svmlight_file(
        io.BytesIO(text), n_features=500, multilabel=True, zero_based=True
    )
    assert abs(ours.X - X).max() == 0
    expected = [[] if row == () else [int(label) for label in row] for row in labels]
    assert [sorted(row) for row in expected] == [row.indices.tolist() for row in ours.Y]


@needs("yeast")
def test_yeast_in_three_formats():
    data = load_dataset("yeast")
    assert data.label_names == tuple(f"Class{i}" for i in range(1, 15))
    text = FOLDER / "yeast" / "libsvm_yeast_train.txt"
    libsvm = load_dataset(text).train
    np.testing.assert_array_equal(libsvm.X.toarray(), data.train.X)
    assert (libsvm.Y != data.train.Y).nnz == 0
    X, _ = load_svmlight_file(str(text), multilabel=True)
    np.testing.assert_array_equal(libsvm.X.toarray(), X.toarray().astype(np.float32))

    table, _ = scipy_arff.loadarff(FOLDER / "yeast" / "yeast-test.arff")
    columns = [table[name].astype(float) for name in table.dtype.names]
    np.testing.assert_array_equal(data.test.X, np.array(columns[:103]).T.astype(np.float32))
    np.testing.assert_array_equal(data.test.Y.toarray(), np.array(columns[103:]).T)


@needs("slashdot")
def test_slashdot_is_divided_as_meka_says():
    data = load_dataset(FOLDER / "slashdot")
    assert len(data.train) == len(data.test) == 1891
    assert len(data.label_names) == 22
    assert data.label_names[0] == "Entertainment"
    assert sparse.issparse(data.train.X)
    meka = load_dataset(FOLDER / "slashdot" / "SLASHDOT-F.arff", format="meka")
    assert (meka.test.Y != data.test.Y).nnz == 0


@needs("bibtex")
def test_chunks_of_a_real_file():
    reader = open_rows(FOLDER / "bibtex" / "bibtex-test.arff")
    chunks = list(reader.chunks(rows=1000))
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 515]
    whole = reader.read()
    assert (sparse.vstack([chunk.X for chunk in chunks]) != whole.X).nnz == 0
    assert (sparse.vstack([chunk.Y for chunk in chunks]) != whole.Y).nnz == 0


HORSES = "weizmann_horses/horses32.npz"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        pytest.param("ocr_letters", "X, word_fold, word_lengths, y", marks=needs("ocr_letters")),
        pytest.param(HORSES, "image_id, images", marks=needs(HORSES)),
    ],
)
def test_archives_of_other_kinds_say_what_they_hold(name, keys):
    with pytest.raises(InputError, match=f"holds the arrays {keys}.*expected X and Y"):
        load_dataset(FOLDER / name)
