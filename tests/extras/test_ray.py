"""Batch prediction by a real Ray on this machine (the extra "ray")."""

import logging
from pathlib import Path

import numpy as np
import pytest
from rays import STORE, a_model, predict_and_kill

import spen
from spen.cli import main

ray = pytest.importorskip("ray")
pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def clf():
    return a_model()


@pytest.fixture(scope="module", autouse=True)
def engine():
    ray.init(
        num_cpus=2,
        object_store_memory=STORE,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


def test_a_killed_worker_costs_no_row_and_makes_no_duplicate(clf, tmp_path):
    found = predict_and_kill(tmp_path, clf, 100_000)
    assert found.killed
    assert (found.rows, found.once, found.ordered, found.right) == (100_000, True, True, True)


def test_the_command_reads_files_and_writes_a_folder(clf, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    clf.save("model.spen")
    X = spen.exclusive_blocks(n_train=1, n_test=30).test.X
    Path("rows").mkdir()
    for part in (0, 1):
        some = X[15 * part : 15 * part + 15]
        columns = {f"x{i}": some[:, i] for i in range(64)}
        columns["id"] = np.arange(15 * part, 15 * part + 15)
        pq.write_table(pa.table(columns), f"rows/{part}.parquet")
    command = ["predict", "model.spen", "rows/*.parquet", "--engine", "ray", "--workers", "1"]
    command += ["--keep", "id", "--known", "block0.2=1", "--write", "probabilities"]
    main([*command, "--out", "found"])
    assert "Wrote 30 rows to the folder found" in capsys.readouterr().out
    table = pq.read_table("found")
    known = {"block0.2": 1}
    assert table["id"].to_pylist() == [*range(30)]
    assert table["labels"].to_pylist() == clf.predict_labels(X, known=known)
    soft = np.array(table["probabilities"].to_pylist())
    assert np.abs(soft - clf.predict_proba(X, known=known)).max() < 1e-6
    with pytest.raises(SystemExit):
        main([*command, "--out", "found"])
    assert "found is already there" in capsys.readouterr().err


def test_rows_that_a_worker_refuses_are_told_and_nothing_is_left(clf, tmp_path, capsys):
    clf.save(tmp_path / "model.spen")
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x0": [1.0], "x1": [2.0]}), rows)
    out = tmp_path / "found"
    command = ["predict", str(tmp_path / "model.spen"), str(rows), "--engine", "ray"]
    with pytest.raises(SystemExit):
        main([*command, "--out", str(out)])
    assert "The dataset lacks the feature 'x2'" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"model.spen", "rows.parquet"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keep": ["labels"]}, "a column of the result"),
        ({"keep": ["row"]}, "keep names 'row'"),
        ({"write": "all"}, "write"),
        ({"known": {"sun": 1}}, "sun"),
        ({"workers": 0}, "workers"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_runs(clf, settings, words):
    dataset = ray.data.from_numpy(np.zeros((2, 64)))
    with pytest.raises(spen.InputError, match=words):
        spen.ray.predict(dataset, clf, **settings)
    with pytest.raises(spen.InputError, match=r"must be a ray\.data\.Dataset"):
        spen.ray.predict([[0.0] * 64], clf)
