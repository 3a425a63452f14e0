"""The text of Table 1, its command line, and what methods cost."""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import spen
from spen.data.dataset import Dataset
from spen.energies.base import energy_terms
from spen_paper import fits
from spen_paper.cli import table1 as command
from spen_paper.records import Records, pack_rows, unpack_rows
from spen_paper.settings import NoEnergy, classifier, settings_of
from spen_paper.studies import costs
from spen_paper.tables import table1

TABLE = {"classifier": "MLPClassifier", "hidden": [8], "dropout": 0.0, "epochs": 3, "folds": 2}


def tiny(n_train=60, n_test=40) -> Dataset:
    data = spen.exclusive_blocks(n_train, n_test, seed=0)
    return Dataset("tiny", data.train, data.test, data.feature_names, data.label_names)


def make(**changes):
    return classifier(TABLE, seed=0, device="cpu", where="here", **changes)


def test_the_papers_figures():
    """As in its Table 1: BR, LR, MLP, DMF, SPEN, and PRLR where it has one."""
    columns = {
        "bibtex": [37.2, 39.0, 38.9, 40.0, 42.2],
        "bookmarks": [30.7, 31.0, 33.8, 33.1, 34.4],
        "delicious": [26.5, 35.3, 37.8, 34.2, 37.5],
    }
    for dataset, figures in columns.items():
        paper = table1.PAPER[dataset]
        assert [paper[name] for name in ("br", "lr", "mlp", "dmf", "spen-paper")] == figures
        assert max(paper.values()) <= table1.PUBLISHED[dataset][0]
    assert table1.PAPER["bibtex"]["prlr"] == 44.2
    assert table1.PAPER["delicious"]["prlr"] == 33.3


ROWS = np.array([0.0, 0.5, 1.0, 1.0])


def fake(method, seed, decoding, f1):
    return {
        "method": method,
        "seed": seed,
        "decoding": decoding,
        "metrics": {"f1": f1},
        "row_f1": pack_rows(ROWS if method == "mlp" else ROWS[::-1]),
    }


FAKES = [
    fake(method, seed, way, base + seed + extra * (seed + 1) + 3 * (way == "expected_f1"))
    for method, base, extra in (("mlp", 40.0, 0.0), ("spen-single", 40.5, 0.25))
    for seed in range(3)
    for way in table1.DECODINGS
]


def cells_of(text):
    rows = [line.split("|") for line in text.split("\n")]
    return [[cell.strip() for cell in row[1:-1]] for row in rows]


def test_the_text_of_the_table():
    cells = cells_of(table1.render("bibtex", ["mlp", "spen-single"], FAKES))
    assert cells[0][1:] == ["paper", "record", "threshold", "one a row", "expected F1", "seeds"]
    assert cells[2] == ["MLP", "38.9", "", "41.0 ± 1.0", "41.0 ± 1.0", "44.0 ± 1.0", "3"]
    assert cells[3][3] == "42.0 ± 1.2"
    two = [record for record in FAKES if record["decoding"] != "row_threshold"]
    header = cells_of(table1.render("bibtex", ["mlp"], two))[0]
    assert "one a row" not in header, "records of before have two decodings"


def test_differences_have_an_error_over_seeds_and_one_over_rows():
    cells = cells_of(table1.render_pairs(FAKES))
    assert [row[0] for row in cells[2:]] == ["spen-single − mlp"], "no other pair has records"
    error = statistics.stdev([0.75, 1.0, 1.25]) / 3**0.5
    gaps = 100 * (ROWS[::-1] - ROWS)
    over_rows = gaps.std() / len(gaps) ** 0.5
    for k in (1, 3, 5):
        assert cells[2][k] == f"+1.00 ± {error:.2f}"
        assert float(cells[2][k + 1].removeprefix("± ")) == pytest.approx(over_rows, rel=0.05)
    one = [record for record in FAKES if record["seed"] == 0]
    assert cells_of(table1.render_pairs(one))[2][1] == "+0.75"


def test_rows_that_repeat_a_training_row_are_found_whatever_holds_them():
    data = tiny()
    test = data.test.X.copy()
    test[[3, 7]] = data.train.X[[50, 2]]
    for matrix in (np.array, sparse.csr_matrix, sparse.csc_matrix):
        rows = replace(
            data,
            train=spen.Split(matrix(data.train.X), data.train.Y),
            test=spen.Split(matrix(test), data.test.Y),
        )
        assert np.flatnonzero(table1.repeated_rows(rows)).tolist() == [3, 7]
    records = [fake("mlp", 0, way, 40.0) for way in table1.DECODINGS]
    for record in records:
        scores = np.ones(40)
        scores[:5] = 0.0
        record["row_f1"] = pack_rows(scores)
    said = table1.without_repeated(records, rows)
    assert "Without the 2 of 40 test rows" in said[0]
    # One of the five rows that score nothing is left out, and one of the others.
    assert cells_of(said[2])[2] == ["MLP", *["89.5"] * 3]
    assert not table1.without_repeated(records, data)


