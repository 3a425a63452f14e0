"""Parquet files as rows (the extra "parquet")."""

import numpy as np
import pytest
from scipy import sparse
from test_streams import DATA, NAMES, QUICK, X, Y, bits, dataset, fit

import spen
from spen.cli import main

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LABELS = list(DATA.label_names)
COLUMNS = dict(zip(NAMES, X.T, strict=True))
MARKS = dict(zip(LABELS, Y.T, strict=True))
TAGS = [[LABELS[i] for i in row.nonzero()[0]] for row in Y]


def write(path, columns, rows=slice(None), **settings):
    pq.write_table(pa.table({n: pa.array(c[rows]) for n, c in columns.items()}), path, **settings)
    return path


def test_columns_lists_and_tags_are_the_same_rows(tmp_path):
    wanted = bits(fit(dataset(X, Y)))
    plain = write(tmp_path / "a.parquet", COLUMNS | MARKS, row_group_size=50)
    clf = fit(spen.open_rows(plain, labels=LABELS))
    assert bits(clf) == wanted
    assert clf.label_names_.tolist() == LABELS
    assert clf.feature_names_ == tuple(NAMES)
    lists = write(tmp_path / "b.parquet", {"row": list(X), "tags": TAGS})
    rows = spen.open_rows(lists)
    assert rows.label_column == "tags"
    assert rows.label_names == tuple(sorted(LABELS))
    assert rows.feature_names[:2] == ("row[0]", "row[1]")
    assert np.array_equal(rows.read().X, X)
    order = [rows.label_names.index(name) for name in LABELS]
    assert np.array_equal(rows.read().Y.toarray()[:, order], Y)
    texts = write(tmp_path / "c.parquet", COLUMNS | {"tags": [";".join(tags) for tags in TAGS]})
    found = spen.open_rows(texts, labels=["tags"]).read().Y
    assert np.array_equal(found.toarray()[:, order], Y)
    loaded = spen.load_dataset(plain, labels=LABELS)
    assert np.array_equal(sparse.csr_array(loaded.train.Y).toarray(), Y)


def test_a_folder_of_files_by_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    # Some tags are in one of the files alone.
    order = np.argsort(Y[:, 0], kind="stable")
    columns = {n: c[order] for n, c in COLUMNS.items()} | {"tags": [TAGS[i] for i in order]}
    for k in range(3):
        write(tmp_path / "rows" / f"{k}.parquet", columns, slice(80 * k, 80 * k + 80))
    quick = ["--hidden", "8", "--epochs", "2", "--device", "cpu"]
    main(["fit", "rows", "--stream", "--out", "m.spen", *quick])
    capsys.readouterr()
    clf = spen.load("m.spen")
    names = sorted(LABELS)
    memory = spen.SPENClassifier(**QUICK)
    memory.fit(dataset(X[order], Y[order][:, [LABELS.index(n) for n in names]]), label_names=names)
    assert np.array_equal(clf.predict(X), memory.predict(X))
    # Files to predict may hold labels or not.
    write(tmp_path / "new.parquet", COLUMNS, slice(0, 30))
    for file, rows in (("rows/0.parquet", X[order][:80]), ("new.parquet", X[:30])):
        main(["predict", "m.spen", file, "--out", "found.csv"])
        lines = (tmp_path / "found.csv").read_text().splitlines()[1:]
        assert lines == [";".join(labels) for labels in clf.predict_labels(rows)]
    main(["evaluate", "m.spen", "rows/0.parquet", "--json"])


def test_words_make_tables_and_gaps_are_named(tmp_path):
    cities = [["Oslo", "Rome"][k % 2] for k in range(240)]
    path = write(tmp_path / "a.parquet", {"city": cities, "heat": X[:, 0], "on": Y[:, 0]})
    clf = fit(spen.open_rows(path, labels=["on"]))
    assert clf.encoder_.kinds == {"city": "category", "heat": "number"}
    missing = [None, *X[1:, 0].tolist()]
    path = write(tmp_path / "b.parquet", {"heat": missing, "wind": X[:, 1], "on": Y[:, 0]})
    with pytest.raises(spen.InputError, match="some are missing"):
        fit(spen.open_rows(path, labels=["on"]))
    clf = fit(spen.open_rows(path, labels=["on"], words=True))
    assert clf.encoder_.kinds == {"heat": "number", "wind": "number"}
    holes = [None if k % 5 == 0 else int(v) for k, v in enumerate(Y[:, 0])]
    path = write(tmp_path / "c.parquet", {"heat": X[:, 0], "on": holes, "off": Y[:, 1]})
    assert np.isnan(spen.open_rows(path, labels=["on", "off"]).read().Y[::5, 0]).all()
    fit(spen.open_rows(path, labels=["on", "off"]))


def test_bad_files_are_refused_in_words(tmp_path):
    path = write(tmp_path / "a.parquet", {"row": [*X[:9], X[9, :3]], "on": Y[:10, 0]})
    with pytest.raises(spen.InputError, match="must be equally long"):
        spen.open_rows(path, labels=["on"]).read()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(spen.InputError, match="cannot be read as a Parquet file"):
        spen.open_rows(path, labels=["on"])
    path = write(tmp_path / "b.parquet", {"heat": X[:, 0], "on": 3 * Y[:, 0]})
    with pytest.raises(spen.InputError, match=r"Column 'on' of .*only 0 and 1"):
        spen.open_rows(path, labels=["on"]).read()
    with pytest.raises(spen.InputError, match="Give labels="):
        spen.open_rows(path)