NETWORK = TABLE | {"dropout": 0.1}
STAGE = {"name": "energy", "parts": ["local", "global"], "epochs": 1, "lr": 0.01}
STAGE |= {"objective": {"name": "unrolled", "entropy": 1.0, "start": "local", "f1": 5.0}}
SPEN = NETWORK | {
    "classifier": "SPENClassifier",
    "cross_fit": True,
    "energy": [{"name": "LabelEnergy", "measurements": 2}],
    "objective": STAGE["objective"],
    "inference": {"stopping": {"max_steps": 3}},
    "stages": [STAGE],
}
TABLES = {
    "mlp": NETWORK,
    "control-single": SPEN | {"energy": [{"name": "NoEnergy"}]},
    "spen-single": SPEN,
}


def test_the_control_has_the_same_stage_and_no_other_difference():
    made = [classifier(TABLES[name], seed=0, device="cpu", where="here") for name in TABLES]
    rows = tiny().train
    _, without, full = (fits.plan_of(each, rows) for each in made)
    assert without.stages == full.stages
    assert without.prediction == full.prediction
    assert without.trial == full.trial
    made[1].fit(rows.X, rows.Y)
    kinds = {type(term) for term in energy_terms(made[1].model_.energy)}
    assert kinds == {spen.ScoreEnergy, NoEnergy}
    for dataset in ("bibtex", "delicious"):
        tables = settings_of(dataset)
        for name in ("single", "best"):
            control, energy = tables[f"control-{name}"], tables[f"spen-{name}"]
            assert control == energy | {"energy": [{"name": "NoEnergy"}]}


def test_the_whole_table_of_a_small_set(tmp_path, monkeypatch, capsys):
    data = tiny()
    monkeypatch.setattr(fits, "dataset_of", lambda name: data)
    monkeypatch.setattr(table1, "settings_of", lambda name, file: TABLES)
    options = {"seeds": 2, "device": "cpu", "out": tmp_path}
    command(method="spen-single,mlp,control-single", **options)
    shown = capsys.readouterr().out
    for words in ("spen-single − mlp", "spen-single − control-single", "over rows", "one a row"):
        assert words in shown
    assert "60 training and 40 test rows" in shown
    assert "counts 1" in shown, "the rule for empty rows stands beside the numbers"
    assert "table1.toml" in shown
    before = (tmp_path / "records.jsonl").read_bytes()
    records = list(map(json.loads, before.splitlines()))
    assert len(records) == 2 * 3 * len(TABLES)
    for record in records:
        rows = unpack_rows(record["row_f1"])
        assert len(rows) == len(data.test)
        assert 100 * rows.mean() == pytest.approx(record["metrics"]["f1"], abs=0.01)
    command(method="spen-single,mlp,control-single", **options)
    assert capsys.readouterr().out == shown
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_the_table_of_before_is_printed_from_its_own_settings(tmp_path, monkeypatch, capsys):
    tables = {"table1": {}, "studies": {"mlp": NETWORK}}
    monkeypatch.setattr(fits, "dataset_of", lambda name: tiny())
    monkeypatch.setattr(table1, "settings_of", lambda name, file: tables[file])
    monkeypatch.setattr(table1, "TITLES", {"mlp": "MLP"})
    command(seeds=1, device="cpu", out=tmp_path, study="before")
    shown = capsys.readouterr().out
    assert "studies.toml" in shown
    assert "one a row" not in shown


def test_costs_are_ratios_to_the_mlp_and_are_kept(tmp_path):
    data, records = tiny(), Records(tmp_path)
    record = costs.compare_costs("other", make, lambda: make(epochs=1), data, records)
    assert record["seconds"] > 0
    assert record["mlp_predict_seconds"] > 0
    assert (
        costs.compare_costs("other", make, lambda: make(epochs=1), data, Records(tmp_path))
        == record
    )
    times = {"seconds": 6.0, "mlp_seconds": 2.0, "predict_seconds": 0.5, "mlp_predict_seconds": 2.0}
    assert "| DMF | 3              | 0.25 " in costs.render_costs({"DMF": times})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset": "bibtx"}, "Did you mean 'bibtex'"),
        ({"method": "mlp,spen-bets"}, "Did you mean 'spen-best'"),
        ({"method": ","}, "No method is named"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"device": "cdua"}, "device 'cdua' cannot be used"),
        ({"study": "cots"}, "Did you mean 'costs'"),
        ({"study": "costs", "method": "mlp"}, "has its own methods"),
    ],
)
def test_a_wrong_name_stops_before_anything_is_done(options, words, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(spen.InputError, match=words):
        command(**options, out=out)
    assert not out.exists()


def test_data_that_are_not_there_are_named_with_the_command_that_fetches_them(tmp_path):
    command = [sys.executable, "-m", "spen_paper", "table1", "--dataset", "bookmarks"]
    command += ["--device", "cpu", "--seeds", "1", "--method", "mlp", "--out", str(tmp_path / "o")]
    environment = os.environ | {"HOME": str(tmp_path), "SPEN_DATA": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "spen data fetch bookmarks" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
